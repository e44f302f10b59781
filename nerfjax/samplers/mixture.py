"""Mixing other densities into a stage: an even share, and a share around a measured depth."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

from nerfjax import stepfun
from nerfjax.geometry.warps import s_from_t, t_from_s
from nerfjax.numerics import safe_divide
from nerfjax.samplers.gaps import Stage
from nerfjax.types import Array, Rays

DEVIATIONS = np.asarray([-3.0, -2.0, -1.25, -0.5, 0.0, 0.5, 1.25, 2.0, 3.0], np.float32)  # where edges are added
NOTHING = 1e-3  # share of the normal distribution inside the stage below which the depth is not heeded


def with_even_share(stage: Stage, first: Stage, share: float) -> Stage:
    """A stage (of total weight 1) of which ``share`` is spread as evenly as the first stage, whose weights are lengths.

    ``w <- (1 - share) w + share left / sum(left)``.
    """
    left = stepfun.resample(stage.s, first.s, first.weights)
    left = safe_divide(left, jnp.sum(left, axis=1, keepdims=True))
    return stage._replace(weights=(1.0 - share) * stage.weights + share * left)


def with_depth_share(spacing: str, rays: Rays, stage: Stage, *, share: float, width: float) -> Stage:
    """A stage (of total weight 1) of which ``share`` is drawn around ``rays.depth_prior``, where that is known.

    ``w <- (1 - share) w + share g`` with g the normal distribution of mean d and standard deviation ``width d`` in t,
    cut to the stage, on steps with additional edges at a few deviations from d. Where d is unknown (0), or g has
    next to nothing inside the stage, the weights stay.

    Args:
      spacing: name of the s-t warp.
      rays: [N], with a depth prior.
      stage: on K steps.
      share: in [0, 1].
      width: standard deviation as a share of the distance.

    Returns:
      The stage on K + 9 steps.
    """
    depth = rays.depth_prior[:, None]
    known = depth > 0.0
    depth = jnp.where(known, depth, rays.near[:, None])
    deviation = jnp.maximum(width * depth, 1e-6)
    marks = s_from_t(spacing, depth + deviation * DEVIATIONS[None], rays.near, rays.far)
    s = stepfun.merge_edges(stage.s, jnp.clip(marks, stage.s[:, :1], stage.s[:, -1:]))
    place = (t_from_s(spacing, s, rays.near, rays.far) - depth) / deviation
    around = jnp.diff(ndtr(place))
    inside = jnp.sum(around, axis=1, keepdims=True)
    used = known & (inside > NOTHING)
    around = jnp.where(used, around / jnp.where(used, inside, 1.0), 0.0)
    own = jnp.where(used, share, 0.0)
    weights = (1.0 - own) * stepfun.resample(s, stage.s, stage.weights) + own * around
    looked_at = used & (jnp.abs(0.5 * (place[:, 1:] + place[:, :-1])) < DEVIATIONS[-1])
    return Stage(s, weights, _empty_at(stage, s) & ~looked_at)


def _empty_at(stage: Stage, s: Array) -> Array:
    """Whether finer steps with edges ``s`` [N, E] lie in empty steps of the stage: [N, E-1]."""
    middle = 0.5 * (s[:, 1:] + s[:, :-1])
    step = jnp.clip(stepfun.count_before(stage.s, middle) - 1, 0, stage.empty.shape[1] - 1)
    return jnp.take_along_axis(stage.empty, step, axis=1)
