"""What a sampler did, ray by ray: every level's intervals, points, densities and weights as plain arrays.

    record = trace(key, sampler, state, rays, density_fn, step=1000).numpy()
    record.final.t_point[0], record.final.weights[0]

Dense and packed levels look alike here: [N, S] arrays, S the largest number of intervals of a ray, with a mask of those
that exist. Beside the weights that the sampler saw stand, where the exact transmittance is known, the exact ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from nerfjax.samplers.base import DensityFn, Sampler, SamplerState
from nerfjax.types import Array, Intervals, PackedIntervals, Rays
from nerfjax.volume import render_weights

Values = Array | np.ndarray


@struct.dataclass
class LevelTrace:
    """One level of N rays with at most S intervals each.

    Attributes:
      t0, t1: [N, S] ends of the intervals, world units; where there is none, the end of the ray's last one.
      t_point: [N, S] where the field is evaluated.
      density: [N, S] of the main field there, 1 / world unit; 0 where there is no interval.
      weights: [N, S] the weights of this level: of the proposal network where one made the level, else of the field.
      valid: [N, S] bool, whether there is an interval.
      exact_weights: [N, S] ``T(t0) - T(t1)`` of the exact transmittance; None where it is not known.
      main_field: static; whether the level cost evaluations of the main field.
    """

    t0: Any
    t1: Any
    t_point: Any
    density: Any
    weights: Any
    valid: Any
    exact_weights: Any = None
    main_field: bool = struct.field(pytree_node=False, default=True)

    @property
    def count(self) -> Values:
        """[N] number of intervals of each ray."""
        return self.valid.sum(axis=-1)

    @property
    def edges(self) -> Values:
        """[N, S+1] edges of a level whose intervals touch (all but packed ones do)."""
        return np.concatenate([np.asarray(self.t0), np.asarray(self.t1)[:, -1:]], axis=-1)


@struct.dataclass
class RayTrace:
    """What one call of a sampler gave.

    Attributes:
      levels: coarse to fine, the final level last.
      evaluations: [] evaluations of the main field per ray, over all levels, as the sampler reports them.
      proposal_evaluations: [] evaluations of proposal networks per ray.
      overflow: [] intervals left out for want of room.
      t_end: [N] distance up to which the ray is covered.
    """

    levels: tuple[LevelTrace, ...]
    evaluations: Any
    proposal_evaluations: Any
    overflow: Any
    t_end: Any

    @property
    def final(self) -> LevelTrace:
        """The level that is composited."""
        return self.levels[-1]

    def numpy(self) -> RayTrace:
        """The same with NumPy arrays."""
        return jax.tree.map(np.asarray, self)


def trace(
    key: Array,
    sampler: Sampler,
    state: SamplerState,
    rays: Rays,
    density_fn: DensityFn,
    *,
    step: Any = 0,
    transmittance: Callable[[np.ndarray], np.ndarray] | None = None,
) -> RayTrace:
    """Runs a sampler once and keeps everything.

    A function of the host (it looks at how many intervals there are), for notebooks and studies.

    Args:
      key: the key of the call.
      sampler: a member of ``SAMPLERS``, made.
      state: the sampler's state.
      rays: [N] rays.
      density_fn: density of the main field over intervals, such as ``AnalyticField.interval_density``.
      step: the training step that the sampler is told.
      transmittance: exact transmittance from ``rays.near`` to distances: [N, K] -> [N, K].

    Returns:
      The record, device arrays (exact weights are NumPy's).
    """
    main_levels = set()

    def watched(rays: Rays, intervals: Intervals | PackedIntervals, *, level: int) -> Array:
        main_levels.add(level)
        return density_fn(rays, intervals, level=level)

    def run(key, state, rays, step):
        intervals, info = sampler.sample(key, state, rays, watched, step=step)
        stages = [*(level.intervals for level in info.levels), intervals]
        densities = [density_fn(rays, stage, level=number) for number, stage in enumerate(stages)]
        weights = [*(level.weights for level in info.levels), render_weights(densities[-1], intervals)]
        return stages, densities, weights, info.replace(levels=())

    stages, densities, weights, info = jax.jit(run)(key, state, rays, jnp.asarray(step, jnp.int32))
    levels = []
    for number, (stage, density, weight) in enumerate(zip(stages, densities, weights, strict=True)):
        unpack = _unpacked if isinstance(stage, PackedIntervals) else _dense
        level = unpack(stage, density, weight)
        exact = None
        if transmittance is not None:
            ends = np.concatenate([np.asarray(level.t0), np.asarray(level.t1)], axis=-1)
            begin, end = np.split(np.asarray(transmittance(ends.astype(np.float64))), 2, axis=-1)
            exact = np.where(level.valid, begin - end, 0.0)
        is_main = number == len(stages) - 1 or number in main_levels
        levels.append(level.replace(exact_weights=exact, main_field=is_main))
    return RayTrace(tuple(levels), info.evaluations, info.proposal_evaluations, info.overflow, info.t_end)


def _dense(intervals: Intervals, density: Array, weights: Array) -> LevelTrace:
    t = intervals.t
    return LevelTrace(t[:, :-1], t[:, 1:], intervals.t_eval, density, weights, jnp.ones(density.shape, bool))


def _unpacked(packed: PackedIntervals, density: Array, weights: Array) -> LevelTrace:
    """[N, S] arrays from [M] ones; S is the largest count."""
    slots = max(int(np.max(packed.count, initial=0)), 1)
    lane = jnp.arange(slots, dtype=jnp.int32)[None]
    valid = lane < packed.count[:, None]
    last = jnp.maximum(packed.count[:, None] - 1, 0)
    index = packed.start[:, None] + jnp.minimum(lane, last)

    def spread(values: Array, padding: Array | None = None) -> Array:
        taken = values.at[index].get(mode="clip")
        return jnp.where(valid, taken, jnp.zeros_like(taken) if padding is None else padding)

    end = spread(packed.t1, jnp.where(packed.count[:, None] > 0, packed.t1.at[index].get(mode="clip"), 0.0))
    return LevelTrace(
        spread(packed.t0, end), end, spread(packed.t_eval, end), spread(density), spread(weights), valid
    )  # fmt: skip
