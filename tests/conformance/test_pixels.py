"""One suite for every pixel sampler: a new member adds a row to ROWS."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from nerfjax.geometry.cameras import cameras_from
from nerfjax.pixels import PIXELS, PixelContent, image_table


class Row(NamedTuple):
    """A member with options.

    Attributes:
      exact: whether the weights of every batch average to 1 exactly; else they do in expectation.
      sound: whether the expected weighted loss is the mean over all pixels; other members mean another one on purpose.
      first: a step from which on all this holds.
    """

    member: str
    options: dict
    exact: bool = True
    sound: bool = True
    first: int = 0


ROWS = {
    "uniform": Row("uniform", dict()),
    "uniform-replacement": Row("uniform", dict(replacement=True)),
    "stratified": Row("stratified", dict()),
    "low_discrepancy": Row("low_discrepancy", dict()),
    "per_image": Row("per_image", dict(images_per_batch=1)),
    "per_image-3": Row("per_image", dict(images_per_batch=3)),
    "patches": Row("patches", dict(size=2), exact=False),
    "patches-dilated": Row("patches", dict(size=2, dilation=2), exact=False),
    "center_crop": Row("center_crop", dict(steps=4), first=4),
    "center_crop-early": Row("center_crop", dict(steps=10**9), sound=False),
    "masked": Row("masked", dict(), exact=False),
    "foreground": Row("foreground", dict(), exact=False),
    "foreground-biased": Row("foreground", dict(unbiased=False, share=1.0), sound=False),
    "edges": Row("edges", dict(share=0.8), exact=False),
    "error_guided": Row("error_guided", dict(interval=2, batch_rays=64), exact=False),
    "error_guided-fine": Row("error_guided", dict(interval=2, resolution=11, share=0.7), exact=False),
    "error_guided-biased": Row("error_guided", dict(interval=2, batch_rays=64, unbiased=False), sound=False),
    "solid_angle": Row("solid_angle", dict(), exact=False, sound=False),
    "solid_angle-unbiased": Row("solid_angle", dict(unbiased=True), exact=False),
}
each_row = pytest.mark.parametrize("name", ROWS)
sound_rows = pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.sound])
SIZE, BATCHES = 64, 6400
MIXED = ([5, 3, 1, 8], [4, 7, 1, 2])


def make(name):
    row = ROWS[name]
    return PIXELS[row.member](**row.options)


def content_of(sampler, sizes):
    """Cameras, and maps of noise, of which "valid" ignores nothing."""
    size = np.stack(sizes, axis=-1)
    pose = np.tile(np.eye(4)[:3], (len(size), 1, 1))
    noise = np.random.default_rng(0).uniform(0.05, 1.0, (len(size), 6, 7)).astype(np.float32)
    maps = {name: np.ones_like(noise) if name == "valid" else noise**3 for name in sampler.wants}
    return PixelContent(cameras_from(pose, 1.5 * size, size=size), maps) if sampler.wants else None


def error_images(sizes):
    """Errors with a peak in each image: [total] in the sequence of all pixels."""
    errors = []
    for width, height in zip(*sizes, strict=True):
        y, x = np.mgrid[:height, :width] + 0.5
        errors.append(0.02 + np.exp(-((x / width - 0.3) ** 2 + (y / height - 0.7) ** 2) / 0.02))
    return np.concatenate([error.ravel() for error in errors]).astype(np.float32)


def flat_pixels(batch, sizes):
    """Places in the sequence of all pixels; traced or not."""
    widths, heights = np.asarray(sizes)
    starts = jnp.asarray(np.cumsum([0, *widths * heights])[:-1], jnp.int32)
    return starts[batch.image] + batch.row * jnp.asarray(widths, jnp.int32)[batch.image] + batch.column


@functools.cache
def program(name):
    """(key, first step) -> BATCHES successive batches of the mixed images; after eight that were observed.

    Every third error is negative: nothing was measured there. One compilation serves most tests of a row.
    """
    sampler, images, content = make(name), image_table(*MIXED), content_of(make(name), MIXED)
    errors = jnp.asarray(error_images(MIXED))

    def run(key, first):
        def learn(state, step):
            batch = sampler.select(jax.random.key(7), state, images, step=step, size=SIZE)
            measured = jnp.where(jnp.arange(SIZE) % 3 == 0, jnp.float32(-1), errors[flat_pixels(batch, MIXED)])
            return sampler.observe(state, batch, measured), None

        state, _ = jax.lax.scan(learn, sampler.init(images, content), jnp.arange(8, dtype=jnp.int32))
        steps = first + jnp.arange(BATCHES, dtype=jnp.int32)
        return jax.lax.map(lambda step: sampler.select(key, state, images, step=step, size=SIZE), steps)

    return jax.jit(run)


@functools.cache
def batches(name, seed=0, first=0):
    with jax.numpy_dtype_promotion("strict"):
        return program(name)(jax.random.key(seed), jnp.asarray(first + ROWS[name].first, jnp.int32))


def assert_inside(batch, sizes):
    image, (widths, heights) = np.asarray(batch.image), np.asarray(sizes)
    assert np.all((image >= 0) & (image < len(widths)))
    assert np.all((batch.row >= 0) & (batch.row < heights[image]))
    assert np.all((batch.column >= 0) & (batch.column < widths[image]))
    assert {leaf.dtype for leaf in (batch.image, batch.row, batch.column)} == {np.dtype(np.int32)}
    assert batch.weight.shape == image.shape and batch.weight.dtype == np.float32
    assert np.all(np.isfinite(batch.weight)) and np.all(batch.weight >= 0)


def test_every_member_has_a_row():
    assert {row.member for row in ROWS.values()} == set(PIXELS)


@each_row
def test_pixels_lie_inside_their_images(name):
    assert_inside(batches(name), MIXED)


@each_row
def test_one_pixel_and_five_billion(name):
    sizes = ([1] + [4096] * 300, [1] + [4096] * 300)
    sampler, images, content = make(name), image_table(*sizes), content_of(make(name), sizes)

    @jax.jit
    def draw(key, step):
        return sampler.select(key, sampler.init(images, content), images, step=step, size=257)

    batch = draw(jax.random.key(0), jnp.asarray(3, jnp.int32))
    assert_inside(batch, sizes)
    assert len(np.unique(batch.image)) > 100 or "image" in name or "patch" in name


@each_row
def test_weights_average_to_one(name):
    means = np.mean(np.asarray(batches(name).weight, np.float64), axis=1)
    if ROWS[name].exact:
        np.testing.assert_allclose(means, 1.0, rtol=1e-6)
    else:
        # A mean solid angle of cells is one of pixels only where pixels are small.
        extra = 0.04 if name == "solid_angle" else 1e-6
        assert abs(np.mean(means) - 1.0) < 5 * np.std(means) / np.sqrt(len(means)) + extra < 0.05


@each_row
def test_same_key_and_step_give_the_same_batch_and_others_another(name):
    """And nothing is compiled again."""

    def stacked(seed, first):
        return np.stack([np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(batches(name, seed, first))])

    zero, later, other = stacked(0, 0), stacked(0, 5), stacked(1, 0)
    np.testing.assert_array_equal(zero[:, 5:], later[:, :-5])
    assert not np.array_equal(zero[:, 0], zero[:, 1]) and not np.array_equal(zero[:, 0], other[:, 0])
    assert program(name)._cache_size() == 1


@sound_rows
@pytest.mark.parametrize("lanes", [SIZE, SIZE // 4])
def test_every_pixel_has_the_same_weighted_chance(name, lanes):
    """Chi-square of the sums of the weights, over the whole batch and over its first lanes alone (a lower rung)."""
    batch = batches(name)
    pixels, weight = np.asarray(flat_pixels(batch, MIXED))[:, :lanes], np.asarray(batch.weight)[:, :lanes]
    total = np.dot(*MIXED)
    sums = np.zeros((len(pixels), total))
    np.add.at(sums, (np.arange(len(pixels))[:, None], pixels), weight)
    # Batches are independent, or better spread than that; pixels of a batch need not be.
    error = np.sum(sums, axis=0) - weight.size / total
    z = error / np.sqrt(len(sums) * np.var(sums, axis=0))
    assert np.min(np.sum(sums, axis=0)) > 0
    assert np.max(np.abs(z)) < 5
    if "patch" not in name and "image" not in name:
        assert (np.sum(z**2) - (total - 1)) / np.sqrt(2 * (total - 1)) < 5


@each_row
def test_expected_loss_is_the_uniform_one_where_it_claims_to_be(name):
    """The mean weighted error of a fixed image, to one percent; it is another one for members that say so."""
    batch, errors = batches(name), error_images(MIXED).astype(np.float64)
    loss = np.mean(np.asarray(batch.weight, np.float64) * errors[np.asarray(flat_pixels(batch, MIXED))])
    close = loss == pytest.approx(np.mean(errors), rel=0.01)
    assert close == ROWS[name].sound


@pytest.mark.parametrize("name", ["uniform-replacement", "patches", "edges", "error_guided", "solid_angle"])
def test_devices_agree_inside_shard_map(name):
    sampler, images, content = make(name), image_table(*MIXED), content_of(make(name), MIXED)
    state = jax.jit(lambda: sampler.init(images, content))()

    def step(state):
        batch = sampler.select(jax.random.key(0), state, images, step=jnp.int32(5), size=16)
        return sampler.observe(state, batch, jnp.full((16,), 0.5)), batch

    mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])
    everywhere = PartitionSpec()
    sharded = jax.shard_map(step, mesh=mesh, in_specs=everywhere, out_specs=everywhere)
    for one, other in zip(jax.tree.leaves(jax.jit(step)(state)), jax.tree.leaves(jax.jit(sharded)(state)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
