"""Patches: whole, inside their image, and fair to its border."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.pixels import image_table, patches


def draw(widths, heights, rays, steps, **options):
    images, sampler = image_table(widths, heights), patches(**options)
    select = lambda step: sampler.select(jax.random.key(1), {}, images, step=step, size=rays)  # noqa: E731
    batch = jax.jit(lambda: jax.lax.map(select, jnp.arange(steps, dtype=jnp.int32)))()
    return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1), batch)


@pytest.mark.parametrize(("side", "dilation"), [(4, 1), (3, 3)])
def test_patches_are_whole_and_inside(side, dilation):
    batch = draw([40, 23], [17, 60], 3 * side**2, 200, size=side, dilation=dilation)
    image, row, column = (leaf.reshape(-1, side, side) for leaf in (batch.image, batch.row, batch.column))
    assert np.all(image == image[:, :1, :1])
    step = dilation * np.arange(side)
    np.testing.assert_array_equal(row - row[:, :1, :1], np.broadcast_to(step[:, None], row.shape))
    np.testing.assert_array_equal(column - column[:, :1, :1], np.broadcast_to(step, column.shape))
    assert np.max(column[image == 1]) <= 22 and np.max(row[image == 0]) <= 16


def test_few_rays_are_spent_on_the_border():
    batch = draw([200], [200], 32**2, 50, size=32)
    extra = (200 + 31) / 200
    np.testing.assert_allclose(np.unique(batch.weight), [0.0, extra**2], rtol=1e-6)
    assert np.mean(batch.weight > 0) == pytest.approx(1 / extra**2, abs=0.03)


@pytest.mark.parametrize("width", [1, 2, 5, 6, 9])
def test_coverage_of_a_row_is_exact(width):
    """All places of a patch of 3 by dilation 2 in a row: each pixel is covered equally often, inside or not."""
    batch = draw([width], [1], 9 * 50, 400, size=3, dilation=2)
    kept = batch.weight > 0
    chance = np.bincount(batch.column, batch.weight, width) / len(kept)
    np.testing.assert_allclose(chance, 1 / width, rtol=0.1)


def test_the_rest_of_a_batch_is_single_pixels():
    batch = draw([6], [6], 16 + 7, 2000, size=4)
    rest = np.arange(23) >= 16
    weight, pixel = batch.weight.reshape(-1, 23), (batch.row * 6 + batch.column).reshape(-1, 23)
    assert np.all(weight[:, rest] == 1.0)
    counts = np.bincount(pixel[:, rest].ravel(), minlength=36)
    assert np.max(np.abs(counts - counts.mean()) / np.sqrt(counts.mean())) < 5


@pytest.mark.parametrize("options", [dict(size=0), dict(dilation=0)])
def test_impossible_patches_are_refused(options):
    with pytest.raises(UserError, match="positive"):
        patches(**options)
