"""Reader of the Phototourism sets of the Image Matching Benchmark: ``calibration/calibration_NAME.h5``, ``images/``.

Each file holds ``K`` [3, 3], ``R`` [3, 3] and ``T`` [3]: world-to-camera, OpenCV axes. The principal point is the
image's centre (w/2, h/2), so the top-left pixel's centre is at (0.5, 0.5). Every image has its own size and focal
length. Reading needs h5py (the extra "formats").
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.assemble import assemble, capture_name
from nerfjax.scenes.base import Scene, SceneReader, holdout_splits
from nerfjax.scenes.capture import Capture
from nerfjax.scenes.folders import (
    Intrinsics,
    check_intrinsics,
    files_in,
    folder_of,
    images_in,
    paired,
    raw_frame,
    skew_notes,
)
from nerfjax.scenes.numbers_in_text import real_numbers

PREFIX = "calibration_"
SIZE_NOTE = "the principal point is not the image's centre: was the image resized?"


def sniff(source: str) -> str | None:
    """Recognises a folder with calibration/calibration_*.h5, or with dense/calibration."""
    return None if _root(source) is None else f"holds calibration/{PREFIX}*.h5"


def read(source: str, *, downscale: float | int = 1, holdout: int = 8, axes: str = "opencv") -> Scene:
    """Reads a Phototourism set.

    Args:
      source: the folder with calibration/ and images/, or the one with dense/.
      downscale: factor by which images become smaller.
      holdout: every holdout-th frame (by name) is for testing; 0 = none.
      axes: of the cameras, "opencv" (what the format means) or "opengl".
    """
    root = _root(source)
    if root is None:
        raise UserError("This is no Phototourism set.", file=source, expected=f"calibration/{PREFIX}NAME.h5")
    calibrations = {path.stem.removeprefix(PREFIX): path for path in _calibrations(root)}
    folder = folder_of(root, ("images", "image"))
    images = {path.stem: path for path in images_in(folder or root)}
    keys, notes = paired(calibrations, images, file=root / "calibration", pose_word="calibrations")
    names = [images[key].relative_to(root).as_posix() for key in keys]
    cameras = [_read_h5(calibrations[key]) for key in keys]
    frames = [
        raw_frame(
            name, images[key], Intrinsics(matrix), pose,
            split=split, file=calibrations[key], axes=axes, inverse=True,
        )
        for key, name, split, (matrix, pose) in zip(
            keys, names, holdout_splits(names, holdout), cameras, strict=True
        )
    ]  # fmt: skip
    moved = [f.name for f in frames if (np.abs(2 * f.center / np.array(f.image.size) - 1) > 0.2).any()]
    if moved:
        notes.append(f"{len(moved)} images ({moved[0]}): {SIZE_NOTE}")
    notes += skew_notes([matrix for matrix, _ in cameras])
    provenance = {"calibrations": len(calibrations), "frames_found": len(frames), "axes": axes}
    capture = Capture(
        capture_name(root), "phototourism", source, tuple(frames), tuple(notes), provenance, is_object=False
    )
    return assemble(capture, downscale=downscale)


READER = SceneReader(sniff, read)


def _calibrations(root: Path) -> list[Path]:
    return [path for path in files_in(root / "calibration", (".h5", ".hdf5")) if path.name.startswith(PREFIX)]


def _root(source: str) -> Path | None:
    path = Path(source)
    return next((root for root in (path, path / "dense", path / "set_100") if _calibrations(root)), None)


def _read_h5(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Returns (K [3, 3], world-to-camera [3, 4])."""
    try:
        import h5py
    except ImportError as error:
        raise UserError(
            "Reading .h5 calibrations needs a package that is not installed.",
            file=path,
            fix="pip install 'nerfjax[formats]'",
        ) from error
    try:
        with h5py.File(path, "r") as file:
            found = {key: real_numbers(file[key][()]) for key in ("K", "R", "T") if key in file}
            keys = sorted(file)
    except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise UserError("The calibration cannot be read.", file=path, found=error, expected="an HDF5 file") from error
    shapes = {key: array.shape for key, array in found.items()}
    if shapes.get("K") != (3, 3) or shapes.get("R") != (3, 3) or found.get("T", np.empty(0)).size != 3:
        raise UserError("The calibration is incomplete.", file=path, field="K, R, T", found=keys,
                        expected="K [3, 3], R [3, 3], T [3]")  # fmt: skip
    pose = np.concatenate([found["R"], found["T"].reshape(3, 1)], axis=1)
    return check_intrinsics(found["K"], file=path), pose
