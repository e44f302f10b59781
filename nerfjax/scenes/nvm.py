"""Reader of VisualSFM's NVM_V3.

The first line may fix the calibration of all cameras (``NVM_V3 FixedK fx cx fy cy r``, the point (cx, cy) from the
top-left corner) or change the form of the poses (``NVM_V3_R9T``: R row by row and t of x_camera = R x_world + t). Then
follow models, one after the other, ended by an empty one (or by the end of the file): the number of cameras, for each
``name f qw qx qy qz cx cy cz r 0`` (unit quaternion of R world-to-camera, camera centre, OpenCV axes), the number of
points, for each ``x y z red green blue n`` and n times ``camera feature x y``. A '"' in a name stands for a space. The
principal point is the middle of the image. The largest model is read; photos of the others are counted and left out,
as models stand in different frames.

VisualSFM's radial term undoes distortion: with d = (pixel - middle) / f, the undistorted point is d (1 + r |d|^2).
Here the polynomial of the opposite direction, m (1 + k1 |m|^2 + … + k4 |m|^8), is fitted to its inverse over the image.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nerfjax.errors import UserError
from nerfjax.geometry.poses import rotation_from_quaternion
from nerfjax.scenes.numbers_in_text import Tokens, numbers, read_text, starts_with
from nerfjax.scenes.registered_photos import Lens, Photo, Registration, lens_of, photo_reader, world_from_camera

_HEADER = re.compile(r"\s*NVM_V3(_R9T)?(?=\s|$)[^\S\n]*(.*)")


class Model(NamedTuple):
    """Cameras as (name, focal, pose [3, 4], r), and points [P, 3]."""

    cameras: list[tuple[str, float, np.ndarray, float]]
    points: np.ndarray


def registration(path: Path, root: Path) -> Registration:
    """Parses an NVM file; photos are looked for below ``root``."""
    text = read_text(path)
    header = _HEADER.match(text)
    if header is None:
        raise UserError("This is no NVM file.", file=path, found=text[:40], expected="NVM_V3")
    fixed = _fixed_calibration(header[2], path)
    models = _models(text[header.end() :], header[1] is not None, path)
    model = max(models, key=lambda model: len(model.cameras), default=Model([], np.zeros((0, 3))))
    others = [name for other in models if other is not model for name, *_ in other.cameras]
    notes = []
    if others:
        notes.append(f"The file holds {len(models)} models: the one with {len(model.cameras)} photos was taken.")
    unregistered = [name for name, focal, _, _ in model.cameras if focal == 0]
    photos = [
        Photo(name, pose, _lens(focal, radial, fixed, f"{path.name}, {name}"))
        for name, focal, pose, radial in model.cameras
        if focal != 0
    ]
    return Registration(
        "nvm",
        path,
        root,
        photos,
        unregistered + others,
        points=model.points if len(model.points) else None,
        notes=notes,
        provenance={"models": [len(model.cameras) for model in models], "fixed_calibration": fixed is not None},
    )


def _fixed_calibration(text: str, path: Path) -> np.ndarray | None:
    """Returns (fx, cx, fy, cy, r), or None."""
    words = text.split()
    if not words or words[0] != "FixedK":
        return None
    values = numbers(" ".join(words[1:]), None, path=path, field="FixedK")
    if len(values) not in (4, 5):
        raise UserError("FixedK is incomplete.", file=path, field="FixedK", found=text, expected="fx cx fy cy r")
    return np.append(values, 0.0)[:5]


def _models(text: str, matrices: bool, path: Path) -> list[Model]:
    lines = (line for line in text.splitlines() if line.strip())
    models = []
    for line in lines:
        count = _count(line, "number of cameras", path)
        if count == 0:
            break
        cameras = [_camera(_next(lines, "camera", path), matrices, path) for _ in range(count)]
        line = next(lines, "0")
        points = []
        for index in range(_count(line, "number of points", path)):
            words = _next(lines, f"point {index}", path).split()
            points.append(Tokens(words, path).floats(3, f"point {index}"))
        models.append(Model(cameras, np.array(points).reshape(-1, 3)))
    return models


def _next(lines, field: str, path: Path) -> str:
    line = next(lines, None)
    if line is None:
        raise UserError("The file ends early.", file=path, field=field)
    return line


def _count(line: str, field: str, path: Path) -> int:
    words = Tokens(line.split(), path)
    count = words.count(field)
    if len(words):
        raise UserError("A line of the file is none of the format's.", file=path, field=field, found=line[:80])
    return count


def _camera(line: str, matrices: bool, path: Path) -> tuple[str, float, np.ndarray, float]:
    words = line.split()
    length = 15 if matrices else 10
    name = " ".join(words[:-length]).replace('"', " ")
    if not name:
        raise UserError("A camera is incomplete.", file=path, field="camera", found=line[:80])
    values = numbers(" ".join(words[-length:]), length, path=path, field=f"camera {name}")
    if matrices:
        return name, float(values[0]), world_from_camera(values[1:10].reshape(3, 3), values[10:13]), float(values[13])
    if not values[1:5].any():
        raise UserError("A quaternion is zero.", file=path, field=f"camera {name}", found=values[1:5].tolist())
    rotation = rotation_from_quaternion(values[1:5])
    return name, float(values[0]), np.concatenate([rotation.T, values[5:8, None]], axis=1), float(values[8])


def _lens(focal: float, radial: float, fixed: np.ndarray | None, label: str):
    def lens(size: tuple[int, int]) -> Lens:
        width, height = size
        if fixed is None:
            fx, cx, fy, cy, r = focal, 0.5 * width, focal, 0.5 * height, radial
        else:
            fx, cx, fy, cy, r = fixed
        corner = np.hypot(max(cx, width - cx) / fx, max(cy, height - cy) / fy) if fx > 0 and fy > 0 else 0.0
        terms = inverse_radial(r, corner, label)
        return lens_of("opencv", (fx, fy), (cx, cy), **dict(zip(("k1", "k2", "k3", "k4"), terms, strict=True)))

    return lens


def inverse_radial(r: float, reach: float, label: str = "") -> np.ndarray:
    """Returns (k1, k2, k3, k4) with m (1 + k1 |m|^2 + … + k4 |m|^8) = d where m = d (1 + r |d|^2).

    Args:
      r: the term that undoes distortion.
      reach: largest |d| in the image.
      label: names the camera in messages.

    Raises:
      UserError: the image folds over before its corner, or reaches to nearly 90 degrees from the axis.
    """
    if r == 0 or reach == 0:
        return np.zeros(4)
    if not reach < 1e3:
        raise UserError("A focal length is too short for its image.", field=f"focal length of {label}")
    distorted = np.linspace(0.0, reach, 257)[1:]
    if 3 * r * reach**2 < -0.95:  # at -1 the slope of d (1 + r |d|^2) is zero
        raise UserError(
            "The radial distortion folds the image over.",
            field=f"radial distortion of {label}",
            found=r,
            expected=f"above {-0.95 / (3 * reach**2):.4g}",
        )
    plane = distorted * (1 + r * distorted**2)
    # Least squares of the residual in pixels: columns scaled so that they are of one size.
    scale = plane[-1]
    powers = (plane[:, None] / scale) ** np.array([3, 5, 7, 9])
    coefficients = np.linalg.lstsq(powers, (distorted - plane) / scale, rcond=None)[0]
    return coefficients / scale ** np.array([2, 4, 6, 8])


def _is_nvm(path: Path) -> bool:
    return path.suffix.lower() == ".nvm" and _HEADER.match(starts_with(path, 256)) is not None


READER = photo_reader(
    registration,
    accept=_is_nvm,
    says="is a VisualSFM NVM file",
    expected="a file that begins with NVM_V3",
    axes="opencv",
)
