"""What training minimizes: colour errors and the regularizers of weights along rays.

A histogram is a pair (edges ``s`` [..., S+1], weights ``w`` [..., S]) over the normalized ray coordinate. Every loss is
a scalar, the mean over rays; losses of histograms are sums over the intervals of a ray.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Float

from nerfjax import numerics, packed_stepfun, stepfun
from nerfjax.types import Array, PackedIntervals

CHARBONNIER_PADDING = 1e-3  # mip-NeRF 360, section 5
# Weights below this do not show in a pixel, and rounding in the bound's prefix sums (6e-8) over a smaller divisor would
# pull on the proposal as strongly as a real lack does.
INTERLEVEL_EPSILON = 1e-5

Scalar = Float[Array, ""]
Colors = Float[Array, "*batch channels"]
RayWeight = Float[Array, "*batch"]
Histogram = tuple[Float[Array, "... _"], Float[Array, "... _"]]


def _mean_over_rays(errors: Array, weight: Array | None) -> Array:
    return jnp.mean(errors if weight is None else errors * weight[..., None])


def l2(prediction: Colors, target: Colors, weight: RayWeight | None = None) -> Scalar:
    """Mean squared colour error.

    Args:
      prediction: [..., channels].
      target: [..., channels].
      weight: [...] weight of each ray, of mean 1; None for equal ones.

    Returns:
      [] mean over rays and channels.
    """
    return _mean_over_rays(jnp.square(prediction - target), weight)


def charbonnier(
    prediction: Colors, target: Colors, weight: RayWeight | None = None, *, padding: float = CHARBONNIER_PADDING
) -> Scalar:
    """Mean of ``sqrt(error^2 + padding^2)``: quadratic for small errors, linear for large ones.

    Args:
      prediction: [..., channels].
      target: [..., channels].
      weight: [...] weight of each ray, of mean 1; None for equal ones.
      padding: error at which the loss turns linear.

    Returns:
      [] mean over rays and channels.

    Charbonnier et al. 1994; Barron et al. 2022, Mip-NeRF 360, section 5.
    """
    return _mean_over_rays(jnp.sqrt(jnp.square(prediction - target) + padding**2), weight)


def log_depth(prediction: RayWeight, target: RayWeight, weight: RayWeight) -> Scalar:
    """Mean of ``|log(prediction / target)|``: the relative error of a distance, whatever the scene's unit.

    It is bounded where a ray still ends far beyond what was measured, unlike the error of the distance itself.

    Args:
      prediction: [...] expected distance along the ray.
      target: [...] measured distance along the ray; 0 or less where unknown.
      weight: [...] weight of each ray, of mean 1 (0 where unknown).

    Returns:
      [] mean over rays.
    """
    known = target > 0
    ratio = jnp.maximum(prediction, 1e-6) / jnp.where(known, target, 1.0)
    return jnp.mean(jnp.where(known, jnp.abs(jnp.log(ratio)), 0.0) * weight)


def interlevel(target: Histogram, proposal: Histogram) -> Scalar:
    """Penalty for final weights that the proposal does not cover.

    ``sum_i max(0, w_i - bound_i)^2 / (w_i + eps)``, with ``bound_i`` the proposal's weight in all its intervals that
    overlap the i-th. Only the proposal's weights get a gradient.

    Args:
      target: edges [..., S+1] and weights [..., S] of the final level.
      proposal: edges [..., P+1] and weights [..., P].

    Returns:
      [] mean over rays; 0 where the bound covers the weights.

    Barron et al. 2022, Mip-NeRF 360, Eq. 13.
    """
    (s, w), (s_p, w_p) = lax.stop_gradient(target), proposal
    excess = jnp.maximum(w - stepfun.bound(s, lax.stop_gradient(s_p), w_p), 0.0)
    return jnp.mean(jnp.sum(jnp.square(excess) / (w + INTERLEVEL_EPSILON), axis=-1))


def interlevel_antialiased(target: Histogram, proposal: Histogram, *, half_width: float) -> Scalar:
    """Penalty for blurred final weights that the proposal does not cover; smooth in the final edges' positions.

    The final weights are convolved with a box and resampled to the proposal's intervals, then
    ``sum_j max(0, w_blurred_j - w_j)^2 / (w_j + eps)``. Only the proposal's weights get a gradient.

    Args:
      target: edges [..., S+1] and weights [..., S] of the final level.
      proposal: edges [..., P+1] and weights [..., P].
      half_width: half the width of the box, in s (Zip-NeRF: 0.03, then 0.003).

    Returns:
      [] mean over rays.

    Barron et al. 2023, Zip-NeRF, section 3 (anti-aliased interlevel loss).
    """
    (s, w), (s_p, w_p) = lax.stop_gradient(target), proposal
    blurred = lax.stop_gradient(stepfun.blur_resample(lax.stop_gradient(s_p), s, w, half_width))
    excess = jnp.maximum(blurred - w_p, 0.0)
    return jnp.mean(jnp.sum(jnp.square(excess) / (w_p + INTERLEVEL_EPSILON), axis=-1))


def packed_interlevel(
    t0: Float[Array, " M"], t1: Float[Array, " M"], w: Float[Array, " M"], packed: PackedIntervals, proposal: Histogram
) -> Scalar:
    """``interlevel`` of packed intervals, by lookups: O(M) beside the proposal itself.

    The bound depends on the order of edges alone, so that world units serve as well as s.

    Args:
      t0: [M] near ends of the final intervals, in the unit of the proposal's edges.
      t1: [M] far ends.
      w: [M] final weights, 0 in padding.
      packed: N rays in M slots; says which ray a slot belongs to.
      proposal: edges [N, P+1] and weights [N, P].

    Returns:
      [] mean over rays.
    """
    (edges, w_p), w = proposal, lax.stop_gradient(w)
    covered = packed_stepfun.bound(t0, t1, packed.ray, lax.stop_gradient(edges), w_p)
    # Padding has no weight, and so no excess over whatever bound it is given.
    excess = jnp.maximum(w - covered, 0.0)
    return jnp.sum(jnp.square(excess) / (w + INTERLEVEL_EPSILON)) / packed.start.shape[0]


def packed_interlevel_antialiased(
    s0: Float[Array, " M"],
    s1: Float[Array, " M"],
    w: Float[Array, " M"],
    packed: PackedIntervals,
    proposal: Histogram,
    *,
    half_width: float,
) -> Scalar:
    """``interlevel_antialiased`` of packed intervals; its memory is O(M P), as much as that of the dense form.

    Args:
      s0: [M] near ends of the final intervals, normalized.
      s1: [M] far ends.
      w: [M] final weights, 0 in padding.
      packed: N rays in M slots; says which ray a slot belongs to.
      proposal: edges [N, P+1] and weights [N, P].
      half_width: half the width of the box, in s.

    Returns:
      [] mean over rays.
    """
    (s_p, w_p), (s0, s1, w) = proposal, lax.stop_gradient((s0, s1, w))
    blurred = packed_stepfun.blur_resample(lax.stop_gradient(s_p), s0, s1, w, packed.ray, half_width)
    excess = jnp.maximum(lax.stop_gradient(blurred) - w_p, 0.0)
    return jnp.mean(jnp.sum(jnp.square(excess) / (w_p + INTERLEVEL_EPSILON), axis=-1))


# In both forms below, the double sum over pairs of midpoints m is split at the gaps between neighbours:
# sum_ij w_i w_j |m_i - m_j| = 2 sum_k (m_{k+1} - m_k) (sum_{i<=k} w_i) (sum_{i>k} w_i),
# whose terms are all positive. Differences of the prefix sums of w and w m, as usual, cancel for weights in one place.


def distortion(s: Float[Array, "... E"], w: Float[Array, "... E-1"]) -> Scalar:
    """Spread of the weights along a ray, in O(S).

    ``sum_ij w_i w_j |m_i - m_j| + sum_i w_i^2 (s_{i+1} - s_i) / 3`` with midpoints ``m``.

    Args:
      s: [..., S+1] edges.
      w: [..., S] weights.

    Returns:
      [] mean over rays.

    Barron et al. 2022, Mip-NeRF 360, Eq. 15.
    """
    gaps = 0.5 * (s[..., 2:] - s[..., :-2])
    before = jnp.cumsum(w[..., :-1], axis=-1)
    behind = jnp.flip(jnp.cumsum(jnp.flip(w[..., 1:], axis=-1), axis=-1), axis=-1)
    between = 2.0 * jnp.sum(gaps * before * behind, axis=-1)
    within = jnp.sum(jnp.square(w) * jnp.diff(s), axis=-1) / 3.0
    return jnp.mean(between + within)


def packed_distortion(
    s0: Float[Array, " M"], s1: Float[Array, " M"], w: Float[Array, " M"], packed: PackedIntervals
) -> Scalar:
    """``distortion`` of packed intervals, which need not touch each other.

    Args:
      s0: [M] near ends of the intervals in the normalized coordinate.
      s1: [M] far ends.
      w: [M] weights, 0 in padding.
      packed: N rays in M slots; says which ray a slot belongs to.

    Returns:
      [] mean over the N rays.
    """
    middle, rays = 0.5 * (s0 + s1), packed.start.shape[0]
    inner = (packed.ray[1:] == packed.ray[:-1]) & (packed.ray[1:] < rays)
    gaps = jnp.where(inner, middle[1:] - middle[:-1], 0.0)
    before = numerics.segmented_cumsum(w, packed.ray)[:-1]
    behind = jnp.flip(numerics.segmented_cumsum(jnp.flip(w), jnp.flip(packed.ray)))[1:]
    return (2.0 * jnp.sum(gaps * before * behind) + jnp.sum(jnp.square(w) * (s1 - s0)) / 3.0) / rays
