"""What a transforms.json says besides cameras: masks, depths, points, boxes, and what has no effect here.

Masks: ``mask_path`` (black = ignored), or ``dynamic_mask_NAME.png`` beside the image (bright = ignored; instant-ngp).
Depths are along the optical axis, 0 = unknown: ``depth_file_path`` (nerfstudio) holds 16- or 32-bit millimetres of the
coordinates before ``applied_scale``; ``depth_path`` (instant-ngp) holds multiples of ``integer_depth_scale`` in the
file's own units. ``applied_transform`` and then ``applied_scale`` lead from the original coordinates to the file's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nerfjax.errors import UserError
from nerfjax.geometry.poses import similarity_matrix, split_similarity
from nerfjax.scenes.base import shorten
from nerfjax.scenes.depths import DepthReference
from nerfjax.scenes.image_files import ImageFiles, normal_path
from nerfjax.scenes.images import ImageReference
from nerfjax.scenes.json_frames import ROLLING_SHUTTER, Lookup, is_path
from nerfjax.scenes.masks import open_mask
from nerfjax.scenes.ply import read_ply_points

MILLIMETRE = 1e-3
DYNAMIC_MASK = "dynamic_mask_"
# Renderings of other quantities beside an image: r_0_depth_0001.png, r_0_normal_0001.png.
_SIDE_IMAGE = re.compile(r"[._-](depth|normal|albedo|alpha|disp|mask)s?([._-]?\d+)?$", re.IGNORECASE)
# Settings of instant-ngp that are recorded, and have no effect here.
_RECORDED = (
    "aabb_scale", "scale", "offset", "aabb", "render_aabb", "up", "n_frames", "sharpness_discard_threshold",
    "n_extra_learnable_dims", "enable_depth_loading", "white_transparent", "black_transparent", "rolling_shutter",
    "orientation_override",
)  # fmt: skip
# Intrinsics of which the first makes no sense without the second.
_PAIRS = (
    ("cx", "cy"), ("cy", "cx"), ("k2", "k1"), ("k3", "k2"), ("k4", "k3"), ("p1", "p2"), ("p2", "p1"), ("fl_y", "fl_x"),
)  # fmt: skip


class SideFiles:
    """Masks and depths of the frames of one file."""

    def __init__(self, content: dict, files: ImageFiles, path: Path, *, masks: bool = True):
        self.content, self.files, self.path, self.masks = content, files, path, masks
        self.used: set[Path] = set()
        self.missing_depths: list[str] = []
        self.both_masks = 0
        self.scale = self._number("applied_scale") or 1.0

    def mask(self, entry: dict, image: Path, size: tuple[int, int]) -> ImageReference | None:
        """Returns the mask of a frame, white = valid, or None."""
        if not self.masks:
            return None
        beside = image.with_name(f"{DYNAMIC_MASK}{image.stem}.png")
        beside = beside if beside.is_file() else None
        named = self._named(entry, "mask_path")
        if named is None and beside is None:
            return None
        self.used |= {file for file in (named, beside) if file is not None}
        if named is not None:
            self.both_masks += beside is not None
            return open_mask(named, size)
        return open_mask(beside, size, ignored="bright")

    def depth(self, entry: dict) -> DepthReference | None:
        """Returns the depth image of a frame, or None; missing files are counted."""
        if self.content.get("enable_depth_loading") is False:
            return None
        key, unit = "depth_file_path", (self._number("depth_unit_scale_factor") or MILLIMETRE) * self.scale
        if entry.get(key) is None:
            key, unit = "depth_path", self._number("integer_depth_scale")
            if entry.get(key) is None or not unit:
                return None
        file = self._named(entry, key, required=False)
        if file is None:
            self.missing_depths.append(str(entry[key]))
            return None
        self.used.add(file)
        return DepthReference(file, unit)

    def notes(self) -> list[str]:
        """Returns what a user should know of masks and depths."""
        notes = []
        if self.both_masks:
            notes.append(f"{self.both_masks} frames have a mask_path and a {DYNAMIC_MASK}*.png: took the mask_path.")
        if self.missing_depths:
            notes.append(f"{len(self.missing_depths)} depth images are missing: {shorten(self.missing_depths)}.")
        return notes

    def _named(self, entry: dict, key: str, *, required: bool = True) -> Path | None:
        value = entry.get(key)
        if not value:
            return None
        if not is_path(value):
            raise UserError("A path is none.", file=self.path, field=key, found=value)
        file = self.files.exact(value)
        if file is None and required:
            raise UserError(
                f"A file is missing that {entry['file_path']} names.", file=self.path, field=key, found=value
            )
        return file

    def _number(self, key: str) -> float | None:
        return Lookup({}, self.content, file=self.path, name="(all)").number(key, positive=True)


def applied_similarity(content: dict, path: Path) -> tuple[np.ndarray | None, list[str]]:
    """Returns ([4, 4] similarity from the original to the file's coordinates or None, notes)."""
    scale = Lookup({}, content, file=path, name="(all)").number("applied_scale", positive=True)
    listed = content.get("applied_transform")
    if listed is None and scale is None:
        return None, []
    matrix = np.eye(4)
    if listed is not None:
        matrix[:3] = _array(listed, ((3, 4), (4, 4)), path, "applied_transform")[:3]
    matrix = similarity_matrix(scale=1.0 if scale is None else scale) @ matrix
    try:
        split_similarity(matrix)
    except UserError:
        return None, ["applied_transform is not a rotation with a shift: exports stay in the file's coordinates."]
    return matrix, []


def recorded(content: dict, entries: Sequence[dict], path: Path) -> dict[str, Any]:
    """Returns the settings that are kept in the provenance.

    Raises:
      UserError: one of them is not finite.
    """
    kept = {key: content[key] for key in _RECORDED if content.get(key) is not None}
    for key, value in kept.items():
        if not _finite(value):
            raise UserError("A setting is not finite.", file=path, field=key, found=value)
    sharpness = [entry["sharpness"] for entry in entries if isinstance(entry.get("sharpness"), int | float)]
    sharpness = [float(value) for value in sharpness if math.isfinite(value)]
    if sharpness:
        low, middle, high = (float(value) for value in np.quantile(sharpness, [0, 0.5, 1]))
        kept["sharpness"] = {"lowest": low, "median": middle, "highest": high}
    return kept


def setting_notes(content: dict, entries: Sequence[dict]) -> list[str]:
    """Returns notes on what the file says and the reader doesn't follow."""
    notes = []
    if any(entry.get("time") is not None for entry in entries):
        notes.append("The frames have times: the scene may move. It is taken to stand still; times are ignored.")
    rolling = [entry["file_path"] for entry in entries if any(entry.get(key) is not None for key in ROLLING_SHUTTER)]
    if rolling:
        notes.append(
            f"{len(rolling)} frames have a rolling shutter (transform_matrix_start, _end; {shorten(rolling, 2)}): "
            "the camera is taken to stand still during a frame."
        )
    for lone, other in _PAIRS:
        frames = [e["file_path"] for e in entries if _has(e, content, lone) and not _has(e, content, other)]
        if frames:
            notes.append(f"{len(frames)} frames state {lone} and no {other} ({shorten(frames, 2)}): is it lost?")
    if content.get("black_transparent"):
        notes.append("black_transparent has no effect: black pixels stay black.")
    if any(entry.get("depth_path") is not None for entry in entries) and not content.get("integer_depth_scale"):
        notes.append("depth_path without integer_depth_scale: the depths have no unit and are ignored.")
    return notes


def _has(entry: dict, content: dict, key: str) -> bool:
    return entry.get(key) is not None or content.get(key) is not None


def box_of(content: dict, path: Path) -> np.ndarray | None:
    """Returns the region of interest ``aabb`` [2, 3] in the file's coordinates, or None."""
    if content.get("aabb") is None:
        return None
    box = _array(content["aabb"], ((2, 3),), path, "aabb")
    if not (box[0] < box[1]).all():
        raise UserError("The box is empty.", file=path, field="aabb", found=box.tolist(), expected="lower < upper")
    return box


def points_of(content: dict, path: Path) -> tuple[np.ndarray | None, list[str]]:
    """Returns (the points of ``ply_file_path`` [P, 3] or None, notes)."""
    value = content.get("ply_file_path")
    if value is None:
        return None, []
    if not is_path(value):
        raise UserError("A path is none.", file=path, field="ply_file_path", found=value)
    file = path.parent / normal_path(value)
    if not file.is_file():
        return None, [f"The point cloud {value} is missing."]
    points = read_ply_points(file)
    return (points, []) if len(points) else (None, [f"The point cloud {value} is empty."])


def leftover_notes(files: ImageFiles, used: Collection[Path], sides: Collection[Path]) -> list[str]:
    """Returns notes on images in the frames' folders that belong to no frame."""
    folders = {path.parent for path in used}
    rest = [
        path
        for paths in files.listing.values()
        for path in paths
        if path.parent in folders and path not in used and path not in sides and not path.name.startswith(DYNAMIC_MASK)
    ]
    side = [path for path in rest if _SIDE_IMAGE.search(path.stem)]
    extra = [path.relative_to(files.folder).as_posix() for path in rest if path not in set(side)]
    notes = []
    if side:
        notes.append(f"{len(side)} depth, normal or similar images beside the frames are not used ({side[0].name}).")
    if extra:
        notes.append(f"{len(extra)} images belong to no frame and are left out: {shorten(sorted(extra))}.")
    return notes


def _array(value: Any, shapes: Iterable[tuple[int, int]], path: Path, field: str) -> np.ndarray:
    try:
        array = np.array(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.array(np.nan)
    if array.shape not in shapes or not np.isfinite(array).all():
        expected = " or ".join(f"{rows}x{columns} finite numbers" for rows, columns in shapes)
        raise UserError(f"{field} is not what it should be.", file=path, field=field, found=value, expected=expected)
    return array


def _finite(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_finite(item) for item in value)
    return not isinstance(value, float) or math.isfinite(value)
