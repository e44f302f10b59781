"""Gets a sampler ready for a scene: proposal networks are fitted, grids refreshed, and what both cost is counted.

Networks learn by the sampler's own loss against the exact field, from rays of the training views. Grids look at the
exact density as often as in training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from nerfjax.bench.references import Reference, density_at, point_density, random_rays
from nerfjax.geometry.rays import cast_points
from nerfjax.samplers import Sampler, SamplerState
from nerfjax.samplers.base import no_refresh
from nerfjax.samplers.occupancy_grid import OccupancyGrid
from nerfjax.types import Array
from nerfjax.volume import render, render_weights

LEARNING_RATES = 1e-2, 1e-3  # first and last


class WarmupSizes(NamedTuple):
    """How long a warm-up lasts.

    Attributes:
      steps: steps of the fit of networks.
      rays: rays of each.
      grid_steps: steps during which a grid is refreshed whenever its own schedule says so.
    """

    steps: int = 200
    rays: int = 256
    grid_steps: int = 64


FULL_WARMUP = WarmupSizes()


class Warmup(NamedTuple):
    """A sampler's state after its warm-up, and the cost.

    Attributes:
      state: the state.
      seconds: wall time without compilation.
      main_evaluations: evaluations of the main field: by the fit (which training would do anyway) and by grids.
      proposal_evaluations: evaluations of proposal networks, each with its gradient.
    """

    state: SamplerState
    seconds: float
    main_evaluations: float
    proposal_evaluations: float


class WarmupProgram(NamedTuple):
    """The compiled parts of one sampler's warm-up; the scene is an argument of both.

    Attributes:
      sampler: the sampler.
      fit: ``(key, state, opt_state, reference, step) -> (state, opt_state, evaluations [2])``; None without networks.
      refresh: ``(key, state, reference, step) -> state``; None without grids.
      init_optimizer: ``params -> opt_state``.
    """

    sampler: Sampler
    fit: Callable[..., Any] | None
    refresh: Callable[..., Any] | None
    init_optimizer: Callable[..., Any]


def make_warmup(sampler: Sampler, reference: Reference, sizes: WarmupSizes) -> WarmupProgram:
    """Compiles (lazily) what a sampler's warm-up takes.

    Args:
      sampler: the sampler.
      reference: one of the scenes that it is meant for.
      sizes: how long it lasts.
    """
    first, last = LEARNING_RATES
    optimizer = optax.adam(optax.exponential_decay(first, max(sizes.steps, 1), last / first), eps=1e-15)

    def loss_of(params, key: Array, state: SamplerState, reference: Reference, step: Array):
        key_rays, key_sample = jax.random.split(key)
        rays = random_rays(key_rays, reference.geometry, reference.geometry.cameras, count=sizes.rays)

        def density_fn(rays, intervals, *, level: int) -> Array:
            return point_density(reference.rows, cast_points(rays, intervals).positions, rays.near)

        intervals, info = sampler.sample(key_sample, state.replace(params=params), rays, density_fn, step=step)
        density, color = density_at(reference.rows, cast_points(rays, intervals))
        weights = render_weights(density, intervals)
        rendering = render(weights, color, intervals, rays.far, jnp.ones_like(rays.directions))
        losses = sampler.loss(info, rendering, step=step)
        evaluations = jnp.stack([info.evaluations, info.proposal_evaluations]) * sizes.rays
        return sum(losses.values(), jnp.zeros(())), evaluations

    @jax.jit
    def fit(key: Array, state: SamplerState, opt_state, reference: Reference, step: Array):
        gradient, evaluations = jax.grad(loss_of, has_aux=True)(state.params, key, state, reference, step)
        updates, opt_state = optimizer.update(gradient, opt_state)
        return state.replace(params=optax.apply_updates(state.params, updates)), opt_state, evaluations

    @jax.jit
    def refresh(key: Array, state: SamplerState, reference: Reference, step: Array) -> SamplerState:
        return sampler.refresh(key, state, partial(point_density, reference.rows), step=step)

    state = jax.eval_shape(lambda: sampler.init(jax.random.key(0), reference.geometry))
    has_networks = bool(jax.tree.leaves(state.params)) and sizes.steps > 0
    has_grid = sampler.refresh is not no_refresh and sizes.grid_steps > 0
    return WarmupProgram(sampler, fit if has_networks else None, refresh if has_grid else None, optimizer.init)


def warm_up(
    program: WarmupProgram, key: Array, reference: Reference, sizes: WarmupSizes, *, donors: Sequence[Warmup] = ()
) -> Warmup:
    """Warms a sampler up for one scene: grids first, as networks look only where grids let them.

    Args:
      program: of the sampler.
      key: the key.
      reference: the scene.
      sizes: how long it lasts.
      donors: samplers that are warm already, each with networks or a grid: what has the shapes of this sampler's own is
        taken over instead of made again, and its cost counts as this sampler's, too.
    """
    key_init, key_grid, key_fit = jax.random.split(key, 3)
    state = program.sampler.init(key_init, reference.geometry)
    seconds, spent = 0.0, jnp.zeros(2)
    if program.refresh is not None:
        donor = _matching(donors, _grids(state))
        steps = range(sizes.grid_steps)
        if donor is not None:  # a single refresh more: what counts as occupied is this sampler's own choice
            grids = iter(_grids(donor.state))
            aux = jax.tree.map(lambda node: next(grids) if _is_grid(node) else node, state.aux, is_leaf=_is_grid)
            state, seconds, steps = state.replace(aux=aux), donor.seconds, range(1)
        program.refresh(key_grid, state, reference, jnp.int32(0))  # compiles
        start = time.perf_counter()
        for step in steps:
            state = program.refresh(jax.random.fold_in(key_grid, step), state, reference, jnp.int32(step))
        jax.block_until_ready(state)
        seconds += time.perf_counter() - start
    if program.fit is not None:
        donor = _matching(donors, state.params)
        if donor is not None:
            spent += jnp.asarray([donor.main_evaluations, donor.proposal_evaluations])
            state, seconds = state.replace(params=donor.state.params), seconds + donor.seconds
        else:
            opt_state = program.init_optimizer(state.params)
            program.fit(key_fit, state, opt_state, reference, jnp.int32(0))
            start = time.perf_counter()
            for step in range(sizes.steps):
                key = jax.random.fold_in(key_fit, step)
                state, opt_state, evaluations = program.fit(key, state, opt_state, reference, jnp.int32(step))
                spent = spent + evaluations
            jax.block_until_ready(state)
            seconds += time.perf_counter() - start
    return Warmup(state, seconds, float(spent[0]) + grid_evaluations(state), float(spent[1]))


def _matching(donors: Sequence[Warmup], wanted: Any) -> Warmup | None:
    """Returns the first donor whose parameters, or whose grids, have the shapes that are wanted."""
    for donor in donors:
        if _shapes(wanted) in (_shapes(donor.state.params), _shapes(_grids(donor.state))):
            return donor
    return None


def _shapes(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, str(leaf.dtype)) for leaf in leaves]


def _is_grid(node: Any) -> bool:
    return isinstance(node, OccupancyGrid)


def _grids(state: SamplerState) -> list[OccupancyGrid]:
    return [node for node in jax.tree.leaves(state.aux, is_leaf=_is_grid) if _is_grid(node)]


def grid_evaluations(state: SamplerState) -> float:
    """Returns the evaluations of the main field by all refreshes of a state's grids."""
    return float(sum(float(grid.evaluations) for grid in _grids(state)))
