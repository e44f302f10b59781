"""Interpolation of factorized grids against scipy's, their products against the dense tensor, resampling, variation."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from nerfjax.encodings.factorized import (
    PLANES,
    interpolate,
    isotropic_total_variation,
    line_products,
    plane_line_products,
    plane_products,
    resample,
    total_variation,
)

SIDES = (5, 7, 4)
fast = jax.jit(interpolate)
fast_variation = jax.jit(isotropic_total_variation)


def table(key, *shape):
    return jax.random.normal(jax.random.key(key), shape)


def places(key, *shape):
    return jax.random.uniform(jax.random.key(key), shape)


def slow(grid, positions):
    """Linear interpolation by scipy in float64, feature by feature."""
    grid, positions = np.asarray(grid, np.float64), np.asarray(positions, np.float64)
    scaled = (positions * (np.asarray(grid.shape[:-1]) - 1)).T
    features = [map_coordinates(grid[..., i], scaled, order=1) for i in range(grid.shape[-1])]
    return np.stack(features, axis=-1)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_interpolation_equals_scipy_s(dimensions):
    grid = table(0, *SIDES[:dimensions], 2)
    inside = np.asarray(places(1, 50, dimensions))
    corners = np.asarray(list(itertools.product((0.0, 1.0), repeat=dimensions)))
    positions = np.concatenate([inside, corners]).astype(np.float32)
    np.testing.assert_allclose(fast(grid, positions), slow(grid, positions), atol=3e-6)
    outside = np.float32(3.0) * (positions - np.float32(0.5))
    np.testing.assert_array_equal(fast(grid, outside), fast(grid, np.clip(outside, 0.0, 1.0)))


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_gradients_are_those_of_a_function_linear_in_the_table_and_piecewise_so_in_the_place(dimensions):
    grid, positions = table(2, *SIDES[:dimensions], 2), places(3, 30, dimensions)
    probe = table(4, 30, 2)
    table_bar, position_bar = jax.jit(
        jax.grad(lambda grid, positions: jnp.sum(probe * interpolate(grid, positions)), argnums=(0, 1))
    )(grid, positions)
    other = table(5, *grid.shape)
    along = np.sum(np.asarray(table_bar, np.float64) * np.asarray(other))
    np.testing.assert_allclose(along, np.sum(np.asarray(probe) * slow(other, positions)), rtol=1e-5)
    positions, probe = np.asarray(positions, np.float64), np.asarray(probe)
    for axis in range(dimensions):
        step = 1e-5 * np.eye(dimensions)[axis]
        cells = np.asarray(SIDES[:dimensions]) - 1
        near_a_vertex = np.any(np.abs((positions * cells + 0.5) % 1.0 - 0.5) < 1e-3, axis=-1)
        slope = np.sum(probe * (slow(grid, positions + step) - slow(grid, positions - step)), axis=-1) / 2e-5
        assert np.sum(~near_a_vertex) > 20
        got = np.asarray(position_bar)[:, axis]
        np.testing.assert_allclose(got[~near_a_vertex], slope[~near_a_vertex], rtol=2e-3, atol=2e-3)


def dense(factors_of_axes, shape, combine):
    """The tensor of which the factors are the factorization: [n_x, n_y, n_z, R]."""
    grids = np.meshgrid(*(np.arange(count) for count in shape), indexing="ij")
    return combine([np.asarray(factor)[tuple(grids[axis] for axis in axes)] for axes, factor in factors_of_axes])


def product(parts):
    return np.prod(parts, axis=0)


# At the vertices a factorization equals its dense tensor, wherever the interpolation of the factors goes between them.
VERTICES = np.stack(np.meshgrid(*(np.arange(n) / (n - 1) for n in SIDES), indexing="ij"), -1).astype(np.float32)
LINES = [table(10 + axis, SIDES[axis], 3) for axis in range(3)]
SHEETS = [table(20 + axis, SIDES[PLANES[axis][0]], SIDES[PLANES[axis][1]], 3) for axis in range(3)]


def test_line_products_are_the_cp_tensor():
    want = dense([((axis,), LINES[axis]) for axis in range(3)], SIDES, product)
    np.testing.assert_allclose(jax.jit(line_products)(LINES, VERTICES), want, atol=1e-5)


def test_plane_line_products_are_the_vm_tensor():
    modes = [dense([((axis,), LINES[axis]), (PLANES[axis], SHEETS[axis])], SIDES, product) for axis in range(3)]
    got = jax.jit(plane_line_products)(SHEETS, LINES, VERTICES)
    np.testing.assert_allclose(got, np.concatenate(modes, axis=-1), atol=1e-5)


def test_plane_products_are_the_product_of_three_planes():
    want = dense([(PLANES[axis], SHEETS[axis]) for axis in range(3)], SIDES, product)
    np.testing.assert_allclose(jax.jit(plane_products)(SHEETS, VERTICES), want, atol=1e-5)


def test_between_vertices_a_factorization_is_the_product_of_its_interpolated_factors():
    positions = places(6, 20, 3)
    planes = [slow(SHEETS[axis], np.asarray(positions)[:, PLANES[axis]]) for axis in range(3)]
    np.testing.assert_allclose(jax.jit(plane_products)(SHEETS, positions), product(planes), atol=1e-5)
    lines = [slow(LINES[axis], np.asarray(positions)[:, axis : axis + 1]) for axis in range(3)]
    got = jax.jit(plane_line_products)(SHEETS, LINES, positions)
    want = np.concatenate([plane * line for plane, line in zip(planes, lines, strict=True)], axis=-1)
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_resampling_to_cells_that_divide_the_old_ones_keeps_the_function(dimensions):
    grid, positions = table(7, *SIDES[:dimensions], 2), places(8, 40, dimensions)
    shape = [2 * (count - 1) + 1 for count in grid.shape[:-1]]
    finer = jax.jit(resample, static_argnums=1)(grid, tuple(shape))
    assert finer.shape == (*shape, 2)
    np.testing.assert_allclose(fast(finer, positions), slow(grid, positions), atol=3e-6)


def test_resampling_to_any_size_samples_the_function_at_the_new_vertices():
    grid = table(9, 5, 7, 2)
    finer = resample(grid, (8, 9))
    vertices = np.stack(np.meshgrid(np.linspace(0, 1, 8), np.linspace(0, 1, 9), indexing="ij"), -1).reshape(-1, 2)
    np.testing.assert_allclose(np.asarray(finer).reshape(-1, 2), slow(grid, vertices), atol=3e-6)
    np.testing.assert_array_equal(resample(grid, (5, 7)), grid)


def test_total_variation_against_loops():
    grid = np.asarray(table(11, 3, 4, 2), np.float64)
    along_first = [(grid[i + 1, j, r] - grid[i, j, r]) ** 2 for i in range(2) for j in range(4) for r in range(2)]
    along_second = [(grid[i, j + 1, r] - grid[i, j, r]) ** 2 for i in range(3) for j in range(3) for r in range(2)]
    want = np.mean(along_first) + np.mean(along_second)
    np.testing.assert_allclose(total_variation(jnp.asarray(grid, jnp.float32)), want, rtol=1e-5)


def test_isotropic_total_variation_of_a_ramp_is_its_slope_whatever_the_resolution():
    for count in (9, 17):
        x = 3.0 * jnp.arange(count) / count
        ramp = jnp.broadcast_to(x[:, None, None, None], (count, count, count, 1))
        np.testing.assert_allclose(fast_variation(ramp), 3.0 / 256, rtol=1e-5)
    slanted = ramp + jnp.moveaxis(ramp, 0, 1)
    np.testing.assert_allclose(fast_variation(slanted), 3.0 * np.sqrt(2.0) / 256, rtol=1e-5)
    assert bool(jnp.all(jnp.isfinite(jax.jit(jax.grad(isotropic_total_variation))(jnp.ones((3, 3, 3, 2))))))
