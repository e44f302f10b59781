"""Rays to colour: sampler, field and volume rendering joined.

The renderer is the one place where a sampler meets a field. It casts intervals to what the field wants (points,
Gaussians or multisamples), hands the sampler a density function, composites the final level and every level whose
colour is supervised, and turns whole images into compiled chunks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.typing import ArrayLike

from nerfjax.background import Background
from nerfjax.geometry.casting import cast, cast_balls
from nerfjax.geometry.rays import rays_from_pixels, rays_in_box
from nerfjax.numerics import named, segment_sum
from nerfjax.samplers.base import Sampler, SamplerState
from nerfjax.types import (
    Array,
    Cameras,
    CastPoints,
    Conditioning,
    Intervals,
    PackedIntervals,
    Rays,
    Rendering,
    SamplerInfo,
    SceneGeometry,
)
from nerfjax.volume import composite, packed_composite, packed_weights_from_density, weights_from_density

CHUNK_MAX, CHUNK_MIN = 8192, 64
TRANSMITTANCE_MIN = 1e-4  # below this nothing shows in 8 bits: instant-ngp's bound
ROUNDS_MAX = 1024
FIELD_PARAMS = ("field", "coarse_field")


class RenderedRays(NamedTuple):
    """The final rendering, the sampler's report, and renderings of the earlier levels that ask for colour."""

    final: Rendering
    info: SamplerInfo
    coarse: tuple[Rendering, ...]


class RenderedImage(NamedTuple):
    """A whole image on the host.

    Attributes:
      color: [H, W, 3] in [0, 1].
      accumulation: [H, W] opacity.
      depth: [H, W] expected distance, world units.
      evaluations: of the main field, mean over the pixels.
    """

    color: np.ndarray
    accumulation: np.ndarray
    depth: np.ndarray
    evaluations: float = 0.0


class Renderer(NamedTuple):
    """Pure functions of one renderer.

    Attributes:
      init: ``(key, geometry) -> (params, sampler aux)``; params = {"field", "sampler", "background"}.
      render: ``(key, params, aux, rays [N], background [N, 3], *, step) -> RenderedRays``.
      refresh: ``(key, params, aux, *, step) -> (params, aux)``: the sampler's refresh.
      background: the background, whose colour the caller chooses (training or evaluation).
      sampler: the sampler, for its loss.
      field: the field, whose tables a curriculum may resample.
      regularize: ``(params) -> {name: scalar}``: unweighted penalties of the field, the coarse field and the sampler's
        networks, added up by name.
    """

    init: Callable[..., tuple[Any, Any]]
    render: Callable[..., RenderedRays]
    refresh: Callable[..., tuple[Any, Any]]
    background: Background
    sampler: Sampler
    field: Any  # not nn.Module: it is no pytree of arrays
    regularize: Callable[[Any], dict[str, Array]]


def make_renderer(
    field: nn.Module,
    sampler: Sampler,
    background: Background,
    *,
    coarse_field: bool = False,
    opaque_end: bool = False,
    deterministic: bool = False,
) -> Renderer:
    """Joins a field, a sampler and a background.

    Args:
      field: a member of ``FIELDS``, made.
      sampler: a member of ``SAMPLERS``, made.
      background: a member of ``BACKGROUNDS``, made.
      coarse_field: whether level 0 has parameters of its own (NeRF's coarse network).
      opaque_end: whether the last interval of a ray stops all light (mip-NeRF 360's opaque background).
      deterministic: whether multisamples are turned by fixed angles (evaluation).
    """

    def init(key: Array, geometry: SceneGeometry) -> tuple[Any, Any]:
        key_field, key_coarse, key_sampler, key_background = jax.random.split(key, 4)
        state = sampler.init(key_sampler, geometry)
        params = {
            "field": init_field(field, key_field),
            "sampler": state.params,
            "background": background.init(key_background),
        }
        if coarse_field:
            params["coarse_field"] = init_field(field, key_coarse)
        return params, state.aux

    def field_params(params, level: int):
        return params["coarse_field"] if coarse_field and level == 0 else params["field"]

    def render(key: Array, params, aux, rays: Rays, background_color: Array, *, step: Array) -> RenderedRays:
        def density_fn(rays: Rays, intervals: Intervals | PackedIntervals, *, level: int) -> Array:
            variables = {"params": field_params(params, level)}
            return field.apply(variables, cast_level(rays, intervals, level), method="density")[0]

        def cast_level(rays: Rays, intervals: Intervals | PackedIntervals, level: int) -> CastPoints:
            turned = None if deterministic else jax.random.fold_in(key_cast, level)
            return cast(field.point_kind, turned, rays, intervals)

        def shade(variables, intervals: Intervals | PackedIntervals, level: int) -> Rendering:
            points = cast_level(rays, intervals, level)
            return _shade(field, variables, rays, points, intervals, background_color, opaque_end)

        key_sample, key_cast = jax.random.split(key)
        state = SamplerState(params=params["sampler"], aux=aux)
        intervals, info = sampler.sample(key_sample, state, rays, density_fn, step=step)
        intervals, info = named("samples", intervals), info.replace(levels=named("levels", info.levels))
        coarse = tuple(
            shade(field_params(params, index), level.intervals, index)
            for index, level in enumerate(info.levels)
            if level.supervise_color
        )
        return RenderedRays(shade(params["field"], intervals, len(info.levels)), info, coarse)

    def refresh(key: Array, params, aux, *, step: Array) -> tuple[Any, Any]:
        def point_density_fn(positions: Array, radii: Array) -> Array:
            points = cast_balls(field.point_kind, positions, radii)
            return field.apply({"params": params["field"]}, points, method="density")[0]

        state = SamplerState(params=params["sampler"], aux=aux)
        state = sampler.refresh(key, state, point_density_fn, step=step)
        return {**params, "sampler": state.params}, state.aux

    def regularize(params) -> dict[str, Array]:
        parts = [sampler.regularize(params["sampler"])]
        if hasattr(field, "regularize"):
            parts += [
                field.apply({"params": params[name]}, method="regularize") for name in FIELD_PARAMS if name in params
            ]
        return {name: sum(part[name] for part in parts if name in part) for part in parts for name in part}

    return Renderer(init, render, refresh, background, sampler, field, regularize)


def init_field(field: nn.Module, key: Array):
    """Returns the parameters of a field."""

    def forward(module: nn.Module) -> Array:
        _, features = module.density(cast_balls(field.point_kind, jnp.zeros((1, 3)), jnp.ones((1,))))
        conditioning = Conditioning(jnp.full((1,), -1, jnp.int32), jnp.zeros((1,)))
        return module.color(features, jnp.asarray([[0.0, 0.0, 1.0]]), conditioning)

    return nn.init(forward, field)(key)["params"]


def _shade(
    field: nn.Module,
    params,
    rays: Rays,
    points: CastPoints,
    intervals: Intervals | PackedIntervals,
    background_color: Array,
    opaque_end: bool,
) -> Rendering:
    """Evaluates the field over intervals, cast to points, and composites."""
    packed = isinstance(intervals, PackedIntervals)

    def per_sample(values: Array) -> Array:
        if packed:
            return values.at[intervals.ray].get(mode="fill", fill_value=0)
        shape = values.shape[:1] + (intervals.count,) + values.shape[1:]
        return jnp.broadcast_to(jnp.expand_dims(values, 1), shape)

    def forward(module: nn.Module) -> tuple[Array, Array]:
        density, features = module.density(points)
        camera_index = per_sample(rays.camera_index)
        conditioning = Conditioning(camera_index, jnp.zeros(camera_index.shape))
        return density, module.color(features, per_sample(rays.directions), conditioning)

    density, colors = nn.apply(forward, field)({"params": params})
    density, colors = named("density", density), named("colors of samples", colors)
    if packed:
        weights = named("weights", packed_weights_from_density(density, intervals))
        return packed_composite(weights, colors, intervals, rays.far, background_color)
    weights = named("weights", weights_from_density(density, intervals.t_delta, opaque_end=opaque_end))
    return composite(weights, colors, intervals, rays.far, background_color)


def camera_rays(
    geometry: SceneGeometry, cameras: Cameras, image: Array, row: Array, column: Array, index: Array
) -> Rays:
    """Returns the rays of pixels, cut to what of the scene they can meet.

    Args:
      geometry: bounded scenes cut rays to their box; unbounded ones go from near to far.
      cameras: the cameras that ``image`` counts.
      image: [N] int32.
      row: [N] int32.
      column: [N] int32.
      index: [N] int32 position in the global batch.
    """
    near, far = geometry.near, geometry.far
    rays = rays_from_pixels(cameras, image, row, column, near=near, far=far, index=index)
    return rays_in_box(rays, geometry.box) if geometry.bounded else rays


def make_image_renderer(
    renderer: Renderer, geometry: SceneGeometry, *, memory_bytes: int
) -> Callable[..., RenderedImage]:
    """Returns ``render_image(params, aux, camera, camera_index, step) -> RenderedImage`` of a one-camera ``Cameras``.

    Images are rendered in chunks of one size, the largest power of two up to ``CHUNK_MAX`` whose temporaries, by the
    compiler's own account, fit into ``memory_bytes``; it is compiled once. The rays of packed samplers are rendered in
    rounds (``render_wavefront``).

    Args:
      renderer: made with a deterministic sampler.
      geometry: the scene.
      memory_bytes: budget for temporaries of one call on one device.
    """

    def render_chunk(params, aux, camera: Cameras, camera_index: Array, start: Array, step: Array, *, chunk: int):
        flat = jnp.minimum(start + jnp.arange(chunk, dtype=jnp.int32), camera.size[0, 0] * camera.size[0, 1] - 1)
        row, column = flat // camera.size[0, 0], flat % camera.size[0, 0]
        rays = camera_rays(geometry, camera, jnp.zeros_like(flat), row, column, flat)
        rays = rays.replace(camera_index=jnp.broadcast_to(camera_index, flat.shape))
        background_color = renderer.background.color(params["background"], rays)
        lane = start + jnp.arange(chunk, dtype=jnp.int32)
        inside = lane < camera.size[0, 0] * camera.size[0, 1]
        march = functools.partial(renderer.render, jax.random.key(0), params, aux, step=step)
        if is_packed(jax.eval_shape(march, rays, background_color)):
            rays = rays.replace(far=jnp.where(inside, rays.far, rays.near))
            return render_wavefront(march, rays, background_color)
        rendered = march(rays, background_color)
        spent = rendered.info.evaluations * jnp.sum(inside)
        return rendered.final.color, rendered.final.accumulation, rendered.final.depth, spent

    compiled: dict[Any, tuple[int, Callable]] = {}

    def compile_for(*arguments) -> tuple[int, Callable]:
        models = arguments[2].models
        if models not in compiled:
            chunk = CHUNK_MAX
            while True:
                program = jax.jit(functools.partial(render_chunk, chunk=chunk)).lower(*arguments).compile()
                analysis = program.memory_analysis()
                if analysis is None or analysis.temp_size_in_bytes <= memory_bytes or chunk <= CHUNK_MIN:
                    break
                chunk //= 2
            compiled[models] = chunk, program
        return compiled[models]

    def render_image(params, aux, camera: Cameras, camera_index: int = -1, step: ArrayLike = 0) -> RenderedImage:
        width, height = (int(side) for side in np.asarray(camera.size).reshape(2))
        fixed = (params, aux, jax.tree.map(jnp.asarray, camera), jnp.int32(camera_index))
        chunk, program = compile_for(*fixed, jnp.int32(0), jnp.int32(step))
        chunks = [program(*fixed, jnp.int32(start), jnp.int32(step)) for start in range(0, width * height, chunk)]
        *maps, spent = zip(*chunks, strict=True)
        maps = [np.concatenate([np.asarray(part) for part in parts])[: width * height] for parts in maps]
        color, accumulation, depth = (values.reshape(height, width, *values.shape[1:]) for values in maps)
        evaluations = float(np.sum([np.asarray(part) for part in spent])) / (width * height)
        return RenderedImage(color, accumulation, depth, evaluations)

    return render_image


def is_packed(rendered: RenderedRays) -> bool:
    """Whether a rendering has a ragged number of intervals per ray."""
    return isinstance(rendered.final.intervals, PackedIntervals)


class _Wave(NamedTuple):
    """What has been rendered of N rays up to ``near``: colour without background, depth without what is behind."""

    near: Array
    color: Array
    depth: Array
    transmittance: Array
    spent: Array
    rounds: Array


def render_wavefront(
    march: Callable[[Rays, Array], RenderedRays], rays: Rays, background_color: Array
) -> tuple[Array, Array, Array, Array]:
    """Renders rays in rounds, each of which goes on where the last one ended.

    A ray lives until its intervals are used up or its transmittance falls below ``TRANSMITTANCE_MIN``. One that does
    not is an empty ray (near = far), which takes no slots, so that all of a round's go to rays that need them.

    Args:
      march: ``(rays, background [N, 3]) -> RenderedRays`` with packed intervals.
      rays: of batch shape [N]; those with near >= far are not rendered.
      background_color: [N, 3].

    Returns:
      (colour [N, 3], accumulation [N], depth [N], evaluations of the main field of all rays together).
    """
    count = rays.near.shape[0]

    def go_on(wave: _Wave) -> Array:
        return jnp.any(wave.near < rays.far) & (wave.rounds < ROUNDS_MAX)

    def advance(wave: _Wave) -> _Wave:
        rendered = march(rays.replace(near=wave.near), jnp.zeros_like(background_color))
        final, info = rendered.final, rendered.info
        depth = segment_sum(final.weights * final.intervals.t_mid, final.intervals.ray, count)
        transmittance = wave.transmittance * jnp.maximum(1.0 - final.accumulation, 0.0)
        return _Wave(
            near=jnp.where(transmittance >= TRANSMITTANCE_MIN, info.t_end, rays.far),
            color=wave.color + wave.transmittance[:, None] * final.color,
            depth=wave.depth + wave.transmittance * depth,
            transmittance=transmittance,
            spent=wave.spent + info.evaluations * count,
            rounds=wave.rounds + 1,
        )

    zero = jnp.zeros_like(rays.near)
    start = _Wave(
        near=rays.near,
        color=jnp.zeros_like(background_color),
        depth=zero,
        transmittance=zero + 1.0,
        spent=jnp.zeros((), jnp.float32),
        rounds=jnp.zeros((), jnp.int32),
    )
    wave = jax.lax.while_loop(go_on, advance, start)
    color = wave.color + wave.transmittance[:, None] * background_color
    depth = wave.depth + wave.transmittance * rays.far
    return color, 1.0 - wave.transmittance, depth, wave.spent
