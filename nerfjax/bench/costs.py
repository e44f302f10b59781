"""What an evaluation costs: FLOPs of the fields that the bench assumes, and wall time and memory of whole renderings.

The assumed main field is the demo's hash grid, the proposal network that of ``recipes.NETWORK``. XLA's count of FLOPs
leaves memory traffic out: of a hash grid that is the greater part, and the wall time says more.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nerfjax.background import white
from nerfjax.bench.recipes import proposal_network
from nerfjax.bench.references import geometry_and_cameras, random_rays
from nerfjax.fields import FIELDS
from nerfjax.renderer import init_field, make_renderer
from nerfjax.samplers import Sampler, SamplerState
from nerfjax.types import Array, Conditioning, Points, Rays, SceneGeometry

MAIN_FIELD = dict(levels=8, features=4, log2_size=16, max_resolution=256)
POINTS = 4096
MANY_STEPS = 10**6  # annealing is over


class RenderingCost(NamedTuple):
    """Of rendering a batch of rays.

    Attributes:
      milliseconds: median of a call.
      peak_bytes: of temporaries, by the compiler's account; None where it gives none.
    """

    milliseconds: float
    peak_bytes: int | None


def main_field(geometry: SceneGeometry):
    """Returns the assumed main field of a scene."""
    return FIELDS["instant_ngp"](geometry, **MAIN_FIELD)


def flops_per_evaluation(geometry: SceneGeometry) -> tuple[float, float]:
    """Returns the FLOPs of one evaluation of the main field (density and colour), and of the proposal network."""
    field, network = main_field(geometry), proposal_network(geometry)
    positions, radii = jnp.zeros((POINTS, 3)), jnp.zeros((POINTS,))
    params = jax.eval_shape(lambda: (init_field(field, jax.random.key(0)), network.init(jax.random.key(0), geometry)))

    def both(module, points: Points) -> tuple[Array, Array]:
        density, features = module.density(points)
        conditioning = Conditioning(jnp.full(radii.shape, -1, jnp.int32), radii)
        return density, module.color(features, points.positions, conditioning)

    def main(params, positions: Array) -> tuple[Array, Array]:
        return field.apply({"params": params}, Points(positions, radii), method=both)

    def proposal(params, positions: Array) -> Array:
        return network.apply(params, Points(positions, radii))

    costs = [
        jax.jit(f).lower(p, positions).compile().cost_analysis() for f, p in zip((main, proposal), params, strict=True)
    ]
    return costs[0]["flops"] / POINTS, costs[1]["flops"] / POINTS


@functools.cache
def _timed_inputs(scene: str, rays: int) -> tuple[Any, Rays]:
    """Returns the assumed main field's parameters and rays of a scene's test views."""
    geometry, cameras = geometry_and_cameras(scene)
    params = jax.jit(lambda: init_field(main_field(geometry), jax.random.key(2)))()
    return params, random_rays(jax.random.key(1), geometry, cameras, count=rays)


class RenderingProgram(NamedTuple):
    """A compiled rendering: ``run(seed)`` starts it, ``peak_bytes`` are its temporaries (None where not known)."""

    run: Callable[[int], Array]
    peak_bytes: int | None


def compile_rendering(sampler: Sampler, state: SamplerState, scene: str, *, rays: int) -> RenderingProgram:
    """Compiles the rendering of random rays of a scene's test views with the assumed main field.

    Sampling, the evaluations of all levels and compositing are in it.

    Args:
      sampler: the sampler.
      state: after its warm-up: what a grid lets through decides how long marching takes.
      scene: a key of ``SCENES``.
      rays: number of rays of a call.
    """
    field_params, batch = _timed_inputs(scene, rays)
    renderer = make_renderer(main_field(geometry_and_cameras(scene)[0]), sampler, white())
    params = {"field": field_params, "sampler": state.params, "background": {}}

    def color(seed: Array, params: Any, aux: Any, batch: Rays) -> Array:
        behind, step = jnp.ones_like(batch.directions), jnp.int32(MANY_STEPS)
        return renderer.render(jax.random.key(seed), params, aux, batch, behind, step=step).final.color

    program = jax.jit(color).lower(jnp.int32(0), params, state.aux, batch).compile()
    memory = program.memory_analysis()
    peak = None if memory is None else int(memory.temp_size_in_bytes)
    return RenderingProgram(lambda seed: program(jnp.int32(seed), params, state.aux, batch), peak)


def time_rendering(program: RenderingProgram, *, repeats: int) -> RenderingCost:
    """Takes the time of a rendering: the median of ``repeats`` calls, after one that is not timed."""
    times = []
    for repeat in range(repeats + 1):
        start = time.perf_counter()
        jax.block_until_ready(program.run(repeat))
        times.append(time.perf_counter() - start)
    return RenderingCost(1e3 * float(np.median(times[1:])), program.peak_bytes)
