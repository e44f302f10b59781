"""Edges that respect gaps: stretches of a ray that hold something, and gaps between them that do not.

Plain inverse-CDF sampling lays an interval across each gap, and evaluates it somewhere in the gap, or counts the gap's
length as if it were full. Here a gap becomes an interval of its own, with edges exactly at its ends, and the other
intervals share the stretches. Nothing is left out: what looks like a gap costs one evaluation, and if it is none
after all the field says so.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from flax import struct
from jax import lax
from jaxtyping import Int

from nerfjax import packed_stepfun, stepfun
from nerfjax.numerics import safe_divide
from nerfjax.types import Array

EVEN = 1e-3  # mass spread over every stretch, so that what weighs nothing there is still divided evenly


class Stage(NamedTuple):
    """What is known of N rays, to draw from: a step function, and which of its steps are empty.

    Attributes:
      s: [N, K+1] edges, normalised.
      weights: [N, K] of any scale.
      empty: [N, K] bool.
    """

    s: Array
    weights: Array
    empty: Array


@struct.dataclass
class Ladder:
    """Where the edges of a ray's intervals go: edge j lies where ``place`` is j.

    Attributes:
      s: [N, K+1] nodes.
      place: [N, K+1] rising from 0 to the ray's number of intervals; a whole number at both ends of each gap.
      border: [N, K+1] bool, whether the node is an end of a gap (the ends of the ray are not marked).
    """

    s: Array
    place: Array
    border: Array


def ladder(stage: Stage, count: Int[Array, " N"]) -> Ladder:
    """Lays out ``count`` intervals for each ray: one for each gap, the others distributed as the weights.

    Steps that are ``empty`` in a row are a gap, the others in a row a stretch; only the first ``count // 4`` gaps of
    a ray are heeded, and none where all is empty. Let F be the cumulative weight, normalized to ``count`` less the
    number of gaps, plus one for each gap crossed. F is rounded to whole numbers at the ends of the gaps (each stretch
    and each gap keeps at least one) and is stretched linearly in between.

    Args:
      stage: what to draw from; the weight of a gap adds to its one interval.
      count: [N] at least 1.

    Returns:
      The ladder, without gradient.
    """
    s, weights, empty = lax.stop_gradient(stage)
    empty = _heeded(jnp.diff(s), empty, (count // 4)[:, None])
    inner = empty[:, 1:] != empty[:, :-1]
    end_of_ray = jnp.zeros_like(s[:, :1], bool)
    border = jnp.concatenate([end_of_ray, inner, end_of_ray], axis=1)
    total = count.astype(jnp.float32)[:, None]
    cumulative = _cumulative(s, weights, empty, border, total)

    number = jnp.cumsum(border.astype(jnp.float32), axis=1)
    after = number[:, -1:] + 1.0 - number  # of the stretches and gaps that follow, each of which wants an interval
    whole = number + _latest(jnp.maximum(jnp.round(cumulative) - number, 0.0), border)
    whole = jnp.minimum(whole, total - after)
    begin, begin_whole = _latest(cumulative, border), _latest(whole, border)
    end, end_whole = _next(cumulative, border, total), _next(whole, border, total)
    rise = safe_divide(cumulative - begin, end - begin) * (end_whole - begin_whole)
    place = lax.cummax(jnp.clip(begin_whole + rise, begin_whole, end_whole), axis=1)
    return Ladder(s, jnp.concatenate([place[:, :-1], total], axis=1), border)


def dense_edges(rungs: Ladder, count: int, jitter: Array | None) -> Array:
    """The edges of a ladder on which every ray has ``count`` intervals.

    Args:
      rungs: from ``ladder``.
      count: static.
      jitter: [N, count - 1] or [N, 1] numbers in [0, 1) that move edges by up to half an interval, those at the ends
        of gaps and of the ray excepted; or None.

    Returns:
      [N, count + 1] sorted edges; the first and last are those of the ray.
    """
    at = jnp.broadcast_to(jnp.arange(1, count, dtype=jnp.float32), (rungs.s.shape[0], count - 1))
    if jitter is not None and count > 1:
        node = stepfun.count_before(rungs.place, at) - 1
        held = jnp.take_along_axis(rungs.border, node, axis=1) & (jnp.take_along_axis(rungs.place, node, axis=1) == at)
        at = at + jnp.where(held, 0.0, jitter - 0.5)
    return jnp.concatenate([rungs.s[:, :1], stepfun.interpolate(at, rungs.place, rungs.s), rungs.s[:, -1:]], axis=1)


def packed_edges(rungs: Ladder, ray: Int[Array, " M"], edge: Int[Array, " M"], jitter: Array | None) -> Array:
    """Edge ``edge`` of the ray of each slot, which is neither the first nor the last of the ray.

    Args:
      rungs: from ``ladder``.
      ray: [M] int32.
      edge: [M] int32.
      jitter: [M] or None, as in ``dense_edges``.

    Returns:
      [M] in s.
    """
    at = edge.astype(jnp.float32)
    if jitter is not None:
        node = packed_stepfun.count_before(rungs.place, at, ray) - 1
        held = packed_stepfun.take(rungs.border, ray, node) & (packed_stepfun.take(rungs.place, ray, node) == at)
        at = at + jnp.where(held, 0.0, jitter - 0.5)
    return packed_stepfun.interpolate(at, rungs.place, rungs.s, ray)


def _latest(values: Array, marked: Array) -> Array:
    """The latest marked value at or before each node (values rise; 0 before the first)."""
    return lax.cummax(jnp.where(marked, values, 0.0), axis=1)


def _next(values: Array, marked: Array, end: Array) -> Array:
    """The first marked value after each node (values rise to ``end`` [N, 1])."""
    end = jnp.broadcast_to(end, values.shape)
    later = jnp.concatenate([jnp.where(marked, values, end)[:, 1:], end[:, :1]], axis=1)
    return lax.cummin(later, axis=1, reverse=True)


def _first_of_gap(empty: Array) -> Array:
    return jnp.concatenate([empty[:, :1], empty[:, 1:] & ~empty[:, :-1]], axis=1)


def _heeded(length: Array, empty: Array, limit: Array) -> Array:
    """Which steps [N, K] count as empty: no step of no width, the first ``limit`` gaps only, never all of a ray."""
    empty = empty & (length > 0.0)
    empty = empty & jnp.any(~empty & (length > 0.0), axis=1, keepdims=True)
    return empty & (jnp.cumsum(_first_of_gap(empty), axis=1, dtype=jnp.int32) <= limit)


def _cumulative(s: Array, weights: Array, empty: Array, border: Array, total: Array) -> Array:
    """F [N, K+1] before it is rounded, from 0 to ``total`` [N, 1]."""
    length = jnp.diff(s)
    mass = jnp.sum(weights, axis=1, keepdims=True)
    heavy = mass > stepfun.MASS_MIN
    share = jnp.where(heavy, weights / jnp.where(heavy, mass, 1.0), 0.0) + jnp.where(empty, 0.0, EVEN * length)
    share = safe_divide(share, jnp.sum(share, axis=1, keepdims=True))
    # Within a gap F rises by 1 in all, in proportion to s.
    begin, end = jnp.maximum(_latest(s, border), s[:, :1]), _next(s, border, s[:, -1:])
    gap = jnp.where(empty, safe_divide(length, (end - begin)[:, :-1]), 0.0)
    gaps = jnp.sum(_first_of_gap(empty), axis=1, keepdims=True).astype(jnp.float32)
    inner = jnp.cumsum(share * (total - gaps) + gap, axis=1)[:, :-1]
    inner = lax.cummax(jnp.minimum(inner, total), axis=1)
    return jnp.concatenate([jnp.zeros_like(total), inner, total], axis=1)
