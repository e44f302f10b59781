"""How well a sampler does along the rays of a reference: errors of colour, and where its points lie.

- colour: over keys k and rays n, the root mean square of ``error = C_kn - C_n``; its ``bias``, the part that is the
  same for all keys, and its ``deviation``, the part that is not: rmse^2 = bias^2 + deviation^2.
- ``wasserstein``: ``W_1 = integral of |F_points(s) - F(s)| ds`` between the points of the final level (equal masses)
  and the exact distribution of the weight, in [0, 1], mean over rays that are not empty.
- ``useful``: share of the main field's evaluations, at all levels, that lie in cells of s whose exact weight is above
  ``THRESHOLD``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nerfjax.bench.references import BACKGROUND, CELLS, Reference, density_at, point_density
from nerfjax.geometry.rays import cast_points
from nerfjax.geometry.warps import s_from_t
from nerfjax.samplers import Sampler, SamplerState
from nerfjax.types import Array, Intervals, PackedIntervals, Rays
from nerfjax.volume import render, render_weights

THRESHOLD = 1e-3
OPACITY_MIN = 0.01  # of rays whose distribution of weight is compared


class Quality(NamedTuple):
    """What was measured; see the module.

    Attributes:
      rmse, bias, deviation: of colour in [0, 1].
      wasserstein: in units of s.
      useful: share in [0, 1].
      evaluations, proposal_evaluations: per ray.
      overflow: intervals left out, mean over keys.
    """

    rmse: float
    bias: float
    deviation: float
    wasserstein: float
    useful: float
    evaluations: float
    proposal_evaluations: float
    overflow: float


def make_measure(sampler: Sampler) -> Callable[..., dict[str, Array]]:
    """Returns the compiled ``(keys [K], state, reference, step) -> {name: [K, ...]}`` of a sampler.

    The scene is an argument: one program serves all scenes of the same geometry.
    """

    def one(key: Array, state: SamplerState, reference: Reference, step: Array) -> dict[str, Array]:
        rays, rows, coarse, spacing = reference.rays, reference.rows, [], reference.geometry.spacing

        def density_fn(rays: Rays, intervals: Intervals | PackedIntervals, *, level: int) -> Array:
            coarse.append(points_per_cell(spacing, rays, intervals))
            return point_density(rows, cast_points(rays, intervals).positions, rays.near)

        intervals, info = sampler.sample(key, state, rays, density_fn, step=step)
        density, color = density_at(rows, cast_points(rays, intervals))
        background = jnp.full_like(rays.directions, BACKGROUND)
        rendering = render(render_weights(density, intervals), color, intervals, rays.far, background)
        final = points_per_cell(spacing, rays, intervals)
        every = final + sum(coarse)
        return dict(
            color=rendering.color,
            wasserstein=wasserstein(final, reference.cell_weights, reference.accumulation),
            useful=jnp.sum(every * (reference.cell_weights > THRESHOLD)) / jnp.maximum(jnp.sum(every), 1.0),
            evaluations=info.evaluations,
            proposal_evaluations=info.proposal_evaluations,
            overflow=info.overflow,
        )

    def measure(keys: Array, state: SamplerState, reference: Reference, step: Array) -> dict[str, Array]:
        return jax.lax.map(lambda key: one(key, state, reference, step), keys)

    # Compiling is most of the work; the unoptimised program takes twice as long to run and half as long to compile.
    quick = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    return jax.jit(measure, compiler_options=quick)


def points_per_cell(spacing: str, rays: Rays, intervals: Intervals | PackedIntervals) -> Array:
    """Counts the points of evaluation in each cell of s: [N, CELLS]."""
    count = rays.near.shape[0]
    if isinstance(intervals, PackedIntervals):
        ray = intervals.ray
        near, far = (end.at[ray].get(mode="clip") for end in (rays.near, rays.far))
        s = s_from_t(spacing, intervals.t_eval[:, None], near, far)[:, 0]
    else:
        s = s_from_t(spacing, intervals.t_eval, rays.near, rays.far)
        ray = jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32)[:, None], s.shape)
    cell = jnp.minimum((s * CELLS).astype(jnp.int32), CELLS - 1)
    # The ray of padding is N: past the end, so that it is dropped.
    return jnp.zeros((count, CELLS)).at[ray, cell].add(1.0, mode="drop")


def wasserstein(points: Array, cell_weights: Array, accumulation: Array) -> Array:
    """Mean over rays of W_1 between points and weights in the same cells; a ray without points has them at its end.

    Args:
      points: [N, CELLS] points in each cell.
      cell_weights: [N, CELLS] exact weights.
      accumulation: [N] their sums; rays below ``OPACITY_MIN`` do not count.
    """
    total = jnp.maximum(jnp.sum(points, axis=-1, keepdims=True), 1.0)
    exact = jnp.cumsum(cell_weights, axis=-1) / jnp.maximum(accumulation, 1e-12)[:, None]
    distance = jnp.mean(jnp.abs(jnp.cumsum(points, axis=-1) / total - exact), axis=-1)
    seen = (accumulation > OPACITY_MIN).astype(jnp.float32)
    return jnp.sum(distance * seen) / jnp.maximum(jnp.sum(seen), 1.0)


def quality_from(measured: dict[str, Array], reference: Reference) -> Quality:
    """Returns the statistics over keys of what ``make_measure``'s function gave."""
    host = {name: np.asarray(value, np.float64) for name, value in measured.items()}
    bias, deviation = error_parts(host.pop("color") - np.asarray(reference.color, np.float64))
    means = {name: float(value.mean()) for name, value in host.items()}
    return Quality(rmse=float(np.hypot(bias, deviation)), bias=bias, deviation=deviation, **means)


def error_parts(error: np.ndarray) -> tuple[float, float]:
    """Splits errors [K, ...] of K keys into (bias, deviation), root mean squares.

    The square of a mean over K keys holds 1 / K of the variance, which is taken off: both squares are unbiased, and
    their sum is the mean square of all errors.
    """
    keys = error.shape[0]
    variance = float(error.var(axis=0, ddof=1).mean()) if keys > 1 else 0.0
    square = float(np.square(error).mean())
    # Noise may make the difference negative where there is no bias.
    bias = max(square - variance, 0.0)
    return bias**0.5, (square - bias) ** 0.5
