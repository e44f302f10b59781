"""One suite for every pixel sampler: a new member adds a row to ROWS."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.pixels import PIXELS, image_table

ROWS = {
    "uniform": ("uniform", dict()),
    "uniform-replacement": ("uniform", dict(replacement=True)),
}
each_row = pytest.mark.parametrize("name", ROWS)
MIXED = ([5, 3, 1, 8], [4, 7, 1, 2])


def make(name):
    member, options = ROWS[name]
    return PIXELS[member](**options)


def selector(sampler, images, size):
    """Compiled ``select`` with the initial state."""
    state = sampler.init(images)
    return jax.jit(lambda key, step: sampler.select(key, state, images, step=step, size=size))


def step_of(number: int):
    return jnp.asarray(number, jnp.int32)


def test_every_member_has_a_row():
    assert {member for member, _ in ROWS.values()} == set(PIXELS)


@each_row
@pytest.mark.parametrize("sizes", [MIXED, ([1], [1]), ([640], [480]), ([4096] * 300, [4096] * 300)])
def test_pixels_lie_inside_their_images(name, sizes):
    images = image_table(*sizes)
    batch = selector(make(name), images, 257)(jax.random.key(0), step_of(3))
    image = np.asarray(batch.image)
    assert np.all((image >= 0) & (image < len(sizes[0])))
    assert np.all((batch.row >= 0) & (batch.row < np.asarray(sizes[1])[image]))
    assert np.all((batch.column >= 0) & (batch.column < np.asarray(sizes[0])[image]))
    assert {leaf.dtype for leaf in (batch.image, batch.row, batch.column)} == {np.dtype(np.int32)}


@each_row
def test_weights_average_to_one(name):
    batch = selector(make(name), image_table(*MIXED), 64)(jax.random.key(0), step_of(0))
    assert batch.weight.shape == (64,)
    np.testing.assert_allclose(np.mean(batch.weight), 1.0, rtol=1e-6)


@each_row
def test_same_key_and_step_give_the_same_batch_and_others_another(name):
    select = selector(make(name), image_table([40], [30]), 32)
    batches = [
        np.stack(jax.tree.leaves(select(jax.random.key(seed), step_of(step))))
        for seed, step in ((0, 5), (0, 5), (0, 6), (1, 5))
    ]
    np.testing.assert_array_equal(batches[0], batches[1])
    assert not np.array_equal(batches[0], batches[2]) and not np.array_equal(batches[0], batches[3])


@each_row
def test_second_call_does_not_recompile(name):
    select = selector(make(name), image_table(*MIXED), 8)
    for seed in range(3):
        select(jax.random.key(seed), step_of(seed))
    assert select._cache_size() == 1


@each_row
def test_every_pixel_has_the_same_chance(name):
    """Chi-square of the counts over many batches, against the count expected (z below 5)."""
    widths, heights = MIXED
    images, size, steps = image_table(widths, heights), 64, 400
    select = make(name).select
    state = make(name).init(images)
    batches = jax.jit(jax.vmap(lambda step: select(jax.random.key(0), state, images, step=step, size=size)))(
        jnp.arange(steps, dtype=jnp.int32)
    )
    starts = np.cumsum([0, *np.multiply(widths, heights)])
    flat = starts[np.asarray(batches.image)] + np.asarray(batches.row) * np.asarray(widths)[batches.image]
    counts = np.bincount((flat + batches.column).ravel(), minlength=starts[-1])
    expected = size * steps / starts[-1]
    chi_square = np.sum((counts - expected) ** 2 / expected)
    assert (chi_square - (starts[-1] - 1)) / np.sqrt(2 * (starts[-1] - 1)) < 5
    assert np.min(counts) > 0


@each_row
def test_observation_keeps_the_state_usable(name):
    sampler, images = make(name), image_table(*MIXED)
    state = sampler.init(images)
    batch = selector(sampler, images, 16)(jax.random.key(0), step_of(0))
    after = sampler.observe(state, batch, jnp.ones((16,), jnp.float32))
    assert jax.tree.structure(after) == jax.tree.structure(state)
    select = lambda key, step: sampler.select(key, after, images, step=step, size=16)  # noqa: E731
    assert jax.eval_shape(select, jax.random.key(0), step_of(1)).image.shape == (16,)


@each_row
def test_works_under_strict_promotion(name):
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        batch = jax.eval_shape(selector(make(name), image_table(*MIXED), 16), jax.random.key(0), step_of(0))
    assert {leaf.shape for leaf in jax.tree.leaves(batch)} == {(16,)}
