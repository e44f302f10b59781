"""Downweighted, multisampled grids against dense trilinear tables, integrals of Gaussians and sums in float64."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.encodings.hashgrid import encode_grid, grid_levels, init_grid
from nerfjax.encodings.multisampled import INIT_SCALE, encode_multisamples, level_weights, normalized_decay
from nerfjax.types import Multisamples

LEVELS = grid_levels(2, 4, 32, 9)  # a level with all its vertices and a hashed one
DENSE = tuple(level for level in grid_levels(2, 4, 8, 12))


@jax.jit
def encode(tables, samples):
    return encode_multisamples(tables, samples, levels=LEVELS)


def samples(key=0, *, shape=(7,), count=6, deviation=0.02):
    key_positions, key_deviations = jax.random.split(jax.random.key(key))
    return Multisamples(
        positions=jax.random.uniform(key_positions, (*shape, count, 3)),
        deviations=deviation * jax.random.uniform(key_deviations, (*shape, count), minval=0.5, maxval=2.0),
    )


def test_dense_levels_equal_trilinear_interpolation_of_a_dense_table():
    """A smooth function, tabulated at the vertices, against SciPy's interpolation of the same table."""
    interpolate = pytest.importorskip("scipy.interpolate")
    assert all(level.dense for level in DENSE)
    tables, expected = {}, []
    positions = np.random.default_rng(0).random((50, 3))
    for index, level in enumerate(DENSE):
        axis = np.linspace(0.0, 1.0, level.resolution + 1)
        x, y, z = np.meshgrid(axis, axis, axis, indexing="ij")
        values = np.stack([np.sin(3 * x + y * z), np.cos(2 * y) * z + x], axis=-1)
        # Rows count x fastest.
        rows = np.zeros((level.rows, 2), np.float32)
        rows[: (level.resolution + 1) ** 3] = values.transpose(2, 1, 0, 3).reshape(-1, 2)
        tables[f"level_{index:02d}"] = jnp.asarray(rows)
        expected.append(interpolate.RegularGridInterpolator((axis,) * 3, values)(positions))
    encoded = jax.jit(encode_grid, static_argnames="levels")(tables, jnp.asarray(positions, jnp.float32), levels=DENSE)
    np.testing.assert_allclose(encoded, np.concatenate(expected, axis=-1), atol=2e-6)


def test_level_weights_are_the_share_of_a_gaussian_within_half_a_cell():
    """erf(1 / sqrt(8 s^2 n^2)) is the probability that a normal variable of deviation s stays below 1 / (2 n)."""
    deviations = np.asarray([1e-3, 0.01, 0.05, 0.2], np.float32)
    weights = np.asarray(level_weights(jnp.asarray(deviations), LEVELS))
    draws = np.random.default_rng(0).standard_normal(200_000)
    for row, deviation in zip(weights, deviations, strict=True):
        for weight, level in zip(row, LEVELS, strict=True):
            share = np.mean(np.abs(deviation * draws) < 0.5 / level.resolution)
            assert abs(weight - share) < 5e-3
    assert np.all(np.diff(weights, axis=0) <= 0) and np.all(np.diff(weights, axis=1) <= 0)


@pytest.mark.parametrize("deviation", [0.0, 1e-30, 1e30])
def test_level_weights_of_points_and_of_everything_are_finite_and_so_are_their_gradients(deviation):
    total = jax.jit(jax.value_and_grad(lambda s: jnp.sum(level_weights(s, LEVELS))))
    weights, gradient = total(jnp.float32(deviation))
    np.testing.assert_allclose(weights, 0.0 if deviation > 1 else len(LEVELS), atol=1e-6)
    assert jnp.isfinite(gradient)


def test_equals_the_slow_mean_over_samples():
    tables, where = init_grid(jax.random.key(1), LEVELS, 2, 1.0), samples()
    got = np.asarray(encode(tables, where))
    assert got.shape == (7, 2 * len(LEVELS) + len(LEVELS))
    plain = jax.jit(encode_grid, static_argnames="levels")(tables, where.positions, levels=LEVELS)
    expected = np.zeros((7, len(LEVELS), 2))
    shown = np.zeros((7, len(LEVELS)))
    for index, level in enumerate(LEVELS):
        table = tables[f"level_{index:02d}"]
        values = np.asarray(plain[..., 2 * index : 2 * index + 2], np.float64)
        for point in range(7):
            for sample in range(6):
                ratio = 8.0 * (float(where.deviations[point, sample]) * level.resolution) ** 2
                weight = math.erf(1.0 / math.sqrt(ratio))
                expected[point, index] += weight * values[point, sample] / 6
                shown[point, index] += weight / 6
        shown[:, index] = (2 * shown[:, index] - 1) * math.sqrt(INIT_SCALE**2 + np.mean(np.asarray(table) ** 2))
    np.testing.assert_allclose(got, np.concatenate([expected.reshape(7, -1), shown], axis=-1), atol=2e-6)


def test_gradients_equal_those_of_all_samples_at_once():
    """The loop over samples changes neither the gradient of the tables nor that of positions and deviations."""
    tables, where = init_grid(jax.random.key(1), LEVELS, 2, 1.0), samples(3)
    probe = jax.random.normal(jax.random.key(2), (7, 3 * len(LEVELS)))

    def at_once(tables, where):
        weights = level_weights(where.deviations, LEVELS)
        values = jnp.mean(encode_grid(tables, where.positions, levels=LEVELS) * jnp.repeat(weights, 2, axis=-1), axis=1)
        size = jnp.stack([jnp.mean(tables[name] ** 2) for name in sorted(tables)])
        size = jax.lax.stop_gradient(jnp.sqrt(INIT_SCALE**2 + size))[None]
        return jnp.concatenate([values, (2 * jnp.mean(weights, axis=1) - 1) * size], axis=-1)

    def gradient(of):
        return jax.jit(jax.grad(lambda *arguments: jnp.sum(probe * of(*arguments)), argnums=(0, 1)))(tables, where)

    for one, other in zip(*(jax.tree.leaves(gradient(of)) for of in (encode, at_once)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        assert jnp.any(one != 0)


def test_a_point_is_the_plain_grid_and_a_cloud_is_nothing():
    tables = init_grid(jax.random.key(1), LEVELS, 2, 1.0)
    point = samples(count=1, deviation=0.0)
    got = jax.jit(lambda *a: encode_multisamples(*a, levels=LEVELS, scale_features=False))(tables, point)
    plain = jax.jit(encode_grid, static_argnames="levels")(tables, point.positions[:, 0], levels=LEVELS)
    np.testing.assert_allclose(got, plain, atol=1e-6)
    cloud = encode(tables, samples(deviation=1e6))
    np.testing.assert_allclose(cloud[:, : 2 * len(LEVELS)], 0.0, atol=1e-5)


def test_memory_is_that_of_a_single_sample():
    """Six samples take hardly more room than one: neither the values nor the corners of all are held at once."""
    level = LEVELS[-1:]
    tables = init_grid(jax.random.key(1), level, 4)

    def temporaries(count):
        gradient = jax.grad(lambda tables, where: jnp.sum(encode_multisamples(tables, where, levels=level) ** 2))
        shapes = Multisamples(
            jax.ShapeDtypeStruct((4096, count, 3), jnp.float32), jax.ShapeDtypeStruct((4096, count), jnp.float32)
        )
        return jax.jit(gradient).lower(tables, shapes).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(6) < 2.0 * temporaries(1)


def test_normalized_decay_counts_every_level_alike():
    tables = {name: jnp.full_like(table, 0.5) for name, table in init_grid(jax.random.key(0), LEVELS, 2).items()}
    np.testing.assert_allclose(normalized_decay(tables), 0.25 * len(LEVELS), rtol=1e-6)
    gradient = jax.grad(normalized_decay)(tables)
    for table in gradient.values():
        np.testing.assert_allclose(jnp.sum(table), 1.0, rtol=1e-5)  # 2 * 0.5 / size, times size
