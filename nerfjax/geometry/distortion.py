"""OpenCV's polynomial lens distortion and its inverse.

With q = |m|^2 and m = (x, y) on the undistorted plane (image axes),

  D(m) = m (1 + k1 q + k2 q^2 + k3 q^3 + k4 q^4) + (2 p1 x y + p2 (q + 2 x^2), p1 (q + 2 y^2) + 2 p2 x y).

Its Jacobian J is symmetric, so D is the gradient of a potential, and where J is positive definite on a convex region
D is one-to-one there. That is the lens's valid field: J positive definite on the segment from the axis to m. Beyond
it (where the polynomial folds back) nothing can be inverted.

``distortion`` is [..., 6] (k1, k2, k3, k4, p1, p2); ``xp`` is ``jnp`` (few steps, float32) or ``np`` (float64).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

_FIELD_CHECKS = 16  # samples of the segment on which J is tested


def distort(m, distortion, xp):
    """D(m) [..., 2] and its Jacobian's entries (xx, xy, yy), each [...]."""
    x, y = m[..., 0], m[..., 1]
    k1, k2, k3, k4, p1, p2 = (distortion[..., i] for i in range(6))
    q = x * x + y * y
    excess = q * (k1 + q * (k2 + q * (k3 + q * k4)))
    slope = k1 + q * (2.0 * k2 + q * (3.0 * k3 + q * (4.0 * k4)))
    distorted = xp.stack(
        [
            x + (x * excess + 2.0 * p1 * x * y + p2 * (q + 2.0 * x * x)),
            y + (y * excess + p1 * (q + 2.0 * y * y) + 2.0 * p2 * x * y),
        ],
        axis=-1,
    )
    xx = 1.0 + excess + 2.0 * x * x * slope + 2.0 * p1 * y + 6.0 * p2 * x
    yy = 1.0 + excess + 2.0 * y * y * slope + 6.0 * p1 * y + 2.0 * p2 * x
    xy = 2.0 * x * y * slope + 2.0 * p1 * x + 2.0 * p2 * y
    return distorted, (xx, xy, yy)


def _newton_step(m, target, distortion, xp):
    distorted, (xx, xy, yy) = distort(m, distortion, xp)
    determinant = xx * yy - xy * xy
    # Past the fold the determinant changes sign; its size is kept off zero so that whatever comes out is finite.
    determinant = xp.where(xp.abs(determinant) > 1e-6, determinant, 1e-6)
    rx, ry = target[..., 0] - distorted[..., 0], target[..., 1] - distorted[..., 1]
    step = xp.stack([yy * rx - xy * ry, xx * ry - xy * rx], axis=-1) / determinant[..., None]
    limit = 1.0 + xp.max(xp.abs(target), axis=-1, keepdims=True)
    return m + xp.clip(step, -limit, limit)


def undistort(target, distortion, xp):
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
        m = _newton_step(m, goal * (step / walk), coefficients, xp)
    for _ in range(finish):
        m = _newton_step(m, goal, coefficients, xp)
    return _newton_step(m, target, distortion, xp)


def in_valid_field(m, distortion, xp):
    """[...] whether J is positive definite on the segment from the axis to ``m`` (so that D is one-to-one there)."""
    fractions = xp.asarray([(i + 1) / _FIELD_CHECKS for i in range(_FIELD_CHECKS)], m.dtype)
    samples = m[..., None, :] * fractions.reshape((1,) * (m.ndim - 1) + (_FIELD_CHECKS, 1))
    _, (xx, xy, yy) = distort(samples, distortion[..., None, :], xp)
    positive_definite = (xx * yy - xy * xy > 1e-6) & (xx + yy > 0.0)
    return xp.all(positive_definite, axis=-1) & xp.all(xp.abs(m) < 1e4, axis=-1)
