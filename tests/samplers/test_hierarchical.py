"""Where the fine intervals of hierarchical sampling go."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.samplers import SamplerState, hierarchical
from nerfjax.types import Rays


def make_rays(count: int) -> Rays:
    full = jnp.ones((count,), jnp.float32)
    return Rays(
        origins=jnp.zeros((count, 3)), directions=jnp.broadcast_to(jnp.asarray([0.0, 0.0, 1.0]), (count, 3)),
        near=2 * full, far=6 * full, footprint=1e-3 * full,
        camera_index=jnp.zeros((count,), jnp.int32), index=jnp.arange(count, dtype=jnp.int32),
    )  # fmt: skip


def run(sampler, density, count=16, step=0):
    state = SamplerState(params={}, aux={})

    def sample(rays):
        field = lambda rays, intervals, *, level: density(intervals.t_eval)  # noqa: E731
        return sampler.sample(jax.random.key(0), state, rays, field, step=step)

    return jax.jit(sample)(make_rays(count))


def wall(t):
    """A wall from 4.25 to 4.5: one of sixteen coarse intervals of [2, 6]."""
    return jnp.where((t > 4.25) & (t < 4.5), 30.0, 0.0)


def test_union_holds_every_coarse_edge():
    fine, info = run(hierarchical(num_coarse=16, num_fine=24, randomize="edges"), wall)
    assert fine.count == 40
    for fine_edges, coarse_edges in zip(np.asarray(fine.s), np.asarray(info.levels[0].intervals.s), strict=True):
        assert set(coarse_edges) <= set(fine_edges)


@pytest.mark.parametrize("reuse", [True, False])
def test_fine_edges_crowd_where_the_weight_is(reuse):
    fine, _ = run(hierarchical(num_coarse=16, num_fine=32, reuse_coarse=reuse), wall)
    inside = np.sum((fine.t > 4.25) & (fine.t < 4.5), axis=-1)
    assert np.all(inside >= 30)
    assert fine.count == (48 if reuse else 32)


def test_drawn_edges_follow_the_coarse_weights():
    """Counts per coarse interval against the padded weights, in standard errors over many rays."""
    options = dict(num_coarse=4, num_fine=9, reuse_coarse=False, padding=0.05, jitter="single")
    sampler = hierarchical(randomize="points", **options)
    fine, info = run(sampler, lambda t: 0.2 + 0.1 * t, 4096)
    weights = np.asarray(info.levels[0].weights, np.float64) + 0.05
    expected = 8 * weights / weights.sum(axis=-1, keepdims=True)
    coarse, drawn = np.asarray(info.levels[0].intervals.s), np.asarray(fine.s[:, 1:-1])
    below = np.sum(drawn[:, :, None] < coarse[:, None, :], axis=1)
    excess = np.diff(below, axis=-1) - expected
    assert np.all(np.abs(excess.mean(axis=0)) < 4.5 * excess.std(axis=0) / np.sqrt(len(excess)) + 1e-9)
    assert expected.mean(axis=0).max() > 1.3 * expected.mean(axis=0).min()


@pytest.mark.parametrize("reuse", [True, False])
def test_an_empty_ray_is_sampled_evenly(reuse):
    sampler = hierarchical(num_coarse=8, num_fine=16, reuse_coarse=reuse, deterministic=True)
    fine, _ = run(sampler, jnp.zeros_like)
    assert np.max(np.diff(fine.s)) < 1.01 / 8
    assert np.all(np.isfinite(fine.t))


def test_coarse_loss_is_an_option():
    for wanted in (True, False):
        _, info = run(hierarchical(num_coarse=4, num_fine=4, coarse_loss=wanted), wall)
        assert [level.supervise_color for level in info.levels] == [wanted]


def test_blur_reaches_the_neighbours_of_a_thin_wall():
    thin = lambda t: jnp.where((t > 4.0) & (t < 4.25), 1e3, 0.0)  # noqa: E731
    spread = {}
    for blur in (True, False):
        sampler = hierarchical(num_coarse=16, num_fine=64, reuse_coarse=False, blur=blur, deterministic=True)
        fine, _ = run(sampler, thin, 1)
        spread[blur] = np.sum((fine.t > 3.75) & (fine.t < 4.0))
    assert spread[True] > 8 and spread[False] <= 1


def test_dilation_reaches_beyond_a_thin_wall():
    thin = lambda t: jnp.where((t > 4.0) & (t < 4.25), 1e3, 0.0)  # noqa: E731
    spread = {}
    for multiplier in (0.0, 1.0):  # of one coarse interval
        sampler = hierarchical(
            num_coarse=16, num_fine=60, reuse_coarse=False, dilation_multiplier=multiplier, deterministic=True
        )
        fine, _ = run(sampler, thin, 1)
        spread[multiplier] = [np.sum((fine.t > a) & (fine.t < a + 0.25)) for a in (3.5, 3.75, 4.0, 4.25, 4.5)]
    assert spread[0.0][2] > 55
    assert all(abs(count - 20) <= 2 for count in spread[1.0][1:4]) and max(spread[1.0][::4]) <= 1


@pytest.mark.parametrize("reuse", [True, False])
def test_annealing_starts_even_and_ends_with_the_weights(reuse):
    options = dict(num_coarse=16, num_fine=32, reuse_coarse=reuse, deterministic=True)
    crowd = []
    for step in (0, 1, 100, 5000):
        fine, _ = run(hierarchical(anneal_steps=100, **options), wall, 1, step=step)
        crowd.append(np.sum((fine.t > 4.25) & (fine.t < 4.5)))
    assert crowd[0] <= 3 < crowd[1] <= crowd[2] and crowd[2] == crowd[3] >= 30
    np.testing.assert_array_equal(fine.t, run(hierarchical(**options), wall, 1)[0].t)


def test_one_fine_interval_is_the_whole_ray():
    fine, info = run(hierarchical(num_coarse=4, num_fine=1, reuse_coarse=False), wall)
    np.testing.assert_array_equal(fine.s, np.broadcast_to([0.0, 1.0], (16, 2)))
    assert float(info.evaluations) == 5


@pytest.mark.parametrize(
    "options",
    [
        dict(num_coarse=0),
        dict(num_fine=0),
        dict(padding=0.0),
        dict(spacing="no"),
        dict(dilation_bias=-0.1),
        dict(anneal_steps=-1),
    ],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(UserError, match=next(iter(options))):
        hierarchical(**options)
