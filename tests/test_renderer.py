"""Whole images: in rounds of packed rays as in one uncut call, and with the evaluations that they have cost."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax import renderer as renderer_module
from nerfjax.background import white
from nerfjax.geometry.cameras import cameras_from
from nerfjax.geometry.poses import look_at
from nerfjax.renderer import TRANSMITTANCE_MIN, camera_rays, make_image_renderer, make_renderer
from nerfjax.samplers import SamplerState, occupancy, stratified
from nerfjax.scenes.analytic_field import analytic_field
from nerfjax.types import SceneGeometry

SIDE = 9  # 81 pixels: the last chunk is not full
OPTIONS = dict(resolution=16, diagonal_steps=96, deterministic=True)


@functools.cache
def scene() -> SceneGeometry:
    poses = np.stack([look_at(np.asarray([3.0, y, 1.5]), np.zeros(3))[:3] for y in (-1.0, 1.0)])
    cameras = cameras_from(poses, 12.0, size=(SIDE, SIDE))
    box = np.asarray([[-1.5] * 3, [1.5] * 3], np.float32)
    return SceneGeometry(box=box, near=np.float32(0.5), far=np.float32(9.0), cameras=cameras, bounded=True)


def renderer_of(sampler):
    renderer = make_renderer(analytic_field("toys"), sampler, white())
    return renderer, {"field": {}, "sampler": {}, "background": {}}


def grid_state() -> SamplerState:
    """A grid after some looks at the toys; where it is wrong, it is so for all calls."""
    sampler = occupancy(geometry=scene(), **OPTIONS)
    refresh = jax.jit(functools.partial(sampler.refresh, point_density_fn=analytic_field("toys").point_density))
    state = sampler.init(jax.random.key(0), scene())
    for step in range(8):
        state = refresh(jax.random.key(step), state, step=jnp.int32(step))
    return state


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Two chunks to an image, of which the second is mostly empty."""
    monkeypatch.setattr(renderer_module, "CHUNK_MAX", 64)


def camera():
    return jax.tree.map(lambda leaf: leaf[:1], scene().cameras)


def test_rounds_of_packed_rays_give_the_image_of_one_uncut_call_with_fewer_evaluations():
    aux = grid_state().aux
    uncut, params = renderer_of(occupancy(geometry=scene(), samples_per_ray=100.0, **OPTIONS))
    geometry = jax.tree.map(jnp.asarray, scene())
    lane = jnp.arange(SIDE * SIDE, dtype=jnp.int32)
    rays = camera_rays(geometry, geometry.cameras, 0 * lane, lane // SIDE, lane % SIDE, lane)
    render = functools.partial(uncut.render, jax.random.key(0), params, aux, step=jnp.int32(0))
    whole = jax.jit(render)(rays, jnp.ones((SIDE**2, 3)))
    assert int(whole.info.overflow) == 0
    for samples_per_ray in (1.0, 3.0):
        rounds, _ = renderer_of(occupancy(geometry=scene(), samples_per_ray=samples_per_ray, **OPTIONS))
        image = make_image_renderer(rounds, scene(), memory_bytes=1 << 30)(params, aux, camera())
        for name in ("color", "accumulation", "depth"):
            wanted = np.asarray(getattr(whole.final, name)).reshape(getattr(image, name).shape)
            np.testing.assert_allclose(getattr(image, name), wanted, atol=2 * TRANSMITTANCE_MIN)
        # Rays that have met something opaque do not go on.
        assert image.evaluations < 0.8 * float(whole.info.evaluations)
    assert 0.2 < image.accumulation.mean() < 0.9


def test_the_evaluations_of_dense_rays_are_reported_too():
    renderer, params = renderer_of(stratified(num_samples=24, deterministic=True))
    image = make_image_renderer(renderer, scene(), memory_bytes=1 << 30)(params, {}, camera())
    assert image.evaluations == pytest.approx(24.0)
    assert image.color.shape == (SIDE, SIDE, 3)
