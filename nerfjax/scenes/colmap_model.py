"""A COLMAP reconstruction in memory, and the meaning of the parameters of COLMAP's lens models."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nerfjax.errors import UserError
from nerfjax.geometry.cameras import project_camera
from nerfjax.geometry.poses import rotation_from_quaternion
from nerfjax.types import CAMERA_MODELS, DISTORTION, Cameras


class LensModel(NamedTuple):
    """A lens model: COLMAP's number, our model, and what its parameters are (``f`` = fx and fy)."""

    number: int
    model: str
    parameters: tuple[str, ...]


def _lens_model(number: int, model: str, parameters: str) -> LensModel:
    return LensModel(number, model, tuple(parameters.split()))


# Parameters in COLMAP's order by OUR names: e.g. sx1 and sy1 of the thin prism are s1 and s3, p0 of Fisheye624 is p2.
LENS_MODELS = {
    "SIMPLE_PINHOLE": _lens_model(0, "pinhole", "f cx cy"),
    "PINHOLE": _lens_model(1, "pinhole", "fx fy cx cy"),
    "SIMPLE_RADIAL": _lens_model(2, "opencv", "f cx cy k1"),
    "RADIAL": _lens_model(3, "opencv", "f cx cy k1 k2"),
    "OPENCV": _lens_model(4, "opencv", "fx fy cx cy k1 k2 p1 p2"),
    "OPENCV_FISHEYE": _lens_model(5, "opencv_fisheye", "fx fy cx cy k1 k2 k3 k4"),
    "FULL_OPENCV": _lens_model(6, "full_opencv", "fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6"),
    "FOV": _lens_model(7, "fov", "fx fy cx cy k1"),
    "SIMPLE_RADIAL_FISHEYE": _lens_model(8, "opencv_fisheye", "f cx cy k1"),
    "RADIAL_FISHEYE": _lens_model(9, "opencv_fisheye", "f cx cy k1 k2"),
    "THIN_PRISM_FISHEYE": _lens_model(10, "thin_prism_fisheye", "fx fy cx cy k1 k2 p1 p2 k3 k4 s1 s3"),
    "RAD_TAN_THIN_PRISM_FISHEYE": _lens_model(
        11, "rad_tan_thin_prism_fisheye", "fx fy cx cy k1 k2 k3 k4 k5 k6 p2 p1 s1 s2 s3 s4"
    ),
    "SIMPLE_DIVISION": _lens_model(12, "division", "f cx cy k1"),
    "DIVISION": _lens_model(13, "division", "fx fy cx cy k1"),
    "SIMPLE_FISHEYE": _lens_model(14, "opencv_fisheye", "f cx cy"),
    "FISHEYE": _lens_model(15, "opencv_fisheye", "fx fy cx cy"),
    "EUCM": _lens_model(16, "eucm", "fx fy cx cy k1 k2"),
    "EQUIRECTANGULAR": _lens_model(17, "equirectangular", "width height"),
}
_FARTHEST = 1e12  # no point is beyond it
_PERSPECTIVE = ("pinhole", "opencv", "full_opencv")
_LEAST_SEEN = 20  # observations of an image
_ODD_SHARE, _ODD_TIMES = 0.003, 8.0  # an image is odd beyond both: of its side, and of the median over all
BY_NUMBER = {lens.number: name for name, lens in LENS_MODELS.items()}


class Calibration(NamedTuple):
    """Intrinsics in our terms: ``focal`` [2], ``center`` [2] pixels, ``distortion`` [12], ``model``."""

    focal: np.ndarray
    center: np.ndarray
    distortion: np.ndarray
    model: str


@dataclass(frozen=True)
class ColmapCamera:
    """A camera: ``model`` (COLMAP's name), ``size`` (width, height), ``parameters``."""

    model: str
    size: tuple[int, int]
    parameters: np.ndarray

    def calibration(self) -> Calibration:
        """Returns the intrinsics for the camera's own size."""
        lens = LENS_MODELS[self.model]
        values = dict(zip(lens.parameters, np.asarray(self.parameters, np.float64).tolist(), strict=True))
        width, height = self.size
        focal = [values.get("fx", values.get("f", 1.0)), values.get("fy", values.get("f", 1.0))]
        center = [values.get("cx", width / 2), values.get("cy", height / 2)]
        distortion = [values.get(name, 0.0) for name in DISTORTION]
        return Calibration(np.array(focal), np.array(center), np.array(distortion), lens.model)


@dataclass(frozen=True)
class ColmapImage:
    """A registered image.

    Attributes:
      name: relative path, as COLMAP holds it.
      camera: id of its camera.
      quaternion: [4] (w, x, y, z) world-to-camera.
      translation: [3] world-to-camera.
      pixels: [K, 2] observed 2-D points.
      points: [K] ids of their 3-D points, -1 for none.
    """

    name: str
    camera: int
    quaternion: np.ndarray
    translation: np.ndarray
    pixels: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))
    points: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True)
class ColmapModel:
    """A reconstruction: ``cameras`` and ``images`` by id, points' ``point_ids`` [P] and ``positions`` [P, 3]."""

    cameras: dict[int, ColmapCamera]
    images: dict[int, ColmapImage]
    point_ids: np.ndarray
    positions: np.ndarray


def checked_camera(model: str, width: int, height: int, parameters, *, file: Path, label: str) -> ColmapCamera:
    """Returns a camera whose parameters are as many as its model has, and finite."""
    expected = len(LENS_MODELS[model].parameters)
    if len(parameters) != expected or not np.isfinite(parameters).all():
        names = " ".join(LENS_MODELS[model].parameters)
        raise UserError(
            f"{label} has bad parameters.", file=file, field=model, found=list(map(float, parameters)), expected=names
        )
    if not (0 < width < 2**20 and 0 < height < 2**20):
        raise UserError(f"{label} has an impossible size.", file=file, found=f"{width}x{height}")
    return ColmapCamera(model, (int(width), int(height)), np.array(parameters, np.float64))


def is_rotation(quaternion: np.ndarray) -> bool:
    """Says whether four numbers can be made a unit quaternion."""
    largest = np.abs(quaternion).max()
    return bool(1e-6 < largest < 1e6)


class Reprojection(NamedTuple):
    """Distances, pixels, between the images of points and where they were observed.

    Attributes:
      median: over all images; None where the model has no observations.
      by_image: median of each image by its name; infinite where most of its points are behind it.
      side: typical longer side of the images.
    """

    median: float | None
    by_image: dict[str, float]
    side: float

    def outliers(self) -> dict[str, float]:
        """Returns the images that miss their own observations by far more than the rest, the worst first."""
        limit = max(_ODD_SHARE * self.side, 0.5, _ODD_TIMES * (self.median or 0.0))
        odd = {name: error for name, error in self.by_image.items() if error > limit}
        return dict(sorted(odd.items(), key=lambda item: -item[1])) if len(odd) < 0.5 * len(self.by_image) else {}


def reprojection(model: ColmapModel, *, limit: int = 2000) -> Reprojection:
    """Measures how well a model's cameras and points explain its own observations.

    Args:
      model: the reconstruction.
      limit: number of observations that are looked at, but some of every image.
    """
    sane = (np.abs(model.positions) < _FARTHEST).all(axis=-1)
    row_of = {point: row for row, point in enumerate(model.point_ids.tolist()) if sane[row]}
    images = [image for image in model.images.values() if image.camera in model.cameras]
    by_image, errors = {}, []
    for image in images:
        seen = [(k, row_of[p]) for k, p in enumerate(image.points.tolist()) if p in row_of]
        seen = seen[:: 1 + len(seen) // max(_LEAST_SEEN, limit // len(images))]
        if not seen or not is_rotation(image.quaternion):
            continue
        observed, rows = np.array(seen).T
        distance = _distances(image, model.cameras[image.camera], model.positions[rows], observed)
        by_image[image.name] = float(np.median(distance))
        errors.append(np.minimum(distance, _FARTHEST))
    errors = np.concatenate(errors) if errors else np.zeros(0)
    side = float(np.median([max(camera.size) for camera in model.cameras.values()])) if model.cameras else 0.0
    return Reprojection(float(np.median(errors)) if len(errors) else None, by_image, side)


def _distances(image: ColmapImage, camera: ColmapCamera, points: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Returns how far, in pixels, points [N, 3] are from where an image observed them; infinite behind the camera."""
    points = points @ rotation_from_quaternion(image.quaternion).T + image.translation
    count, lens = len(points), camera.calibration()
    cameras = Cameras(
        pose=np.tile(np.eye(3, 4), (count, 1, 1)),
        focal=np.tile(lens.focal, (count, 1)),
        center=np.tile(lens.center, (count, 1)),
        distortion=np.tile(lens.distortion, (count, 1)),
        size=np.tile(np.array(camera.size, np.int32), (count, 1)),
        model=np.full(count, CAMERA_MODELS.index(lens.model), np.int32),
        models=(lens.model,),
    )
    with np.errstate(all="ignore"):  # what overflows is infinitely far off
        pixels = project_camera(cameras, points * (1.0, -1.0, -1.0), xp=np).pixels
        distance = np.linalg.norm(pixels - image.pixels[observed], axis=-1)
    behind = (points[:, 2] <= 0) & (lens.model in _PERSPECTIVE)
    return np.where(np.isfinite(distance) & ~behind, distance, np.inf)
