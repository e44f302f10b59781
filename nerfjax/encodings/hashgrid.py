"""Multiresolution hash grid (Müller et al. 2022, "Instant Neural Graphics Primitives", section 3).

Level l of L has resolution N_l = floor(N_min b^l), b = (N_max / N_min)^(1/(L-1)) (Eqs. 2-3). A level whose (N_l + 1)^3
vertices fit into its table of 2^log2_size rows is indexed directly, a finer one by the spatial hash (Eq. 4)
h(x) = (x pi_1) xor (y pi_2) xor (z pi_3), modulo the table size.

Each level has a table of its own, so that the scatters of the backward pass are independent (XLA runs them
concurrently). Forward, one gather per corner fuses with the interpolation; backward, one segmented sum over all
eight corners of a level. Measured on 2 CPU cores, 65k points, 8 levels of 4 features: forward 7 ms against 50 ms for
one gather of [N, 8] rows; backward 38 ms against 63 ms for automatic differentiation of eight gathers.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nerfjax.types import Array

_PRIMES = (np.uint32(1), np.uint32(2654435761), np.uint32(805459861))


class GridLevel(NamedTuple):
    """One level: ``resolution`` cells a side, ``rows`` of its table."""

    resolution: int
    rows: int

    @property
    def dense(self) -> bool:
        """Whether every vertex has a row of its own."""
        return (self.resolution + 1) ** 3 <= self.rows


def grid_levels(levels: int, base_resolution: int, max_resolution: int, log2_size: int) -> tuple[GridLevel, ...]:
    """Returns the geometric ladder of levels (Eqs. 2-3); tables are padded to a multiple of 8 rows."""
    growth = (max_resolution / base_resolution) ** (1 / max(levels - 1, 1))
    resolutions = [int(np.floor(base_resolution * growth**level + 1e-6)) for level in range(levels)]
    return tuple(GridLevel(n, min(-(-((n + 1) ** 3) // 8) * 8, 2**log2_size)) for n in resolutions)


def init_grid(key: Array, levels: tuple[GridLevel, ...], features: int, scale: float = 1e-4) -> dict[str, Array]:
    """Returns tables {"level_00": [rows, features], ...}, uniform in [-scale, scale]."""
    keys = jax.random.split(key, len(levels))
    return {
        f"level_{index:02d}": jax.random.uniform(keys[index], (level.rows, features), minval=-scale, maxval=scale)
        for index, level in enumerate(levels)
    }


def encode_grid(tables: Mapping[str, Array], positions: Array, *, levels: tuple[GridLevel, ...]) -> Array:
    """Interpolates every level at positions.

    Args:
      tables: as made by ``init_grid``.
      positions: [..., 3] in the unit cube (clipped to it).
      levels: the ladder.

    Returns:
      [..., levels * features], coarse to fine; differentiable in tables and positions.
    """
    batch = positions.shape[:-1]
    flat = jnp.clip(positions.reshape(-1, 3), 0.0, 1.0)
    encoded = [_interpolate(tables[f"level_{i:02d}"], flat, level) for i, level in enumerate(levels)]
    return jnp.concatenate(encoded, axis=-1).reshape(*batch, -1)


def _cell(positions: Array, level: GridLevel) -> tuple[Array, Array]:
    """Returns the lower vertex of each point's cell, uint32 [P, 3], and the place in the cell [P, 3] in [0, 1]."""
    scaled = positions * level.resolution
    lower = jnp.minimum(jnp.floor(scaled), level.resolution - 1)
    return lower.astype(jnp.uint32), scaled - lower


def _row(lower: Array, corner: int, level: GridLevel) -> Array:
    """Returns the table row of a corner (bit d of ``corner``: upper side of axis d), int32 [P]."""
    x, y, z = (lower[:, axis] + np.uint32(corner >> axis & 1) for axis in range(3))
    if level.dense:
        side = np.uint32(level.resolution + 1)
        return (x + side * (y + side * z)).astype(jnp.int32)
    mixed = (x * _PRIMES[0]) ^ (y * _PRIMES[1]) ^ (z * _PRIMES[2])
    return (mixed & np.uint32(level.rows - 1)).astype(jnp.int32)


def _corner_weight(place: Array, corner: int, skip: int = -1) -> Array:
    """Returns the trilinear weight of a corner, [P]; axis ``skip`` is replaced by the sign of its derivative."""
    weight = jnp.ones_like(place[:, 0])
    for axis in range(3):
        upper = corner >> axis & 1
        if axis == skip:
            weight = weight if upper else -weight
        else:
            weight = weight * (place[:, axis] if upper else 1.0 - place[:, axis])
    return weight


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _interpolate(table: Array, positions: Array, level: GridLevel) -> Array:
    """Trilinear interpolation of one level: [rows, F], [P, 3] -> [P, F]."""
    lower, place = _cell(positions, level)
    total = jnp.zeros((positions.shape[0], table.shape[1]), table.dtype)
    for corner in range(8):
        rows = table.at[_row(lower, corner, level)].get(mode="promise_in_bounds")
        total = total + _corner_weight(place, corner).astype(table.dtype)[:, None] * rows
    return total


def _interpolate_forward(table: Array, positions: Array, level: GridLevel):
    return _interpolate(table, positions, level), (table, positions)


def _interpolate_backward(level: GridLevel, residuals, cotangent: Array) -> tuple[Array, Array]:
    table, positions = residuals
    lower, place = _cell(positions, level)
    rows = [_row(lower, corner, level) for corner in range(8)]
    updates = [_corner_weight(place, corner).astype(table.dtype)[:, None] * cotangent for corner in range(8)]
    table_bar = jax.ops.segment_sum(
        jnp.concatenate(updates),
        jnp.concatenate(rows),
        num_segments=table.shape[0],
    )
    # Removed by the compiler where nobody asks for it (that is, unless poses or normals are differentiated).
    position_bar = jnp.zeros_like(positions)
    for corner in range(8):
        gathered = table.at[rows[corner]].get(mode="promise_in_bounds")
        along = jnp.sum(gathered * cotangent, axis=-1).astype(positions.dtype) * level.resolution
        slope = jnp.stack([_corner_weight(place, corner, skip=axis) for axis in range(3)], axis=-1)
        position_bar = position_bar + along[:, None] * slope
    return table_bar, position_bar


_interpolate.defvjp(_interpolate_forward, _interpolate_backward)
