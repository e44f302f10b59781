"""Warps of the ray coordinate (t <-> s) and of space (contraction).

Notation: ``t`` in [near, far] is distance along the ray, ``s`` in [0, 1] its normalised coordinate. A spacing is a
strictly monotone function g, and

  s = (g(t) - g(near)) / (g(far) - g(near)),     t = g^-1(g(near) + s (g(far) - g(near))).

Equal steps in s are equal steps in g(t); only the affine class of g matters. Warps that are bounded at infinity are
written falling to 0 (1/t rather than 1 - 1/t), and the interpolation is anchored at the end where |g| is smallest:
float32 then keeps its relative precision out to far = 1e9.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from nerfjax.errors import UserError, did_you_mean
from nerfjax.types import Array

_TINY = 1e-12
_POWER, _PREMULTIPLIER = -1.5, 2.0  # Zip-NeRF's ladder: P(2 t, -1.5)
_LADDER_SCALE = _PREMULTIPLIER / abs(_POWER - 1.0)


class Spacing(NamedTuple):
    """A strictly monotone function of distance and its inverse.

    Attributes:
      forward: g(t).
      inverse: g^-1.
      falling: whether g falls with t (then it falls towards 0 at infinity).
      needs_positive_near: whether g is infinite at t = 0.
    """

    forward: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    falling: bool
    needs_positive_near: bool


def _reciprocal(x: Array) -> Array:
    return 1.0 / jnp.maximum(x, _TINY)


def _piecewise(t: Array) -> Array:
    return jnp.where(t < 1.0, 1.0 - 0.5 * t, 0.5 * _reciprocal(jnp.maximum(t, 1.0)))


def _piecewise_inverse(g: Array) -> Array:
    return jnp.where(g > 0.5, 2.0 - 2.0 * g, 0.5 * _reciprocal(jnp.minimum(g, 0.5)))


SPACINGS: dict[str, Spacing] = {
    "linear": Spacing(lambda t: t, lambda g: g, False, False),
    "disparity": Spacing(_reciprocal, _reciprocal, True, True),
    "log": Spacing(lambda t: jnp.log(jnp.maximum(t, _TINY)), jnp.exp, False, True),
    "sqrt": Spacing(lambda t: jnp.sqrt(jnp.maximum(t, _TINY)), jnp.square, False, False),
    # t/2 up to t = 1 and 1 - 1/(2t) beyond, written as one minus that.
    "piecewise": Spacing(_piecewise, _piecewise_inverse, True, False),
    # Zip-NeRF (Barron et al. 2023, Sec. 5 and supplement), up to an affine map.
    "power": Spacing(
        lambda t: (1.0 + _LADDER_SCALE * t) ** _POWER,
        lambda g: (jnp.maximum(g, 1e-20) ** (1.0 / _POWER) - 1.0) / _LADDER_SCALE,
        True,
        False,
    ),
}


def spacing(name: str) -> Spacing:
    """Returns the spacing of that name.

    Raises:
      UserError: there is no such spacing.
    """
    if name not in SPACINGS:
        raise UserError(
            "Unknown ray spacing.", field="spacing", found=repr(name),
            expected=", ".join(SPACINGS), fix=did_you_mean(name, SPACINGS),
        )  # fmt: skip
    return SPACINGS[name]


def _ends(name: str, like: Array, near, far) -> tuple[Spacing, Array, Array]:
    """The spacing, and near and far with the rank of ``like`` [..., n] (they are scalars or [...])."""
    warp = spacing(name)
    if warp.needs_positive_near and isinstance(near, int | float | np.ndarray | np.generic) and np.any(near <= 0):
        raise UserError(
            f"The {name!r} spacing needs a near distance above zero.", field="near", found=np.min(near),
            expected="> 0", fix="set scene.near, or use the spacing 'linear', 'piecewise' or 'power'",
        )  # fmt: skip
    near, far = (jnp.asarray(end, like.dtype) for end in (near, far))
    near, far = (end[..., None] if end.ndim else end.reshape((1,) * like.ndim) for end in (near, far))
    return warp, near, far


def t_from_s(name: str, s: Array, near, far) -> Array:
    """Distances at normalised coordinates; exactly ``near`` at s = 0 and ``far`` at s = 1.

    Args:
      name: key of ``SPACINGS``.
      s: [..., n] in [0, 1].
      near: scalar or [...], world units.
      far: scalar or [...], world units.

    Returns:
      [..., n] distances in [near, far], rising with s (up to the last bit for ``log`` and ``power``).

    Raises:
      UserError: unknown name, or a near of zero where the spacing is infinite there.
    """
    warp, near, far = _ends(name, s, near, far)
    g_near, g_far = warp.forward(near), warp.forward(far)
    # Each form rounds monotonically and is exact at the end where |g| is smallest.
    g = g_far + (g_near - g_far) * (1.0 - s) if warp.falling else g_near + (g_far - g_near) * s
    t = jnp.clip(warp.inverse(g), near, far)
    return jnp.where(s <= 0.0, near, jnp.where(s >= 1.0, far, t))


def s_from_t(name: str, t: Array, near, far) -> Array:
    """Normalised coordinates of distances, the inverse of ``t_from_s``.

    Args:
      name: key of ``SPACINGS``.
      t: [..., n] distances; those outside [near, far] go to 0 or 1.
      near: scalar or [...], world units.
      far: scalar or [...], world units.

    Returns:
      [..., n] in [0, 1].

    Raises:
      UserError: unknown name, or a near of zero where the spacing is infinite there.
    """
    warp, near, far = _ends(name, t, near, far)
    g, g_near, g_far = (warp.forward(x) for x in (jnp.clip(t, near, far), near, far))
    span = g_far - g_near
    usable = jnp.abs(span) > 0.0
    s = jnp.clip((g - g_near) / jnp.where(usable, span, 1.0), 0.0, 1.0)
    return jnp.where(t <= near, 0.0, jnp.where(t >= far, 1.0, s))


def contract(x: Array, *, ord: str = "l2") -> Array:
    """Contracts all of space into radius 2, leaving the unit ball (or cube) alone.

      f(x) = x for |x| <= 1,   (2 - 1/|x|) x/|x| outside

    with the Euclidean ("l2") or the maximum ("inf") norm. Values and gradients are finite from 0 to 1e18.

    Args:
      x: [..., 3] positions in units of the region of full resolution.
      ord: "l2" or "inf".

    Returns:
      [..., 3] positions of norm below or at 2.

    Reference: mip-NeRF 360 (Barron et al. 2022), Eq. 10.
    """
    peak = jnp.maximum(jnp.max(jnp.abs(x), axis=-1, keepdims=True), 1.0)
    if _is_l2(ord):
        # The scale cancels from the result, so it needs no gradient; it keeps squares far from overflow.
        peak = jax.lax.stop_gradient(peak)
        x = x / peak
        norm = jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(x), axis=-1, keepdims=True), 1.0))
        return x * ((2.0 - 1.0 / (peak * norm)) / norm)
    return x * ((2.0 - 1.0 / peak) / peak)


def uncontract(y: Array, *, ord: str = "l2") -> Array:
    """The inverse of ``contract``: f^-1(y) = y for |y| <= 1, y / (|y| (2 - |y|)) outside (at most 1e18).

    Args:
      y: [..., 3] contracted positions.
      ord: "l2" or "inf".

    Returns:
      [..., 3] positions.
    """
    if _is_l2(ord):
        norm = jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(y), axis=-1, keepdims=True), 1.0))
    else:
        norm = jnp.maximum(jnp.max(jnp.abs(y), axis=-1, keepdims=True), 1.0)
    return y / norm / jnp.maximum(2.0 - norm, 1e-18)


def normalize_to_box(x: Array, box: ArrayLike) -> Array:
    """Maps ``box`` [2, 3] onto [-1, 1]^3 per axis.

    Args:
      x: [..., 3] positions, world units.
      box: [2, 3] lower and upper corner.

    Returns:
      [..., 3]; outside [-1, 1] where x lies outside the box.
    """
    lower, upper = (jnp.expand_dims(jnp.asarray(box)[side], tuple(range(x.ndim - 1))) for side in (0, 1))
    return (x - 0.5 * (lower + upper)) * (2.0 / (upper - lower))


def _is_l2(ord: str) -> bool:
    if ord not in ("l2", "inf"):
        raise UserError(
            "Unknown norm of the contraction.", field="ord", found=repr(ord), expected="'l2' or 'inf'",
            fix=did_you_mean(ord, ("l2", "inf")),
        )  # fmt: skip
    return ord == "l2"
