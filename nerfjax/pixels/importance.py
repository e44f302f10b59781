"""Draws of pixels from a density that is constant on cells, shared by every member that prefers some pixels.

An image's unit square is divided into h x w equal cells, whatever its size in pixels. A draw takes an image, a row of
cells in it, a cell in the row, a point uniformly in the cell, and the pixel around the point. With P the probability of
the cell and U = (pixels of the image) / (all pixels) / (h w) that of a uniform draw, the pixel's weight is U / P: for
any losses f, sum_cells P (U / P) E[f | cell] = E_uniform[f]. Nothing asks that borders of cells and of pixels coincide.

The cumulative masses are integers, so that sums are exact and do not depend on their order: what is drawn has exactly
the probability that its weight is computed with, no mass is lost to rounding, and a cell without mass is never drawn.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from nerfjax.pixels.base import PixelContent
from nerfjax.pixels.fractions import lane_bits, scale_bits, stratify_bits, unit_float
from nerfjax.types import Array, ImageTable

_MASS = 2.0**30  # a row's masses sum to this; rounding up adds at most one for each


@struct.dataclass
class CellTable:
    """Cumulative masses, int32, each level a part of the one before.

    Attributes:
      image: [C] over the images.
      row: [C, h] over an image's rows of cells.
      column: [C, h, w] over a row's cells.
      support: [] float32, share of all pixels that lie in cells with mass.
    """

    image: Any
    row: Any
    column: Any
    support: Any


@struct.dataclass
class CellDraws:
    """N draws: pixels (``image``, ``row``, ``column`` [N] int32) and ``ratio`` [N], U / P, of mean ``support``."""

    image: Any
    row: Any
    column: Any
    ratio: Any


def cell_table(images: ImageTable, density: Array) -> CellTable:
    """Builds the table of a density.

    Args:
      images: the images, C of them.
      density: [C, h, w] not negative, relative to a uniform draw of pixels; all zero stands for all one.

    Returns:
      The table.
    """
    # The barrier keeps XLA from running the sums of a constant density at compile time, which takes it many seconds.
    density = jax.lax.optimization_barrier(density)
    density = jnp.where(jnp.any(density > 0), density, jnp.ones_like(density))
    pixels = pixels_of(images)
    row = jnp.sum(density, axis=2)
    image = pixels * jnp.sum(row, axis=1)
    return CellTable(
        image=_cumulative(image),
        row=_cumulative(row),
        column=_cumulative(density),
        support=cell_mean(images, (density > 0).astype(jnp.float32)),
    )


def pixels_of(images: ImageTable) -> Array:
    """Returns [C] float32 numbers of pixels."""
    return images.width.astype(jnp.float32) * images.height.astype(jnp.float32)


def cell_mean(images: ImageTable, values: Array) -> Array:
    """Returns the mean over all pixels of what is constant on cells, values [C, h, w]."""
    pixels = pixels_of(images)
    return jnp.sum(pixels / jnp.sum(pixels) * jnp.mean(values, axis=(1, 2)))


def _cumulative(mass: Array) -> Array:
    """Running sums along the last axis of masses scaled to integers; what has mass gets at least one."""
    total = jnp.sum(mass, axis=-1, keepdims=True)
    share = mass / jnp.where(total > 0, total, 1.0)
    return jnp.cumsum(jnp.ceil(share * _MASS).astype(jnp.int32), axis=-1, dtype=jnp.int32)


def draw_cells(key: Array, table: CellTable, images: ImageTable, size: int) -> CellDraws:
    """Draws pixels, the images stratified over the batch and over any leading part of it.

    Args:
      key: fresh at every step.
      table: the density.
      images: the images.
      size: N, static.
    """
    key_turn, key_lane = jax.random.split(key)
    bits = lane_bits(key_lane, size, 5)
    place = scale_bits(stratify_bits(bits[0], jax.random.bits(key_turn)), table.image[-1])
    image = jnp.searchsorted(table.image, place, side="right").astype(jnp.int32)
    chance = _chance(table.image, image)

    rows = table.row[image]
    row, chance_row = _pick(rows, bits[1])
    column, chance_column = _pick(table.column[image, row], bits[2])

    height, width = table.column.shape[1:]
    ratio = pixels_of(images)[image] / jnp.float32(images.total) / jnp.float32(height * width)
    return CellDraws(
        image=image,
        row=_pixel_at(row, bits[3], height, images.height[image]),
        column=_pixel_at(column, bits[4], width, images.width[image]),
        ratio=ratio / (chance * chance_row * chance_column),
    )


def _chance(cumulative: Array, index: Array) -> Array:
    """Probabilities of entries ``index`` [N] of one distribution [C]."""
    before = jnp.where(index > 0, cumulative[jnp.maximum(index - 1, 0)], 0)
    return (cumulative[index] - before).astype(jnp.float32) / cumulative[-1].astype(jnp.float32)


def _pick(cumulative: Array, bits: Array) -> tuple[Array, Array]:
    """Draws from N distributions [N, n]: the entries [N] and their probabilities."""
    place = scale_bits(bits, cumulative[:, -1])
    # Counting is faster than a search for the few entries that there are, on every device.
    index = jnp.sum((cumulative <= place[:, None]).astype(jnp.int32), axis=1)
    upper = jnp.take_along_axis(cumulative, index[:, None], axis=1)[:, 0]
    lower = jnp.take_along_axis(cumulative, jnp.maximum(index - 1, 0)[:, None], axis=1)[:, 0]
    mass = upper - jnp.where(index > 0, lower, 0)
    return index, mass.astype(jnp.float32) / cumulative[:, -1].astype(jnp.float32)


def _pixel_at(cell: Array, bits: Array, cells: int, length: Array) -> Array:
    """The pixel of a random point of a cell, on an axis of ``cells`` cells and ``length`` pixels."""
    point = (cell.astype(jnp.float32) + unit_float(bits)) * (length.astype(jnp.float32) / cells)
    return jnp.minimum(point.astype(jnp.int32), length - 1)


def cell_of(pixel: Array, cells: int, length: Array) -> Array:
    """The cell that holds a pixel's centre, on an axis of ``cells`` cells and ``length`` pixels."""
    center = (pixel.astype(jnp.float32) + 0.5) * (cells / length.astype(jnp.float32))
    return jnp.minimum(center.astype(jnp.int32), cells - 1)


def mixture(images: ImageTable, eligible: Array, guide: Array, share: float) -> Array:
    """A density that mixes uniform draws with draws in proportion to a guide, on eligible cells only.

    (1 - share) + share * guide / mean(guide): at least 1 - share everywhere, so that no weight exceeds 1 / (1 - share).

    Args:
      images: the images.
      eligible: [C, h, w] bool.
      guide: [C, h, w] not negative.
      share: of the draws that follow the guide, below 1 for sound weights.

    Returns:
      [C, h, w] relative to a uniform draw from eligible cells.
    """
    inside = eligible.astype(jnp.float32)
    guide = guide * inside
    mean = cell_mean(images, guide) / jnp.maximum(cell_mean(images, inside), 1e-12)
    relative = jnp.where(mean > 0, guide / jnp.where(mean > 0, mean, 1.0), 1.0)
    return inside * ((1.0 - share) + share * relative)


def content_map(images: ImageTable, content: PixelContent | None, name: str, default: float = 1.0) -> Any:
    """Returns a map of the content, or a constant one [C, 1, 1] where it is missing; on the host."""
    if content is not None and name in content.maps:
        return np.asarray(content.maps[name], np.float32)
    return np.full((images.width.shape[0], 1, 1), default, np.float32)


def resample_cells(values: Any, height: int, width: int) -> np.ndarray:
    """Averages over other cells, on the host; a mean is 0 only where all that the cell overlaps is.

    Args:
      values: [..., H, W] constant on H x W cells, or pixels.
      height, width: cells wanted.

    Returns:
      [..., height, width] float32.
    """
    values = np.asarray(values, np.float32)
    return _overlap(values.shape[-2], height) @ values @ _overlap(values.shape[-1], width).T


def _overlap(old: int, new: int) -> np.ndarray:
    """[new, old] share of each new cell that lies in each old one."""
    edges = np.arange(new + 1) * (old / new)
    cell = np.arange(old)
    shared = np.minimum(edges[1:, None], cell[None] + 1) - np.maximum(edges[:-1, None], cell[None])
    shared = np.where(shared > 1e-9, shared, 0.0)  # no overlap by rounding alone
    return (shared / np.diff(edges)[:, None]).astype(np.float32)


def weight_of(table: CellTable, draws: CellDraws) -> Array:
    """Returns [N] weights that undo the density: their mean is 1 in expectation."""
    return draws.ratio / table.support


def fresh_draws(key: Array, table: CellTable, images: ImageTable, *, step, size: int) -> CellDraws:
    """``draw_cells`` with the step's own key."""
    return draw_cells(jax.random.fold_in(key, step), table, images, size)
