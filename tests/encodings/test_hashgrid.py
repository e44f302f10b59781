"""The hash grid against a slow interpolation, vertex by vertex."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.encodings.hashgrid import encode_grid, grid_levels, init_grid

LEVELS = grid_levels(4, 4, 40, 10)


def slow_encode(tables, position):
    """Interpolates one point in float64 with Python integers, from the paper's equations."""
    out = []
    for index, level in enumerate(LEVELS):
        table = np.asarray(tables[f"level_{index:02d}"], np.float64)
        scaled = np.asarray(position, np.float32) * np.float32(level.resolution)
        lower = np.minimum(np.floor(scaled), level.resolution - 1).astype(int)
        value = np.zeros(table.shape[1])
        for corner in itertools.product((0, 1), repeat=3):
            vertex = [int(low) + bit for low, bit in zip(lower, corner, strict=True)]
            weight = np.prod([f if bit else 1 - f for f, bit in zip(scaled - lower, corner, strict=True)])
            if (level.resolution + 1) ** 3 <= level.rows:
                row = vertex[0] + (level.resolution + 1) * (vertex[1] + (level.resolution + 1) * vertex[2])
            else:
                row = (vertex[0] ^ vertex[1] * 2654435761 % 2**32 ^ vertex[2] * 805459861 % 2**32) % level.rows
            value += weight * table[row]
        out.append(value)
    return np.concatenate(out)


def test_the_ladder_is_geometric_and_tables_are_no_larger_than_needed():
    levels = grid_levels(16, 16, 2048, 19)
    assert [levels[0].resolution, levels[-1].resolution] == [16, 2048]
    ratios = [b.resolution / a.resolution for a, b in itertools.pairwise(levels)]
    assert max(ratios) / min(ratios) < 1.06
    assert levels[0].dense and not levels[-1].dense
    assert all(level.rows <= 2**19 for level in levels)
    assert any(level.dense for level in LEVELS) and any(not level.dense for level in LEVELS)


def test_equals_the_slow_interpolation():
    tables = init_grid(jax.random.key(0), LEVELS, 3, scale=1.0)
    positions = np.concatenate([np.random.default_rng(0).random((20, 3)), [[0, 0, 0], [1, 1, 1], [0.5, 0, 1]]])
    fast = encode_grid(tables, jnp.asarray(positions, jnp.float32), levels=LEVELS)
    for got, position in zip(np.asarray(fast), positions, strict=True):
        np.testing.assert_allclose(got, slow_encode(tables, position), atol=2e-5)


def test_gradients_equal_those_of_automatic_differentiation():
    """The hand-written backward pass against finite differences (positions) and linearity (tables)."""
    tables = init_grid(jax.random.key(1), LEVELS, 2, scale=1.0)
    positions = jax.random.uniform(jax.random.key(2), (40, 3))
    probe = jax.random.normal(jax.random.key(3), (40, 2 * len(LEVELS)))

    def value(tables, positions):
        return jnp.sum(probe * encode_grid(tables, positions, levels=LEVELS))

    table_bar, position_bar = jax.grad(value, argnums=(0, 1))(tables, positions)
    # The encoding is linear in the tables: <gradient, tables> is the value itself.
    inner = sum(jnp.sum(table_bar[name] * tables[name]) for name in tables)
    np.testing.assert_allclose(inner, value(tables, positions), rtol=1e-4)
    step = 1e-4
    # The encoding is piecewise trilinear: a finite difference across a cell's wall is not its derivative.
    cells = positions[..., None] * jnp.asarray([level.resolution for level in LEVELS], jnp.float32).reshape(1, 1, -1)
    inside = jnp.all(jnp.abs(cells - jnp.round(cells)) > 2 * step * LEVELS[-1].resolution, axis=(1, 2))
    assert jnp.sum(inside) > 20
    for axis in range(3):
        shift = jnp.zeros((1, 3)).at[0, axis].set(step)
        numeric = (
            encode_grid(tables, positions + shift, levels=LEVELS)
            - encode_grid(tables, positions - shift, levels=LEVELS)
        ) / (2 * step)
        expected = jnp.sum(probe * numeric, axis=-1)
        np.testing.assert_allclose(position_bar[inside, axis], expected[inside], rtol=0.01, atol=0.05)


@pytest.mark.parametrize("outside", [-0.5, 1.5, 1e18])
def test_points_outside_are_clipped_and_finite(outside):
    tables = init_grid(jax.random.key(0), LEVELS, 2)
    encoded = encode_grid(tables, jnp.full((2, 3), outside), levels=LEVELS)
    edge = encode_grid(tables, jnp.full((2, 3), float(np.clip(outside, 0, 1))), levels=LEVELS)
    np.testing.assert_array_equal(encoded, edge)
