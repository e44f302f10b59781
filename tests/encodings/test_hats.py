"""Interpolation by dense hat matrices against two- and eight-tap interpolation, and its gradients."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.encodings.hats import (
    encode_separable,
    hat_weights,
    init_separable,
    interpolate_grid,
    interpolate_line,
)


def by_taps(values, x):
    """Multilinear interpolation of values [N, ..., N, F] at x [P, D], vertex by vertex, float64."""
    side = values.shape[0]
    place = np.asarray(x, np.float64) * (side - 1)
    lower = np.minimum(np.floor(place), side - 2).astype(int)
    total = 0.0
    for corner in itertools.product((0, 1), repeat=x.shape[1]):
        weight = np.prod(np.where(np.array(corner), place - lower, 1 - place + lower), axis=-1)
        total = total + weight[:, None] * values[tuple((lower + np.array(corner)).T)]
    return total


def positions(count, dimensions, key=0):
    x = jax.random.uniform(jax.random.key(key), (count, dimensions))
    return jnp.concatenate([x, jnp.zeros((1, dimensions)), jnp.ones((1, dimensions))])


def test_hats_sum_to_one_and_two_at_most_are_not_zero():
    weights = np.asarray(hat_weights(positions(200, 1)[:, 0], 9))
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=1e-6)
    assert ((weights > 0).sum(axis=-1) <= 2).all() and (weights >= 0).all()


def test_a_line_is_interpolated_as_by_two_taps():
    line, x = jax.random.normal(jax.random.key(1), (12, 5)), positions(100, 1)
    found = jax.jit(interpolate_line)(line, x[:, 0])
    np.testing.assert_allclose(found, by_taps(np.asarray(line, np.float64), np.asarray(x)), atol=2e-6)


def test_a_grid_is_interpolated_as_by_eight_taps():
    side, features = 5, 3
    grid, x = jax.random.normal(jax.random.key(2), (side, side, side, features)), positions(100, 3)
    found = jax.jit(lambda g, x: interpolate_grid(g, x, resolution=side))(grid.reshape(side**2, -1), x)
    np.testing.assert_allclose(found, by_taps(np.asarray(grid, np.float64), np.asarray(x)), atol=3e-6)


def test_gradients_are_those_of_the_taps():
    """The gradient in a table is the taps' weights times the cotangent; in positions, the slope of the cell."""
    line, x = jax.random.normal(jax.random.key(3), (8, 4)), jnp.asarray([0.31, 0.9])
    cotangent = jax.random.normal(jax.random.key(4), (2, 4))
    line_bar, x_bar = jax.jit(jax.grad(lambda a, b: jnp.sum(interpolate_line(a, b) * cotangent), argnums=(0, 1)))(
        line, x
    )
    expected, slopes = np.zeros((8, 4)), []
    for point in range(2):
        cell = int(np.floor(float(x[point]) * 7))
        place = float(x[point]) * 7 - cell
        expected[cell] += (1 - place) * np.asarray(cotangent[point])
        expected[cell + 1] += place * np.asarray(cotangent[point])
        slopes.append(7 * float(jnp.sum((line[cell + 1] - line[cell]) * cotangent[point])))
    np.testing.assert_allclose(line_bar, expected, atol=2e-6)
    np.testing.assert_allclose(x_bar, slopes, rtol=2e-5)


@pytest.mark.parametrize("coefficients", [0, 4])
def test_separable_features_are_coefficients_times_products_of_lines(coefficients):
    tables = init_separable(jax.random.key(5), 16, 6, coefficients, 4.0)
    x = positions(50, 3)
    found = np.asarray(jax.jit(encode_separable)(tables, x[None]))[0]
    lines = [
        by_taps(4.0 * np.asarray(tables["lines"][axis], np.float64), np.asarray(x[:, axis : axis + 1]))
        for axis in range(3)
    ]
    expected = lines[0] * lines[1] * lines[2]
    if coefficients:
        grid = np.asarray(tables["coefficients"], np.float64).reshape(*(coefficients,) * 3, 6)
        expected *= 4.0 * by_taps(grid, np.asarray(x))
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_lines_start_as_waves_of_the_promised_frequencies_and_size():
    tables = init_separable(jax.random.key(6), 256, 64, 0, 8.0)
    lines = 4.0 * np.asarray(tables["lines"])
    assert abs(lines).max() <= 2**0.5 + 1e-5
    assert np.mean(lines**2) == pytest.approx(1.0, abs=0.1)
    # A cosine of nu cycles a side has at most 2 nu zeros, rounded up.
    crossings = (np.diff(np.sign(lines), axis=1) != 0).sum(axis=1)
    assert crossings.max() in (15, 16, 14) and crossings.min() <= 1


def test_no_gather_and_no_scatter_forward_or_backward():
    tables = init_separable(jax.random.key(7), 16, 6, 4, 4.0)
    step = jax.value_and_grad(lambda tables, x: jnp.sum(encode_separable(tables, x) ** 2), argnums=(0, 1))
    text = jax.jit(step).lower(tables, positions(20, 3)).as_text()
    assert "dot_general" in text and "gather" not in text and "scatter" not in text
