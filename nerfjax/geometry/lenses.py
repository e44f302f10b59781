"""The ideal lenses: undistorted plane point <-> direction in camera axes.

A plane point m = (x, y) has image axes (x right, y down); directions and points have OpenGL camera axes (+y up,
-z forward). ``LIFT[name](m, xp)`` gives the unit direction of m, ``FLATTEN[name](points, xp)`` the m of points:

  pinhole           m = (x, y) / depth; also "opencv", whose distortion is applied to m
  opencv_fisheye    |m| is the polar angle
  equirectangular   m = (longitude, -latitude), radians
  orthographic      m is the offset from the axis, world units
"""

from __future__ import annotations

import math


def length(vector, xp):
    """Euclidean length over the last axis, with a finite gradient at zero."""
    return xp.sqrt(xp.maximum(xp.sum(xp.square(vector), axis=-1), 1e-30))


def _lift_perspective(m, xp):
    x, y = m[..., 0], m[..., 1]
    vector = xp.stack([x, -y, -xp.ones_like(x)], axis=-1)
    return vector / length(vector, xp)[..., None]


def _lift_fisheye(m, xp):
    x, y = m[..., 0], m[..., 1]
    q = x * x + y * y
    near_axis = q < 1e-4  # series in q: no square root whose slope is infinite at 0
    theta = xp.sqrt(xp.where(near_axis, 1.0, q))
    sinc = xp.where(near_axis, 1.0 - q / 6.0 + q * q / 120.0, xp.sin(theta) / theta)
    cosine = xp.where(near_axis, 1.0 - q / 2.0 + q * q / 24.0, xp.cos(theta))
    return xp.stack([x * sinc, -y * sinc, -cosine], axis=-1)


def _lift_equirectangular(m, xp):
    longitude, latitude = m[..., 0], -m[..., 1]
    level = xp.cos(latitude)
    return xp.stack([level * xp.sin(longitude), xp.sin(latitude), -level * xp.cos(longitude)], axis=-1)


def _lift_orthographic(m, xp):
    zero = xp.zeros_like(m[..., 0])
    return xp.stack([zero, zero, zero - 1.0], axis=-1)


def _flatten_perspective(points, xp):
    depth = -points[..., 2]
    depth = xp.where(depth > 1e-12, depth, 1.0)
    return xp.stack([points[..., 0] / depth, -points[..., 1] / depth], axis=-1)


def _flatten_fisheye(points, xp):
    x, y, depth = points[..., 0], -points[..., 1], -points[..., 2]
    q = x * x + y * y
    on_axis = q <= 1e-14 * depth * depth
    rho = xp.sqrt(xp.where(on_axis, 1.0, q))
    ratio = xp.where(on_axis, 1.0 / xp.where(depth > 1e-12, depth, 1.0), xp.arctan2(rho, depth) / rho)
    return xp.stack([x * ratio, y * ratio], axis=-1)


def _flatten_equirectangular(points, xp):
    x, y, depth = points[..., 0], points[..., 1], -points[..., 2]
    q = x * x + depth * depth
    at_pole = q <= 1e-30
    longitude = xp.arctan2(xp.where(at_pole, 0.0, x), xp.where(at_pole, 1.0, depth))
    return xp.stack([longitude, -xp.arctan2(y, xp.sqrt(xp.where(at_pole, 1e-30, q)))], axis=-1)


def _flatten_orthographic(points, xp):
    return xp.stack([points[..., 0], -points[..., 1]], axis=-1)


LIFT = {
    "pinhole": _lift_perspective,
    "opencv_fisheye": _lift_fisheye,
    "equirectangular": _lift_equirectangular,
    "orthographic": _lift_orthographic,
}
FLATTEN = {
    "pinhole": _flatten_perspective,
    "opencv_fisheye": _flatten_fisheye,
    "equirectangular": _flatten_equirectangular,
    "orthographic": _flatten_orthographic,
}


def plane_limit(name: str, plane, xp):
    """Where an undistorted plane point stands for one direction only."""
    if name == "opencv_fisheye":
        return xp.sum(xp.square(plane), axis=-1) < math.pi**2
    if name == "equirectangular":
        return xp.abs(plane[..., 1]) <= 0.5 * math.pi + 1e-6
    return xp.ones(plane.shape[:-1], bool)


def in_front(name: str, points, xp):
    """[...] whether the lens looks towards points [..., 3] in camera axes."""
    depth, size = -points[..., 2], length(points, xp)
    if name == "opencv_fisheye":  # all but the point straight behind
        return (depth > -(1.0 - 1e-7) * size) & (size > 1e-12)
    if name == "equirectangular":
        return size > 1e-12
    return depth > 1e-12
