"""Pixels from a low-discrepancy sequence over (image, row, column)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from nerfjax.numerics import divide_wide, multiply_wide, permutation_radix
from nerfjax.pixels.base import PixelSampler, no_observation, no_state
from nerfjax.pixels.fractions import scale_bits
from nerfjax.pixels.uniform import locate
from nerfjax.types import Array, ImageTable, PixelBatch

# The root of x^4 = x + 1: its powers give the least discrepancy known of a Kronecker sequence in three dimensions.
_RATIO = 1.2207440846057596
STRIDES = tuple(int(2.0**64 / _RATIO**power) | 1 for power in (1, 2, 3))


def low_discrepancy() -> PixelSampler:
    """Draws from the R_3 sequence: any run of successive draws covers images, rows and columns evenly.

    x_n = frac(s + n * (1/g, 1/g^2, 1/g^3)), n = step * N + lane, with g^4 = g + 1 and the shift s random in each run
    (key). The first coordinate is a place in the sequence of all pixels, of which only the image counts, the other two
    are row and column. n and its multiples are 64-bit integers modulo 2^64: after billions of steps a draw is as exact
    as the first. Every pixel has the same chance over the random shift.

    Returns:
      The pixel sampler; all weights are 1.

    Roberts 2018, The Unreasonable Effectiveness of Quasirandom Sequences (the R_d sequences).
    """

    def select(key: Array, state, images: ImageTable, *, step, size: int) -> PixelBatch:
        del state
        lane = jnp.arange(size, dtype=jnp.uint32)
        base_high, base_low = multiply_wide(jnp.asarray(step).astype(jnp.uint32), size)
        low = base_low + lane
        high = base_high + (low < lane).astype(jnp.uint32)
        shift = jax.random.bits(key, (len(STRIDES),), jnp.uint32)
        place, down, across = (kronecker(high, low, stride) + shift[i] for i, stride in enumerate(STRIDES))
        image, _, _ = locate(images, *_scale_to_position(place, images.total))
        row, column = scale_bits(down, images.height[image]), scale_bits(across, images.width[image])
        return PixelBatch(image=image, row=row, column=column, weight=jnp.ones((size,), jnp.float32))

    return PixelSampler(init=no_state, select=select, observe=no_observation)


def kronecker(high: Array, low: Array, stride: int) -> Array:
    """Returns the upper 32 bits of n * stride modulo 2^64, with n = high * 2^32 + low: the fraction frac(n * alpha).

    Args:
      high, low: [N] uint32.
      stride: round(alpha * 2^64), odd.
    """
    stride_high, stride_low = divmod(stride, 2**32)
    upper = multiply_wide(low, stride_low)[0]
    return upper + low * jnp.uint32(stride_high) + high * jnp.uint32(stride_low)


def _scale_to_position(bits: Array, total: int) -> tuple[Array, Array]:
    """Returns the digits of floor(bits / 2^32 * total), for totals that may exceed 2^32."""
    total_high, total_low = divmod(total, 2**32)
    upper, _ = multiply_wide(bits, total_low)
    rest_high, rest_low = multiply_wide(bits, total_high)  # whole positions already
    low = upper + rest_low
    high = rest_high + (low < upper).astype(jnp.uint32)
    return divide_wide(high, low, permutation_radix(total))
