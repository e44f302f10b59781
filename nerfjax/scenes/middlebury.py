"""Reader of the Middlebury multi-view stereo sets: ``NAME_par.txt`` beside the images.

The file holds the number of images and for each a line ``image K (9) R (9) t (3)``, row by row, with the projection
K [R t] of world points to pixels whose origin is the top-left corner, x right and y down: x_camera = R x_world + t in
OpenCV axes. The corner is read as the centre of the top-left pixel, so that 0.5 is added to the principal point; the
sets do not say, and their two readings differ by half a pixel. The tight bounding box of the object that the README
states becomes ``Capture.region``.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.capture import corners_of
from nerfjax.scenes.numbers_in_text import numbers, read_text, starts_with
from nerfjax.scenes.registered_photos import Photo, Registration, lens_of, photo_reader, world_from_camera

SUFFIX = "_par.txt"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_TRIPLE = rf"\(?\s*({_NUMBER})[\s,]+({_NUMBER})[\s,]+({_NUMBER})\s*\)?"
_BOX = re.compile(rf"bounding\s+box.*?{_TRIPLE}\s*{_TRIPLE}", re.IGNORECASE | re.DOTALL)
SKEW_TOLERANCE = 1e-3  # of the focal length


def registration(path: Path, root: Path) -> Registration:
    """Parses NAME_par.txt; images are looked for below ``root``."""
    lines = [line.strip() for line in read_text(path).splitlines() if line.strip()]
    count = numbers(lines[0] if lines else "", 1, path=path, field="number of images")[0]
    if len(lines) - 1 != count:
        raise UserError(
            "The file does not hold as many cameras as it says.",
            file=path,
            field="number of images",
            found=f"{len(lines) - 1} lines",
            expected=f"{count:g}",
        )
    photos = [_photo(line, number, path) for number, line in enumerate(lines[1:], 2)]
    return Registration("middlebury", path, root, photos, region=corners_of(_box(path)))


def _photo(line: str, number: int, path: Path) -> Photo:
    words = line.split()
    name, values = " ".join(words[:-21]), " ".join(words[-21:])
    if not name:
        raise UserError(
            "A camera is incomplete.", file=path, field=f"line {number}", found=line[:80], expected="a name, 21 numbers"
        )
    values = numbers(values, 21, path=path, field=f"line {number}")
    intrinsics = values[:9].reshape(3, 3)
    if not (intrinsics[2, 2] > 0 and np.allclose(intrinsics[[1, 2, 2], [0, 0, 1]], 0)):
        raise UserError(
            f"The K of {name} is no camera matrix.", file=path, field=f"line {number}", found=intrinsics.tolist()
        )
    intrinsics = intrinsics / intrinsics[2, 2]
    if abs(intrinsics[0, 1]) > SKEW_TOLERANCE * intrinsics[0, 0]:
        raise UserError(
            f"The pixels of {name} are skewed, which is not supported.",
            file=path,
            field=f"line {number}, k12",
            found=intrinsics[0, 1],
            expected="0",
            fix="rectify the images first",
        )
    focal, center = intrinsics[[0, 1], [0, 1]], intrinsics[:2, 2] + 0.5
    pose = world_from_camera(values[9:18].reshape(3, 3), values[18:])
    return Photo(name, pose, lambda size: lens_of("pinhole", focal, center))


def _box(path: Path) -> np.ndarray | None:
    """Returns the bounding box [2, 3] that a README beside the file states, or None."""
    for file in sorted(path.parent.iterdir()):
        if "readme" in file.name.lower() and not file.name.startswith(".") and file.is_file():
            found = _BOX.search(starts_with(file, 65536))
            if found:
                corners = np.array(found.groups(), np.float64).reshape(2, 3)
                return np.stack([corners.min(axis=0), corners.max(axis=0)])
    return None


def _is_parameters(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIX)


READER = photo_reader(
    registration,
    accept=_is_parameters,
    says="holds Middlebury camera parameters",
    expected="NAME_par.txt",
    axes="opencv",
)
