"""Epochs, huge captures and exactness of the uniform pixel sampler."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.numerics import digits_of, epoch_position, permutation_keys, permute_index
from nerfjax.pixels import image_table, uniform
from nerfjax.pixels.uniform import independent_positions, locate

MIXED = [(5, 4), (3, 7), (1, 1), (8, 2), (1, 9), (6, 1)]


def flat_pixels(batch, sizes):
    """Positions in the sequence of all pixels, as int64, by plain arithmetic."""
    widths, heights = np.asarray(sizes, np.int64).T
    starts = np.concatenate([[0], np.cumsum(widths * heights)])
    image = np.asarray(batch.image)
    return starts[image] + np.asarray(batch.row, np.int64) * widths[image] + np.asarray(batch.column)


@pytest.mark.parametrize("sizes", [MIXED, [(1, 1)], [(7, 3)], [(2, 2)] * 9])
@pytest.mark.parametrize("size", [1, 8, 64])
def test_every_pixel_occurs_once_in_an_epoch(sizes, size):
    widths, heights = zip(*sizes, strict=True)
    images, total = image_table(widths, heights), sum(w * h for w, h in sizes)
    sampler = uniform()
    select = jax.jit(lambda step: sampler.select(jax.random.key(3), {}, images, step=step, size=size))
    batches = -(-total // size)
    orders = []
    for epoch in range(3):
        steps = range(epoch * batches, (epoch + 1) * batches)
        order = np.concatenate([flat_pixels(select(jnp.asarray(s, jnp.int32)), sizes) for s in steps])
        np.testing.assert_array_equal(np.sort(order[:total]), np.arange(total))
        np.testing.assert_array_equal(order[total:], np.resize(order[:total], len(order) - total))
        orders.append(order)
    if total > 10:
        assert not np.array_equal(orders[0], orders[1]) and not np.array_equal(orders[1], orders[2])


def test_pixels_beyond_32_bits_agree_with_plain_integers():
    sizes = [(4096 + i % 3, 4096 - i % 5) for i in range(300)]
    images = image_table(*zip(*sizes, strict=True))
    assert images.total > 2**32
    # The last image is reached only beyond 2^32.
    for step in (0, images.total // 1024 - 1, images.total // 1024, 3_000_000_000):
        batch = uniform().select(jax.random.key(5), {}, images, step=jnp.asarray(step, jnp.uint32), size=1024)
        seed = int(jax.random.bits(jax.random.key(5)))
        epoch, high, low = epoch_position(step, 1024, images.total, np.arange(1024, dtype=np.uint32), xp=np)
        keys = permutation_keys(seed, int(epoch), xp=np)
        high, low = permute_index(high, low, total=images.total, keys=keys, xp=np)
        radix = int(np.ceil(np.sqrt(images.total)))
        expected = high.astype(np.int64) * radix + low
        np.testing.assert_array_equal(flat_pixels(batch, sizes), expected)
        assert np.max(expected) > 2**32


def test_locate_finds_the_first_and_last_pixel_of_every_image():
    sizes = [(4096, 4095 - i) for i in range(290)] + [(1, 1), (1, 1), (70_000, 20_000)]
    widths, heights = np.asarray(sizes, np.int64).T
    images = image_table(widths, heights)
    ends = np.cumsum(widths * heights)
    for positions, row, column in (
        (ends - widths * heights, 0 * heights, 0 * widths),
        (ends - 1, heights - 1, widths - 1),
    ):
        high, low = digits_of(positions, images.total)
        found = locate(images, jnp.asarray(high), jnp.asarray(low))
        for got, wanted in zip(found, (np.arange(len(sizes)), row, column), strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("total", [1, 2, 3, 5, 7, 13, 101, 10_001])
def test_independent_positions_are_uniform(total):
    lanes = jnp.arange(40_000, dtype=jnp.int32)
    high, low = independent_positions(jax.random.key(2), total, lanes)
    radix = int(np.ceil(np.sqrt(total)))
    positions = np.asarray(high, np.int64) * radix + np.asarray(low)
    assert positions.max() < total
    bins = min(total, 13)
    # The edges of the bins fall between positions, so each bin's probability is exact.
    counts, edges = np.histogram(positions, np.round(np.linspace(0, total, bins + 1)) - 0.5)
    expected = np.diff(edges) / total * len(lanes)
    assert np.max(np.abs(counts - expected) / np.sqrt(expected)) < 5


def test_independent_positions_depend_on_the_lane_alone():
    whole = independent_positions(jax.random.key(2), 3, jnp.arange(64, dtype=jnp.int32))
    part = independent_positions(jax.random.key(2), 3, jnp.arange(16, 32, dtype=jnp.int32))
    for a, b in zip(whole, part, strict=True):
        np.testing.assert_array_equal(a[16:32], b)


def test_table_begins_where_the_image_before_ends():
    images = image_table([3, 2], [4, 5])
    assert images.total == 22
    np.testing.assert_array_equal(images.start_high * 5 + images.start_low, [0, 12])


@pytest.mark.parametrize("widths, heights", [([], []), ([3], [0]), ([3, 2], [4]), ([-1], [5])])
def test_bad_sizes_are_refused(widths, heights):
    with pytest.raises(UserError, match="positive"):
        image_table(widths, heights)
