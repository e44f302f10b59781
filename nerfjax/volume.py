"""From densities to pixels: the volume rendering equation for piecewise constant densities.

Notation: ``delta`` is the length of an interval (world units), ``density * delta`` its optical depth,
``T_i = exp(-sum_{j<i} density_j delta_j)`` the transmittance at its near end and
``w_i = T_i (1 - exp(-density_i delta_i))`` its weight. Dense rays have S intervals on the last axis; packed rays have
their slots adjacent on one axis [M]. Both agree to float precision.

Max 1995, Optical Models for Direct Volume Rendering; Mildenhall et al. 2020, NeRF, Eq. 3.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Float

from nerfjax import numerics
from nerfjax.types import Array, Intervals, PackedIntervals, Rendering

# exp(-128) is 0 in float32, so an optical depth cut here changes neither a weight nor a gradient, while density *
# length may overflow to infinity, and infinity times the zeros of a scan's matrix form (TPU) would be NaN.
OPTICAL_DEPTH_MAX = 128.0


def _optical_depth(density: Array, delta: Array) -> Array:
    return jnp.minimum(density * delta, OPTICAL_DEPTH_MAX)


def _edge_transmittance(optical_depth: Array) -> Array:
    """Transmittance at the S+1 edges: exp of minus the exclusive sums."""
    depth = jnp.cumsum(optical_depth, axis=-1)
    return jnp.exp(-jnp.concatenate([jnp.zeros_like(depth[..., :1]), depth], axis=-1))


def transmittance_from_density(density: Float[Array, "... S"], delta: Float[Array, "... S"]) -> Float[Array, "... S+1"]:
    """Fraction of light that reaches each edge, ``T_i = exp(-sum_{j<i} density_j delta_j)``.

    Args:
      density: [..., S], 1 / world unit, not negative.
      delta: [..., S], world units.

    Returns:
      [..., S+1], from 1 downwards.
    """
    return _edge_transmittance(_optical_depth(density, delta))


def weights_from_density(
    density: Float[Array, "... S"], delta: Float[Array, "... S"], *, opaque_end: bool = False
) -> Float[Array, "... S"]:
    """Rendering weights ``w_i = T_i (1 - exp(-density_i delta_i))``; their sum is ``1 - exp(-total optical depth)``.

    Values and gradients are finite from density 0 to infinity.

    Args:
      density: [..., S], 1 / world unit, not negative.
      delta: [..., S], world units.
      opaque_end: whether the last interval stops all the light that reaches it, so that the weights add up to 1.

    Returns:
      [..., S].
    """
    depth = _optical_depth(density, delta)
    if opaque_end:
        depth = jnp.concatenate([depth[..., :-1], jnp.full_like(depth[..., -1:], OPTICAL_DEPTH_MAX)], axis=-1)
    return _edge_transmittance(depth)[..., :-1] * -jnp.expm1(-depth)


def composite(
    weights: Float[Array, "... S"],
    colors: Float[Array, "... S 3"],
    intervals: Intervals,
    far: Float[Array, " ..."],
    background: Float[Array, "... 3"],
) -> Rendering:
    """Composites dense rays.

    ``color = sum_i w_i c_i + (1 - sum_i w_i) background``; ``depth = sum_i w_i t_i + (1 - sum_i w_i) far`` with
    interval midpoints ``t_i``.

    Args:
      weights: [..., S].
      colors: [..., S, 3] sRGB.
      intervals: the intervals of the weights.
      far: [...] distance of what lies behind, world units.
      background: [..., 3] colour of what lies behind.

    Returns:
      The Rendering.
    """
    accumulation = jnp.sum(weights, axis=-1)
    color = jnp.sum(weights[..., None] * colors, axis=-2)
    depth = jnp.sum(weights * intervals.t_mid, axis=-1)
    return _over_background(color, accumulation, depth, intervals, weights, far, background)


def _over_background(color, accumulation, depth, intervals, weights, far, background) -> Rendering:
    # Weights may add up to 1 + 1e-7; times a far of 1e9 that would be a depth of -100.
    rest = jnp.maximum(1.0 - accumulation, 0.0)
    return Rendering(
        color=color + rest[..., None] * background,
        accumulation=accumulation,
        depth=depth + rest * far,
        intervals=intervals,
        weights=weights,
    )


def packed_weights_from_density(density: Float[Array, " M"], packed: PackedIntervals) -> Float[Array, " M"]:
    """Rendering weights of packed intervals; 0 in padding, whatever the density there.

    Args:
      density: [M], 1 / world unit, not negative.
      packed: N rays in M slots.

    Returns:
      [M].
    """
    valid = packed.ray < packed.start.shape[0]
    depth = _optical_depth(jnp.where(valid, density, 0.0), packed.t_delta)
    transmittance = jnp.exp(-numerics.segmented_cumsum(depth, packed.ray, exclusive=True))
    return transmittance * -jnp.expm1(-depth)


def packed_composite(
    weights: Float[Array, " M"],
    colors: Float[Array, "M 3"],
    packed: PackedIntervals,
    far: Float[Array, " N"],
    background: Float[Array, "N 3"],
) -> Rendering:
    """Composites packed rays, with the formulas of ``composite``; a ray without slots shows the background.

    Args:
      weights: [M], 0 in padding.
      colors: [M, 3] sRGB, finite.
      packed: N rays in M slots.
      far: [N] distance of what lies behind, world units.
      background: [N, 3] colour of what lies behind.

    Returns:
      The Rendering of N rays.
    """
    channels = jnp.concatenate([colors, packed.t_mid[:, None], jnp.ones_like(weights)[:, None]], axis=-1)
    sums = numerics.segment_sum(weights[:, None] * channels, packed.ray, packed.start.shape[0])
    return _over_background(sums[:, :3], sums[:, 4], sums[:, 3], packed, weights, far, background)


def render_weights(density: Array, intervals: Intervals | PackedIntervals, *, opaque_end: bool = False) -> Array:
    """Rendering weights of either kind of intervals.

    Args:
      density: [..., S] or [M], 1 / world unit.
      intervals: dense or packed.
      opaque_end: see ``weights_from_density``; dense intervals only.

    Returns:
      Shaped like the density.
    """
    if isinstance(intervals, Intervals):
        return weights_from_density(density, intervals.t_delta, opaque_end=opaque_end)
    if opaque_end:
        raise ValueError("opaque_end needs dense intervals")
    return packed_weights_from_density(density, intervals)


def render(
    weights: Array, colors: Array, intervals: Intervals | PackedIntervals, far: Array, background: Array
) -> Rendering:
    """Composites either kind of intervals (``composite`` or ``packed_composite``)."""
    over = composite if isinstance(intervals, Intervals) else packed_composite
    return over(weights, colors, intervals, far, background)
