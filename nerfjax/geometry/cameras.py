"""Camera models: pixel -> ray in camera axes, and back.

Every model is the chain   pixel -> plane -> undistorted plane -> direction:

  plane         d = (pixel - center) / focal, image axes (x right, y down)
  undistorted   m with D(m) = d (``distortion.py``; the identity for models without one)
  direction     the ideal lens (``lenses.py``)

Which coefficients a model has is in ``COEFFICIENTS_OF``; the same name may mean different things: k4 is the fourth
power of a polynomial in "opencv", of the polar angle's polynomial in the fisheyes, and belongs to the denominator in
"full_opencv"; in "fov" k1 is the angle omega, in "division" the divisor's factor, and in "eucm" k1, k2 are alpha, beta.

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
from nerfjax.geometry.distortion import DISTORTION_OF, distort, in_valid_field, undistort
from nerfjax.geometry.lenses import FLATTEN, LENS_OF, LIFT, LIMITED, in_front, length, plane_limit
from nerfjax.geometry.poses import check_poses
from nerfjax.types import CAMERA_MODELS, DISTORTION, Array, Cameras

_LARGEST = 1e30  # what float32 holds, with room for products
_SMALLEST = 1e-9  # of focal lengths: below, directions overflow in float32
COEFFICIENTS_OF = {
    "pinhole": (),
    "opencv": ("k1", "k2", "k3", "k4", "p1", "p2"),
    "opencv_fisheye": ("k1", "k2", "k3", "k4"),
    "equirectangular": (),
    "orthographic": (),
    "full_opencv": DISTORTION,
    "fov": ("k1",),
    "thin_prism_fisheye": ("k1", "k2", "k3", "k4", "p1", "p2", "s1", "s2", "s3", "s4"),
    "rad_tan_thin_prism_fisheye": DISTORTION,
    "division": ("k1",),
    "eucm": ("k1", "k2"),
}


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
    tolerance, target = 5e-4 if xp is jnp else 1e-9, plane
    for kind in _distortions(cameras):
        own, coefficients = _share(cameras, kind, DISTORTION_OF, distortion, xp)
        m = undistort(kind, target, coefficients, xp)
        residual = xp.abs(distort(kind, m, coefficients, xp)[0] - target) * focal
        reached = (xp.max(residual, axis=-1) < tolerance) & in_valid_field(kind, m, coefficients, xp)
        # Elsewhere the coefficients are zero, and the identity converges.
        plane, converged = m if own is None else xp.where(own[..., None], m, plane), converged & reached
    directions = _choose(cameras, xp, distortion, lambda name, c: LIFT[name](plane, c, xp))
    offsets = xp.zeros_like(directions)
    if _needs(cameras, ("orthographic",)):
        on_plane = xp.stack([plane[..., 0], -plane[..., 1], xp.zeros_like(plane[..., 0])], axis=-1)
        offsets = xp.where(_is_model(cameras, "orthographic", xp)[..., None], on_plane, offsets)
    if any(LENS_OF[name] in LIMITED for name in cameras.models):
        converged = converged & _choose(cameras, xp, distortion, lambda name, c: plane_limit(name, plane, c, xp))
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
    plane = _choose(cameras, xp, distortion, lambda name, c: FLATTEN[name](points, c, xp))
    valid = _choose(cameras, xp, distortion, lambda name, c: in_front(name, points, c, xp))
    undistorted = plane
    for kind in _distortions(cameras):
        own, coefficients = _share(cameras, kind, DISTORTION_OF, distortion, xp)
        valid = valid & in_valid_field(kind, undistorted, coefficients, xp)
        image = distort(kind, undistorted, coefficients, xp)[0]
        plane = image if own is None else xp.where(own[..., None], image, plane)
    along = -points[..., 2]
    distance = _choose(cameras, xp, distortion, lambda name, c: along if name == "orthographic" else length(points, xp))
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


def _distortions(cameras: Cameras) -> list[str]:
    """Returns the kinds of distortion that occur."""
    return list(dict.fromkeys(DISTORTION_OF[name] for name in cameras.models if name in DISTORTION_OF))


def _share(cameras: Cameras, kind: str, kind_of: dict[str, str], distortion, xp):
    """Which elements are of a kind, and the coefficients of those, zero elsewhere.

    Returns:
      (mask [...], or None where all of them are; coefficients [..., D]).
    """
    own = None
    if any(kind_of.get(name) != kind for name in cameras.models):
        members = [name for name in cameras.models if kind_of.get(name) == kind]
        own = _is_model(cameras, members[0], xp)
        for name in members[1:]:
            own = own | _is_model(cameras, name, xp)
        distortion = xp.where(own[..., None], distortion, 0.0)
    return own, distortion


def _choose(cameras: Cameras, xp, distortion, compute):
    """``compute(lens, coefficients)`` of each element's own lens; lenses that do not occur are not computed."""
    result = None
    for name in dict.fromkeys(LENS_OF[name] for name in cameras.models):
        own, coefficients = _share(cameras, name, LENS_OF, distortion, xp)
        value = compute(name, coefficients)
        if result is not None:
            value = xp.where(own[(...,) + (None,) * (value.ndim - own.ndim)], value, result)
        result = value
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
      distortion: broadcastable to [C, 12] in the order of ``types.DISTORTION``, or its first columns; None is zero.
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
    distortion = full_distortion(0.0 if distortion is None else distortion)
    distortion = _rows(distortion, count, len(DISTORTION), "distortion", file)
    labels = list(names) if names is not None else [f"camera {i}" for i in range(count)]
    _check(models, pose, focal, center, distortion, size, labels, file, allow_outside_center)
    return Cameras(
        pose=pose.astype(np.float32), focal=focal.astype(np.float32), center=center.astype(np.float32),
        distortion=distortion.astype(np.float32), size=size.astype(np.int32),
        model=np.asarray([CAMERA_MODELS.index(name) for name in models], np.int32),
        models=tuple(name for name in CAMERA_MODELS if name in models) or ("pinhole",),
    )  # fmt: skip


def full_distortion(distortion) -> np.ndarray:
    """Returns coefficients [..., 12] from the first columns [..., 0…12] (or a scalar, as it is)."""
    distortion = np.asarray(distortion, np.float64)
    missing = len(DISTORTION) - distortion.shape[-1] if distortion.ndim else 0
    if missing > 0:
        distortion = np.concatenate([distortion, np.zeros((*distortion.shape[:-1], missing))], axis=-1)
    return distortion


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
        bad = ~(np.abs(value) < _LARGEST).reshape(len(value), -1).all(-1)
        refuse(bad, "A camera holds a number that is not finite", field, value, "finite numbers", "remove the frame")
    refuse((size < 1).any(-1), "An image has no pixels", "size", size, "(width, height) >= 1")
    uses_focal = np.asarray([name != "equirectangular" for name in models], bool)
    refuse((focal < _SMALLEST).any(-1) & uses_focal, "A focal length is not positive", "focal", focal, "> 0, in pixels")
    has = np.asarray([[column in COEFFICIENTS_OF[name] for column in DISTORTION] for name in models], bool)
    refuse(
        ((distortion != 0) & ~has).any(-1), "A distortion coefficient is set that the camera model has not",
        "distortion", distortion, "zeros, or a model that has it: opencv (k1-k4, p1, p2), opencv_fisheye (k1-k4), …",
    )  # fmt: skip
    usable = [_lens_exists(name, *coefficients[:2]) for name, coefficients in zip(models, distortion, strict=True)]
    refuse(
        ~np.asarray(usable, bool), "A lens parameter is out of its range", "distortion", distortion,
        "fov: |k1| < pi; eucm: 0 <= k1 <= 1 and k2 > 0",
    )  # fmt: skip
    outside = ((center < 0) | (center > size)).any(-1) & (not allow_outside_center)
    fix = "give the intrinsics of this image: those of an uncropped or larger one do not fit"
    refuse(outside, "The principal point lies outside the image", "center", center, "inside (width, height)", fix)


def _lens_exists(name: str, k1: float, k2: float) -> bool:
    if name == "eucm":
        return bool(0 <= k1 <= 1 and (k2 > 0 or k1 == 0))
    return name != "fov" or bool(abs(k1) < math.pi)


def scale_cameras(cameras: Cameras, sizes) -> Cameras:
    """The same cameras for images resized to ``sizes`` (broadcastable to [C, 2]); intrinsics scale per axis."""
    sizes = np.broadcast_to(np.asarray(sizes, np.int64), np.shape(cameras.size))
    ratio = sizes / np.asarray(cameras.size, np.float64)
    return cameras.replace(
        focal=(np.asarray(cameras.focal) * ratio).astype(np.float32),
        center=(np.asarray(cameras.center) * ratio).astype(np.float32),
        size=sizes.astype(np.int32),
    )
