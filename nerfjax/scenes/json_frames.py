"""The dialects of transforms.json: intrinsics key by key, poses, and where the images really are.

``transform_matrix`` is camera-to-world with OpenGL camera axes. Every intrinsic is the frame's own value, else the
file's (root) value; missing ones follow from the field of view and the image's size. Angles ``camera_angle_x/y`` are
radians, ``x_fov``/``y_fov`` degrees.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from nerfjax.errors import UserError, did_you_mean
from nerfjax.geometry.poses import check_poses, orthonormalize

# Names in ``camera_model`` → our model. Coefficients that a model lacks are absent from the files.
MODELS = {
    "SIMPLE_PINHOLE": "pinhole",
    "PINHOLE": "pinhole",
    "PERSPECTIVE": "opencv",
    "SIMPLE_RADIAL": "opencv",
    "RADIAL": "opencv",
    "OPENCV": "opencv",
    "OPENCV_FISHEYE": "opencv_fisheye",
    "SIMPLE_RADIAL_FISHEYE": "opencv_fisheye",
    "RADIAL_FISHEYE": "opencv_fisheye",
    "FISHEYE": "opencv_fisheye",
    "EQUIRECTANGULAR": "equirectangular",
    "ORTHOGRAPHIC": "orthographic",
}
_COEFFICIENTS = ("k1", "k2", "k3", "k4", "p1", "p2")
ROTATION_TOLERANCE = 1e-2  # structure from motion writes rotations to a few digits; they are made exact
AXES = {"opengl": (1.0, 1.0, 1.0), "opencv": (1.0, -1.0, -1.0)}


class Lookup:
    """Values of one frame: the frame's own, else the file's, checked to be finite numbers."""

    def __init__(self, frame: dict, root: dict, *, file: Path, name: str):
        self.frame, self.root, self.file, self.name = frame, root, file, name

    def raw(self, key: str) -> Any:
        """Returns the value as it stands, or None."""
        value = self.frame.get(key)
        return self.root.get(key) if value is None else value

    def number(self, key: str, *, positive: bool = False) -> float | None:
        """Returns a finite number, or None where the key is absent."""
        value = self.raw(key)
        if value is None:
            return None
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number) or (positive and number <= 0):
            expected = "a positive number" if positive else "a finite number"
            raise UserError(
                f"Frame {self.name} has a bad intrinsic.", file=self.file, field=key, found=value, expected=expected
            )
        return number


def load_json(path: Path) -> dict:
    """Reads a JSON object; a syntax error is reported with its line."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise UserError(
            "The file is not valid JSON.", file=path, found=f"{error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("The file cannot be read.", file=path, found=error) from error
    if not isinstance(content, dict):
        raise UserError("The file holds no JSON object.", file=path, found=type(content).__name__, expected="{…}")
    return content


def frames_of(content: dict, path: Path) -> list[dict]:
    """Returns the list of frames, checked to hold objects with a file_path and a transform_matrix."""
    frames = content.get("frames")
    if not isinstance(frames, list) or not frames:
        found = "no such key" if frames is None else f"{type(frames).__name__} of length {len(frames)}"
        raise UserError("The file lists no frames.", file=path, field="frames", found=found, expected="a list")
    for index, frame in enumerate(frames):
        for key, kind in (("file_path", str), ("transform_matrix", list)):
            if not isinstance(frame, dict) or not isinstance(frame.get(key), kind):
                raise UserError(
                    f"Frame number {index} is incomplete.",
                    file=path,
                    field=f"frames[{index}].{key}",
                    found=frame.get(key, "no such key") if isinstance(frame, dict) else frame,
                )
    return frames


def parse_pose(frame: dict, *, file: Path, name: str, axes: str = "opengl") -> np.ndarray:
    """Returns the [4, 4] float64 camera-to-world pose in OpenGL axes.

    Raises:
      UserError: not a 3x4 or 4x4 matrix of finite numbers, or its rotation is scaled, skewed or left-handed.
    """
    where = dict(file=file, field="transform_matrix")
    try:
        matrix = np.array(frame["transform_matrix"], np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"The pose of frame {name} is not a matrix of numbers.", found=error, **where) from error
    if matrix.shape not in ((3, 4), (4, 4)):
        raise UserError(f"The pose of frame {name} has a wrong shape.", found=matrix.shape, expected="4x4", **where)
    if axes not in AXES:
        raise UserError("Unknown camera axes.", field="axes", found=axes, fix=did_you_mean(axes, AXES))
    check_poses(matrix[None, :3], file=file, names=[f"frame {name}"], tolerance=ROTATION_TOLERANCE)
    pose = np.eye(4)
    pose[:3] = orthonormalize(matrix[:3])
    pose[:3, :3] *= AXES[axes]
    return pose


def camera_size(values: Lookup) -> tuple[float | int, float | int] | None:
    """Returns the (width, height) that the intrinsics belong to, or None where the file does not say."""
    width, height = values.number("w", positive=True), values.number("h", positive=True)
    return None if width is None or height is None else (width, height)


def parse_intrinsics(values: Lookup, image_size: tuple[int, int]) -> dict[str, Any]:
    """Returns focal, center, distortion, model for an image of the size on disk, and ``scale`` (disk / camera size).

    Raises:
      UserError: no focal length, an unknown model, a coefficient that the model here lacks, or an image whose aspect
        differs from w/h by more than 1 %.
    """
    model = _parse_model(values)
    width, height = camera_size(values) or image_size
    scale = np.array([image_size[0] / width, image_size[1] / height])
    if abs(scale[0] / scale[1] - 1) > 0.01:
        raise UserError(
            f"The image of frame {values.name} has another shape than its camera.",
            file=values.file,
            field="w, h",
            found=f"image {image_size[0]}x{image_size[1]}",
            expected=f"the aspect of {width:g}x{height:g}",
            fix="use the images that the cameras were computed from (a resize is fine, a crop or a turn is not)",
        )
    if model == "equirectangular":
        focal = np.ones(2)
    else:
        focal = _parse_focal(values, width, height)
    cx, cy = values.number("cx"), values.number("cy")
    center = np.array([width / 2 if cx is None else cx, height / 2 if cy is None else cy])
    distortion = np.array([values.number(key) or 0.0 for key in _COEFFICIENTS])
    for key in ("k5", "k6", "s1", "s2"):
        if values.number(key):
            raise UserError(
                f"Frame {values.name} uses a distortion coefficient that is not supported.",
                file=values.file,
                field=key,
                found=values.raw(key),
                fix="undistort the images first",
            )
    if model == "pinhole" and distortion.any():
        model = "opencv"
    return dict(focal=focal * scale, center=center * scale, distortion=distortion, model=model, scale=scale)


def _parse_model(values: Lookup) -> str:
    name = values.raw("camera_model")
    if name is None:
        fisheye = values.raw("is_fisheye")
        return "opencv_fisheye" if fisheye in (True, 1, "true", "True") else "pinhole"
    if str(name).upper() not in MODELS:
        raise UserError(
            f"Frame {values.name} has an unknown camera model.",
            file=values.file,
            field="camera_model",
            found=name,
            fix=did_you_mean(str(name).upper(), MODELS),
        )
    return MODELS[str(name).upper()]


def _parse_focal(values: Lookup, width: float | int, height: float | int) -> np.ndarray:
    def along(key: str, angle_key: str, degrees_key: str, side: float | int) -> float | None:
        focal = values.number(key, positive=True)
        if focal is not None:
            return focal
        angle = values.number(angle_key, positive=True)
        if angle is None:
            degrees = values.number(degrees_key, positive=True)
            angle = None if degrees is None else math.radians(degrees)
        if angle is None:
            return None
        if angle >= math.pi:
            raise UserError("A field of view is 180° or more.", file=values.file, field=angle_key, found=angle)
        return 0.5 * side / math.tan(0.5 * angle)

    fx = along("fl_x", "camera_angle_x", "x_fov", width)
    fy = along("fl_y", "camera_angle_y", "y_fov", height)
    if fx is None and fy is None:
        raise UserError(
            f"Frame {values.name} has no focal length.",
            file=values.file,
            field="fl_x",
            found="neither fl_x nor camera_angle_x, in the frame or at the root",
            expected="fl_x (pixels) or camera_angle_x (radians)",
        )
    return np.array([fy if fx is None else fx, fx if fy is None else fy])
