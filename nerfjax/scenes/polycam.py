"""Reader of Polycam's raw data: ``keyframes/`` with one JSON file per camera.

``corrected_images`` and ``corrected_cameras`` (undistorted photos, globally optimised poses) are taken where both are
there, else ``images`` and ``cameras``. ``t_00`` … ``t_23`` is camera-to-world, row by row, OpenGL axes, metres, world
+y up (ARKit's gravity-aligned frame); fx, fy, cx, cy belong to ``width`` x ``height``. ``depth/NAME.png`` holds z in
16-bit millimetres of a smaller size, ``confidence/NAME.png`` 0, 127 or 255 for each of its pixels: where it is 0, the
depth is a guess and counts as unknown. The undistortion leaves black borders, so the outermost pixels of corrected
images are masked.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.assemble import assemble, capture_name
from nerfjax.scenes.base import Scene, SceneReader, holdout_splits, shorten
from nerfjax.scenes.capture import Capture
from nerfjax.scenes.depths import DepthReference, decode_depth, resize_nearest
from nerfjax.scenes.folders import (
    Intrinsics,
    by_stem,
    camera_matrix,
    check_intrinsics,
    files_in,
    images_in,
    paired,
    raw_frame,
    size_notes,
)
from nerfjax.scenes.images import open_image
from nerfjax.scenes.json_frames import load_json
from nerfjax.scenes.masks import border_mask
from nerfjax.scenes.numbers_in_text import numbers

KEYFRAMES = "keyframes"
KINDS = ("corrected_", "")
MILLIMETRE = 1e-3


def sniff(source: str) -> str | None:
    """Recognises the folder with keyframes/, or keyframes/ itself."""
    folder = _keyframes(source)
    return None if folder is None else "holds keyframes/ with images and cameras"


def read(source: str, *, downscale: float | int = 1, holdout: int = 8, axes: str = "opengl", border: int = 15) -> Scene:
    """Reads Polycam's raw data.

    Args:
      source: the folder with keyframes/, or keyframes/ itself.
      downscale: factor by which images become smaller.
      holdout: every holdout-th frame is for testing; 0 = none.
      axes: of the cameras, "opengl" (what the format means) or "opencv".
      border: pixels at the edge of corrected images that are ignored.
    """
    folder = _keyframes(source)
    if folder is None:
        raise UserError("This is no raw data of Polycam.", file=source, expected="keyframes/images, keyframes/cameras")
    kind = next(kind for kind in KINDS if _complete(folder, kind))
    cameras = by_stem(files_in(folder / f"{kind}cameras", (".json",)))
    images = by_stem(images_in(folder / f"{kind}images"))
    depths = by_stem(files_in(folder / "depth", (".png", ".tif", ".tiff")))
    confidences = by_stem(files_in(folder / "confidence", (".png", ".tif", ".tiff")))
    keys, notes = paired(cameras, images, file=folder / f"{kind}cameras", pose_word="cameras")
    root = folder.parent
    names = [images[key].relative_to(root).as_posix() for key in keys]
    read_cameras = [_camera(cameras[key]) for key in keys]
    frames = []
    for key, name, split, (lens, pose) in zip(keys, names, holdout_splits(names, holdout), read_cameras, strict=True):
        mask = border_mask(open_image(images[key]).size, border) if kind and border > 0 else None
        depth = _depth(depths[key], confidences.get(key)) if key in depths else None
        frames.append(
            raw_frame(name, images[key], lens, pose, split=split, file=cameras[key], axes=axes, mask=mask, depth=depth)
        )
    without = [frame.name for frame in frames if frame.depth is None]
    if 0 < len(without) < len(frames):
        notes.append(f"{len(without)} of {len(frames)} frames have no depth: {shorten(without)}.")
    notes += size_notes(frames, [lens.size for lens, _ in read_cameras])
    if not kind:
        notes.append("There are no corrected cameras: poses are the phone's, photos are slightly distorted.")
    provenance = {"kind": f"{kind}cameras", "frames_found": len(frames), "axes": axes, "border": border if kind else 0}
    capture = Capture(capture_name(root), "polycam", source, tuple(frames), tuple(notes), provenance, is_object=False)
    return assemble(capture, downscale=downscale)


READER = SceneReader(sniff, read)


def _keyframes(source: str) -> Path | None:
    path = Path(source)
    for folder in (path / KEYFRAMES, path):
        if any(_complete(folder, kind) for kind in KINDS):
            return folder
    return None


def _complete(folder: Path, kind: str) -> bool:
    # Other formats have folders of these names: the cameras must be JSON files with this one's keys.
    cameras = files_in(folder / f"{kind}cameras", (".json",))
    return bool(cameras) and bool(images_in(folder / f"{kind}images")) and _has_keys(cameras[0])


def _has_keys(path: Path) -> bool:
    try:
        return b'"t_00"' in path.read_bytes()
    except OSError:
        return False


def _depth(path: Path, confidence: Path | None) -> DepthReference:
    if confidence is None:
        return DepthReference(path, MILLIMETRE)
    identity = f"confidence {hashlib.sha256(confidence.read_bytes()).hexdigest()}"
    return DepthReference(path, MILLIMETRE, loader=partial(_sure, path, confidence), identity=identity)


def _sure(path: Path, confidence: Path) -> np.ndarray:
    """Returns the depth where it was measured, 0 where it is a guess."""
    depth = decode_depth(path)
    height, width = depth.shape
    return np.where(resize_nearest(decode_depth(confidence), (width, height)) > 0, depth, 0)


def _camera(path: Path) -> tuple[Intrinsics, np.ndarray]:
    content = load_json(path)

    def value(key: str) -> float:
        return float(numbers(content.get(key), 1, path=path, field=key)[0])

    pose = np.array([[value(f"t_{row}{column}") for column in range(4)] for row in range(3)])
    matrix = check_intrinsics(camera_matrix(*(value(key) for key in ("fx", "fy", "cx", "cy"))), file=path, field="fx")
    width, height = value("width"), value("height")
    if not (1 <= width <= 1e6 and 1 <= height <= 1e6):
        raise UserError("The image size is impossible.", file=path, field="width, height", found=[width, height])
    return Intrinsics(matrix, (width, height)), pose
