"""Lens distortions on the undistorted plane, and their inverse.

With m = (x, y) on the undistorted plane (image axes), q = |m|^2, and

  T(u) = (2 p1 u v + p2 (r + 2 u^2), p1 (r + 2 v^2) + 2 p2 u v) + (s1 r + s2 r^2, s3 r + s4 r^2),   r = |(u, v)|^2

(tangential and thin-prism terms), a distortion is

  polynomial           D(m) = m (1 + k1 q + k2 q^2 + k3 q^3 + k4 q^4) + T(m), without prism
  prism                the same with the prism terms
  rational             D(m) = m (1 + k1 q + k2 q^2 + k3 q^3) / (1 + k4 q + k5 q^2 + k6 q^3) + T(m)       (OpenCV)
  radial_then_prism    D(m) = u + T(u) with u = m (1 + k1 q + … + k6 q^6)                               (Fisheye624)

Where the symmetric part of the Jacobian J is positive definite on a convex region, D is one-to-one there. That is the
lens's valid field: positive definite on the segment from the axis to m. Beyond it (where the polynomial folds back)
nothing can be inverted.

``distortion`` is [..., 12] in the order of ``types.DISTORTION`` (6 columns serve the polynomial); ``xp`` is ``jnp``
(few steps, float32) or ``np`` (float64).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from nerfjax.types import DISTORTION

_FIELD_CHECKS = 16  # samples of the segment on which J is tested

# The distortion of each camera model that has one.
DISTORTION_OF = {
    "opencv": "polynomial",
    "opencv_fisheye": "polynomial",
    "full_opencv": "rational",
    "thin_prism_fisheye": "prism",
    "rad_tan_thin_prism_fisheye": "radial_then_prism",
}


def _columns(distortion, names: str):
    return (distortion[..., DISTORTION.index(name)] for name in names.split())


def _radial(kind: str, q, distortion, xp):
    """Returns the radial factor less one, its derivative in q, and the denominator (None where there is none)."""
    k1, k2, k3, k4 = _columns(distortion, "k1 k2 k3 k4")
    if kind == "rational":
        k5, k6 = _columns(distortion, "k5 k6")
        over, over_slope = q * (k1 + q * (k2 + q * k3)), k1 + q * (2.0 * k2 + q * (3.0 * k3))
        under, under_slope = q * (k4 + q * (k5 + q * k6)), k4 + q * (2.0 * k5 + q * (3.0 * k6))
        denominator = 1.0 + under
        safe = xp.where(xp.abs(denominator) > 1e-6, denominator, 1e-6)
        excess = (over - under) / safe
        return excess, (over_slope - (1.0 + excess) * under_slope) / safe, denominator
    if kind == "radial_then_prism":
        k5, k6 = _columns(distortion, "k5 k6")
        tail, tail_slope = q * (k5 + q * k6), 5.0 * k5 + q * (6.0 * k6)
    else:
        tail = tail_slope = 0.0
    excess = q * (k1 + q * (k2 + q * (k3 + q * (k4 + tail))))
    slope = k1 + q * (2.0 * k2 + q * (3.0 * k3 + q * (4.0 * k4 + q * tail_slope)))
    return excess, slope, None


def _decentering(kind: str, x, y, distortion):
    """Returns T's two components and its Jacobian's entries (xx, xy, yx, yy)."""
    q = x * x + y * y
    p1, p2 = _columns(distortion, "p1 p2")
    along_x = 2.0 * p1 * x * y + p2 * (q + 2.0 * x * x)
    along_y = p1 * (q + 2.0 * y * y) + 2.0 * p2 * x * y
    xx, yy, xy = 2.0 * p1 * y + 6.0 * p2 * x, 6.0 * p1 * y + 2.0 * p2 * x, 2.0 * p1 * x + 2.0 * p2 * y
    if kind == "polynomial":
        return along_x, along_y, (xx, xy, xy, yy)
    s1, s2, s3, s4 = _columns(distortion, "s1 s2 s3 s4")
    turn_x, turn_y = 2.0 * s1 + 4.0 * s2 * q, 2.0 * s3 + 4.0 * s4 * q
    jacobian = (xx + turn_x * x, xy + turn_x * y, xy + turn_y * x, yy + turn_y * y)
    return along_x + q * (s1 + s2 * q), along_y + q * (s3 + s4 * q), jacobian


def distort(kind: str, m, distortion, xp):
    """D(m) [..., 2] and its Jacobian's entries (xx, xy, yx, yy), each [...]."""
    x, y = m[..., 0], m[..., 1]
    excess, slope, _ = _radial(kind, x * x + y * y, distortion, xp)
    xx, xy, yy = 1.0 + excess + 2.0 * x * x * slope, 2.0 * x * y * slope, 1.0 + excess + 2.0 * y * y * slope
    if kind == "radial_then_prism":
        u, v = x + x * excess, y + y * excess
        along_x, along_y, (a, b, c, d) = _decentering(kind, u, v, distortion)
        jacobian = ((1.0 + a) * xx + b * xy, (1.0 + a) * xy + b * yy, c * xx + (1.0 + d) * xy, c * xy + (1.0 + d) * yy)
        return xp.stack([u + along_x, v + along_y], axis=-1), jacobian
    along_x, along_y, (a, b, c, d) = _decentering(kind, x, y, distortion)
    distorted = xp.stack([x + (x * excess + along_x), y + (y * excess + along_y)], axis=-1)
    return distorted, (xx + a, xy + b, xy + c, yy + d)


def _newton_step(kind: str, m, target, distortion, xp):
    distorted, (xx, xy, yx, yy) = distort(kind, m, distortion, xp)
    determinant = xx * yy - xy * yx
    # Past the fold the determinant changes sign; its size is kept off zero so that whatever comes out is finite.
    determinant = xp.where(xp.abs(determinant) > 1e-6, determinant, 1e-6)
    rx, ry = target[..., 0] - distorted[..., 0], target[..., 1] - distorted[..., 1]
    step = xp.stack([yy * rx - xy * ry, xx * ry - yx * rx], axis=-1) / determinant[..., None]
    limit = 1.0 + xp.max(xp.abs(target), axis=-1, keepdims=True)
    return m + xp.clip(step, -limit, limit)


def undistort(kind: str, target, distortion, xp):
    """The m with D(m) = target, by a fixed number of Newton steps.

    The first steps walk the target out from the axis, which keeps to the branch that holds the axis where Newton's
    method from the distorted point may leap over a fold. All but the last step are free of gradient: one step from
    the solution has the derivative of the implicit function, exactly.
    """
    walk, finish = (4, 4) if xp is jnp else (16, 24)
    freeze = jax.lax.stop_gradient if xp is jnp else (lambda leaf: leaf)
    goal, coefficients = freeze(target), freeze(distortion)
    m = goal / walk
    for step in range(2, walk + 1):
        m = _newton_step(kind, m, goal * (step / walk), coefficients, xp)
    for _ in range(finish):
        m = _newton_step(kind, m, goal, coefficients, xp)
    return _newton_step(kind, m, target, distortion, xp)


def in_valid_field(kind: str, m, distortion, xp):
    """[...] whether D is one-to-one on the segment from the axis to ``m`` (see the module's text)."""
    fractions = xp.asarray([(i + 1) / _FIELD_CHECKS for i in range(_FIELD_CHECKS)], m.dtype)
    samples = m[..., None, :] * fractions.reshape((1,) * (m.ndim - 1) + (_FIELD_CHECKS, 1))
    _, (xx, xy, yx, yy) = distort(kind, samples, distortion[..., None, :], xp)
    one_to_one = (xx * yy - xp.square(0.5 * (xy + yx)) > 1e-6) & (xx + yy > 0.0)
    if kind == "rational":  # nor may a pole lie between
        q = xp.sum(xp.square(samples), axis=-1)
        one_to_one = one_to_one & (_radial(kind, q, distortion[..., None, :], xp)[2] > 1e-3)
    return xp.all(one_to_one, axis=-1) & xp.all(xp.abs(m) < 1e4, axis=-1)
