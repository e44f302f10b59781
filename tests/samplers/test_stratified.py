"""Spacings, exactness and the place of evaluation of stratified sampling."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.geometry.rays import cast_points
from nerfjax.geometry.warps import SPACINGS, s_from_t
from nerfjax.samplers import SamplerState, stratified
from nerfjax.types import Rays

SPACING_NAMES = ("linear", "disparity", "log", "sqrt", "piecewise", "power")


def make_rays(count: int, near=0.5, far=6.0) -> Rays:
    full = jnp.ones((count,), jnp.float32)
    direction = jnp.asarray([2 / 3, -1 / 3, 2 / 3], jnp.float32)
    return Rays(
        origins=jnp.ones((count, 3), jnp.float32), directions=jnp.broadcast_to(direction, (count, 3)),
        near=near * full, far=far * full, footprint=1e-3 * full,
        camera_index=jnp.zeros((count,), jnp.int32), index=jnp.arange(count, dtype=jnp.int32),
    )  # fmt: skip


def run(sampler, rays, key=0):
    state = SamplerState(params={}, aux={})
    unused = lambda rays, intervals, *, level: None  # noqa: E731
    sample = jax.jit(lambda key, rays: sampler.sample(key, state, rays, unused, step=0)[0])
    return sample(jax.random.key(key), rays)


def test_the_spacings_are_all_there():
    assert set(SPACING_NAMES) <= set(SPACINGS)


@pytest.mark.parametrize("spacing", SPACING_NAMES)
@pytest.mark.parametrize("jitter", ["stratum", "single"])
def test_optical_depth_is_unbiased_whatever_the_spacing(spacing, jitter):
    """sigma(t) = 1 / t, whose optical depth is log(far / near)."""
    intervals = run(stratified(num_samples=3, spacing=spacing, jitter=jitter), make_rays(16384))
    estimates = np.asarray(jnp.sum(intervals.t_delta / intervals.t_eval, axis=-1), np.float64)
    standard_error = estimates.std() / np.sqrt(len(estimates))
    assert abs(estimates.mean() - np.log(6.0 / 0.5)) < 4.5 * standard_error
    assert standard_error < 0.01


@pytest.mark.parametrize("spacing", SPACING_NAMES)
@pytest.mark.parametrize("randomize", ["points", "edges"])
@pytest.mark.parametrize("near, far", [(0.5, 6.0), (1e-3, 1e9)])
def test_edges_are_sorted_and_inside_over_huge_ranges(spacing, randomize, near, far):
    intervals = run(stratified(num_samples=64, spacing=spacing, randomize=randomize), make_rays(32, near, far))
    assert np.all(np.diff(intervals.t) >= 0)
    assert np.all(intervals.t >= np.float32(near)) and np.all(intervals.t <= np.float32(far))
    np.testing.assert_array_equal(intervals.t[:, 0], np.float32(near))
    np.testing.assert_array_equal(intervals.t[:, -1], np.float32(far))
    assert np.all((intervals.t_eval >= intervals.t[:, :-1]) & (intervals.t_eval <= intervals.t[:, 1:]))


@pytest.mark.parametrize("spacing", SPACING_NAMES)
def test_t_and_s_name_the_same_edges(spacing):
    rays = make_rays(4)
    intervals = run(stratified(num_samples=16, spacing=spacing, randomize="edges"), rays)
    np.testing.assert_allclose(s_from_t(spacing, intervals.t, rays.near, rays.far), intervals.s, atol=2e-6)


def test_points_keep_the_strata_and_fill_them_uniformly():
    intervals = run(stratified(num_samples=4), make_rays(4096))
    np.testing.assert_allclose(intervals.s, np.broadcast_to(np.linspace(0, 1, 5), (4096, 5)), atol=1e-7)
    inside = np.asarray((intervals.t_eval - intervals.t[:, :-1]) / intervals.t_delta, np.float64)
    # Mean 1/2 and variance 1/12 of a uniform distribution, in standard errors.
    assert np.all(np.abs(inside.mean(axis=0) - 0.5) < 4.5 * np.sqrt(1 / 12 / 4096))
    assert np.all(np.abs(inside.var(axis=0) - 1 / 12) < 4.5 * np.sqrt(1 / 180 / 4096))


def test_moving_edges_stay_within_half_a_stratum_and_cover_it():
    s = np.asarray(run(stratified(num_samples=5, randomize="edges"), make_rays(4096)).s)
    shift = (s[:, 1:-1] - np.arange(1, 5) / 5) * 5
    assert np.all(np.abs(shift) <= 0.5 + 1e-5)
    assert np.all(shift.min(axis=0) < -0.49) and np.all(shift.max(axis=0) > 0.49)


@pytest.mark.parametrize("randomize", ["points", "edges"])
def test_single_jitter_is_one_number_per_ray(randomize):
    intervals = run(stratified(num_samples=6, jitter="single", randomize=randomize), make_rays(64))
    spread = np.diff(intervals.t_eval if randomize == "points" else intervals.t[:, 1:-1], axis=-1)
    np.testing.assert_allclose(spread, 5.5 / 6, rtol=1e-5)
    assert np.std(np.asarray(intervals.t_eval[:, 2])) > 0.1


def test_deterministic_points_are_midpoints():
    intervals = run(stratified(num_samples=3, deterministic=True), make_rays(2))
    assert intervals.t_point is None
    np.testing.assert_array_equal(intervals.t_eval, intervals.t_mid)


@pytest.mark.parametrize("randomize", ["points", "edges"])
def test_fields_are_cast_where_the_sampler_says(randomize):
    rays = make_rays(3)
    intervals = run(stratified(num_samples=4, randomize=randomize), rays)
    points = cast_points(rays, intervals)
    expected = np.asarray(rays.origins)[:, None] + np.asarray(intervals.t_eval)[..., None] * rays.directions[:, None]
    np.testing.assert_allclose(points.positions, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "options, word",
    [
        (dict(num_samples=0), "num_samples"),
        (dict(spacing="linaer"), "linear"),
        (dict(jitter="strata"), "stratum"),
        (dict(randomize="point"), "points"),
    ],
)
def test_wrong_options_are_refused_with_help(options, word):
    with pytest.raises(UserError, match=word):
        stratified(**options)
