"""Rounds of growing sharpness: where the points go, what is evaluated, and the formulas against the paper's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.samplers import SamplerState, neus
from nerfjax.samplers.neus import section_weights, sharpened_opacity
from nerfjax.types import Rays

QUICK = {"xla_backend_optimization_level": 0}  # halves the time to compile


def make_rays(count: int = 4) -> Rays:
    full = jnp.ones((count,), jnp.float32)
    return Rays(
        origins=jnp.zeros((count, 3)), directions=jnp.broadcast_to(jnp.asarray([0.0, 0.0, 1.0]), (count, 3)),
        near=2 * full, far=6 * full, footprint=1e-3 * full,
        camera_index=jnp.zeros((count,), jnp.int32), index=jnp.arange(count, dtype=jnp.int32),
    )  # fmt: skip


def soft_wall(t):
    """A density that rises through a surface at t = 4.2 as a signed distance of slope 20 would have it."""
    return 40.0 * jax.nn.sigmoid(20.0 * (t - 4.2))


def run(sampler, density=soft_wall, seed: int = 0):
    seen = []

    def field(rays, intervals, *, level):
        seen.append((intervals, level))
        return density(intervals.t_eval)

    def sample(rays):
        seen.clear()
        intervals, info = sampler.sample(jax.random.key(seed), SamplerState({}, {}), rays, field, step=0)
        return intervals, info, [part.t_eval for part, _ in seen], [part.t for part, _ in seen]

    intervals, info, points, edges = jax.jit(sample, compiler_options=QUICK)(make_rays())
    return intervals, info, points, edges


def test_sharpening_is_a_sigmoid_of_the_opacity():
    x = jnp.asarray([0.0, 1e-6, 0.1, np.log(2), 1.0, 3.0, 1e3, 3e38])
    np.testing.assert_allclose(sharpened_opacity(x, 1.0), 1 - np.exp(-np.asarray(x, np.float64)), rtol=1e-5, atol=1e-29)
    np.testing.assert_allclose(sharpened_opacity(x, 8.0)[3], 0.5, rtol=1e-5)
    sharp = np.asarray(sharpened_opacity(x, 8.0))
    assert np.all(np.isfinite(sharp)) and sharp[2] < 1e-6 and sharp[5] > 1 - 1e-6


def test_sections_are_the_papers_where_a_ray_enters_a_surface():
    """alpha_i = max((Phi_i - Phi_{i+1}) / Phi_i, 0), Phi the sigmoid of the signed distance."""
    distance = np.linspace(1.0, -1.0, 24)
    phi = 1 / (1 + np.exp(-60 * distance))
    alpha = np.maximum((phi[:-1] - phi[1:]) / phi[:-1], 0)
    wanted = alpha * np.concatenate([[1.0], np.cumprod(1 - alpha)[:-1]])
    found = section_weights(jnp.asarray(1 - phi, jnp.float32)[None])[0]
    np.testing.assert_allclose(np.sum(found), np.sum(wanted), rtol=1e-3)
    assert np.argmax(found) == np.argmax(wanted) and np.max(np.abs(found - wanted)) < 0.1


def test_points_are_the_edges_and_each_is_evaluated_once():
    intervals, info, points, edges = run(neus(num_uniform=16, num_importance=16, num_rounds=4))
    assert [part.shape[1] for part in points] == [16, 4, 4, 4]
    assert intervals.count == 31 and float(info.evaluations) == 28 + 31 and info.levels == ()
    for ray in range(4):
        looked = np.concatenate([np.asarray(part)[ray] for part in points])
        assert len(np.unique(looked)) == 28
        assert np.all(np.isin(looked, np.asarray(intervals.t)[ray]))
    for part, cells in zip(points, edges, strict=True):  # each point lies in its cell
        assert np.all((part >= cells[:, :-1]) & (part <= cells[:, 1:]))


def test_points_close_in_on_the_surface_as_the_sharpness_grows():
    reach = {}
    for sharpness in (0.25, 1.0, 4.0):
        sampler = neus(num_uniform=16, num_importance=32, num_rounds=4, sharpness=sharpness, deterministic=True)
        intervals = run(sampler)[0]
        reach[sharpness] = np.mean(np.sum(np.abs(np.asarray(intervals.t) - 4.15) < 0.15, axis=-1))
    assert reach[1.0] >= 20 and reach[1.0] > reach[0.25]
    # Rounds after rounds: the fourth looks closer than the first.
    _, _, points, _ = run(neus(num_uniform=16, num_importance=32, num_rounds=4))
    first, last = (np.mean(np.abs(np.asarray(part) - 4.15)) for part in (points[1], points[3]))
    assert last < first


@pytest.mark.parametrize("density", [jnp.zeros_like, lambda t: 0 * t + 0.05, lambda t: 0 * t + 1e10])
def test_empty_fog_and_opaque_rays_are_sampled_all_the_same(density):
    intervals = run(neus(num_uniform=16, num_importance=16), density)[0]
    t = np.asarray(intervals.t)
    assert np.all(np.isfinite(t)) and np.all(np.diff(t) >= 0)
    np.testing.assert_array_equal(t[:, [0, -1]], np.broadcast_to([2.0, 6.0], (4, 2)))
    if float(density(jnp.ones(()))) < 1:
        assert np.max(np.diff(t)) < 0.6


def test_defaults_are_the_papers():
    sampler = neus()
    intervals, info = jax.eval_shape(
        lambda rays: sampler.sample(
            jax.random.key(0), SamplerState({}, {}), rays, lambda rays, part, *, level: soft_wall(part.t_eval), step=0
        ),
        make_rays(),
    )
    assert intervals.count == 127


@pytest.mark.parametrize(
    "options, word",
    [
        (dict(num_uniform=1), "num_uniform"),
        (dict(num_importance=30), "num_importance"),
        (dict(num_rounds=0), "num_rounds"),
        (dict(sharpness=0.0), "sharpness"),
        (dict(padding=0.0), "padding"),
    ],
)
def test_wrong_options_are_refused(options, word):
    with pytest.raises(UserError, match=word):
        neus(**options)
