"""Step functions of N rays, looked up from M packed slots: what ``stepfun`` does for dense rays.

Notation: ``xp`` [N, E] are a ray's sorted nodes, ``x`` [M] positions, ``ray`` [M] int32 the ray of each slot. Memory
is O(M + N E): no slot sees the whole of its ray. Padding (``ray`` = N) gets the numbers of the last ray: mask them.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Float, Int, Shaped

from nerfjax import numerics
from nerfjax.types import Array

Nodes = Float[Array, "N E"]
Slots = Float[Array, " M"]
SlotRays = Int[Array, " M"]


def _row_start(xp: Array, ray: Array) -> Array:
    return jnp.minimum(ray, xp.shape[0] - 1) * xp.shape[1]


def take(values: Shaped[Array, "N S"], ray: SlotRays, index: SlotRays) -> Shaped[Array, " M"]:
    """``values[ray, index]`` [M]; padding is clipped to the last ray."""
    return values.reshape(-1).at[_row_start(values, ray) + index].get(mode="promise_in_bounds")


def _search(xp: Array, x: Array, ray: Array, side: str) -> Array:
    """Binary search, unrolled: log2(E) gathers of M numbers."""
    flat, start, size = xp.reshape(-1), _row_start(xp, ray), xp.shape[1]
    count, reach = jnp.zeros_like(ray), 1 << (size.bit_length() - 1)
    while reach:
        probe = count + reach
        node = flat.at[start + jnp.minimum(probe, size) - 1].get(mode="promise_in_bounds")
        before = node <= x if side == "right" else node < x
        count = jnp.where((probe <= size) & before, probe, count)
        reach //= 2
    return count


def _compare(xp: Array, x: Array, ray: Array, side: str) -> Array:
    """All nodes of the ray at once, [M, E]: TPUs are slow at gathers of single numbers, not at gathers of rows."""
    nodes = xp.at[ray].get(mode="clip")
    before = nodes <= x[:, None] if side == "right" else nodes < x[:, None]
    return jnp.sum(before, axis=-1, dtype=jnp.int32)


def count_before(xp: Nodes, x: Slots, ray: SlotRays, *, side: str = "right", method: str = "auto") -> SlotRays:
    """Number of the ray's nodes ``<= x`` (side "right") or ``< x`` (side "left").

    Args:
      xp: [N, E] sorted along each ray.
      x: [M].
      ray: [M] int32.
      side: "right" or "left".
      method: "auto" ("compare" on TPU, elsewhere "search"), "search" or "compare".

    Returns:
      [M] int32.
    """
    xp, x = lax.stop_gradient((xp, x))

    def search(xp, x, ray):
        return _search(xp, x, ray, side)

    def compare(xp, x, ray):
        return _compare(xp, x, ray, side)

    if method == "auto":
        count = lax.platform_dependent(xp, x, ray, tpu=compare, default=search)
    else:
        count = {"search": search, "compare": compare}[method](xp, x, ray)
    return lax.optimization_barrier(count)  # as in ``stepfun.count_before``


def interpolate(x: Slots, xp: Nodes, fp: Nodes, ray: SlotRays, *, method: str = "auto") -> Slots:
    """Piecewise linear interpolation in the ray's nodes, constant outside; ``stepfun.interpolate`` for slots.

    Args:
      x: [M] where to evaluate.
      xp: [N, E] sorted nodes.
      fp: [N, E] values at the nodes.
      ray: [M] int32.
      method: see ``count_before``.

    Returns:
      [M], for one ray sorted if ``x`` and ``fp`` are.
    """
    index = jnp.clip(count_before(xp, x, ray, method=method) - 1, 0, xp.shape[1] - 2)
    x0, x1, f0, f1 = take(xp, ray, index), take(xp, ray, index + 1), take(fp, ray, index), take(fp, ray, index + 1)
    fraction = jnp.clip(numerics.safe_divide(x - x0, x1 - x0), 0.0, 1.0)
    return jnp.clip(f0 + fraction * (f1 - f0), jnp.minimum(f0, f1), jnp.maximum(f0, f1))


def bound(
    t0: Slots, t1: Slots, ray: SlotRays, t_p: Float[Array, "N E"], w_p: Float[Array, "N E-1"], *, method: str = "auto"
) -> Slots:
    """Upper bound of the weight of each slot that a proposal allows; ``stepfun.bound`` for slots.

    Args:
      t0: [M] near ends of the slots, in the unit of t_p.
      t1: [M] far ends.
      ray: [M] int32.
      t_p: [N, P+1] edges of the proposal.
      w_p: [N, P] weights of the proposal.
      method: see ``count_before``.

    Returns:
      [M] the sum of the weights of all proposal steps that overlap the slot (a common end is no overlap).

    Barron et al. 2022, Mip-NeRF 360, Eq. 12.
    """
    integral = jnp.concatenate([jnp.zeros_like(w_p[:, :1]), jnp.cumsum(w_p, axis=-1)], axis=-1)
    first = jnp.maximum(count_before(t_p, t0, ray, side="right", method=method) - 1, 0)
    end = jnp.minimum(count_before(t_p, t1, ray, side="left", method=method), w_p.shape[1])
    return take(integral, ray, end) - take(integral, ray, jnp.minimum(first, end))


def blur_resample(
    s_p: Float[Array, "N E"], s0: Slots, s1: Slots, w: Slots, ray: SlotRays, half_width: float
) -> Float[Array, "N E-1"]:
    """Weights of slots, blurred with a box of unit mass, on the proposal's steps; ``stepfun.blur_resample`` for slots.

    Args:
      s_p: [N, P+1] edges of the proposal.
      s0: [M] near ends of the slots.
      s1: [M] far ends.
      w: [M] weights, 0 in padding.
      ray: [M] int32, N in padding.
      half_width: half the width of the box, in the unit of s.

    Returns:
      [N, P]. Memory is O(M P): every slot is spread over all steps of its ray.

    Barron et al. 2023, Zip-NeRF, section 3 (anti-aliased interlevel loss).
    """
    r = half_width
    edges = s_p.at[ray].get(mode="clip")
    low, high = edges - s1[:, None], edges - s0[:, None]
    z0, z1 = jnp.clip(low, -r, r), jnp.clip(high, -r, r)
    # The mean of the ramp clip((z + r) / 2r, 0, 1) over [low, high]: what lies on the ramp, then what lies beyond it.
    ramp = (z1 - z0) * (0.5 * (z0 + z1) + r) / (2.0 * r)
    beyond = jnp.maximum(high, r) - jnp.maximum(low, r)
    length = (s1 - s0)[:, None]
    flat = length <= numerics.DIVISOR_MIN
    share = jnp.where(flat, (z0 + r) / (2.0 * r), (ramp + beyond) / jnp.where(flat, 1.0, length))
    return jnp.diff(numerics.segment_sum(share * w[:, None], ray, s_p.shape[0]), axis=-1)
