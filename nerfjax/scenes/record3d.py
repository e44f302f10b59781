"""Reader of Record3D exports: ``metadata`` (JSON) with ``rgb/N.jpg`` (or ``rgbd/N.jpg``) and ``depth/N.exr``.

``K`` is column-major [fx, 0, 0, 0, fy, 0, cx, cy, 1] for images of ``w`` x ``h``; ``perFrameIntrinsicCoeffs`` [fx, fy,
cx, cy], where it is there, goes before it. ``poses`` are [qx, qy, qz, qw, tx, ty, tz], camera-to-world, OpenGL axes,
metres, world +y up. Image N belongs to pose N: numbers are missing where frames were dropped. Depth is z in metres, of
a smaller size.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nerfjax.errors import UserError
from nerfjax.geometry.poses import rotation_from_quaternion
from nerfjax.scenes.assemble import assemble, capture_name
from nerfjax.scenes.base import Scene, SceneReader, holdout_splits, shorten
from nerfjax.scenes.capture import Capture
from nerfjax.scenes.depths import DepthReference
from nerfjax.scenes.folders import (
    Intrinsics,
    camera_matrix,
    check_intrinsics,
    files_in,
    images_in,
    number_in,
    paired,
    raw_frame,
    size_notes,
)
from nerfjax.scenes.json_frames import load_json
from nerfjax.scenes.numbers_in_text import numbers, starts_with

METADATA = ("metadata", "metadata.json")
IMAGE_FOLDERS = ("rgb", "rgbd", "images", ".")
QUATERNION_TOLERANCE = 0.05


def sniff(source: str) -> str | None:
    """Recognises the metadata file, its folder, or the folder above it."""
    path = _metadata(source)
    return None if path is None else f"{path.name} holds poses and K"


def read(source: str, *, downscale: float | int = 1, holdout: int = 8, axes: str = "opengl") -> Scene:
    """Reads a Record3D export.

    Args:
      source: the metadata file, its folder, or the folder above it.
      downscale: factor by which images become smaller.
      holdout: every holdout-th frame (by number) is for testing; 0 = none.
      axes: of the cameras, "opengl" (what the format means) or "opencv".
    """
    path = _metadata(source)
    if path is None:
        raise UserError("This is no Record3D export.", file=source, expected="metadata (JSON) with poses and K")
    content, folder = load_json(path), path.parent
    poses = _poses(content, path)
    images = _numbered(next((found for name in IMAGE_FOLDERS if (found := images_in(folder / name))), []), path)
    depths = _numbered(files_in(folder / "depth", (".exr", ".png", ".tif", ".tiff", ".npy")), path)
    keys, notes = paired(dict(enumerate(poses)), images, file=path)
    names = [images[key].relative_to(folder).as_posix() for key in keys]
    lenses = _lenses(content, path, len(poses))
    frames = [
        raw_frame(
            name, images[key], lenses[key], poses[key],
            split=split, file=path, axes=axes, depth=_depth(depths.get(key)),
        )
        for key, name, split in zip(keys, names, holdout_splits(names, holdout), strict=True)
    ]  # fmt: skip
    without = [frame.name for frame in frames if frame.depth is None]
    if 0 < len(without) < len(frames):
        notes.append(f"{len(without)} of {len(frames)} frames have no depth: {shorten(without)}.")
    notes += size_notes(frames, [lenses[key].size for key in keys])
    provenance = {
        "file": path.name,
        "poses": len(poses),
        "frames_found": len(frames),
        "axes": axes,
        "depths": len(frames) - len(without),
    }
    capture = Capture(
        capture_name(folder), "record3d", source, tuple(frames), tuple(notes), provenance, is_object=False
    )
    return assemble(capture, downscale=downscale)


READER = SceneReader(sniff, read)


def _metadata(source: str) -> Path | None:
    path = Path(source)
    candidates = [path] if path.is_file() else [f / name for f in (path, path / "EXR_RGBD") for name in METADATA]
    for candidate in candidates:
        if candidate.is_file() and candidate.stem.startswith("metadata"):
            text = starts_with(candidate, 1 << 22)
            if '"poses"' in text and '"K"' in text:
                return candidate
    return None


def _poses(content: dict, path: Path) -> np.ndarray:
    """Returns [N, 3, 4] camera-to-world, as the file states them."""
    listed = content.get("poses")
    if not isinstance(listed, list) or not listed:
        raise UserError("The file lists no poses.", file=path, field="poses", found=type(listed).__name__)
    rows = np.stack([numbers(row, 7, path=path, field=f"poses[{i}]") for i, row in enumerate(listed)])
    sizes = np.linalg.norm(rows[:, :4], axis=-1)
    bad = np.flatnonzero(~(np.abs(sizes - 1) < QUATERNION_TOLERANCE))
    if len(bad):
        raise UserError(
            "A quaternion has not the length 1.",
            file=path,
            field=f"poses[{bad[0]}]",
            found=rows[bad[0]].tolist(),
            expected="[qx, qy, qz, qw, tx, ty, tz]",
        )
    rotation = rotation_from_quaternion(rows[:, [3, 0, 1, 2]])
    return np.concatenate([rotation, rows[:, 4:, None]], axis=-1)


def _lenses(content: dict, path: Path, count: int) -> list[Intrinsics]:
    width, height = (_side(content, key, path) for key in ("w", "h"))
    each = content.get("perFrameIntrinsicCoeffs")
    if isinstance(each, list) and len(each) == count:
        rows = [numbers(row, 4, path=path, field=f"perFrameIntrinsicCoeffs[{i}]") for i, row in enumerate(each)]
        matrices = [check_intrinsics(camera_matrix(*row), file=path, field="perFrameIntrinsicCoeffs") for row in rows]
    else:
        matrix = numbers(content.get("K"), 9, path=path, field="K").reshape(3, 3).T
        matrices = [check_intrinsics(matrix, file=path, field="K (column-major)")] * count
    return [Intrinsics(matrix, (width, height)) for matrix in matrices]


def _side(content: dict, key: str, path: Path) -> float:
    value = numbers(content.get(key), 1, path=path, field=key)[0]
    if not 1 <= value <= 1e6:
        raise UserError("The image size is impossible.", file=path, field=key, found=value)
    return float(value)


def _numbered(files: list[Path], path: Path) -> dict[int, Path]:
    found: dict[int, Path] = {}
    for file in files:
        number = number_in(file.stem)
        if number is not None and found.setdefault(number, file) != file:
            raise UserError("Two files have one number.", file=path, found=f"{found[number].name} and {file.name}")
    return found


def _depth(file: Path | None) -> DepthReference | None:
    if file is None:
        return None
    return DepthReference(file, 1e-3 if file.suffix.lower() == ".png" else 1.0)
