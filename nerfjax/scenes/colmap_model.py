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


def reprojection_error(model: ColmapModel, *, limit: int = 2000) -> float | None:
    """Returns the median distance, pixels, between points' images and where they were observed; None without points.

    Args:
      model: the reconstruction.
      limit: number of observations that are looked at.
    """
    sane = (np.abs(model.positions) < _FARTHEST).all(axis=-1)
    row_of = {point: row for row, point in enumerate(model.point_ids.tolist()) if sane[row]}
    images = [image for image in model.images.values() if image.camera in model.cameras]
    errors = []
    for image in images:
        seen = [(k, row_of[p]) for k, p in enumerate(image.points.tolist()) if p in row_of]
        seen = seen[:: 1 + len(seen) * len(images) // limit]
        if not seen or not is_rotation(image.quaternion):
            continue
        observed, rows = np.array(seen).T
        points = model.positions[rows] @ rotation_from_quaternion(image.quaternion).T + image.translation
        camera = model.cameras[image.camera]
        lens = camera.calibration()
        cameras = Cameras(
            pose=np.tile(np.eye(3, 4), (len(rows), 1, 1)),
            focal=np.tile(lens.focal, (len(rows), 1)),
            center=np.tile(lens.center, (len(rows), 1)),
            distortion=np.tile(lens.distortion, (len(rows), 1)),
            size=np.tile(np.array(camera.size, np.int32), (len(rows), 1)),
            model=np.full(len(rows), CAMERA_MODELS.index(lens.model), np.int32),
            models=(lens.model,),
        )
        with np.errstate(all="ignore"):  # what overflows is left out below
            pixels = project_camera(cameras, points * (1.0, -1.0, -1.0), xp=np).pixels
            errors.append(np.linalg.norm(pixels - image.pixels[observed], axis=-1))
    errors = np.concatenate(errors) if errors else np.zeros(0)
    errors = errors[np.isfinite(errors)]
    return float(np.median(errors)) if len(errors) else None
