"""Writes COLMAP models, .bin or .txt."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from nerfjax.errors import UserError
from nerfjax.geometry.poses import invert_similarity, quaternion_from_rotation
from nerfjax.scenes.colmap_files import OBSERVATION
from nerfjax.scenes.colmap_model import LENS_MODELS, ColmapCamera, ColmapImage, ColmapModel
from nerfjax.types import DISTORTION

# COLMAP's most general lens for each of our models.
_NAME_OF = {LENS_MODELS[name].model: name for name in (
    "PINHOLE", "OPENCV", "OPENCV_FISHEYE", "FULL_OPENCV", "FOV", "THIN_PRISM_FISHEYE", "RAD_TAN_THIN_PRISM_FISHEYE",
    "DIVISION", "EUCM", "EQUIRECTANGULAR",
)}  # fmt: skip


def camera_from(model: str, size: tuple[int, int], focal, center, distortion) -> ColmapCamera:
    """Returns COLMAP's camera for a lens in our terms.

    Args:
      model: a name of ``types.CAMERA_MODELS`` that COLMAP knows.
      size: (width, height), pixels.
      focal, center: [2] pixels.
      distortion: [12], or its first columns.
    """
    coefficients = dict(zip(DISTORTION, np.asarray(distortion, np.float64).tolist(), strict=False))
    if model == "opencv" and (coefficients.get("k3") or coefficients.get("k4")):
        model = "full_opencv"
        if coefficients.get("k4"):
            found = coefficients["k4"]
            raise UserError("COLMAP has no perspective lens with a k4.", field="k4", found=found, expected="0")
    if model not in _NAME_OF:
        raise UserError("COLMAP has no such lens.", field="camera_model", found=model, expected=", ".join(_NAME_OF))
    name = _NAME_OF[model]
    values = dict(zip(("fx", "fy", "cx", "cy", "width", "height"), [*focal, *center, *size], strict=True))
    parameters = [values[p] if p in values else coefficients.get(p, 0.0) for p in LENS_MODELS[name].parameters]
    return ColmapCamera(name, tuple(size), np.array(parameters, np.float64))


def image_from(name: str, camera: int, pose: np.ndarray) -> ColmapImage:
    """Returns an image from its pose [4, 4], camera-to-world in OpenGL axes."""
    inverse = invert_similarity(pose @ np.diag([1.0, -1.0, -1.0, 1.0]))
    return ColmapImage(name, camera, quaternion_from_rotation(inverse[:3, :3]), inverse[:3, 3])


def write_model(folder: Path, model: ColmapModel, *, text: bool = False) -> None:
    """Writes cameras, images and points3D into a folder.

    Args:
      folder: is made where it does not exist.
      model: the reconstruction; its points are written grey and without tracks.
      text: .txt instead of .bin.
    """
    folder.mkdir(parents=True, exist_ok=True)
    form = ".txt" if text else ".bin"
    writers = dict(
        cameras=_cameras_text if text else _cameras_binary,
        images=_images_text if text else _images_binary,
        points3D=_points_text if text else _points_binary,
    )
    for name, content in writers.items():
        (folder / f"{name}{form}").write_bytes(content(model))


def _words(values) -> str:
    return " ".join(repr(value) for value in np.asarray(values).tolist())


def _cameras_text(model: ColmapModel) -> bytes:
    lines = [
        f"{i} {camera.model} {camera.size[0]} {camera.size[1]} {_words(camera.parameters)}"
        for i, camera in model.cameras.items()
    ]
    return ("\n".join(["# CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]", *lines]) + "\n").encode()


def _images_text(model: ColmapModel) -> bytes:
    lines = ["# IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME", "# POINTS2D[] as (X, Y, POINT3D_ID)"]
    for i, image in model.images.items():
        lines.append(f"{i} {_words(image.quaternion)} {_words(image.translation)} {image.camera} {image.name}")
        observed = zip(image.pixels.tolist(), image.points.tolist(), strict=True)
        lines.append(" ".join(f"{x!r} {y!r} {point}" for (x, y), point in observed))
    return ("\n".join(lines) + "\n").encode("utf-8", errors="surrogateescape")


def _points_text(model: ColmapModel) -> bytes:
    points = zip(model.point_ids.tolist(), model.positions, strict=True)
    lines = [f"{i} {_words(position)} 128 128 128 0" for i, position in points]
    return ("\n".join(["# POINT3D_ID, X, Y, Z, R, G, B, ERROR, TRACK[]", *lines]) + "\n").encode()


def _cameras_binary(model: ColmapModel) -> bytes:
    parts = [struct.pack("<Q", len(model.cameras))]
    for i, camera in model.cameras.items():
        parts.append(struct.pack("<iiQQ", i, LENS_MODELS[camera.model].number, *camera.size))
        parts.append(np.asarray(camera.parameters, "<f8").tobytes())
    return b"".join(parts)


def _images_binary(model: ColmapModel) -> bytes:
    parts = [struct.pack("<Q", len(model.images))]
    for i, image in model.images.items():
        parts.append(struct.pack("<i7di", i, *image.quaternion, *image.translation, image.camera))
        parts.append(image.name.encode("utf-8", errors="surrogateescape") + b"\0")
        observed = np.empty(len(image.pixels), OBSERVATION)
        observed["xy"], observed["point"] = image.pixels, image.points
        parts += [struct.pack("<Q", len(observed)), observed.tobytes()]
    return b"".join(parts)


def _points_binary(model: ColmapModel) -> bytes:
    parts = [struct.pack("<Q", len(model.positions))]
    for i, position in zip(model.point_ids.tolist(), model.positions, strict=True):
        parts.append(struct.pack("<Q3d3BdQ", i, *position, 128, 128, 128, 0.0, 0))
    return b"".join(parts)
