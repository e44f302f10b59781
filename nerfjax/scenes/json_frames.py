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
from nerfjax.geometry.poses import check_poses, interpolate_poses, orthonormalize
from nerfjax.types import DISTORTION

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
    "ORTHOPHOTO": "orthographic",
    "FULL_OPENCV": "full_opencv",
    "THIN_PRISM_FISHEYE": "thin_prism_fisheye",
    "RAD_TAN_THIN_PRISM_FISHEYE": "rad_tan_thin_prism_fisheye",
    "FISHEYE624": "rad_tan_thin_prism_fisheye",
}
_FISHEYE_624 = ("k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2", "s1", "s2", "s3", "s4")
_MANY_COEFFICIENTS = ("full_opencv", "thin_prism_fisheye", "rad_tan_thin_prism_fisheye")
ROLLING_SHUTTER = ("transform_matrix_start", "transform_matrix_end")
LARGEST = 1e12  # no length, size or focal length is beyond it
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
        number = plain_number(value)
        if not abs(number) <= LARGEST or (positive and number <= 0):
            expected = "a positive number" if positive else "a finite number"
            raise UserError(
                f"Frame {self.name} has a bad intrinsic.",
                file=self.file,
                field=key,
                found=value,
                expected=expected,
                code="intrinsics-bad",
            )
        return number


def plain_number(value: Any) -> float:
    """Returns a number, or text that is one, as a float; NaN for whatever else (true and false are no numbers)."""
    if isinstance(value, bool) or (isinstance(value, str) and not is_plain(value)):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def is_plain(text: str) -> bool:
    """Says whether text can be a number of a file: Python would read 1_0 and the digits of other scripts as well."""
    return text.isascii() and "_" not in text


def all_plain(value: Any) -> bool:
    """Says whether a (nested) list is free of what NumPy would take for numbers: true, false, 1_0, other digits."""
    if isinstance(value, list | tuple):
        return all(map(all_plain, value))
    return not isinstance(value, bool) and (not isinstance(value, str) or is_plain(value))


def parse_json(text: str, path: Path) -> Any:
    """Returns what JSON text holds; a syntax error is reported with its line in the file."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            "The file is not valid JSON.", file=path, found=f"{error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except RecursionError as error:
        raise UserError("The file is not valid JSON.", file=path, found="brackets in brackets without end") from error
    except ValueError as error:  # a number of thousands of digits
        raise UserError("The file cannot be read.", file=path, found=error) from error


def load_json(path: Path) -> dict:
    """Reads a JSON object; a syntax error is reported with its line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("The file cannot be read.", file=path, found=error) from error
    content = parse_json(text, path)
    if not isinstance(content, dict):
        raise UserError("The file holds no JSON object.", file=path, found=type(content).__name__, expected="{…}")
    return content


def frames_of(content: dict, path: Path) -> list[dict]:
    """Returns the list of frames, checked to hold objects with a file_path and a pose."""
    frames = content.get("frames")
    if not isinstance(frames, list) or not frames:
        found = "no such key" if frames is None else "an empty list" if frames == [] else type(frames).__name__
        raise UserError("The file lists no frames.", file=path, field="frames", found=found, expected="a list")
    for index, frame in enumerate(frames):
        keys = ("transform_matrix", "file_path")
        if isinstance(frame, dict) and "transform_matrix" not in frame and frame.get(ROLLING_SHUTTER[0]) is not None:
            keys = tuple(key for key in ROLLING_SHUTTER if frame.get(key) is not None) + ("file_path",)
        for key in keys:
            value = frame.get(key) if isinstance(frame, dict) else None
            if not (is_path(value) if key == "file_path" else isinstance(value, list)):
                raise UserError(
                    f"Frame number {index} is incomplete.",
                    file=path,
                    field=f"frames[{index}].{key}",
                    found=frame.get(key, "no such key") if isinstance(frame, dict) else frame,
                )
    return frames


def with_camera_model(content: dict, name: str | None) -> dict:
    """Returns a file's content in which all frames have one camera model (None: the content as it is)."""
    if name is None:
        return content
    if name.upper() not in MODELS:
        raise UserError("Unknown camera model.", field="scene.options: camera_model", found=name,
                        fix=did_you_mean(name.upper(), MODELS))  # fmt: skip
    frames = content.get("frames")
    if isinstance(frames, list):
        frames = [{k: v for k, v in f.items() if k != "camera_model"} if isinstance(f, dict) else f for f in frames]
    return {**content, "frames": frames, "camera_model": name.upper()}


def is_path(value: Any) -> bool:
    """Says whether a value of a JSON file can be the path of a file."""
    return isinstance(value, str) and 0 < len(value) < 2000 and "\0" not in value and value.isprintable()


def parse_pose(frame: dict, *, file: Path, name: str, axes: str = "opengl") -> np.ndarray:
    """Returns the [4, 4] float64 camera-to-world pose in OpenGL axes.

    A frame with ``transform_matrix_start`` and ``_end`` only (rolling shutter) gets the pose half-way between them.

    Raises:
      UserError: not a 3x4 or 4x4 matrix of finite numbers, or its rotation is scaled, skewed or left-handed.
    """
    if isinstance(frame.get("transform_matrix"), list):
        return to_pose(_matrix(frame, "transform_matrix", file, name), file=file, name=name, axes=axes)
    keys = [key for key in ROLLING_SHUTTER if frame.get(key) is not None]
    ends = [to_pose(_matrix(frame, key, file, name), file=file, name=name, axes=axes, field=key) for key in keys]
    pose = np.eye(4)
    pose[:3] = interpolate_poses(ends[0][:3], ends[-1][:3], 0.5)
    return pose


def _matrix(frame: dict, key: str, file: Path, name: str) -> np.ndarray:
    try:
        if not all_plain(frame[key]):
            raise TypeError("something else stands where a number should")
        return np.array(frame[key], np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        problem = f"The pose of frame {name} is not a matrix of numbers."
        raise UserError(problem, file=file, field=key, found=error) from error


def to_pose(
    matrix: np.ndarray, *, file, name: str, axes: str, inverse: bool = False, field: str = "transform_matrix"
) -> np.ndarray:
    """Checks a matrix and returns the [4, 4] float64 camera-to-world pose in OpenGL axes.

    Args:
      matrix: [3, 4] or [4, 4] in ``axes``: camera-to-world, or world-to-camera where ``inverse``.
      file, name, field: for messages.
      axes: "opengl" or "opencv".
      inverse: whether the matrix is world-to-camera.

    Raises:
      UserError: see ``parse_pose``.
    """
    if matrix.shape not in ((3, 4), (4, 4)):
        raise UserError(
            f"The pose of frame {name} has a wrong shape.", file=file, field=field, found=matrix.shape, expected="4x4"
        )
    if matrix.shape == (4, 4) and np.isfinite(matrix).all() and np.abs(matrix[3] - (0, 0, 0, 1)).max() > 1e-3:
        raise UserError(
            f"The pose of frame {name} has a last row of its own.",
            file=file,
            field=field,
            found=matrix[3].tolist(),
            expected="0 0 0 1",
            fix="transpose the matrix if its translation stands in the last row",
        )
    if axes not in AXES:
        raise UserError("Unknown camera axes.", field="axes", found=axes, fix=did_you_mean(axes, AXES))
    if np.isfinite(matrix).all() and np.abs(matrix).max() > LARGEST:
        raise UserError(f"The pose of frame {name} is impossibly large.", file=file, field=field, found=matrix.tolist())
    check_poses(matrix[None, :3], file=file, names=[f"frame {name}"], tolerance=ROTATION_TOLERANCE)
    pose = np.eye(4)
    pose[:3] = orthonormalize(matrix[:3])
    if inverse:
        pose[:3, :3] = pose[:3, :3].T
        pose[:3, 3] = -pose[:3, :3] @ pose[:3, 3]
    pose[:3, :3] *= AXES[axes]
    return pose


def image_scale(
    image_size: tuple[int, int], size: tuple[float | int, float | int] | None, *, file, name: str
) -> np.ndarray:
    """Returns [2] image size over camera size, per axis.

    Raises:
      UserError: the aspects differ by more than 1 %: the image was cropped or turned.
    """
    width, height = size or image_size
    scale = np.array([image_size[0] / width, image_size[1] / height])
    if not abs(scale[0] / scale[1] - 1) <= 0.01:
        turned = abs(image_size[0] * width / (image_size[1] * height) - 1) < 0.01
        raise UserError(
            f"The image of frame {name} has another shape than its camera.",
            file=file,
            field="w, h",
            found=f"image {image_size[0]}x{image_size[1]}" + (": width and height are swapped" if turned else ""),
            expected=f"the aspect of {width:g}x{height:g}",
            fix="use the images that the cameras were computed from (a resize is fine, a crop or a turn is not)",
            code="size-mismatch",
        )
    return scale


def camera_size(values: Lookup) -> tuple[float | int, float | int] | None:
    """Returns the (width, height) that the intrinsics belong to, or None where the file does not say."""
    width, height = values.number("w", positive=True), values.number("h", positive=True)
    if width is None or height is None:
        return None
    if not (1 <= width <= 1e6 and 1 <= height <= 1e6):
        raise UserError(
            f"Frame {values.name} has an impossible size.", file=values.file, field="w, h", found=f"{width}x{height}"
        )
    return width, height


def parse_intrinsics(values: Lookup, image_size: tuple[int, int]) -> dict[str, Any]:
    """Returns focal, center, distortion, model for an image of the size on disk, and ``scale`` (disk / camera size).

    Raises:
      UserError: no focal length, an unknown model, a coefficient that the model here lacks, or an image whose aspect
        differs from w/h by more than 1 %.
    """
    model = _parse_model(values)
    width, height = camera_size(values) or image_size
    scale = image_scale(image_size, (width, height), file=values.file, name=values.name)
    if model == "equirectangular":
        focal = np.ones(2)
    else:
        focal = _parse_focal(values, width, height)
    cx, cy = values.number("cx"), values.number("cy")
    center = np.array([width / 2 if cx is None else cx, height / 2 if cy is None else cy])
    distortion = _parse_distortion(values, model)
    if model == "pinhole" and distortion.any():
        model = "opencv"
    return dict(focal=focal * scale, center=center * scale, distortion=distortion, model=model, scale=scale)


def _parse_distortion(values: Lookup, model: str) -> np.ndarray:
    """Returns [12] coefficients in the order of ``types.DISTORTION``."""
    listed = values.raw("distortion_params")
    if listed is not None:
        keys = _FISHEYE_624 if model in _MANY_COEFFICIENTS else DISTORTION[:6]
        if not isinstance(listed, list) or len(listed) != len(keys):
            raise UserError(
                f"Frame {values.name} has a bad list of distortion coefficients.",
                file=values.file,
                field="distortion_params",
                found=listed,
                expected=f"{len(keys)} numbers: {', '.join(keys)}",
            )
        values = Lookup(dict(zip(keys, listed, strict=True)), {}, file=values.file, name=values.name)
    distortion = np.array([values.number(key) or 0.0 for key in DISTORTION])
    if model not in _MANY_COEFFICIENTS and distortion[6:].any():
        key = DISTORTION[6 + int(np.flatnonzero(distortion[6:])[0])]
        raise UserError(
            f"Frame {values.name} uses a distortion coefficient that is not supported by its model.",
            file=values.file,
            field=key,
            found=values.raw(key),
            fix="name the camera_model that has it (FULL_OPENCV, FISHEYE624), or undistort the images first",
        )
    return distortion


def _parse_model(values: Lookup) -> str:
    if values.raw("ftheta_p0") is not None:
        raise UserError(
            f"Frame {values.name} has an f-theta lens, which is not supported.",
            file=values.file,
            field="ftheta_p0",
            fix="undistort the images first",
        )
    name = values.raw("camera_model")
    if name is None:
        if values.raw("equirectangular") or values.raw("latlong"):
            return "equirectangular"
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
            code="intrinsics-bad",
        )
    return np.array([fy if fx is None else fx, fx if fy is None else fy])
