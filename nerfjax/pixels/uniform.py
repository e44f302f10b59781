"""Pixels drawn uniformly from all images: by epochs without replacement, or independently with it.

A position in the sequence of all pixels may exceed 2^32, so it is a pair of uint32 digits, position =
high * radix + low, and pairs are compared lexicographically (``types.ImageTable``).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from nerfjax.numerics import epoch_position, permutation_keys, permutation_radix, permute_index, ray_keys
from nerfjax.pixels.base import PixelSampler, no_observation, no_state
from nerfjax.types import Array, ImageTable, PixelBatch


def uniform(*, replacement: bool = False) -> PixelSampler:
    """Draws every pixel of the capture with the same probability.

    Without replacement, lane j of batch k holds the pixel at place k * size + j of the epoch's permutation: every
    pixel occurs once in ceil(total / size) batches, the last of which wraps around to be full. The permutation is
    computed on the fly from (key, epoch), so that a restart at any step costs nothing.

    Args:
      replacement: whether draws are independent of each other.

    Returns:
      The pixel sampler; it has no state and ignores errors.
    """

    def select(key: Array, state, images: ImageTable, *, step, size: int) -> PixelBatch:
        del state
        lane = jnp.arange(size, dtype=jnp.int32)
        if replacement:
            high, low = independent_positions(jax.random.fold_in(key, step), images.total, lane)
        else:
            epoch, high, low = epoch_position(step, size, images.total, lane)
            keys = permutation_keys(jax.random.bits(key), epoch, xp=jnp)
            high, low = permute_index(high, low, total=images.total, keys=keys)
        image, row, column = locate(images, high, low)
        return PixelBatch(image=image, row=row, column=column, weight=jnp.ones((size,), jnp.float32))

    return PixelSampler(init=no_state, select=select, observe=no_observation)


def independent_positions(key: Array, total: int, lane: Array) -> tuple[Array, Array]:
    """Draws one position in [0, total) for each lane, a function of (key, lane) only.

    The digit pairs form a rectangle of a * radix places, of which the last row may be filled in part: a pair beyond
    the end is drawn again, which makes the rest exactly uniform. Fewer than one in ``a`` is.

    Args:
      key: fresh at every step.
      total: number of positions, static, at least 1.
      lane: [N] int32 place in the batch.

    Returns:
      uint32 digits (high [N], low [N]).
    """
    radix = permutation_radix(total)
    rows = -(-total // radix)
    spans = jnp.asarray([rows, radix], jnp.uint32)
    last_high, last_low = jnp.uint32((total - 1) // radix), jnp.uint32((total - 1) % radix)

    def draw(attempt):
        keys = ray_keys(jax.random.fold_in(key, attempt), lane)
        digits = jax.vmap(lambda k: jax.random.randint(k, (2,), jnp.zeros_like(spans), spans, jnp.uint32))(keys)
        return digits[:, 0], digits[:, 1]

    def beyond(high, low):
        return (high > last_high) | ((high == last_high) & (low > last_low))

    def again(carry):
        attempt, high, low = carry
        new_high, new_low = draw(attempt)
        outside = beyond(high, low)
        return attempt + 1, jnp.where(outside, new_high, high), jnp.where(outside, new_low, low)

    first = (jnp.uint32(1), *draw(jnp.uint32(0)))
    _, high, low = jax.lax.while_loop(lambda carry: jnp.any(beyond(*carry[1:])), again, first)
    return high, low


def locate(images: ImageTable, high: Array, low: Array) -> tuple[Array, Array, Array]:
    """Finds the pixels at positions of the sequence of all pixels.

    Args:
      images: the table, with C images.
      high, low: [N] uint32 digits of positions below ``images.total``.

    Returns:
      int32 (image [N], row [N], column [N]).
    """
    count = images.width.shape[0]
    image = jnp.zeros(high.shape, jnp.int32)
    # Binary search for the last image that starts at or before the position, by halving steps.
    for bit in reversed(range((count - 1).bit_length())):
        probe = image + (1 << bit)
        start = jnp.minimum(probe, count - 1)
        start_high, start_low = images.start_high[start], images.start_low[start]
        reached = (start_high < high) | ((start_high == high) & (start_low <= low))
        image = jnp.where((probe < count) & reached, probe, image)
    radix = jnp.uint32(permutation_radix(images.total))
    # Each term may wrap around 2^32, their sum is right: the offset inside an image is below 2^32.
    offset = (high - images.start_high[image]) * radix + (low - images.start_low[image])
    width = images.width[image].astype(jnp.uint32)
    return image, (offset // width).astype(jnp.int32), (offset % width).astype(jnp.int32)
