"""Pixels stratified over the images: every image has its share of every batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from nerfjax.numerics import digits_of, permutation_radix
from nerfjax.pixels.base import PixelSampler, no_observation, no_state
from nerfjax.pixels.fractions import lane_bits, scale_bits, strata
from nerfjax.pixels.uniform import independent_positions, locate
from nerfjax.types import Array, ImageTable, PixelBatch


def stratified() -> PixelSampler:
    """Draws one pixel from each of N equal parts of the sequence of all pixels.

    The parts are rotated by a random number of pixels at every step, so that every pixel has the same chance. An image
    gets its share of the batch, N * (its pixels) / (all pixels), give or take one, and inside it the rows are
    stratified too. The mean loss has the variance inside the parts only, not that between images.

    Returns:
      The pixel sampler; all weights are 1.
    """

    def select(key: Array, state, images: ImageTable, *, step, size: int) -> PixelBatch:
        del state
        image, row, column = locate(images, *stratified_positions(jax.random.fold_in(key, step), images.total, size))
        return PixelBatch(image=image, row=row, column=column, weight=jnp.ones((size,), jnp.float32))

    return PixelSampler(init=no_state, select=select, observe=no_observation)


def stratified_positions(key: Array, total: int, count: int) -> tuple[Array, Array]:
    """Draws one position from each of ``count`` equal parts of [0, total), each position with the same chance.

    Lane j holds (r + a_j + u_j) mod total, with a_j the beginning of part ``fractions.strata[j]``, u_j uniform inside
    the part and the rotation r uniform in [0, total): r alone makes every lane uniform, exactly.

    Args:
      key: fresh at every step.
      total: number of positions, static.
      count: number of parts, static.

    Returns:
      uint32 digits (high [count], low [count]).
    """
    key_rotation, key_offset = jax.random.split(key)
    edges = np.arange(count + 1) * total // count
    part = strata(count)
    length = np.clip(np.diff(edges), 1, 2**31 - 1)[part].astype(np.int32)
    offset = scale_bits(lane_bits(key_offset, count, 1)[0], jnp.asarray(length)).astype(jnp.uint32)
    radix = jnp.uint32(permutation_radix(total))
    begin = (jnp.asarray(digit) for digit in digits_of(edges[part], total))
    high, low = _add_positions(*begin, offset // radix, offset % radix, total)
    turn = independent_positions(key_rotation, total, jnp.zeros((1,), jnp.int32))
    return _add_positions(high, low, *turn, total)


def _add_positions(high: Array, low: Array, other_high: Array, other_low: Array, total: int) -> tuple[Array, Array]:
    """Adds positions below ``total``, given as digits, modulo ``total``."""
    radix = permutation_radix(total)
    total_high, total_low, radix = (jnp.uint32(number) for number in (*divmod(total, radix), radix))
    low = low + other_low
    carry = low >= radix
    high, low = high + other_high + carry.astype(jnp.uint32), jnp.where(carry, low - radix, low)
    wraps = (high > total_high) | ((high == total_high) & (low >= total_low))
    borrow = low < total_low
    wrapped_high = high - total_high - borrow.astype(jnp.uint32)
    wrapped_low = jnp.where(borrow, low + radix - total_low, low - total_low)
    return jnp.where(wraps, wrapped_high, high), jnp.where(wraps, wrapped_low, low)
