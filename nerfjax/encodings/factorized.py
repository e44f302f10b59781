"""Dense and factorized grids of features: interpolation, products of lines and planes, resampling, total variation.

Notation: a grid is [n_1, ..., n_D, R] with R features at each of its vertices, which span the unit cube from end to
end: vertex i of axis d lies at i / (n_d - 1). A 3-D tensor of features T(x, y, z) is factorized into lines v(x) and
planes M(x, y), R components of each:

  CP:        T_r = v_r^x(x) v_r^y(y) v_r^z(z)                               (TensoRF, Eq. 2)
  VM:        T_r = v_r^x(x) M_r^yz(y, z), the same of the other two modes   (TensoRF, Eq. 3)
  K-planes:  T_r = M_r^yz(y, z) M_r^xz(x, z) M_r^xy(x, y)                   (K-Planes, Eq. 1)

TensoRF: Chen et al. 2022; K-Planes: Fridovich-Keil et al. 2023. As in the hash grid, one gather per corner fuses with
the interpolation in the forward pass, and one segmented sum over all corners is the backward pass.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from nerfjax.numerics import safe_sqrt
from nerfjax.types import Array

# The axes of the plane that goes with the line along axis 0, 1, 2.
PLANES = ((1, 2), (0, 2), (0, 1))


def interpolate(table: Array, coordinates: Array) -> Array:
    """Interpolates a grid linearly along each of its axes.

    Args:
      table: [n_1, ..., n_D, R], at least 2 vertices along each axis.
      coordinates: [..., D] in the unit cube (clipped to it).

    Returns:
      [..., R]; differentiable in the table and, inside the cube, in the coordinates.
    """
    dimensions = coordinates.shape[-1]
    flat = jnp.clip(coordinates.reshape(-1, dimensions), 0.0, 1.0)
    return _interpolate(table, flat).reshape(*coordinates.shape[:-1], table.shape[-1])


def _corners(dimensions: int) -> list[tuple[int, ...]]:
    return list(itertools.product((0, 1), repeat=dimensions))


def _cell(shape: tuple[int, ...], coordinates: Array) -> tuple[Array, Array]:
    """Returns the lower vertex of each point's cell, int32 [P, D], and the place in the cell [P, D] in [0, 1]."""
    lower, place = [], []
    for axis, count in enumerate(shape):
        scaled = coordinates[:, axis] * (count - 1)
        floor = jnp.clip(jnp.floor(scaled), 0, count - 2)
        lower.append(floor.astype(jnp.int32))
        place.append(scaled - floor)
    return jnp.stack(lower, axis=-1), jnp.stack(place, axis=-1)


def _row(shape: tuple[int, ...], lower: Array, corner: tuple[int, ...]) -> Array:
    """Returns the row of a corner in the table flattened to [n_1 ... n_D, R], int32 [P]."""
    row = jnp.zeros_like(lower[:, 0])
    for axis, count in enumerate(shape):
        row = row * count + lower[:, axis] + corner[axis]
    return row


def _weight(place: Array, corner: tuple[int, ...], skip: int = -1) -> Array:
    """Returns the weight of a corner, [P]; axis ``skip`` is replaced by the sign of its derivative."""
    weight = jnp.ones_like(place[:, 0])
    for axis, upper in enumerate(corner):
        if axis == skip:
            weight = weight if upper else -weight
        else:
            weight = weight * (place[:, axis] if upper else 1.0 - place[:, axis])
    return weight


@jax.custom_vjp
def _interpolate(table: Array, coordinates: Array) -> Array:
    shape = table.shape[:-1]
    lower, place = _cell(shape, coordinates)
    rows = table.reshape(-1, table.shape[-1])
    total = jnp.zeros((coordinates.shape[0], table.shape[-1]), table.dtype)
    for corner in _corners(len(shape)):
        taken = rows.at[_row(shape, lower, corner)].get(mode="promise_in_bounds")
        total = total + _weight(place, corner).astype(table.dtype)[:, None] * taken
    return total


def _interpolate_forward(table: Array, coordinates: Array):
    return _interpolate(table, coordinates), (table, coordinates)


def _interpolate_backward(residuals, cotangent: Array) -> tuple[Array, Array]:
    table, coordinates = residuals
    shape, corners = table.shape[:-1], _corners(table.ndim - 1)
    lower, place = _cell(shape, coordinates)
    rows = [_row(shape, lower, corner) for corner in corners]
    updates = [_weight(place, corner).astype(table.dtype)[:, None] * cotangent for corner in corners]
    table_bar = jax.ops.segment_sum(
        jnp.concatenate(updates), jnp.concatenate(rows), num_segments=math.prod(shape)
    ).reshape(table.shape)
    # Removed by the compiler where nobody asks for it (that is, unless poses or normals are differentiated).
    slopes, flat = [jnp.zeros_like(place[:, 0])] * len(shape), table.reshape(-1, table.shape[-1])
    for corner, row in zip(corners, rows, strict=True):
        taken = flat.at[row].get(mode="promise_in_bounds")
        along = jnp.sum(taken * cotangent, axis=-1).astype(place.dtype)
        for axis, count in enumerate(shape):
            slopes[axis] = slopes[axis] + along * _weight(place, corner, skip=axis) * (count - 1)
    return table_bar, jnp.stack(slopes, axis=-1)


_interpolate.defvjp(_interpolate_forward, _interpolate_backward)


def line_products(lines: Sequence[Array], positions: Array) -> Array:
    """The components of a CP factorization (TensoRF, Eq. 2).

    Args:
      lines: three of [n_axis, R], along x, y, z.
      positions: [..., 3] in the unit cube.

    Returns:
      [..., R] products of the three lines.
    """
    along = [interpolate(line, positions[..., axis : axis + 1]) for axis, line in enumerate(lines)]
    return along[0] * along[1] * along[2]


def plane_line_products(planes: Sequence[Array], lines: Sequence[Array], positions: Array) -> Array:
    """The components of a vector-matrix factorization (TensoRF, Eq. 3).

    Args:
      planes: three of [n_b, n_c, R], over the axes ``PLANES``.
      lines: three of [n_a, R], along x, y, z.
      positions: [..., 3] in the unit cube.

    Returns:
      [..., 3 R]: the modes one after the other.
    """
    modes = [
        _on_plane(plane, positions, axis) * interpolate(line, positions[..., axis : axis + 1])
        for axis, (plane, line) in enumerate(zip(planes, lines, strict=True))
    ]
    return jnp.concatenate(modes, axis=-1)


def plane_products(planes: Sequence[Array], positions: Array) -> Array:
    """The Hadamard product of three planes (K-Planes, Eq. 1).

    Args:
      planes: three of [n_b, n_c, R], over the axes ``PLANES``.
      positions: [..., 3] in the unit cube.

    Returns:
      [..., R].
    """
    over = [_on_plane(plane, positions, axis) for axis, plane in enumerate(planes)]
    return over[0] * over[1] * over[2]


def _on_plane(plane: Array, positions: Array, axis: int) -> Array:
    first, second = PLANES[axis]
    return interpolate(plane, jnp.stack([positions[..., first], positions[..., second]], axis=-1))


def resample(table: Array, shape: Sequence[int]) -> Array:
    """Resamples a grid linearly at the vertices of another one, which span the same cube.

    The function that ``interpolate`` sees stays the same, to rounding, where each axis's new cells divide the old ones.

    Args:
      table: [n_1, ..., n_D, R].
      shape: (m_1, ..., m_D) vertices of the new grid.

    Returns:
      [m_1, ..., m_D, R].
    """
    for axis, count in enumerate(shape):
        before = table.shape[axis]
        if count == before:
            continue
        place = jnp.linspace(0.0, before - 1.0, count)
        hats = jnp.maximum(1.0 - jnp.abs(place[:, None] - jnp.arange(before, dtype=place.dtype)[None, :]), 0.0)
        mixed = jnp.tensordot(hats.astype(table.dtype), table, axes=(1, axis), precision=jax.lax.Precision.HIGHEST)
        table = jnp.moveaxis(mixed, 0, axis)
    return table


def total_variation(table: Array) -> Array:
    """The sum over the axes of the mean squared difference of neighbours along them (TensoRF and K-Planes), a scalar.

    Args:
      table: [n_1, ..., n_D, R].
    """
    return sum(jnp.mean(jnp.square(jnp.diff(table, axis=axis))) for axis in range(table.ndim - 1))


def isotropic_total_variation(table: Array) -> Array:
    """The length of the vector of forward differences, averaged over vertices and summed over features, a scalar.

      1/|V| sum_v sum_r sqrt(sum_d Delta_d^2(v, r)),   Delta_d = (T(v + e_d) - T(v)) n_d / 256

    over the vertices that have a neighbour along each axis. Differences count as at 256 vertices a side.

    Args:
      table: [n_1, ..., n_D, R].

    Reference: Plenoxels (Fridovich-Keil, Yu et al. 2022), Eq. 3.
    """
    axes = range(table.ndim - 1)
    inner = tuple(slice(0, count - 1) for count in table.shape[:-1])
    squared = sum(jnp.square(jnp.diff(table, axis=axis)[inner] * (table.shape[axis] / 256.0)) for axis in axes)
    return jnp.sum(jnp.mean(safe_sqrt(squared), axis=tuple(axes)))
