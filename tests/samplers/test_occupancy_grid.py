"""The occupancy grid against loops over cells, against cameras' own projection, and against an analytic scene."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.geometry.cameras import cameras_from, inside_image, project
from nerfjax.geometry.poses import look_at
from nerfjax.samplers import occupancy_grid as grids
from nerfjax.scenes.analytic_field import analytic_field
from nerfjax.types import Cameras, SceneGeometry

LOWER, UPPER = (-1.0, -0.5, -1.5), (1.0, 1.0, 1.5)


def cameras(model="pinhole", count: int = 3, **options) -> Cameras:
    """Cameras that look at the origin from one side."""
    eyes = [(3.0 * np.cos(a), 3.0 * np.sin(a), 0.7) for a in np.linspace(0.0, 0.8, count)]
    poses = np.stack([look_at(np.asarray(eye), np.zeros(3))[:3] for eye in eyes])
    return cameras_from(poses, options.pop("focal", 40.0), size=(32, 24), model=model, **options)


def scene(*, bounded: bool = False, far: float = 9.0, box=(LOWER, UPPER), **options) -> SceneGeometry:
    return SceneGeometry(
        box=np.asarray(box, np.float32), near=np.float32(0.5), far=np.float32(far), cameras=cameras(**options),
        bounded=bounded,
    )  # fmt: skip


def all_round() -> SceneGeometry:
    """A box that is seen as a whole."""
    return scene(bounded=True, far=20.0, box=([-1.5] * 3, [1.5] * 3), model="equirectangular")


def two_valued(x, shape):
    """Densities ``shape[0]`` inside the ball of squared radius ``shape[2]`` and ``shape[1]`` outside.

    A negative squared radius stands for the half space x > 0.
    """
    inside = jnp.where(shape[2] < 0.0, x[:, 0] > 0.0, jnp.sum(x * x, axis=-1) < shape[2])
    return jnp.where(inside, shape[0], shape[1])


BALL, HALF_SPACE = 0.8, -1.0
QUICK = {"xla_backend_optimization_level": 0}  # halves the time to compile


@functools.cache
def compiled(spec: grids.GridSpec):
    """``refresh(key, grid, shape, step)``, and the grid at its beginning."""

    def refresh(key, grid, shape, step):
        density = lambda x, radius: two_valued(x, shape) + 0.0 * radius  # noqa: E731
        return grids.refresh_grid(spec, key, grid, density, step=step)

    init = jax.jit(lambda: grids.init_grid(spec, jax.random.key(0), all_round()), compiler_options=QUICK)
    return jax.jit(refresh, compiler_options=QUICK), init()


def grow(spec, shape, steps, grid=None, seed=0):
    """The grid after refreshes at the steps given."""
    refresh, start = compiled(spec)
    grid, shape = (start if grid is None else grid), jnp.asarray(shape, jnp.float32)
    for step in steps:
        grid = refresh(jax.random.fold_in(jax.random.key(seed), step), grid, shape, jnp.int32(step))
    return grid


def random_occupied(spec, share=0.04, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).random(spec.shape) < share


# ---------------------------------------------------------------------------- choices


def test_cascades_reach_as_far_as_the_scene_asks():
    assert grids.grid_spec(scene(bounded=True, far=1000.0)).cascades == 1
    assert grids.grid_spec(scene(far=1000.0)).cascades == grids.CASCADES_MAX
    for far in (3.0, 9.0, 30.0):
        spec = grids.grid_spec(scene(far=far))
        farthest = np.abs(scene().cameras.pose[:, :, 3] - spec.center).max(axis=0) + far
        assert np.all(spec.outer_half >= farthest * (1 - 1e-6)) and np.any(spec.outer_half / 2 < farthest)
    assert grids.grid_spec(scene(), cascades=3).cascades == 3


@pytest.mark.parametrize("options", [dict(resolution=6), dict(resolution=0), dict(cascades=9), dict(cascades=-1)])
def test_what_no_grid_can_be_is_refused(options):
    with pytest.raises(UserError):
        grids.grid_spec(scene(), **options)


# ---------------------------------------------------------------------------- cells


def test_positions_find_their_cell_in_the_finest_cascade_that_holds_them():
    spec = grids.grid_spec(scene(), resolution=8, cascades=3)
    occupied = random_occupied(spec, 0.5)
    grid = grids.filled_grid(spec, jnp.where(occupied, 100.0, 0.0))
    rng = np.random.default_rng(1)
    x = rng.uniform(-1.2, 1.2, (3000, 3)) * spec.outer_half + spec.center
    x[::3] = rng.uniform(-1.1, 1.1, (1000, 3)) * spec.half + spec.center
    expected = []
    for position in x:
        inside = False
        for k in range(3):
            place = ((position - spec.center) / (spec.half * 2.0**k) + 1) * 4
            if np.all((place >= 0) & (place < 8)):
                inside = occupied[(k, *place.astype(int))]
                break
        expected.append(inside)
    got = grids.occupied_at(spec, grid, jnp.asarray(x, jnp.float32).reshape(30, 100, 3))
    np.testing.assert_array_equal(np.asarray(got).reshape(-1), expected)
    assert 500 < np.sum(expected) < 2000


def test_points_of_cells_lie_in_them():
    spec = grids.grid_spec(scene(), resolution=8, cascades=3)
    index = jnp.arange(3 * 8**3, dtype=jnp.int32)
    fraction = jax.random.uniform(jax.random.key(0), (index.size, 3), minval=0.01, maxval=0.99)
    position, radius = grids.cell_points(spec, index, fraction)
    cascade = index // 8**3
    place = grids.cell_coordinates(spec, position, cascade)
    np.testing.assert_array_equal(grids.cell_index(spec, cascade, jnp.floor(place).astype(jnp.int32)), index)
    np.testing.assert_allclose(place - jnp.floor(place), fraction, atol=1e-4)
    np.testing.assert_allclose(radius, np.mean(spec.half) / 8 * 2.0 ** np.asarray(cascade), rtol=1e-6)


@pytest.mark.parametrize("resolution", [8, 12])
def test_skip_levels_against_a_loop_over_blocks(resolution):
    spec = grids.grid_spec(scene(), resolution=resolution, cascades=2)
    occupied = random_occupied(spec, 0.02)
    blocked = occupied | np.asarray(grids.hollow_cells(spec))
    quarter = resolution // 4
    assert blocked[1, quarter:-quarter, quarter:-quarter, quarter:-quarter].all()
    expected = np.zeros(spec.shape, np.uint8)
    for level in range(8):
        width = 2**level
        if resolution % width:
            break
        for k, i, j, m in np.argwhere(~blocked):
            a, b, c = (n // width * width for n in (i, j, m))
            if not blocked[k, a : a + width, b : b + width, c : c + width].any():
                expected[k, i, j, m] = level + 1
    np.testing.assert_array_equal(grids.skip_levels(spec, jnp.asarray(occupied)), expected)
    assert expected.max() >= 2


# ---------------------------------------------------------------------------- which cells are seen

LENSES = {
    "pinhole": {},
    "opencv_fisheye": dict(distortion=[0.02, 0.01]),
    "equirectangular": {},
    "orthographic": dict(focal=14.0),
    "mixed": dict(model=("pinhole", "equirectangular", "orthographic"), focal=14.0),
}


@pytest.mark.parametrize("lens", LENSES)
def test_no_place_that_a_camera_images_is_marked_as_unseen(lens):
    geometry = scene(far=4.0, **{"model": lens, **LENSES[lens]})
    spec = grids.grid_spec(geometry, resolution=16, cascades=2)
    seen = np.asarray(grids.seen_cells(spec, geometry.cameras))
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (20_000, 3)) * spec.outer_half + spec.center
    imaged = np.zeros(len(x), bool)
    for number in range(len(geometry.cameras)):
        camera = jax.tree.map(lambda leaf, n=number: np.asarray(leaf)[[n]], geometry.cameras)
        image = project(camera, x, xp=np)
        between = (image.distance > spec.near) & (image.distance < spec.far)
        imaged |= image.valid & between & inside_image(camera, image.pixels, xp=np)
    position = jnp.asarray(x, jnp.float32)
    cascade, _ = grids.cascade_of(spec, position)
    cell = jnp.floor(grids.cell_coordinates(spec, position, cascade)).astype(jnp.int32)
    known = seen.reshape(-1)[np.asarray(grids.cell_index(spec, cascade, cell))]
    assert not np.any(imaged & ~known)
    assert imaged.mean() > 0.02
    if "equirectangular" not in geometry.cameras.models:
        assert known.mean() < imaged.mean() + 0.35 and np.mean(~known) > 0.2


def test_unseen_cells_stay_empty_whatever_the_field_says():
    geometry = scene(far=4.0)
    spec = grids.grid_spec(geometry, resolution=16, cascades=2)
    grid = grids.init_grid(spec, jax.random.key(0), geometry)
    unseen = np.asarray(grid.density) < 0
    hollow = np.asarray(grids.hollow_cells(spec))
    np.testing.assert_array_equal(np.asarray(grid.skip) == 0, ~unseen | hollow)
    assert unseen[hollow].all() and 0.1 < unseen[~hollow].mean() < 0.9
    grid = grow(spec, (50.0, 50.0, BALL), (0, 1, 300), grid)
    np.testing.assert_array_equal(np.asarray(grid.density) < 0, unseen)
    np.testing.assert_array_equal(np.asarray(grid.skip) == 0, ~unseen | hollow)


# ---------------------------------------------------------------------------- refresh


def test_schedule():
    spec = grids.grid_spec(all_round(), resolution=8)
    due = [age for age in range(400) if bool(grids.refresh_due(spec, jnp.int32(age)))]
    expected = [age for age in range(400) if age % min(16, age // 16 + 1) == 0]
    assert due == expected and due[:17] == list(range(16)) + [16] and due[-1] - due[-2] == 16


COARSE = dict(resolution=8, decay=0.8)


def test_refresh_counts_its_evaluations_and_looks_at_a_quarter_and_the_occupied():
    spec = grids.grid_spec(all_round(), resolution=16, decay=0.5)
    grid = grow(spec, (50.0, 0.0, 0.6), (0,))
    total = 16**3
    assert float(grid.evaluations) == total and int(grid.born) == 0
    assert float(grow(spec, (50.0, 0.0, 0.6), (47,), grid).evaluations) == total  # 47 % 3 is not 0
    grid = grow(spec, (50.0, 0.0, 0.6), (240,), grid)
    assert float(grid.evaluations) == 2 * total
    occupied = np.asarray(grid.skip) == 0
    later = grow(spec, (-0.25, -0.25, 0.6), (256,), grid)  # below what is stored, so that only the decay shows
    looked = np.asarray(later.density) != np.asarray(grid.density)
    assert occupied.sum() < total / 4 and looked[occupied].all()
    spent = float(later.evaluations - grid.evaluations)
    assert abs(spent - (occupied.sum() + 0.25 * (~occupied).sum())) < 5 * np.sqrt(total * 3 / 16)


def test_where_more_than_a_quarter_is_occupied_a_random_quarter_of_them_is_looked_at():
    spec = grids.grid_spec(all_round(), resolution=16, decay=0.5)
    start = grow(spec, (50.0, 50.0, BALL), (0,))
    looked = []
    for seed in range(30):
        grid = grow(spec, (0.0, 0.0, BALL), (256,), start, seed=seed)
        looked.append(np.asarray(grid.density) < 49)
        spent = float(grid.evaluations - start.evaluations)
        assert spent == looked[-1].sum() and 0.25 * 16**3 < spent < 0.5 * 16**3
    share = np.mean(looked, axis=0)  # 7/16 of the time for each cell
    assert abs(share.mean() - 7 / 16) < 0.01 and share.min() > 0.02 and share.max() < 0.95


def test_warm_up_counts_from_the_grid_s_own_first_refresh():
    """A curriculum may start the grid late; then, too, all cells are looked at first."""
    spec = grids.grid_spec(all_round(), **COARSE)
    grid = grow(spec, (50.0, 0.0, BALL), (1003,))
    assert float(grid.evaluations) == 8**3 and int(grid.born) == 1003
    assert 0.02 < np.mean(np.asarray(grid.skip) == 0) < 0.4


def test_warm_up_converges_to_the_truth_of_an_analytic_scene():
    resolution, fine, looks = 16, 6, 24
    spec = grids.grid_spec(all_round(), resolution=resolution)
    field = analytic_field("toys")

    def step(grid, number):
        key = jax.random.fold_in(jax.random.key(0), number)
        return grids.refresh_grid(spec, key, grid, field.point_density, step=number), None

    start = grids.init_grid(spec, jax.random.key(0), all_round())
    steps = jnp.asarray([step for step in range(80) if step % min(16, step // 16 + 1) == 0][:looks], jnp.int32)
    grid = jax.jit(lambda grid: jax.lax.scan(step, grid, steps)[0])(start)
    occupied = np.asarray(grid.skip)[0] == 0
    lattice = (np.arange(resolution * fine) + 0.5) / (resolution * fine) * 3 - 1.5
    points = jnp.asarray(np.stack(np.meshgrid(lattice, lattice, lattice, indexing="ij"), axis=-1), jnp.float32)
    density = np.asarray(jax.jit(field.point_density)(points, points[..., 0]))
    parts = density.reshape((resolution, fine) * 3) > spec.threshold / spec.edge
    filled = parts.mean(axis=(1, 3, 5))
    # Of 24 random points one falls into a share p of the cell with probability 1 - (1 - p)^24.
    assert occupied[filled > 0.4].all()
    expected = 1 - (1 - filled[filled > 0]) ** looks
    assert abs(occupied[filled > 0].mean() - expected.mean()) < 0.03
    # Cells that the fine lattice finds empty may have been hit in a corner.
    assert occupied[filled == 0].mean() < 0.03 and not occupied[:1].any()


def test_density_that_is_gone_is_forgotten_at_the_rate_of_the_decay():
    spec = grids.grid_spec(all_round(), **COARSE)
    grid = grow(spec, (50.0, 0.0, BALL), (0,))
    gone = grow(spec, (0.0, 0.0, BALL), (1, 2, 3), grid)
    np.testing.assert_allclose(gone.density, grid.density * 0.8**3, rtol=1e-5)
    again = grow(spec, (50.0, 0.0, BALL), (4,), gone)
    assert float(jnp.max(again.density)) == 50.0


def test_thin_scenes_are_seen_by_their_mean_and_a_scene_without_density_is_unknown():
    spec = grids.grid_spec(all_round(), **COARSE)
    thin = 0.1 * spec.threshold / spec.edge
    haze = np.asarray(grow(spec, (thin, 0.1 * thin, HALF_SPACE), (0,)).skip)[0]
    assert np.all(haze[4:] == 0) and not np.any(haze[:4] == 0)
    for even in (thin, 0.0):
        assert np.all(np.asarray(grow(spec, (even, even, BALL), (0,)).skip) == 0)


def test_a_density_that_is_not_a_number_is_not_remembered():
    grid = grow(grids.grid_spec(all_round(), **COARSE), (np.nan, 3.0, HALF_SPACE), (0,))
    assert np.all(np.isfinite(grid.density))


def test_solid_is_the_lowest_density_around_a_cell():
    spec = grids.grid_spec(all_round(), resolution=8, solid=True)
    density = np.random.default_rng(0).uniform(0, 9, spec.shape).astype(np.float32)
    solid = np.asarray(grids.filled_grid(spec, jnp.asarray(density)).solid)
    expected = np.zeros(spec.shape, np.float32)
    for i, j, k in np.ndindex(6, 6, 6):
        expected[0, i + 1, j + 1, k + 1] = density[0, i : i + 3, j : j + 3, k : k + 3].min()
    np.testing.assert_array_equal(solid, expected)


def test_refreshes_do_not_recompile():
    spec = grids.grid_spec(all_round(), **COARSE)
    grow(spec, (50.0, 0.0, BALL), (0, 1, 15, 16, 300))
    assert compiled(spec)[0]._cache_size() == 1
