"""The error map: what it learns, when, and what it is good for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.pixels import PixelContent, error_guided, image_table, uniform
from nerfjax.pixels.error_guided import map_side

SIZES = ([48, 32, 40], [40, 32, 30])
IMAGES = image_table(*SIZES)


def peaked_error(batch):
    """A peak in image 1 over a faint ground."""
    x = (batch.column + 0.5) / jnp.asarray(SIZES[0], jnp.float32)[batch.image]
    y = (batch.row + 0.5) / jnp.asarray(SIZES[1], jnp.float32)[batch.image]
    return 0.01 + jnp.where(batch.image == 1, 5.0 * jnp.exp(-((x - 0.5) ** 2 + (y - 0.25) ** 2) / 0.005), 0.0)


def exact_mean():
    mean = []
    for image, (width, height) in enumerate(zip(*SIZES, strict=True)):
        y, x = (np.mgrid[:height, :width] + 0.5) / np.array([height, width])[:, None, None]
        peak = 5.0 * np.exp(-((x - 0.5) ** 2 + (y - 0.25) ** 2) / 0.005) if image == 1 else 0.0 * x
        mean.append(0.01 + np.mean(peak))
    return np.average(mean, weights=np.multiply(*SIZES))


def run(sampler, steps, *, size=512, error=peaked_error, content=None):
    """(state, weighted losses [steps], mean shares of image 1 [steps], intervals [steps]) of a run that learns."""

    def step(state, number):
        batch = sampler.select(jax.random.key(5), state, IMAGES, step=number, size=size)
        state = sampler.observe(state, batch, error(batch))
        loss = jnp.mean(batch.weight * jnp.maximum(peaked_error(batch), 0.0))
        interval = state.interval if hasattr(state, "interval") else jnp.int32(0)
        return state, (loss, jnp.mean((batch.image == 1).astype(jnp.float32)), interval)

    numbers = jnp.arange(steps, dtype=jnp.int32)
    state, curves = jax.jit(lambda: jax.lax.scan(step, sampler.init(IMAGES, content), numbers))()
    return state, *(np.asarray(curve) for curve in curves)


def test_the_loss_stays_that_of_uniform_draws_and_varies_less():
    _, guided, share, _ = run(error_guided(interval=32, resolution=12), 1200)
    _, plain, _, _ = run(uniform(replacement=True), 1200)
    assert np.mean(guided[100:]) == pytest.approx(exact_mean(), rel=0.01)
    assert np.std(guided[100:]) < 0.5 * np.std(plain)
    assert np.mean(share[100:]) > 0.45 > 1.7 * np.mean(share[:32])


def test_the_biased_original_counts_the_peak_more():
    _, losses, _, _ = run(error_guided(interval=32, resolution=12, unbiased=False), 400)
    assert np.mean(losses[:32]) == pytest.approx(exact_mean(), rel=0.2)
    assert np.mean(losses[100:]) > 3 * exact_mean()


def test_refreshes_come_at_growing_intervals():
    _, _, _, interval = run(error_guided(interval=8, growth=1.5, resolution=4), 60, size=16)
    changes = np.flatnonzero(np.diff(interval, prepend=8)) + 1
    np.testing.assert_array_equal(changes, [8, 20, 38])
    np.testing.assert_array_equal(interval[[0, 8, 20, 38]], [8, 12, 18, 27])


def test_estimates_are_the_errors_whatever_was_drawn_how_often():
    """Cells of constant error: an estimate is the error, but for the one remembered draw."""
    level = jnp.asarray(np.random.default_rng(0).uniform(0.1, 1.0, (3, 4, 4)), jnp.float32)

    def error(batch):
        height, width = (jnp.asarray(SIZES[axis], jnp.int32)[batch.image] for axis in (1, 0))
        return level[batch.image, (2 * batch.row + 1) * 4 // (2 * height), (2 * batch.column + 1) * 4 // (2 * width)]

    state, *_ = run(error_guided(interval=40, resolution=4), 40 + 60, error=error)
    np.testing.assert_allclose(state.estimate, level, rtol=0.02)


def test_what_was_not_measured_is_not_learnt():
    """Errors below zero: of masked pixels and of rays that were cut short."""
    state, *_ = run(error_guided(interval=10**6, resolution=4), 3, error=lambda batch: 0.0 * peaked_error(batch) - 1.0)
    assert float(jnp.sum(state.count)) == 0 and float(jnp.sum(jnp.abs(state.total))) == 0
    never, *_ = run(error_guided(interval=2, resolution=4), 6, error=lambda batch: 0.0 * peaked_error(batch) - 1.0)
    np.testing.assert_allclose(
        np.diff(never.cells.image, prepend=0) / 2**30, np.multiply(*SIZES) / np.dot(*SIZES), rtol=1e-5
    )


def test_masked_cells_stay_masked():
    valid = np.ones((3, 6, 6), np.float32)
    valid[1] = 0  # the image with the peak
    _, _, share, _ = run(error_guided(interval=4, resolution=9), 20, content=PixelContent(None, {"valid": valid}))
    assert np.all(share == 0)


def test_side_of_the_map():
    # 128 steps of 4096 rays over 100 images of 800 x 800: 5243 draws of an image, 887 cells.
    assert map_side(128 * 4096 / 100, 800) == int(3.5 * (128 * 40.96) ** 0.25) == 29
    assert map_side(1e9, 20.5) == 20 and map_side(1e-9, 800) == 1
    images, sampler = image_table([800] * 100, [800] * 100), error_guided(interval=128, batch_rays=4096)
    state = jax.eval_shape(lambda: sampler.init(images))
    assert state.estimate.shape == (100, 29, 29)
