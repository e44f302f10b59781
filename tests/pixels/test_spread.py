"""Members that spread a batch evenly: stratified, per image, low discrepancy, centre crop; and their integers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.pixels import center_crop, image_table, low_discrepancy, per_image, stratified, uniform
from nerfjax.pixels.fractions import scale_bits, strata, stratify_bits, unit_float
from nerfjax.pixels.low_discrepancy import STRIDES, kronecker
from nerfjax.pixels.stratified import stratified_positions

SIZES = ([40, 24, 10, 64], [30, 30, 100, 16])


def draw(sampler, sizes, rays, steps, first=0):
    images = image_table(*sizes)
    select = lambda step: sampler.select(jax.random.key(1), {}, images, step=step, size=rays)  # noqa: E731
    steps = first + jnp.arange(steps, dtype=jnp.uint32)
    return jax.tree.map(np.asarray, jax.jit(lambda s: jax.lax.map(select, s))(steps))


def image_counts(image, sizes):
    return np.stack([np.bincount(row, minlength=len(sizes[0])) for row in image])


def test_integers_of_fractions():
    bits = np.random.default_rng(0).integers(0, 2**32, 1000, dtype=np.uint32)
    bits[:2] = 0, 2**32 - 1
    for limit in (1, 7, 2**31 - 1):
        expected = [int(b) * limit >> 32 for b in bits]
        np.testing.assert_array_equal(scale_bits(jnp.asarray(bits), limit), expected)
        np.testing.assert_array_equal(scale_bits(jnp.asarray(bits), jnp.full(1000, limit, jnp.int32)), expected)
    turned = [((int(p) << 32) + int(b)) // 1000 + 12345 for p, b in zip(strata(1000), bits, strict=True)]
    np.testing.assert_array_equal(
        stratify_bits(jnp.asarray(bits), jnp.uint32(12345)), np.asarray(turned, np.uint64) % 2**32
    )
    assert float(unit_float(jnp.asarray(bits)).max()) < 1.0


@pytest.mark.parametrize("count", [1, 2, 7, 64, 100])
def test_any_first_strata_are_spread_evenly(count):
    order = strata(count).astype(int)
    np.testing.assert_array_equal(np.sort(order), np.arange(count))
    for part in range(1, count + 1):
        gaps = np.diff(np.sort(order[:part]), prepend=order[:part].max() - count)
        assert np.max(gaps) <= 2 * count / part + 1


@pytest.mark.parametrize("total", [2, 58, 1000])
@pytest.mark.parametrize("count", [1, 7, 64])
def test_stratified_positions_are_uniform_and_apart(total, count):
    keys = jax.random.split(jax.random.key(0), 2000)
    high, low = jax.jit(jax.vmap(lambda key: stratified_positions(key, total, count)))(keys)
    radix = int(np.ceil(np.sqrt(total)))
    positions = np.asarray(high, np.int64) * radix + np.asarray(low)
    assert positions.min() >= 0 and positions.max() < total
    for lane in {0, count - 1}:
        bins = min(total, 100)
        counts = np.bincount(positions[:, lane] * bins // total, minlength=bins)
        assert np.max(np.abs(counts - counts.mean()) / np.sqrt(counts.mean())) < 5
    if total >= count:
        assert all(len(np.unique(row)) == count for row in positions)


@pytest.mark.parametrize("rays", [256, 64])
def test_stratified_gives_every_image_its_share(rays):
    share = np.multiply(*SIZES) / np.dot(*SIZES)
    image = draw(stratified(), SIZES, 256, 30).image[:, :rays]
    np.testing.assert_array_less(np.abs(image_counts(image, SIZES) - rays * share), 2.0)


def test_stratified_beyond_32_bits():
    sizes = ([8000] * 100, [6000] * 100)
    batch = draw(stratified(), sizes, 400, 5)
    np.testing.assert_array_less(np.abs(image_counts(batch.image, sizes) - 4), 2)


def test_a_batch_per_image_has_few_images():
    batch = draw(per_image(images_per_batch=3), SIZES, 64, 300)
    assert max(len(np.unique(row)) for row in batch.image) <= 3
    groups = batch.image[:, [0, 21, 22, 42, 43, 63]]
    np.testing.assert_array_equal(groups[:, ::2], groups[:, 1::2])
    one = draw(per_image(), SIZES, 64, 2000).image
    assert np.all(one == one[:, :1])
    share = np.multiply(*SIZES) / np.dot(*SIZES)
    counts, expected = np.bincount(one[:, 0], minlength=4), 2000 * share
    assert np.max(np.abs(counts - expected) / np.sqrt(expected)) < 5
    with pytest.raises(UserError, match="needs an image"):
        per_image(images_per_batch=0)


@pytest.mark.parametrize("step", [0, 1, 1_048_575, 3_000_000_000])
def test_low_discrepancy_is_exact_after_billions_of_steps(step):
    rays, sizes = 4096, ([4000, 3000], [2000, 5000])
    batch = draw(low_discrepancy(), sizes, rays, 1, first=np.uint32(step))
    shift = [int(s) for s in jax.random.bits(jax.random.key(1), (3,), jnp.uint32)]
    for lane in (0, 1, 4095):
        n = step * rays + lane
        bits = [((n * stride % 2**64 >> 32) + s) % 2**32 for stride, s in zip(STRIDES, shift, strict=True)]
        image = int(bits[0] * 23_000_000 >> 32 >= 8_000_000)
        expected = image, bits[1] * sizes[1][image] >> 32, bits[2] * sizes[0][image] >> 32
        assert tuple(int(leaf[0, lane]) for leaf in (batch.image, batch.row, batch.column)) == expected


def test_kronecker_wraps_as_64_bits():
    high, low = np.uint32([0, 1, 2**32 - 1]), np.uint32([2**32 - 1, 0, 2**32 - 1])
    for stride in STRIDES:
        expected = [((int(h) << 32) + int(m)) * stride % 2**64 >> 32 for h, m in zip(high, low, strict=True)]
        np.testing.assert_array_equal(kronecker(jnp.asarray(high), jnp.asarray(low), stride), expected)


def mean_errors(sampler, rays=256, steps=200):
    """Standard deviation of the mean of a smooth function over a batch."""
    batch = draw(sampler, SIZES, rays, steps)
    level = np.array([0.1, 0.9, 0.4, 0.6])[batch.image]
    values = level + np.sin(3 * batch.row / np.array(SIZES[1])[batch.image]) * np.cos(
        2 * batch.column / np.array(SIZES[0])[batch.image]
    )
    return np.std(np.mean(values, axis=1))


def test_even_spread_lowers_the_variance_of_a_mean():
    independent = mean_errors(uniform(replacement=True))
    assert mean_errors(stratified()) < 0.7 * independent
    assert mean_errors(low_discrepancy()) < 0.3 * independent


def test_center_crop_ends():
    sizes = ([40, 7, 1], [30, 9, 1])
    early = draw(center_crop(fraction=0.5, steps=500), sizes, 64, 50)
    for image, (width, height) in enumerate(zip(*sizes, strict=True)):
        side_x, side_y = -(-width // 2), -(-height // 2)
        column, row = (leaf[early.image == image] for leaf in (early.column, early.row))
        assert column.min() == (width - side_x) // 2 and column.max() == column.min() + side_x - 1
        assert row.min() == (height - side_y) // 2 and row.max() == row.min() + side_y - 1
    crop, plain = (draw(sampler, sizes, 64, 3, first=499) for sampler in (center_crop(), uniform()))
    assert [np.array_equal(*columns) for columns in zip(crop.column, plain.column, strict=True)] == [False, True, True]
    with pytest.raises(UserError, match="crop"):
        center_crop(fraction=0.0)
