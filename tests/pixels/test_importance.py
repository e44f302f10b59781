"""Draws by density: exact probabilities, sound weights, masks, and the members that prefer what maps show."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.pixels import PixelContent, edges, foreground, image_table, masked
from nerfjax.pixels.importance import cell_of, cell_table, draw_cells, mixture, resample_cells, weight_of

SIZES = ([12, 30], [20, 10])


def draws_of(density, sizes=SIZES, size=4096, steps=64):
    images = image_table(*sizes)

    @jax.jit
    def run(density):
        table = cell_table(images, density)
        one = lambda key: (lambda d: (d, weight_of(table, d)))(draw_cells(key, table, images, size))  # noqa: E731
        return jax.lax.map(one, jax.random.split(jax.random.key(0), steps))

    draws, weight = jax.tree.map(lambda leaf: np.asarray(leaf).ravel(), run(jnp.asarray(density, jnp.float32)))
    return draws, weight


def test_cells_are_drawn_with_the_probability_that_their_weights_say():
    density = np.random.default_rng(0).uniform(0.1, 1, (2, 5, 4)) ** 2
    density[0, 1] = 0  # a whole row
    density[1, 2, 3] = 0
    density[1, 0, 0] = 5.0
    draws, weight = draws_of(density)
    cell = [cell_of(jnp.asarray(p), n, jnp.asarray(length)) for p, n, length in (
        (draws.row, 5, np.array(SIZES[1], np.int32)[draws.image]),
        (draws.column, 4, np.array(SIZES[0], np.int32)[draws.image]),
    )]  # fmt: skip
    # Rows of 20 and 10 pixels over 5 cells, columns of 12 over 4: pixels do not straddle cells there (30 over 4 do).
    first = draws.image == 0
    counts = np.zeros(density.shape)
    np.add.at(counts, (draws.image, np.asarray(cell[0]), np.asarray(cell[1])), 1.0)
    mass = density * np.multiply(*SIZES)[:, None, None]
    expected = mass / mass.sum() * len(weight)
    z = (counts - expected)[0] / np.sqrt(np.maximum(expected[0], 1e-9))
    assert np.max(np.abs(z)) < 5 and np.all(counts[0][density[0] == 0] == 0)
    total = np.sum(np.where(density > 0, 1, 0) * np.multiply(*SIZES)[:, None, None])
    own = np.where(density[0] > 0, (1 / total) / np.maximum(density / mass.sum(), 1e-12)[0], np.nan)
    np.testing.assert_allclose(weight[first], own[np.asarray(cell[0])[first], np.asarray(cell[1])[first]], rtol=1e-4)
    assert np.mean(weight) == pytest.approx(1.0, abs=0.02)


def test_a_density_of_zeros_stands_for_uniform_draws():
    draws, weight = draws_of(np.zeros((2, 3, 3)), steps=4)
    np.testing.assert_allclose(weight, 1.0, rtol=1e-6)
    assert np.mean(draws.image) == pytest.approx(300 / 540, abs=0.02)


def test_no_mass_is_lost_among_a_million_cells():
    """A tiny cell beside huge ones keeps its chance, and so its huge weight stays fair."""
    density = np.ones((4, 64, 64), np.float32)
    density[0, 0, 0] = 1e-6
    table = cell_table(image_table([64] * 4, [64] * 4), jnp.asarray(density))
    assert np.all(np.diff(table.column, axis=-1, prepend=0) > 0)
    assert int(table.column[..., -1].max()) < 2**31 - 1


def test_any_part_of_the_lanes_is_fair():
    draws, _ = draws_of(np.ones((2, 1, 1)), size=64, steps=3000)
    lanes = draws.image.reshape(-1, 64)
    np.testing.assert_allclose(np.mean(lanes, axis=0), 300 / 540, atol=0.05)
    assert np.std(np.mean(lanes[:, :16], axis=1)) < 0.5 * np.sqrt(0.25 / 16)


def test_a_mixture_bounds_the_weights():
    images = image_table(*SIZES)
    guide = jnp.asarray(np.random.default_rng(1).exponential(1.0, (2, 6, 6)) ** 3, jnp.float32)
    eligible = jnp.asarray(np.random.default_rng(2).uniform(0, 1, (2, 6, 6)) > 0.3)
    density = np.asarray(mixture(images, eligible, guide, 0.75))
    inside = np.asarray(eligible)
    assert np.all(density[inside] >= 0.25) and np.all(density[~inside] == 0)
    area = np.broadcast_to(np.multiply(*SIZES)[:, None, None], density.shape)
    assert np.average(density[inside], weights=area[inside]) == pytest.approx(1.0, rel=1e-5)
    np.testing.assert_allclose(mixture(images, eligible, jnp.zeros_like(guide), 0.75), inside)


@pytest.mark.parametrize("shape", [(8, 8), (3, 5), (16, 24), (1, 1)])
def test_cells_hold_the_means_of_what_they_overlap(shape):
    values = np.random.default_rng(0).uniform(0, 1, (2, 8, 12))
    cells = resample_cells(values, *shape)
    fine = np.kron(values, np.ones((1, shape[0] * 3, shape[1] * 2)))  # a multiple of both grids
    height, width = fine.shape[1:]
    exact = fine.reshape(2, shape[0], height // shape[0], shape[1], width // shape[1]).mean(axis=(2, 4))
    np.testing.assert_allclose(cells, exact, rtol=1e-5)


def half_masked():
    """Valid in the left half of both images, with a fourth of a cell's column at the border."""
    valid = np.zeros((2, 8, 8), np.float32)
    valid[..., :4], valid[..., 4] = 1.0, 0.25
    return valid


@pytest.mark.parametrize("member", [masked, foreground, edges])
def test_masked_cells_are_never_drawn_and_the_loss_is_that_of_valid_pixels(member):
    guide = np.random.default_rng(0).uniform(0, 1, (2, 8, 8)).astype(np.float32) ** 2
    maps = {"valid": half_masked(), "foreground": guide, "edges": guide}
    images, sampler = image_table(*SIZES), member()

    @jax.jit
    def run():
        state = sampler.init(images, PixelContent(None, maps))
        steps = jnp.arange(100, dtype=jnp.int32)
        return jax.lax.map(lambda s: sampler.select(jax.random.key(0), state, images, step=s, size=1024), steps)

    batch = jax.tree.map(lambda leaf: np.asarray(leaf).ravel(), run())
    x = (batch.column + 0.5) / np.array(SIZES[0])[batch.image]
    assert np.max(x) < 5 / 8 + 0.5 / 12
    assert np.mean(batch.weight) == pytest.approx(1.0, abs=0.01)
    # As the training step does: masked pixels lose their weight, and the others make up for it.
    valid, error = x < 0.53, np.exp(-((x - 0.3) ** 2) / 0.01) + batch.image
    loss = np.sum(batch.weight * valid * error) / np.sum(batch.weight * valid)
    centers = [(np.arange(width) + 0.5) / width for width in SIZES[0]]
    exact = [np.mean((np.exp(-((c - 0.3) ** 2) / 0.01) + i)[c < 0.53]) for i, c in enumerate(centers)]
    pixels = [np.sum(c < 0.53) * height for c, height in zip(centers, SIZES[1], strict=True)]
    assert loss == pytest.approx(np.average(exact, weights=pixels), rel=0.01)


def test_foreground_is_preferred_and_may_be_all():
    opacity = np.zeros((1, 8, 8), np.float32)
    opacity[:, 2:4, 2:4] = 1.0
    images, content = image_table([64], [64]), PixelContent(None, {"foreground": opacity})
    share = {}
    for options in (dict(), dict(share=1.0, unbiased=False)):
        sampler = foreground(**options)

        @jax.jit
        def draw(step, sampler=sampler):
            return sampler.select(jax.random.key(0), sampler.init(images, content), images, step=step, size=8192)

        batch = draw(jnp.int32(0))
        inside = (batch.row // 16 == 1) & (batch.column // 16 == 1)
        share[len(options)] = float(jnp.mean(inside))
        if not options:
            assert float(jnp.mean(batch.weight * inside)) == pytest.approx(1 / 16, abs=0.005)
            assert float(jnp.max(batch.weight)) <= 2.0 + 1e-5
    assert share[0] == pytest.approx(0.5 + 0.5 / 16, abs=0.02)
    assert share[2] == 1.0


@pytest.mark.parametrize("options", [dict(share=1.0), dict(share=-0.1), dict(share=1.1, unbiased=False)])
def test_shares_without_sound_weights_are_refused(options):
    with pytest.raises(UserError, match="share"):
        edges(**options)
