"""What composed sampling adds: clipping, gaps of the grid, shares around a depth, all in one first-to-last stage."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.samplers import DensityNetwork, SamplerState, compose
from nerfjax.samplers.gaps import Stage
from nerfjax.samplers.marching import make_lattice, occupied_steps, step_distance, step_rule
from nerfjax.samplers.mixture import with_depth_share, with_even_share
from nerfjax.samplers.occupancy_grid import filled_grid, grid_spec, occupied_at
from nerfjax.samplers.occupied import occupied_share
from nerfjax.types import Cameras, Rays, SceneGeometry

QUICK = {"xla_backend_optimization_level": 0}  # halves the time to compile
R = 16  # cells along each axis of the box [-4, 4]^3: half a unit each


def geometry(**changes) -> SceneGeometry:
    cameras = Cameras(
        pose=jnp.eye(4)[None, :3], focal=jnp.ones((1, 2)), center=jnp.ones((1, 2)), distortion=jnp.zeros((1, 12)),
        size=2 * jnp.ones((1, 2), jnp.int32), model=jnp.zeros((1,), jnp.int32),
    )  # fmt: skip
    box = jnp.asarray([[-4.0] * 3, [4.0] * 3])
    scene = SceneGeometry(box=box, near=jnp.asarray(0.1), far=jnp.asarray(20.0), cameras=cameras)
    return scene.replace(**changes)


def make_rays(count: int = 8, near=1.0, far=9.0, **changes) -> Rays:
    """Rays along +z from z = -5, at various x; z = t - 5."""
    full, index = jnp.ones((count,), jnp.float32), jnp.arange(count, dtype=jnp.int32)
    origins = jnp.stack([0.37 * index.astype(jnp.float32) - 1.4, 0.1 * full, -5 * full], axis=-1)
    rays = Rays(
        origins=origins, directions=jnp.broadcast_to(jnp.asarray([0.0, 0.0, 1.0]), (count, 3)), near=near * full,
        far=far * full, footprint=1e-3 * full, camera_index=0 * index, index=index,
    )  # fmt: skip
    return rays.replace(**changes)


def shells(z):
    """Two walls, from -2 to -1.5 and from 1 to 1.5: whole cells."""
    return jnp.where(((z > -2) & (z < -1.5)) | ((z > 1) & (z < 1.5)), 3.0, 0.0)


def grid_of(spec, density=shells):
    r = spec.resolution
    centers = -4 + (np.arange(r) + 0.5) * 8 / r
    here = jnp.broadcast_to(density(jnp.asarray(centers, jnp.float32)), (1, r, r, r))  # varies along z, the last axis
    return filled_grid(spec, here)


def network() -> DensityNetwork:
    return DensityNetwork(
        init=lambda key, geometry: {"scale": jnp.asarray(1.0)},
        apply=lambda params, points: params["scale"] * shells(points.positions[..., 2]),
    )


def no_field(rays, intervals, *, level):
    raise AssertionError("the field is not evaluated")


def sample(sampler, rays, *, grid=None, networks: int = 1, aux=None):
    state = sampler.init(jax.random.key(0), geometry())
    if grid is not None:
        state = state.replace(aux={**state.aux, "grid": grid})
    run = jax.jit(
        lambda state, rays: sampler.sample(jax.random.key(1), state, rays, no_field, step=jnp.asarray(10**6)),
        compiler_options=QUICK,
    )
    return run(state, rays)


def made(**options):
    options = {"networks": (), "num_proposal": (), "num_first": 64, "num_final": 16, "resolution": R, "widen": 0,
               "deterministic": True, **options}  # fmt: skip
    return compose(**{"geometry": geometry(), **options})


def mostly_inside(t, low: float, high: float) -> np.ndarray:
    """Number of whole intervals within [low, high], per ray."""
    t = np.asarray(t)
    return np.sum((t[:, :-1] >= low - 1e-3) & (t[:, 1:] <= high + 1e-3), axis=-1)


# ---------------------------------------------------------------------------- the first stage


@pytest.mark.parametrize("cascades, cone", [(1, 0.0), (2, 0.02)])
def test_occupied_share_counts_marching_steps(cascades, cone):
    """The bits of words against a loop over steps."""
    scene = geometry(bounded=cascades == 1)
    spec = grid_spec(scene, resolution=R, cascades=cascades)
    density = jnp.asarray(np.random.default_rng(0).random(spec.shape) < 0.2, jnp.float32)
    grid = filled_grid(spec, density)
    rule = step_rule(spec, cone=cone)
    rays = make_rays(4, near=1.3, far=8.7)
    t = jnp.broadcast_to(jnp.linspace(1.3, 8.7, 24), (4, 24))
    share = np.asarray(occupied_share(spec, rule, grid, rays, t))
    lattice = make_lattice(spec, rule, rays, jnp.zeros(4))
    bits = np.asarray(occupied_steps(spec, grid, rays, lattice))
    for ray in range(4):
        number = int(lattice.count[ray])
        edges = np.asarray(step_distance(rule, lattice.base[ray] + jnp.arange(number + 1, dtype=jnp.float32)))
        known = np.array([(bits[ray, i // 32] >> (i % 32)) & 1 for i in range(number)])
        for k in range(23):
            touched = (edges[1:] > float(t[ray, k]) + 1e-4) & (edges[:-1] < float(t[ray, k + 1]) - 1e-4)
            np.testing.assert_allclose(share[ray, k], known[touched].mean(), atol=0.11)  # a step more or less
            assert (share[ray, k] > 0) == known[touched].any() or share[ray, k] < 0.11
    assert 0.05 < share.mean() < 0.6


def test_intervals_go_to_occupied_cells_and_gaps_get_one_each():
    intervals, info = sample(made(), make_rays(), grid=grid_of(grid_spec(geometry(), resolution=R)))
    t = np.asarray(intervals.t)
    # The walls are t = 3 ... 3.5 and 6 ... 6.5; what is empty before and behind is cut off.
    assert np.all(np.abs(t[:, 0] - 3.0) < 0.13) and np.all(np.abs(t[:, -1] - 6.5) < 0.13)
    assert np.all(mostly_inside(t, 2.87, 3.63) >= 7) and np.all(mostly_inside(t, 5.87, 6.63) >= 7)
    assert np.all(mostly_inside(t, 2.87, 3.63) + mostly_inside(t, 5.87, 6.63) == 15)
    assert float(info.evaluations) == 16 and float(info.proposal_evaluations) == 64
    np.testing.assert_array_equal(info.t_end, 9.0)


def test_a_ray_with_nothing_occupied_is_sampled_as_if_there_were_no_grid():
    grid = grid_of(grid_spec(geometry(), resolution=R), lambda z: 0 * z - 1.0)
    intervals, _ = sample(made(), make_rays(), grid=grid)
    without, info = sample(made(skip=False), make_rays())
    np.testing.assert_allclose(intervals.t, without.t, atol=1e-5)
    np.testing.assert_allclose(np.diff(intervals.t), 0.5, atol=1e-4)
    assert float(info.proposal_evaluations) == 0


def test_widening_takes_in_the_neighbours():
    grid = grid_of(grid_spec(geometry(), resolution=R))
    narrow, wide = (np.asarray(sample(made(widen=widen), make_rays(), grid=grid)[0].t) for widen in (0, 3))
    np.testing.assert_allclose(narrow[:, 0] - wide[:, 0], 3 * 8 / 64, atol=1e-4)
    np.testing.assert_allclose(wide[:, -1] - narrow[:, -1], 3 * 8 / 64, atol=1e-4)


@pytest.mark.parametrize("rounds", [(16,), (12, 8)])
def test_networks_narrow_down_what_the_grid_left(rounds):
    """The grid is occupied everywhere from -3 to 3, the network knows the walls."""
    grid = grid_of(grid_spec(geometry(), resolution=R), lambda z: jnp.where(jnp.abs(z) < 3, 1.0, -1.0))
    sampler = made(networks=(network(),), num_proposal=rounds, uniform_share=0.0)
    intervals, info = sample(sampler, make_rays(), grid=grid)
    assert [level.intervals.count for level in info.levels] == list(rounds)
    assert float(info.proposal_evaluations) == 64 + sum(rounds)
    for level in info.levels:
        assert np.all(np.asarray(level.intervals.t) >= 1.99) and np.all(np.asarray(level.intervals.t) <= 8.01)
    crowd = mostly_inside(intervals.t, 2.5, 4.0) + mostly_inside(intervals.t, 5.5, 7.0)
    assert np.all(crowd >= 12)
    even, _ = sample(made(networks=(network(),), num_proposal=rounds, uniform_share=1.0), make_rays(), grid=grid)
    assert np.max(np.diff(even.t)) < 0.75


def test_the_whole_is_better_than_its_parts():
    """Error of the opacity of a thin wall in an occupied cell, at the same evaluations of the field."""
    thin = lambda z: jnp.where((z > -1.8) & (z < -1.7), 12.0, 0.0)  # noqa: E731
    thin_network = DensityNetwork(lambda key, geometry: {}, lambda params, points: thin(points.positions[..., 2]))
    grid = grid_of(grid_spec(geometry(), resolution=R))
    rounds = dict(networks=(thin_network,), num_proposal=(32,))
    parts = {"none": made(skip=False), "grid": made(), "proposal": made(skip=False, **rounds), "both": made(**rounds)}
    rays = make_rays(32, near=1.0 + 0.013 * jnp.arange(32.0), far=9.2 + 0.011 * jnp.arange(32.0))
    rays = rays.replace(origins=rays.origins.at[:, 0].set(0.1))
    errors = {}
    for name, sampler in parts.items():
        intervals, _ = sample(sampler, rays, grid=grid if name in ("grid", "both") else None)
        depth = jnp.sum(thin(intervals.t_eval - 5) * intervals.t_delta, axis=-1)
        errors[name] = float(jnp.sqrt(jnp.mean((jnp.exp(-depth) - jnp.exp(-1.2)) ** 2)))
    assert errors["grid"] < 0.5 * errors["none"], errors
    assert errors["both"] < 0.6 * min(errors["grid"], errors["proposal"]), errors


# ---------------------------------------------------------------------------- clipping


def test_clip_to_a_box():
    """Rays from outside; one that misses the box stays inside a sliver."""
    rays = make_rays(3, near=0.1, far=20.0)
    rays = rays.replace(origins=rays.origins.at[2, 0].set(9.0))
    intervals, _ = sample(made(skip=False, clip="box"), rays)
    np.testing.assert_allclose(np.asarray(intervals.t)[:2, [0, -1]], [[1.0, 9.0]] * 2, rtol=1e-5)
    assert np.all(np.asarray(intervals.t)[2] < 0.11)
    whole, _ = sample(made(skip=False, clip="none"), rays)
    np.testing.assert_allclose(np.asarray(whole.t)[:, [0, -1]], [[0.1, 20.0]] * 3, rtol=1e-6)
    unbounded, _ = sample(made(skip=False, geometry=geometry(bounded=False)), rays)
    np.testing.assert_array_equal(unbounded.t, whole.t)


def test_clip_to_the_cells_near_points():
    rng = np.random.default_rng(0)
    points = np.stack([rng.uniform(-3, 3, 4000), rng.uniform(-3, 3, 4000), rng.uniform(-1.0, 0.9, 4000)], axis=-1)
    points = np.concatenate([points, [[50.0, 0.0, 0.0]]])  # one beyond the grid
    scene = geometry(points=points.astype(np.float32))
    for cells in (0, 2):
        sampler = made(clip="points", skip=False, point_cells=cells, geometry=scene)
        rays = make_rays()
        rays = rays.replace(origins=rays.origins.at[7, 0].set(3.9))  # sees no points unless they reach 2 cells
        t = np.asarray(sample(sampler, rays)[0].t)
        np.testing.assert_allclose(t[:7, 0], 4.0 - 0.5 * cells, atol=0.13)
        np.testing.assert_allclose(t[:7, -1], 6.0 + 0.5 * cells, atol=0.13)
        assert (t[7, -1] - t[7, 0] > 7) == (cells == 0)
    with pytest.raises(UserError, match="clip"):
        made(clip="points")


# ---------------------------------------------------------------------------- the mixture


def test_shares_of_the_mixture_are_as_stated():
    s = jnp.broadcast_to(jnp.linspace(0.0, 1.0, 65), (2, 65))
    weights = jnp.zeros((2, 64)).at[:, 4].set(1.0)
    stage = Stage(s, weights, weights == 0)
    rays = make_rays(2, near=2.0, far=6.0, depth_prior=jnp.asarray([5.0, 0.0]))
    even = with_even_share(stage, Stage(s, jnp.diff(s), weights < 0), 0.25)
    np.testing.assert_allclose(even.weights, 0.75 * weights + 0.25 / 64, atol=1e-6)
    mixed = with_depth_share("linear", rays, stage, share=0.4, width=0.01)
    t = 2 + 4 * np.asarray(mixed.s)
    middle, share = 0.5 * (t[:, 1:] + t[:, :-1]), np.asarray(mixed.weights, np.float64)
    np.testing.assert_allclose(share.sum(axis=-1), 1.0, atol=1e-5)
    around = (middle > 4.7) & (middle < 5.3)
    np.testing.assert_allclose([share[0, around[0]].sum(), share[1, around[1]].sum()], [0.4, 0.0], atol=1e-5)
    mean = (share * middle)[0, around[0]].sum() / 0.4
    spread = np.sqrt((share * (middle - mean) ** 2)[0, around[0]].sum() / 0.4)
    assert abs(mean - 5.0) < 0.005 and 0.04 < spread < 0.06  # 1 % of the distance
    empty = np.asarray(mixed.empty)
    assert not empty[0, np.abs(middle[0] - 5.0) < 0.05].any() and empty[1, around[1]].all()


def test_samples_gather_around_a_known_depth_only():
    prior = jnp.asarray([4.0, 0.0, 7.0, 0.0, 4.0, 0.0, 7.0, 30.0])  # 30 lies beyond far
    sampler = made(skip=False, depth_share=0.5, depth_width=0.02)
    t = np.asarray(sample(sampler, make_rays(depth_prior=prior))[0].t)
    plain = np.asarray(sample(sampler, make_rays())[0].t)
    for ray, depth in enumerate(prior):
        if 0 < depth < 9:
            near_by = np.sum(np.abs(t[ray] - float(depth)) < 3 * 0.02 * float(depth))
            assert near_by >= 8 and np.max(np.diff(t[ray])) < 1.2, (ray, near_by)
        else:
            np.testing.assert_allclose(t[ray], plain[ray], atol=1e-4)


# ---------------------------------------------------------------------------- state


def test_the_grid_is_refreshed_and_points_are_kept():
    scene = geometry(points=np.zeros((1, 3), np.float32))
    sampler = made(clip="points", geometry=scene, networks=(network(),), num_proposal=(8,))
    state = sampler.init(jax.random.key(0), scene)
    assert set(state.aux) == {"grid", "near_points"}
    density = lambda positions, radii: shells(positions[..., 2])  # noqa: E731
    after = jax.jit(lambda state: sampler.refresh(jax.random.key(0), state, density, step=jnp.asarray(0)))(state)
    spec = grid_spec(scene, resolution=R)
    places = jnp.asarray([[0.1, 0.1, -1.7], [0.1, 0.1, 0.3]])
    assert list(np.asarray(occupied_at(spec, after.aux["grid"], places))) == [True, False]
    np.testing.assert_array_equal(after.aux["near_points"], state.aux["near_points"])
    assert after.params is state.params or jax.tree.all(jax.tree.map(jnp.array_equal, after.params, state.params))
    bare = made(skip=False)
    assert jax.tree.leaves(bare.init(jax.random.key(0), scene)) == []
    assert bare.refresh(jax.random.key(0), SamplerState((), {}), density, step=jnp.asarray(0)) == SamplerState((), {})


@pytest.mark.parametrize(
    "options, word",
    [
        (dict(clip="sphere"), "clip"),
        (dict(num_first=0), "num_first"),
        (dict(num_final=0), "num_final"),
        (dict(num_proposal=(8,)), "networks"),
        (dict(uniform_share=1.1), "uniform_share"),
        (dict(depth_share=-0.1), "depth_share"),
        (dict(depth_width=-0.1), "depth_width"),
        (dict(widen=-1), "widen"),
        (dict(resolution=30), "resolution"),
    ],
)
def test_wrong_options_are_refused(options, word):
    with pytest.raises(UserError, match=word):
        made(**options)
