"""Stages of a ray, each drawn from the one before and reweighted by a network; adaptive and composed sampling.

A stage is a step function with gaps (``gaps.Stage``). The first says what there is to look at, each round of networks
(``rounds``) where in it the weight is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from nerfjax import stepfun
from nerfjax.samplers import placement
from nerfjax.samplers.gaps import Stage, dense_edges, ladder
from nerfjax.samplers.placement import Placement
from nerfjax.samplers.rounds import Rounds, propose
from nerfjax.samplers.shaping import Shaping, shaped
from nerfjax.types import Array, Intervals, Level, Rays

LEFT_MIN = 1e-3  # a step of which the first stage left less than this share is empty


class Staged(NamedTuple):
    """The levels of all rounds, and the stage from which the final intervals are to be drawn (its weights sum to 1)."""

    levels: tuple[Level, ...]
    last: Stage


def whole_ray(rays: Rays) -> Stage:
    """The stage that knows nothing: one step from near to far."""
    zero = jnp.zeros_like(rays.near)[:, None]
    return Stage(jnp.concatenate([zero, zero + 1.0], axis=1), zero + 1.0, jnp.zeros(zero.shape, bool))


def draw_intervals(how: Placement, key: Array, rays: Rays, stage: Stage, count: int) -> Intervals:
    """Draws ``count`` intervals of each ray from a stage."""
    key_edges, key_points = jax.random.split(key)
    moved = how.randomize == "edges" and count > 1
    jitter = placement.draw_jitter(how, key_edges, rays, count - 1) if moved else None
    rungs = ladder(stage, jnp.full(rays.near.shape, count, jnp.int32))
    return placement.intervals_from_edges(how, key_points, rays, dense_edges(rungs, count, jitter))


def run_stages(
    rounds: Rounds, how: Placement, shaping: Shaping, quiet: float, key: Array, params, rays: Rays, first: Stage, step
) -> Staged:
    """Runs the rounds of networks.

    Args:
      rounds: static choices of the networks; may have no round.
      how: static choices of placement.
      shaping: how weights become the next stage.
      quiet: weight up to which a step counts as empty, if those beside it do not weigh more; 0 for no such gaps.
      key: a key.
      params: of the networks.
      rays: [N].
      first: the first stage; its weights are lengths in s, of which later stages heed whether anything is left.
      step: [] training step.
    """
    stage, levels = first, []
    for k, count in enumerate(rounds.counts):
        intervals = draw_intervals(how, jax.random.fold_in(key, k), rays, stage, count)
        turned = None if how.deterministic else jax.random.fold_in(key, len(rounds.counts) + k)
        levels.append(propose(rounds, turned, params, rays, intervals, k, step))
        s, weights = shaped(
            shaping, intervals.s, levels[-1].weights, intervals=math.prod(rounds.counts[: k + 1]), step=step
        )
        empty = stepfun.resample(s, first.s, first.weights) <= LEFT_MIN * jnp.diff(s)
        if quiet > 0.0:
            empty = empty | (_highest_around(weights) <= quiet + shaping.padding)
        stage = Stage(s, weights, empty)
    mass = jnp.sum(stage.weights, axis=1, keepdims=True)
    heavy = mass > stepfun.MASS_MIN
    weights = jnp.where(heavy, stage.weights / jnp.where(heavy, mass, 1.0), 1.0 / stage.weights.shape[1])
    return Staged(tuple(levels), stage._replace(weights=weights))


def _highest_around(weights: Array) -> Array:
    """The largest weight among each step and its neighbours: a surface may lie between the middles of two steps."""
    padded = jnp.concatenate([weights[:, :1], weights, weights[:, -1:]], axis=1)
    return jnp.maximum(jnp.maximum(padded[:, :-2], padded[:, 2:]), weights)
