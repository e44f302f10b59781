"""Steps against a loop of steps, marching against a test of every step in NumPy, packing against lists."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.samplers import marching
from nerfjax.samplers import occupancy_grid as grids
from nerfjax.types import Cameras, Rays, SceneGeometry

RAYS = 96
QUICK = {"xla_backend_optimization_level": 0}  # halves the time to compile
# (cascades, growth of the steps, steps along the diagonal)
CASES = {"box": (1, 0.0, 100), "cascades": (3, 0.0, 24), "growing": (3, 0.04, 60), "growing-box": (1, 0.1, 90)}


def scene() -> SceneGeometry:
    cameras = Cameras(
        pose=np.eye(4, dtype=np.float32)[None, :3], focal=np.ones((1, 2)), center=np.ones((1, 2)),
        distortion=np.zeros((1, 12)), size=np.full((1, 2), 2), model=np.zeros((1,), np.int32),
    )  # fmt: skip
    box = np.asarray([[-1.0, -0.5, -1.5], [1.0, 1.0, 1.5]], np.float32)
    return SceneGeometry(box=box, near=np.float32(0.1), far=np.float32(30.0), cameras=cameras, bounded=False)


def grid_of(case: str):
    """Static choices, rule and a grid of scattered cells and of blobs, so that blocks of all sizes are empty."""
    cascades, cone, steps = CASES[case]
    spec = grids.grid_spec(scene(), resolution=16, cascades=cascades, diagonal_steps=steps, solid=True)
    rng = np.random.default_rng(2)
    blobs = np.kron(rng.random((cascades, 4, 4, 4)) < 0.15, np.ones((1, 4, 4, 4))) > 0
    occupied = (rng.random(spec.shape) < 0.01) | (blobs & (rng.random(spec.shape) < 0.8))
    grid = grids.filled_grid(spec, jnp.where(occupied, 90.0, 0.0))
    return spec, marching.step_rule(spec, cone=cone), grid, occupied


def make_rays() -> Rays:
    """From inside and outside of the grid; some along the axes, some that miss, some empty."""
    rng, count = np.random.default_rng(3), RAYS
    origins = rng.normal(size=(count, 3)) * 2.0
    directions = rng.normal(size=(count, 3)) - 0.6 * origins
    directions[:6] = np.concatenate([np.eye(3), -np.eye(3)])
    origins[:6] = -1.7 * directions[:6] + 0.11
    origins[6:9], directions[6:9] = 40.0, 1.0
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    near, far = rng.uniform(0.0, 1.0, count), rng.uniform(4.0, 20.0, count)
    far[9] = near[9]
    to_jax = functools.partial(jnp.asarray, dtype=jnp.float32)
    return Rays(
        origins=to_jax(origins), directions=to_jax(directions), near=to_jax(near), far=to_jax(far),
        footprint=jnp.zeros(count), camera_index=jnp.full(count, -1, jnp.int32),
        index=jnp.arange(count, dtype=jnp.int32),
    )  # fmt: skip


def phases():
    return jnp.asarray(np.random.default_rng(4).random(RAYS), jnp.float32)


@functools.cache
def compiled(case: str, max_steps: int = 0, early_stop: float = 0.0, capacity: int = 1 << 14, fair: bool = False):
    """``rays -> (lattice, bits, packed, t_end)``."""
    spec, rule, grid, _ = grid_of(case)
    rule = rule._replace(max_steps=max_steps or rule.max_steps)

    def march(rays, phase):
        lattice = marching.make_lattice(spec, rule, rays, phase)
        bits = marching.occupied_steps(spec, grid, rays, lattice, early_stop=early_stop)
        return lattice, bits, *marching.pack_steps(bits, lattice, rays, capacity, fair=fair)

    return jax.jit(march, compiler_options=QUICK)


def ragged(packed, values=None) -> list[np.ndarray]:
    """[S, 2] ends (or values) of the intervals of each ray."""
    values = np.stack([packed.t0, packed.t1], axis=-1) if values is None else values
    return [values[a : a + n] for a, n in zip(np.asarray(packed.start), np.asarray(packed.count), strict=True)]


def unpacked(bits) -> np.ndarray:
    """[N, max_steps] bool."""
    return np.unpackbits(np.ascontiguousarray(bits).view(np.uint8), axis=1, bitorder="little").astype(bool)


# ---------------------------------------------------------------------------- steps


@pytest.mark.parametrize("cone, longest", [(1 / 256, 40.0), (0.05, 0.3), (0.0, 1.0)])
def test_closed_form_against_a_loop_of_steps(cone, longest):
    rule = marching.StepRule(0.01, longest, cone, 1024)
    t, edges = 0.0, [0.0]
    for _ in range(700):
        t += min(max(t * cone, rule.dt_min), rule.dt_max)
        edges.append(t)
    got = marching.step_distance(rule, jnp.arange(701, dtype=jnp.float32))
    # Only where the rule changes within a step do they differ, by at most a second-order part of that step.
    np.testing.assert_allclose(got, edges, rtol=cone**2 + 1e-5, atol=1e-6)
    np.testing.assert_allclose(marching.step_coordinate(rule, got), np.arange(701), rtol=1e-5, atol=2e-3)


@pytest.mark.parametrize("case", CASES)
def test_steps_tile_the_part_of_a_ray_that_lies_in_the_grid(case):
    spec, rule, _, _ = grid_of(case)
    rays = make_rays()
    lattice = marching.make_lattice(spec, rule, rays, phases())
    # By slabs, in float64.
    o, d = np.asarray(rays.origins, np.float64), np.asarray(rays.directions, np.float64)
    with np.errstate(divide="ignore"):
        ends = (spec.center + np.asarray([[-1], [1]])[..., None] * spec.outer_half - o) / d
    near = np.maximum(ends.min(axis=0).max(axis=-1), rays.near)
    far = np.minimum(ends.max(axis=0).min(axis=-1), rays.far)
    hit = far > near
    np.testing.assert_array_equal(np.asarray(lattice.count) > 0, hit)
    assert 30 < hit.sum() < RAYS and np.all(lattice.complete)
    np.testing.assert_allclose(lattice.near[hit], near[hit], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(lattice.far[hit], far[hit], rtol=1e-4)
    bits = jnp.where(jnp.arange(rule.max_steps)[None] < lattice.count[:, None], 1, 0)
    words = jnp.sum(
        bits.reshape(RAYS, -1, 32).astype(jnp.uint32) << jnp.arange(32, dtype=jnp.uint32)[None, None], axis=-1
    )
    packed, t_end = marching.pack_steps(words.astype(jnp.uint32), lattice, rays, RAYS * rule.max_steps, fair=False)
    np.testing.assert_array_equal(t_end, rays.far)
    for i, ray in enumerate(ragged(packed)):
        if hit[i]:
            np.testing.assert_array_equal(ray[[0, -1], [0, 1]], [lattice.near[i], lattice.far[i]])
            np.testing.assert_allclose(ray[1:, 0], ray[:-1, 1], rtol=1e-6)
            length = np.clip(rule.cone * ray[:, 0], rule.dt_min, rule.dt_max)
            np.testing.assert_allclose(np.diff(ray)[1:-1, 0], length[1:-1], rtol=2 * rule.cone + 1e-3)


def test_the_longest_ray_fits_and_steps_come_in_words():
    for case in CASES:
        spec, rule, _, _ = grid_of(case)
        assert rule.max_steps % 32 == 0 and rule.dt_min == spec.step
    with pytest.raises(UserError):
        marching.step_rule(grid_of("box")[0], cone=0.0, max_steps=100)
    corner = spec.center - spec.outer_half
    ray = jax.tree.map(lambda leaf: leaf[:1], make_rays()).replace(
        origins=jnp.asarray(corner)[None], near=jnp.zeros(1), far=jnp.full(1, 99.0),
        directions=jnp.asarray(spec.outer_half / np.linalg.norm(spec.outer_half))[None],
    )  # fmt: skip
    for case in CASES:
        spec, rule, _, _ = grid_of(case)
        assert bool(marching.make_lattice(spec, rule, ray, jnp.asarray([0.999])).complete[0])


# ---------------------------------------------------------------------------- marching


def occupied_by_loop(case: str, rays: Rays, lattice) -> tuple[np.ndarray, np.ndarray]:
    """In float64: whether each step's middle lies in an occupied cell, and whether that is too close to call."""
    spec, rule, _, occupied = grid_of(case)
    t1 = rule.dt_min / rule.cone if rule.cone else math.inf
    wanted = np.zeros((RAYS, rule.max_steps), bool)
    close = np.zeros_like(wanted)
    for ray in range(RAYS):
        for step in range(int(lattice.count[ray])):
            u = float(lattice.base[ray]) + step + 0.5
            u1, u2 = (
                t1 / rule.dt_min,
                t1 / rule.dt_min + math.log(rule.dt_max / rule.dt_min) / math.log1p(rule.cone or 1),
            )
            if u <= u1:
                t = u * rule.dt_min
            else:
                t = t1 * (1 + rule.cone) ** (min(u, u2) - u1) + max(u - u2, 0.0) * rule.dt_max
            t = min(max(t, float(lattice.near[ray])), float(lattice.far[ray]))
            x = np.asarray(rays.origins[ray], np.float64) + t * np.asarray(rays.directions[ray], np.float64)
            unit = (x - spec.center) / spec.half
            reach = np.abs(unit).max()
            k = 0
            while k < spec.cascades - 1 and reach > 2.0**k:
                k += 1
            place = (unit / 2.0**k + 1) * 0.5 * spec.resolution
            close[ray, step] = np.abs(place - np.round(place)).min() < 1e-3
            wanted[ray, step] = occupied[(k, *np.clip(place.astype(int), 0, spec.resolution - 1))]
    return wanted, close


@pytest.mark.parametrize("case", CASES)
def test_marching_finds_the_steps_that_a_test_of_every_one_finds(case):
    rays = make_rays()
    lattice, bits, packed, _ = compiled(case)(rays, phases())
    host = jax.tree.map(np.asarray, lattice)
    wanted, close = occupied_by_loop(case, jax.tree.map(np.asarray, rays), host)
    got = unpacked(bits)
    np.testing.assert_array_equal(got[~close], wanted[~close])
    assert close.mean() < 0.05 and 0.05 < wanted.sum() / host.count.sum() < 0.6
    assert int(packed.overflow) == 0
    np.testing.assert_array_equal(packed.count, got.sum(axis=1))


def test_marching_skips_empty_space():
    """Turns of the walk through a grid with one occupied cell: far fewer than there are steps."""
    spec = grids.grid_spec(scene().replace(bounded=True), resolution=64, diagonal_steps=1024)
    rule = marching.step_rule(spec, cone=0.0)
    grid = grids.filled_grid(spec, jnp.zeros(spec.shape).at[0, 30, 30, 30].set(900.0))
    rays = make_rays()
    lattice = marching.make_lattice(spec, rule, rays, phases())
    step, turns = jnp.zeros(RAYS, jnp.int32), 0
    look = jax.jit(lambda t: marching._block(spec, grid.skip.reshape(-1), rays, t)[2])
    while np.any(step < lattice.count):
        t = jnp.clip(marching._distance(lattice, step, 0.5), lattice.near, lattice.far)
        u = marching.step_coordinate(rule, jnp.minimum(look(t), lattice.far))
        step = jnp.clip(jnp.ceil(u - lattice.base - 0.501).astype(jnp.int32), step + 1, lattice.count)
        turns += 1
    assert turns < 60 and int(jnp.max(lattice.count)) > 600


def test_rays_end_where_the_solid_is_opaque_and_not_behind_thin_things():
    spec, rule, _, _ = grid_of("box")
    thick = np.zeros(spec.shape, np.float32)
    thick[0, 4:12] = 1.0 / spec.step
    thin = np.zeros(spec.shape, np.float32)
    thin[0, [4, 8, 12]] = 1e4
    rays = jax.tree.map(lambda leaf: leaf[:4], make_rays()).replace(
        origins=jnp.asarray([[-3.0, 0.1, 0.2]] * 4), directions=jnp.asarray([[1.0, 0.0, 0.0]] * 4),
        near=jnp.zeros(4), far=jnp.full(4, 9.0),
    )  # fmt: skip

    def count(density, stop):
        grid = grids.filled_grid(spec, jnp.asarray(density))
        lattice = marching.make_lattice(spec, rule, rays, jnp.zeros(4))
        return unpacked(marching.occupied_steps(spec, grid, rays, lattice, early_stop=stop)).sum(axis=1)

    assert np.all(count(thin, 1e-4) == count(thin, 0.0))
    whole, ended = count(thick, 0.0), count(thick, 1e-4)
    cell = 2.0 * spec.half[0] / 16 / spec.step  # steps to a cell; the first of the solid is not sure to be filled
    assert np.all(ended < whole) and np.all(np.abs(ended - (cell + math.log(1e4))) <= cell + 2)


# ---------------------------------------------------------------------------- packing


def random_steps(share: float = 0.2):
    spec, rule, _, _ = grid_of("cascades")
    rays = make_rays()
    lattice = marching.make_lattice(spec, rule, rays, phases())
    steps = np.random.default_rng(5).random((RAYS, rule.max_steps)) < share
    steps &= np.arange(rule.max_steps)[None] < np.asarray(lattice.count)[:, None]
    bits = jnp.asarray(np.packbits(steps, axis=1, bitorder="little").view(np.uint32))
    return rays, lattice, steps, bits


def pack(capacity: int, fair: bool):
    rays, lattice, steps, bits = random_steps()
    pack = jax.jit(lambda bits: marching.pack_steps(bits, lattice, rays, capacity, fair=fair), compiler_options=QUICK)
    return (*pack(bits), lattice, steps, rays)


@pytest.mark.parametrize("fair", [False, True])
@pytest.mark.parametrize("capacity", [4096, 300, 97, 1])
def test_packing_and_overflow_against_lists(capacity, fair):
    packed, t_end, lattice, steps, rays = pack(capacity, fair)
    wanted = steps.sum(axis=1)
    if fair:
        share = max(q for q in range(steps.shape[1] + 1) if np.minimum(wanted, q).sum() <= capacity)
        kept = np.minimum(wanted, share)
    else:
        kept, room = [], capacity
        for want in wanted:
            kept.append(min(want, room))
            room -= kept[-1]
        kept = np.asarray(kept)
    np.testing.assert_array_equal(packed.count, kept)
    np.testing.assert_array_equal(packed.start, np.cumsum(kept) - kept)
    assert int(packed.overflow) == (wanted - kept).sum()
    assert kept.sum() <= capacity and (kept.sum() == min(capacity, wanted.sum()) or fair)
    expected_ray = np.full(capacity, RAYS)
    expected_ray[: kept.sum()] = np.repeat(np.arange(RAYS), kept)
    np.testing.assert_array_equal(packed.ray, expected_ray)
    np.testing.assert_array_equal(packed.t0[kept.sum() :], 0.0)
    step = lattice.rule.dt_min
    for i, ray in enumerate(ragged(packed)):
        numbers = np.flatnonzero(steps[i])
        base = float(lattice.base[i])
        first = np.clip((base + numbers) * step, lattice.near[i], lattice.far[i])
        first[numbers == 0] = lattice.near[i]
        np.testing.assert_allclose(ray[:, 0], first[: kept[i]], rtol=1e-5, atol=1e-5)
        end = np.clip((base + numbers[: kept[i]] + 1) * step, lattice.near[i], lattice.far[i])
        np.testing.assert_allclose(ray[:, 1], end, rtol=1e-5, atol=1e-5)
        expected_end = rays.far[i] if kept[i] == wanted[i] else first[kept[i]]
        np.testing.assert_allclose(t_end[i], expected_end, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case, limit", [("growing", dict(capacity=128, fair=True)), ("cascades", dict(max_steps=32))])
def test_calls_that_start_where_the_last_one_ended_give_the_steps_of_one_uncut_call(case, limit):
    rays = make_rays()
    whole = ragged(compiled(case)(rays, phases())[2])
    parts: list[list] = [[] for _ in range(RAYS)]
    for _ in range(80):
        _, _, packed, t_end = compiled(case, **limit)(rays, phases())
        for i, ray in enumerate(ragged(packed)):
            parts[i].extend(ray)
        assert np.all(t_end >= rays.near)
        rays = rays.replace(near=t_end)
        if np.all(t_end >= rays.far):
            break
    assert np.all(t_end >= rays.far) and max(len(ray) for ray in whole) > 20
    for ray, joined in zip(whole, parts, strict=True):
        assert len(ray) == len(joined)
        np.testing.assert_allclose(np.asarray(joined).reshape(-1, 2), ray, rtol=2e-5, atol=2e-5)
