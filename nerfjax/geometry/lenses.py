"""The ideal lenses: undistorted plane point <-> direction in camera axes.

A plane point m = (x, y) has image axes (x right, y down); directions and points have OpenGL camera axes (+y up,
-z forward). ``LIFT[name](m, c, xp)`` gives the unit direction of m, ``FLATTEN[name](points, c, xp)`` the m of points;
``c`` [..., 12] is the camera's distortion, of which the last three lenses use k1 and k2:

  perspective       m = (x, y) / depth
  fisheye           |m| is the polar angle
  equirectangular   m = (longitude, -latitude), radians
  orthographic      m is the offset from the axis, world units
  fov               |m| = atan(2 r tan(w / 2)) / w, with r = tan of the polar angle, w = k1       (Devernay & Faugeras)
  division          r = |m| / (1 + k1 |m|^2)                                                      (Fitzgibbon)
  eucm              m = (x, y) / (a sqrt(b (x^2 + y^2) + depth^2) + (1 - a) depth), a = k1, b = k2     (Khomutenko)
"""

from __future__ import annotations

import math

# The lens of each camera model; what remains between them is their distortion (``distortion.py``).
LENS_OF = {
    "pinhole": "perspective",
    "opencv": "perspective",
    "full_opencv": "perspective",
    "opencv_fisheye": "fisheye",
    "thin_prism_fisheye": "fisheye",
    "rad_tan_thin_prism_fisheye": "fisheye",
    "equirectangular": "equirectangular",
    "orthographic": "orthographic",
    "fov": "fov",
    "division": "division",
    "eucm": "eucm",
}


def length(vector, xp):
    """Euclidean length over the last axis, with a finite gradient at zero."""
    return xp.sqrt(xp.maximum(xp.sum(xp.square(vector), axis=-1), 1e-30))


def _unit(x, y, backward, xp):
    vector = xp.stack([x, -y, backward], axis=-1)
    return vector / length(vector, xp)[..., None]


def _sinc_and_cosine(q, xp):
    """Returns sin(z) / z and cos(z) of z = sqrt(q)."""
    near_axis = q < 1e-4  # series in q: no square root whose slope is infinite at 0
    z = xp.sqrt(xp.where(near_axis, 1.0, q))
    sinc = xp.where(near_axis, 1.0 - q / 6.0 + q * q / 120.0, xp.sin(z) / z)
    return sinc, xp.where(near_axis, 1.0 - q / 2.0 + q * q / 24.0, xp.cos(z))


def _lift_perspective(m, c, xp):
    return _unit(m[..., 0], m[..., 1], -xp.ones_like(m[..., 0]), xp)


def _lift_fisheye(m, c, xp):
    x, y = m[..., 0], m[..., 1]
    sinc, cosine = _sinc_and_cosine(x * x + y * y, xp)
    return xp.stack([x * sinc, -y * sinc, -cosine], axis=-1)


def _lift_equirectangular(m, c, xp):
    longitude, latitude = m[..., 0], -m[..., 1]
    level = xp.cos(latitude)
    return xp.stack([level * xp.sin(longitude), xp.sin(latitude), -level * xp.cos(longitude)], axis=-1)


def _lift_orthographic(m, c, xp):
    zero = xp.zeros_like(m[..., 0])
    return xp.stack([zero, zero, zero - 1.0], axis=-1)


def _fov_ratio(w, xp):
    """Returns w / (2 tan(w / 2)), 1 at w = 0."""
    sinc, cosine = _sinc_and_cosine(0.25 * w * w, xp)
    return cosine / sinc


def _lift_fov(m, c, xp):
    x, y, w = m[..., 0], m[..., 1], c[..., 0]
    sinc, cosine = _sinc_and_cosine(w * w * (x * x + y * y), xp)
    reach = sinc * _fov_ratio(w, xp)
    return _unit(x * reach, y * reach, -cosine, xp)


def _lift_division(m, c, xp):
    x, y = m[..., 0], m[..., 1]
    return _unit(x, y, -(1.0 + c[..., 0] * (x * x + y * y)), xp)


def _lift_eucm(m, c, xp):
    x, y, a, b = m[..., 0], m[..., 1], c[..., 0], c[..., 1]
    q = b * (x * x + y * y)
    root = xp.sqrt(xp.maximum(1.0 - (2.0 * a - 1.0) * q, 1e-12))
    return _unit(x, y, -(1.0 - a * a * q) / (a * root + 1.0 - a), xp)


def _split(points):
    """Returns x (right), y (down), depth, and x^2 + y^2."""
    x, y = points[..., 0], -points[..., 1]
    return x, y, -points[..., 2], x * x + y * y


def _flatten_perspective(points, c, xp):
    x, y, depth, _ = _split(points)
    depth = xp.where(depth > 1e-12, depth, 1.0)
    return xp.stack([x / depth, y / depth], axis=-1)


def _flatten_fisheye(points, c, xp):
    x, y, depth, q = _split(points)
    on_axis = q <= 1e-14 * depth * depth
    rho = xp.sqrt(xp.where(on_axis, 1.0, q))
    ratio = xp.where(on_axis, 1.0 / xp.where(depth > 1e-12, depth, 1.0), xp.arctan2(rho, depth) / rho)
    return xp.stack([x * ratio, y * ratio], axis=-1)


def _flatten_equirectangular(points, c, xp):
    x, y, depth = points[..., 0], points[..., 1], -points[..., 2]
    q = x * x + depth * depth
    at_pole = q <= 1e-30
    longitude = xp.arctan2(xp.where(at_pole, 0.0, x), xp.where(at_pole, 1.0, depth))
    return xp.stack([longitude, -xp.arctan2(y, xp.sqrt(xp.where(at_pole, 1e-30, q)))], axis=-1)


def _flatten_orthographic(points, c, xp):
    return xp.stack([points[..., 0], -points[..., 1]], axis=-1)


def _flatten_fov(points, c, xp):
    m, w = _flatten_perspective(points, c, xp), c[..., 0]
    slope = w / _fov_ratio(w, xp)  # 2 tan(w / 2)
    q = xp.square(slope) * xp.sum(xp.square(m), axis=-1)
    near_axis = q < 1e-3
    z = xp.sqrt(xp.where(near_axis, 1.0, q))
    series = 1.0 - q * (1.0 / 3.0 - q * (1.0 / 5.0 - q * (1.0 / 7.0)))
    ratio = xp.where(near_axis, series, xp.arctan(z) / z) / _fov_ratio(w, xp)
    return m * ratio[..., None]


def _flatten_division(points, c, xp):
    x, y, depth, q = _split(points)
    root = xp.sqrt(xp.maximum(depth * depth - 4.0 * c[..., 0] * q, 1e-30))
    ratio = 2.0 / xp.maximum(depth + root, 1e-12)
    return xp.stack([x * ratio, y * ratio], axis=-1)


def _flatten_eucm(points, c, xp):
    x, y, depth, q = _split(points)
    a, b = c[..., 0], c[..., 1]
    below = a * xp.sqrt(xp.maximum(b * q + depth * depth, 1e-30)) + (1.0 - a) * depth
    below = xp.where(below > 1e-12, below, 1.0)
    return xp.stack([x / below, y / below], axis=-1)


LIFT = {
    "perspective": _lift_perspective,
    "fisheye": _lift_fisheye,
    "equirectangular": _lift_equirectangular,
    "orthographic": _lift_orthographic,
    "fov": _lift_fov,
    "division": _lift_division,
    "eucm": _lift_eucm,
}
FLATTEN = {
    "perspective": _flatten_perspective,
    "fisheye": _flatten_fisheye,
    "equirectangular": _flatten_equirectangular,
    "orthographic": _flatten_orthographic,
    "fov": _flatten_fov,
    "division": _flatten_division,
    "eucm": _flatten_eucm,
}
LIMITED = ("fisheye", "equirectangular", "fov", "division", "eucm")  # not every plane point stands for a direction


def plane_limit(name: str, plane, c, xp):
    """Where an undistorted plane point stands for one direction only."""
    q = xp.sum(xp.square(plane), axis=-1)
    if name == "fisheye":
        return q < math.pi**2
    if name == "equirectangular":
        return xp.abs(plane[..., 1]) <= 0.5 * math.pi + 1e-6
    if name == "fov":
        return xp.square(c[..., 0]) * q < (0.5 * math.pi) ** 2
    if name == "division":
        return xp.abs(c[..., 0]) * q < 1.0 - 1e-6
    if name == "eucm":
        a, b = c[..., 0], c[..., 1]
        return (2.0 * a - 1.0) * b * q < 1.0 - 1e-6
    return xp.ones(plane.shape[:-1], bool)


def in_front(name: str, points, c, xp):
    """[...] whether the lens looks towards points [..., 3] in camera axes."""
    depth, size = -points[..., 2], length(points, xp)
    if name == "fisheye":  # all but the point straight behind
        return (depth > -(1.0 - 1e-7) * size) & (size > 1e-12)
    if name == "equirectangular":
        return size > 1e-12
    if name == "division":
        q = xp.square(points[..., 0]) + xp.square(points[..., 1])
        return (depth > 1e-12) & (depth * depth > 4.0 * c[..., 0] * q)
    if name == "eucm":
        a = c[..., 0]
        edge = xp.minimum(a, 1.0 - a) / xp.maximum(xp.maximum(a, 1.0 - a), 1e-12)
        q = xp.square(points[..., 0]) + xp.square(points[..., 1])
        return (depth > -edge * xp.sqrt(c[..., 1] * q + depth * depth)) & (size > 1e-12)
    return depth > 1e-12
