"""The occupancy sampler as a whole: against dense steps, at the rungs of the ladder, inside scan and shard_map."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from nerfjax.errors import UserError
from nerfjax.geometry.cameras import cameras_from
from nerfjax.geometry.poses import look_at
from nerfjax.geometry.rays import cast_points
from nerfjax.renderer import camera_rays
from nerfjax.samplers import SamplerState, occupancy
from nerfjax.samplers import occupancy_grid as grids
from nerfjax.scenes.analytic_field import analytic_field
from nerfjax.types import Intervals, SceneGeometry
from nerfjax.volume import composite, packed_composite, packed_weights_from_density, weights_from_density

RAYS, RESOLUTION, STEPS = 64, 16, 128
OPTIONS = dict(resolution=RESOLUTION, diagonal_steps=STEPS, samples_per_ray=64.0)
QUICK = {"xla_backend_optimization_level": 0}  # halves the time to compile


@functools.cache
def scene() -> SceneGeometry:
    poses = np.stack([look_at(np.asarray([3.0, y, 1.5]), np.zeros(3))[:3] for y in (-1.0, 1.0)])
    cameras = cameras_from(poses, 12.0, size=(8, 8))
    box = np.asarray([[-1.5] * 3, [1.5] * 3], np.float32)
    return SceneGeometry(box=box, near=np.float32(0.5), far=np.float32(9.0), cameras=cameras, bounded=True)


def make_rays(count: int = RAYS):
    lane = jnp.arange(count, dtype=jnp.int32)
    geometry = jax.tree.map(jnp.asarray, scene())
    return camera_rays(geometry, geometry.cameras, lane % 2, lane // 8 % 8, lane % 8, lane)


def grid_spec() -> grids.GridSpec:
    return grids.grid_spec(scene(), resolution=RESOLUTION, diagonal_steps=STEPS)


@functools.cache
def true_grid() -> grids.OccupancyGrid:
    """Occupied where the toys are, a cell more to each side included."""
    fine = 4 * RESOLUTION
    lattice = (np.arange(fine) + 0.5) / fine * 3 - 1.5
    points = jnp.asarray(np.stack(np.meshgrid(lattice, lattice, lattice, indexing="ij"), axis=-1), jnp.float32)
    density = np.asarray(jax.jit(analytic_field("toys").point_density)(points, points[..., 0]))
    cells = density.reshape((RESOLUTION, 4) * 3).max(axis=(1, 3, 5))
    wide = np.max([np.roll(cells, shift, (0, 1, 2)) for shift in np.ndindex(3, 3, 3)], axis=0)
    return grids.filled_grid(grid_spec(), jnp.asarray(np.roll(wide, (-1, -1, -1), (0, 1, 2)))[None])


def sample(sampler, rays, seed: int = 0, grid=None):
    state = SamplerState(params={}, aux=true_grid() if grid is None else grid)
    unused = lambda rays, intervals, *, level: None  # noqa: E731
    run = jax.jit(lambda key, rays: sampler.sample(key, state, rays, unused, step=0), compiler_options=QUICK)
    return run(jax.random.key(seed), rays)


@pytest.mark.parametrize("deterministic", [True, False])
def test_packed_rays_equal_dense_ones_where_nothing_overflows(deterministic):
    """The dense steps are those of a grid that is occupied everywhere: all of the ray."""
    rays, field = make_rays(), analytic_field("toys")
    everywhere = grids.filled_grid(grid_spec(), jnp.full((1, *(RESOLUTION,) * 3), 99.0))
    sampler = occupancy(geometry=scene(), **(OPTIONS | dict(samples_per_ray=160.0)), deterministic=deterministic)
    full, _ = sample(sampler, rays, grid=everywhere)
    packed, info = sample(sampler, rays)
    assert int(info.overflow) == 0 and int(full.overflow) == 0
    np.testing.assert_array_equal(info.t_end, rays.far)
    assert float(info.evaluations) == packed.count.sum() / RAYS < 0.5 * full.count.sum() / RAYS

    size = int(full.count.max())
    edges = np.repeat(np.asarray(rays.far)[:, None], size + 1, axis=1)
    for i, (first, count) in enumerate(zip(full.start, full.count, strict=True)):
        edges[i, :count] = full.t0[first : first + count]
    dense = Intervals(t=jnp.asarray(edges), s=jnp.asarray(edges))
    behind = jnp.full((RAYS, 3), 0.3)
    density, colors = field.density(cast_points(rays, dense))
    wanted = composite(weights_from_density(density, dense.t_delta), colors, dense, rays.far, behind)
    density, colors = field.density(cast_points(rays, packed))
    got = packed_composite(packed_weights_from_density(density, packed), colors, packed, rays.far, behind)
    for name in ("color", "accumulation", "depth"):
        np.testing.assert_allclose(getattr(got, name), getattr(wanted, name), atol=1e-4, rtol=1e-4)
    assert 0.2 < float(jnp.mean(got.accumulation)) < 0.9


def test_the_budget_is_the_same_at_all_rungs_and_cuts_are_reported():
    rays = make_rays()
    whole, _ = sample(occupancy(geometry=scene(), **OPTIONS), rays)
    few = dict(OPTIONS, samples_per_ray=2.0)
    top, info = sample(occupancy(geometry=scene(), **few), rays)
    half = jax.tree.map(lambda leaf: leaf[: RAYS // 2], rays)
    low, half_info = sample(occupancy(geometry=scene(), ray_share=0.5, **few), half)
    assert top.t0.shape == low.t0.shape == (2 * RAYS,)
    for packed, report, shot in ((top, info, rays), (low, half_info, half)):
        count = shot.near.shape[0]
        assert int(report.overflow) == int(np.sum(whole.count[:count] - packed.count)) > 0
        np.testing.assert_allclose(report.evaluations, 2 * RAYS / count)
        cut = np.asarray(packed.count) < np.asarray(whole.count)[:count]
        np.testing.assert_array_equal(np.asarray(report.t_end) < np.asarray(shot.far), cut)
    np.testing.assert_array_equal(low.count, top.count[: RAYS // 2])


def test_evaluation_shares_the_slots_equally():
    rays = make_rays()
    wanted = np.asarray(sample(occupancy(geometry=scene(), deterministic=True, **OPTIONS), rays)[0].count)
    few = occupancy(geometry=scene(), deterministic=True, **dict(OPTIONS, samples_per_ray=4.0))
    got = np.asarray(sample(few, rays)[0].count)
    assert np.all(got == np.minimum(wanted, got.max())) and np.minimum(wanted, got.max() + 1).sum() > 4 * RAYS


def test_the_middles_of_steps_are_spread_evenly():
    """Over keys the places of evaluation of one ray are uniform modulo the step."""
    sampler = occupancy(geometry=scene(), **OPTIONS)
    ray = jax.tree.map(lambda leaf: leaf[27:28], make_rays())
    rays = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (2048, *leaf.shape[1:])), ray)
    rays = rays.replace(index=jnp.arange(2048, dtype=jnp.int32))
    packed, _ = sample(sampler, rays)
    inner = (np.asarray(packed.t_delta) > 0) & (np.asarray(packed.ray) < 2048)
    step = 3 * np.sqrt(3) / STEPS
    place = (np.asarray(packed.t_mid)[inner] / step) % 1.0
    histogram = np.histogram(place, bins=8, range=(0, 1))[0] / inner.sum()
    assert inner.sum() > 2048 * 3 and np.all(np.abs(histogram - 1 / 8) < 0.02)


def test_gradients_of_weights_are_finite_and_reach_the_field():
    sampler, field = occupancy(geometry=scene(), **OPTIONS), analytic_field("toys")
    rays = make_rays()

    def opacity(scale, origins):
        moved = rays.replace(origins=origins)
        state = SamplerState(params={}, aux=true_grid())
        packed, _ = sampler.sample(jax.random.key(0), state, moved, field.interval_density, step=0)
        density = scale * field.interval_density(rays, packed)
        return jnp.sum(packed_weights_from_density(density, packed)) + 0.0 * jnp.sum(packed.t0)

    gradient = jax.jit(jax.grad(opacity, argnums=(0, 1)), compiler_options=QUICK)
    for scale in (0.0, 0.01, 1e30):
        of_scale, of_origins = gradient(jnp.asarray(scale, jnp.float32), rays.origins)
        assert np.isfinite(of_scale) and (of_scale > 0 or scale > 1)
        np.testing.assert_array_equal(of_origins, 0.0)


def test_steps_and_refreshes_run_under_scan_inside_shard_map_with_one_compilation():
    sampler, field = occupancy(geometry=scene(), warmup=2, **OPTIONS), analytic_field("fog")
    rays = make_rays()

    def step(rays, state, number):
        key = jax.random.fold_in(jax.random.key(0), number)
        packed, info = sampler.sample(key, state, rays, field.interval_density, step=number)
        state = sampler.refresh(key, state, field.point_density, step=number)
        return state, (info.overflow[None], packed.count, info.t_end)

    def run(rays, state, first):
        return jax.lax.scan(functools.partial(step, rays), state, first + jnp.arange(4, dtype=jnp.int32))

    mesh = jax.make_mesh((1,), ("data",), devices=jax.devices()[:1], axis_types=(AxisType.Auto,))
    along, by_step = PartitionSpec("data"), PartitionSpec(None, "data")
    sharded = jax.shard_map(
        run, mesh=mesh, in_specs=(along, PartitionSpec(), PartitionSpec()), out_specs=(PartitionSpec(), by_step)
    )
    sharded, plain = jax.jit(sharded, compiler_options=QUICK), jax.jit(run, compiler_options=QUICK)
    state = sampler.init(jax.random.key(0), jax.tree.map(jnp.asarray, scene()))
    state = jax.device_put(state, NamedSharding(mesh, PartitionSpec()))
    for first in (0, 300):
        results = [run(rays, state, jnp.int32(first)) for run in (sharded, plain)]
        for a, b in zip(*map(jax.tree.leaves, results), strict=True):
            np.testing.assert_array_equal(a, b)
        state = results[0][0]
    assert sharded._cache_size() == 1
    overflow = np.asarray(results[0][1][0])
    assert float(state.aux.evaluations) > 0 and np.all(overflow[-1] >= 0)


@pytest.mark.parametrize(
    "options", [dict(samples_per_ray=0.5), dict(ray_share=0.0), dict(max_steps=33), dict(early_stop=1.0)]
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(UserError):
        occupancy(geometry=scene(), **options)
