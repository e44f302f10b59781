"""A fixed number of intervals, shared among the rays of a batch, and ragged inverse-CDF sampling of what each ray gets.

Both look at the batch as a whole: here a ray's intervals depend on its company, as they never do in dense samplers.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from nerfjax.geometry.warps import t_from_s
from nerfjax.numerics import ray_keys, ray_uniform
from nerfjax.samplers.gaps import Ladder, packed_edges
from nerfjax.samplers.placement import Placement
from nerfjax.types import Array, PackedIntervals, Rays, zeros_int

SCORE_MIN, SCORE_MAX = 1e-30, 1e30  # the reciprocal of the highest score is a number, too
SUM_BITS = 30  # the sum of all quantized scores stays below 2^30
# A share of the total may be rounded up; then the whole parts could sum to more than there is.
ROUNDING = 1.0 - 1e-6


def capacity(rays: int, samples_per_ray: float, ray_share: float) -> int:
    """Number of slots, ``ceil(rays * samples_per_ray / ray_share)``: the same for all shares of the largest batch."""
    return math.ceil(rays * samples_per_ray / ray_share)


def allocate(
    scores: Float[Array, " N"], index: Int[Array, " N"], *, total: int, minimum: int, even_share: float = 0.0
) -> Int[Array, " N"]:
    """Divides ``total`` intervals among N rays: ``minimum`` each, the rest in proportion to the scores.

    Ray i gets minimum + floor(x_i) + (0 or 1) with
    x_i = (total - N minimum) ((1 - even_share) score_i / sum(score) + even_share / N); the largest remainders get the
    ones (Hamilton's method; of equal remainders the lower ``index``). Scores are first rounded to whole numbers, whose
    sum does not depend on their order: neither do the counts depend on the order of the rays.

    Args:
      scores: [N] not negative, up to 1e30; what is not finite counts as 0. All zero counts as all equal.
      index: [N] int32, different for each ray.
      total: static, at least N * minimum.
      minimum: static, 0 or more.
      even_share: static, in [0, 1].

    Returns:
      [N] int32; the sum is ``total``.
    """
    rays = scores.shape[0]
    spare = total - rays * minimum
    scores = jnp.where(jnp.isfinite(scores), jnp.clip(scores, 0.0, SCORE_MAX), 0.0)
    highest = jnp.max(scores)
    unit = 2.0 ** min(SUM_BITS - rays.bit_length(), 24)
    whole = jnp.where(highest > SCORE_MIN, jnp.round(scores / jnp.maximum(highest, SCORE_MIN) * unit), unit)
    mass = jnp.sum(whole.astype(jnp.int32)).astype(jnp.float32)
    part = ((1.0 - even_share) * whole / mass + even_share / rays) * (spare * ROUNDING)
    floor = jnp.floor(part)
    left = spare - jnp.sum(floor.astype(jnp.int32))
    order = jnp.lexsort((index, floor - part))
    rank = jnp.zeros(rays, jnp.int32).at[order].set(jnp.arange(rays, dtype=jnp.int32), unique_indices=True)
    return minimum + floor.astype(jnp.int32) + left // rays + (rank < left % rays).astype(jnp.int32)


def ragged_intervals(
    how: Placement, key: Array, rays: Rays, rungs: Ladder, count: Int[Array, " N"], *, total: int
) -> PackedIntervals:
    """Draws ``count`` intervals of each ray, which tile it from near to far, into ``total`` packed slots.

    Slot j of n of a ray lies between the edges j and j + 1 of its ladder, the inverse CDF at j / n where there are no
    gaps. Random numbers are functions of the ray's index and of j alone.

    Args:
      how: spacing, and what is random.
      key: a key.
      rays: [N].
      rungs: from ``gaps.ladder`` with this ``count``; from s = 0 to 1.
      count: [N] int32, at least 1, of sum ``total``.
      total: static number of slots.

    Returns:
      The intervals, without gradient. For the spacings "log" and "power", whose warp is monotone up to the last bit,
      neighbours may overlap by that bit.
    """
    start = jnp.cumsum(count, dtype=jnp.int32) - count
    ray = jnp.repeat(jnp.arange(count.shape[0], dtype=jnp.int32), count, total_repeat_length=total)
    rank = jnp.arange(total, dtype=jnp.int32) - start[ray]
    key_edges, key_points = jax.random.split(key)
    shift = _slot_uniform(how, key_edges, rays, ray, rank) if how.randomize == "edges" else None
    s1 = jnp.where(rank == count[ray] - 1, 1.0, packed_edges(rungs, ray, rank + 1, shift))
    t1 = t_from_s(how.spacing, s1[:, None], rays.near[ray], rays.far[ray])[:, 0]
    t0 = jnp.where(rank == 0, rays.near[ray], jnp.concatenate([t1[:1], t1[:-1]]))
    t0, t1 = jax.lax.stop_gradient((t0, jnp.maximum(t0, t1)))
    t_point = None
    if how.randomize == "points" and not how.deterministic:
        t_point = jnp.minimum(t0 + _slot_uniform(how, key_points, rays, ray, rank) * (t1 - t0), t1)
    return PackedIntervals(t0=t0, t1=t1, ray=ray, start=start, count=count, overflow=zeros_int(), t_point=t_point)


def _slot_uniform(how: Placement, key: Array, rays: Rays, ray: Array, rank: Array) -> Array | None:
    """[M] numbers in [0, 1), one for each slot or, with "single", one for each ray; None for deterministic sampling."""
    if how.deterministic:
        return None
    if how.jitter == "single":
        return ray_uniform(key, rays.index, (1,))[ray, 0]
    keys = ray_keys(key, rays.index)[ray]
    return jax.vmap(lambda k, j: jax.random.uniform(jax.random.fold_in(k, j), (), jnp.float32))(keys, rank)
