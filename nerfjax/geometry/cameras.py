"""Camera models: pixel -> ray in camera axes, and back.

Every model is the chain   pixel -> plane -> undistorted plane -> direction:

  plane         d = (pixel - center) / focal, image axes (x right, y down)
  undistorted   m with D(m) = d (``distortion.py``; the identity but for "opencv" and "opencv_fisheye")
  direction     the ideal lens (``lenses.py``)

``xp=jnp`` computes in float32 on device, ``xp=np`` in float64 on the host: one text for both.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from nerfjax.errors import UserError, did_you_mean
from nerfjax.geometry.distortion import distort, in_valid_field, undistort
from nerfjax.geometry.lenses import FLATTEN, LIFT, in_front, length, plane_limit
from nerfjax.geometry.poses import check_poses
from nerfjax.types import CAMERA_MODELS, Array, Cameras

_DISTORTED = ("opencv", "opencv_fisheye")


class Unprojection(NamedTuple):
    """Rays of pixels in camera axes: unit ``directions`` and origin ``offsets`` [..., 3], ``converged`` [...]."""

    directions: Any
    offsets: Any
    converged: Any


class Projection(NamedTuple):
    """Images of points: ``pixels`` [..., 2], ``distance`` [...] along the pixel's ray, ``valid`` [...]."""

    pixels: Any
    distance: Any
    valid: Any


def unproject(cameras: Cameras, pixels: ArrayLike, *, xp=jnp) -> Unprojection:
    """Rays of pixels, in camera axes (OpenGL).

    Args:
      cameras: one per pixel, leaves of batch shape [...] (see ``select_cameras``).
      pixels: [..., 2] (x, y); pixel centres at +0.5.
      xp: ``jnp`` (float32) or ``np`` (float64).

    Returns:
      Unit directions, origin offsets (zero but for orthographic cameras), and whether the pixel lies in the lens's
      valid field and its ray reproduces it (to 5e-4 pixel in float32, 1e-9 in float64). Directions are finite anyway.
    """
    center, focal, distortion = _intrinsics(cameras, xp)
    pixels = xp.asarray(pixels, center.dtype)
    plane = (pixels - center) / focal
    converged = xp.ones(plane.shape[:-1], bool)
    if _needs(cameras, _DISTORTED):
        target = plane
        plane = undistort(target, distortion, xp)
        tolerance = 5e-4 if xp is jnp else 1e-9
        residual = xp.abs(distort(plane, distortion, xp)[0] - target) * focal
        converged = (xp.max(residual, axis=-1) < tolerance) & in_valid_field(plane, distortion, xp)
    directions = _choose(cameras, xp, lambda name: LIFT[name](plane, xp))
    offsets = xp.zeros_like(directions)
    if _needs(cameras, ("orthographic",)):
        on_plane = xp.stack([plane[..., 0], -plane[..., 1], xp.zeros_like(plane[..., 0])], axis=-1)
        offsets = xp.where(_is_model(cameras, "orthographic", xp)[..., None], on_plane, offsets)
    if _needs(cameras, ("opencv_fisheye", "equirectangular")):
        converged = converged & _choose(cameras, xp, lambda name: plane_limit(name, plane, xp))
    return Unprojection(directions, offsets, converged)


def project_camera(cameras: Cameras, points: ArrayLike, *, xp=jnp) -> Projection:
    """Pixels of points given in camera axes (OpenGL).

    Args:
      cameras: one per point, leaves of batch shape [...].
      points: [..., 3] world units, camera axes.
      xp: ``jnp`` (float32) or ``np`` (float64).

    Returns:
      Pixels (they may lie outside the image), the distance t at which the pixel's ray meets the point, and whether
      the lens images the point at all: in front of it, and inside its valid field.
    """
    center, focal, distortion = _intrinsics(cameras, xp)
    points = xp.asarray(points, center.dtype)
    plane = _choose(cameras, xp, lambda name: FLATTEN[name](points, xp))
    valid = _choose(cameras, xp, lambda name: in_front(name, points, xp))
    if _needs(cameras, _DISTORTED):
        valid = valid & in_valid_field(plane, distortion, xp)
        plane = distort(plane, distortion, xp)[0]
    distance = _choose(cameras, xp, lambda name: -points[..., 2] if name == "orthographic" else length(points, xp))
    return Projection(plane * focal + center, distance, valid)


def project(cameras: Cameras, points: ArrayLike, *, xp=jnp) -> Projection:
    """Pixels of world points [..., 3]; see ``project_camera``."""
    pose = xp.asarray(cameras.pose, jnp.float32 if xp is jnp else np.float64)
    offsets = xp.asarray(points, pose.dtype) - pose[..., :, 3]
    return project_camera(cameras, xp.sum(pose[..., :, :3] * offsets[..., :, None], axis=-2), xp=xp)


def rotate(pose: Array, vectors: Array) -> Array:
    """Turns camera-axes vectors [..., 3] to world axes by poses [..., 3, 4]."""
    # Products and sums, not a matmul: exact float32 on every device.
    return jnp.sum(pose[..., :, :3] * vectors[..., None, :], axis=-1)


def select_cameras(cameras: Cameras, index: ArrayLike) -> Cameras:
    """One camera per element of ``index``, on device."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).at[index].get(mode="clip"), cameras)


def inside_image(cameras: Cameras, pixels: ArrayLike, *, xp=jnp) -> ArrayLike:
    """[...] whether pixels [..., 2] lie in their camera's image."""
    pixels = xp.asarray(pixels)
    size = xp.asarray(cameras.size).astype(pixels.dtype)
    return xp.all((pixels >= 0) & (pixels <= size), axis=-1)


# --- the chain -------------------------------------------------------------------------------------------------------


def _intrinsics(cameras: Cameras, xp) -> tuple[Any, Any, Any]:
    """Center, focal (pixels per unit of the plane) and distortion, in the working precision."""
    dtype = jnp.float32 if xp is jnp else np.float64
    center, focal, distortion = (
        xp.asarray(leaf, dtype) for leaf in (cameras.center, cameras.focal, cameras.distortion)
    )
    if _needs(cameras, ("equirectangular",)):
        width, height = (xp.asarray(cameras.size)[..., axis].astype(dtype) for axis in (0, 1))
        per_radian = xp.stack([width / (2 * math.pi), height / math.pi], axis=-1)
        focal = xp.where(_is_model(cameras, "equirectangular", xp)[..., None], per_radian, focal)
    return center, focal, distortion


def _needs(cameras: Cameras, names: tuple[str, ...]) -> bool:
    return any(name in cameras.models for name in names)


def _is_model(cameras: Cameras, name: str, xp):
    return xp.asarray(cameras.model) == CAMERA_MODELS.index(name)


def _choose(cameras: Cameras, xp, compute):
    """``compute(name)`` of each element's own model; models that do not occur are not computed."""
    # One name per formula: pinhole and opencv differ in their distortion alone.
    names = list(dict.fromkeys("pinhole" if name == "opencv" else name for name in cameras.models))
    result = compute(names[0])
    for name in names[1:]:
        value = compute(name)
        mask = _is_model(cameras, name, xp)
        if name == "pinhole":
            mask = mask | _is_model(cameras, "opencv", xp)
        result = xp.where(mask[(...,) + (None,) * (value.ndim - mask.ndim)], value, result)
    return result


# --- construction ----------------------------------------------------------------------------------------------------


def cameras_from(
    pose, focal, center=None, *, size, model="pinhole", distortion=None, file=None, names=None,
    allow_outside_center: bool = False,
) -> Cameras:  # fmt: skip
    """Checked cameras from arrays (NumPy float32 and int32 leaves).

    Args:
      pose: [C, 3, 4] or [C, 4, 4] camera-to-world, OpenGL axes, orthonormal.
      focal: broadcastable to [C, 2], pixels (ignored for equirectangular).
      center: broadcastable to [C, 2], pixels; None is the image's middle.
      size: broadcastable to [C, 2] (width, height), pixels.
      model: one name of ``CAMERA_MODELS``, or one per camera.
      distortion: broadcastable to [C, 6] (k1, k2, k3, k4, p1, p2); None is zero.
      file: the file, for messages.
      names: the cameras' names, for messages.
      allow_outside_center: whether a principal point may lie outside its image (crops).

    Returns:
      The cameras.

    Raises:
      UserError: a wrong shape, an unknown model, a number that is not finite, a rotation that is none, a focal or
        size that is not positive, a coefficient that the model has not, a principal point outside its image.
    """
    pose = np.asarray(pose, np.float64)
    if pose.ndim != 3 or pose.shape[1:] not in ((3, 4), (4, 4)):
        raise UserError("Poses have the wrong shape.", file=file, field="pose", found=pose.shape, expected="[C, 3, 4]")
    pose, count = pose[:, :3], len(pose)
    models = [model] * count if isinstance(model, str) else list(model)
    for name in models:
        if name not in CAMERA_MODELS:
            raise UserError(
                "Unknown camera model.", file=file, field="camera_model", found=repr(name),
                expected=", ".join(CAMERA_MODELS), fix=did_you_mean(name, CAMERA_MODELS),
            )  # fmt: skip
    size = _rows(size, count, 2, "size", file)
    focal = _rows(1.0 if focal is None else focal, count, 2, "focal", file)
    center = _rows(size / 2 if center is None else center, count, 2, "center", file)
    distortion = _rows(0.0 if distortion is None else distortion, count, 6, "distortion", file)
    labels = list(names) if names is not None else [f"camera {i}" for i in range(count)]
    _check(models, pose, focal, center, distortion, size, labels, file, allow_outside_center)
    return Cameras(
        pose=pose.astype(np.float32), focal=focal.astype(np.float32), center=center.astype(np.float32),
        distortion=distortion.astype(np.float32), size=size.astype(np.int32),
        model=np.asarray([CAMERA_MODELS.index(name) for name in models], np.int32),
        models=tuple(name for name in CAMERA_MODELS if name in models) or ("pinhole",),
    )  # fmt: skip


def _rows(value, count: int, width: int, field: str, file) -> np.ndarray:
    value = np.asarray(value, np.float64)
    try:
        return np.broadcast_to(value, (count, width))
    except ValueError:
        raise UserError(
            "Camera parameters have the wrong shape.", file=file, field=field, found=value.shape,
            expected=f"broadcastable to [{count}, {width}]",
        ) from None  # fmt: skip


def _check(models, pose, focal, center, distortion, size, labels, file, allow_outside_center) -> None:
    def refuse(bad, problem, field, found, expected, fix=None):
        if np.any(bad):
            first = int(np.argmax(bad))
            more = int(np.sum(bad)) - 1
            where = labels[first] + (f" and {more} more" if more else "")
            raise UserError(
                f"{problem} ({where}).", file=file, field=field, found=np.asarray(found)[first].tolist(),
                expected=expected, fix=fix,
            )  # fmt: skip

    check_poses(pose, file=file, names=labels)
    for field, value in dict(focal=focal, center=center, distortion=distortion, size=size).items():
        bad = ~np.isfinite(value).reshape(len(value), -1).all(-1)
        refuse(bad, "A camera holds a number that is not finite", field, value, "finite numbers", "remove the frame")
    refuse((size < 1).any(-1), "An image has no pixels", "size", size, "(width, height) >= 1")
    uses_focal = np.asarray([name != "equirectangular" for name in models], bool)
    refuse((focal <= 0).any(-1) & uses_focal, "A focal length is not positive", "focal", focal, "> 0, in pixels")
    no_radial = np.asarray([name not in _DISTORTED for name in models], bool) & (distortion[:, :4] != 0).any(-1)
    no_tangential = np.asarray([name != "opencv" for name in models], bool) & (distortion[:, 4:] != 0).any(-1)
    refuse(
        no_radial | no_tangential, "A distortion coefficient is set that the camera model has not", "distortion",
        distortion, "zeros, or camera_model opencv (k1-k4, p1, p2) or opencv_fisheye (k1-k4)",
    )  # fmt: skip
    outside = ((center < 0) | (center > size)).any(-1) & (not allow_outside_center)
    fix = "give the intrinsics of this image: those of an uncropped or larger one do not fit"
    refuse(outside, "The principal point lies outside the image", "center", center, "inside (width, height)", fix)


def scale_cameras(cameras: Cameras, sizes) -> Cameras:
    """The same cameras for images resized to ``sizes`` (broadcastable to [C, 2]); intrinsics scale per axis."""
    sizes = np.broadcast_to(np.asarray(sizes, np.int64), np.shape(cameras.size))
    ratio = sizes / np.asarray(cameras.size, np.float64)
    return cameras.replace(
        focal=(np.asarray(cameras.focal) * ratio).astype(np.float32),
        center=(np.asarray(cameras.center) * ratio).astype(np.float32),
        size=sizes.astype(np.int32),
    )
