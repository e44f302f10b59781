"""What intervals become for a field, against Monte Carlo over the pixel's cone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.geometry.casting import cast, cast_balls, cast_gaussians, cast_multisamples, frustum_moments
from nerfjax.types import Gaussians, Intervals, Multisamples, PackedIntervals, Points, Rays


def one_ray(direction, footprint=0.1):
    direction = np.asarray(direction, np.float32) / np.linalg.norm(direction)
    full = np.ones(1, np.float32)
    return Rays(
        jnp.asarray([[0.3, -0.2, 0.5]]), jnp.asarray(direction[None]), 0.1 * full, 10 * full, footprint * full,
        jnp.zeros(1, jnp.int32), jnp.zeros(1, jnp.int32),
    )  # fmt: skip


def dense(edges):
    edges = jnp.asarray([edges], jnp.float32)
    return Intervals(t=edges, s=edges / 10.0)


def frustum_points(rays, t0, t1, count=400_000, seed=0):
    """Points drawn uniformly from a frustum."""
    rng = np.random.default_rng(seed)
    direction, origin = np.asarray(rays.directions[0], np.float64), np.asarray(rays.origins[0], np.float64)
    t = (t0**3 + rng.random(count) * (t1**3 - t0**3)) ** (1 / 3)  # the cross section grows with t^2
    radius = float(rays.footprint[0]) * t * np.sqrt(rng.random(count))
    angle = 2 * np.pi * rng.random(count)
    first = np.cross(direction, [0.6, 0.8, 0.0] if abs(direction[2]) > 0.5 else [0.0, 0.0, 1.0])
    first /= np.linalg.norm(first)
    second = np.cross(direction, first)
    across = radius[:, None] * (np.cos(angle)[:, None] * first + np.sin(angle)[:, None] * second)
    return origin + t[:, None] * direction + across


@pytest.mark.parametrize("direction", [(0, 0, -1), (0, 0, 1), (0.3, -0.9, 0.2)])
@pytest.mark.parametrize(("t0", "t1"), [(1.0, 2.0), (0.0, 1.0), (4.0, 4.2)])
def test_the_gaussian_has_the_moments_of_the_frustum(direction, t0, t1):
    rays = one_ray(direction)
    cast_to = jax.jit(cast_gaussians)(rays, dense([t0, t1]))
    points = frustum_points(rays, t0, t1)
    np.testing.assert_allclose(cast_to.means[0, 0], points.mean(0), atol=2e-3 * t1)
    np.testing.assert_allclose(cast_to.covariances[0, 0], np.cov(points.T), atol=3e-3 * t1**2 * (t1 - t0))


@pytest.mark.parametrize("key", [None, 3])
def test_six_multisamples_have_the_moments_of_the_frustum(key):
    rays, intervals = one_ray((0.3, -0.9, 0.2)), dense([1.0, 1.7, 2.0])
    samples = jax.jit(cast_multisamples)(None if key is None else jax.random.key(key), rays, intervals)
    for i, (t0, t1) in enumerate([(1.0, 1.7), (1.7, 2.0)]):
        points, positions = frustum_points(rays, t0, t1), np.asarray(samples.positions[0, i])
        np.testing.assert_allclose(positions.mean(0), points.mean(0), atol=2e-3)
        # Zip-NeRF's placement matches the covariance of the points themselves; each one's own spread comes on top.
        np.testing.assert_allclose(np.cov(positions.T, bias=True), np.cov(points.T), atol=2e-3)


def test_moments_are_finite_and_true_far_away_and_in_thin_intervals():
    t0 = jnp.asarray([0.0, 1e6, 1e6, 3.0, 0.0], jnp.float32)
    t1 = jnp.asarray([0.0, 1e6, 2e6, 3.0 + 1e-6, 1e-8], jnp.float32)
    footprint = jnp.full(5, 1e-3)
    for values in (frustum_moments(t0, t1, footprint), jax.vmap(jax.grad(lambda *a: sum(frustum_moments(*a))))(
        t0, t1, footprint)):  # fmt: skip
        for value in values if isinstance(values, tuple) else (values,):
            assert bool(jnp.all(jnp.isfinite(value)))
    mean, along, across = frustum_moments(t0, t1, footprint)
    np.testing.assert_allclose(mean[2], 1.607142857e6, rtol=1e-6)  # the integral of t^3 over that of t^2
    np.testing.assert_allclose(along[1], 0.0)
    np.testing.assert_allclose(across[1], (1e-3 * 1e6) ** 2 / 4, rtol=1e-6)


@pytest.mark.parametrize("kind", ["point", "gaussian", "multisample"])
def test_packed_intervals_are_cast_as_dense_ones(kind):
    rays, intervals = one_ray((0.1, 0.2, -1.0)), dense([1.0, 1.5, 2.5])
    packed = PackedIntervals(
        t0=jnp.asarray([1.0, 1.5, 0.0]), t1=jnp.asarray([1.5, 2.5, 0.0]), ray=jnp.asarray([0, 0, 1], jnp.int32),
        start=jnp.zeros(1, jnp.int32), count=jnp.full(1, 2, jnp.int32), overflow=jnp.int32(0),
    )  # fmt: skip
    one, other = jax.jit(lambda rays, *both: [cast(kind, None, rays, of) for of in both])(rays, intervals, packed)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(a)[0], np.asarray(b)[:2], rtol=1e-5, atol=1e-6)
        assert bool(jnp.all(jnp.isfinite(b)))


def test_a_ray_s_pattern_depends_on_its_place_in_the_global_batch_alone():
    rays = jax.tree.map(lambda leaf: jnp.repeat(leaf, 3, axis=0), one_ray((0.1, 0.2, -1.0)))
    rays = rays.replace(index=jnp.asarray([5, 6, 7], jnp.int32))
    intervals = jax.tree.map(lambda leaf: jnp.repeat(leaf, 3, axis=0), dense([1.0, 2.0]))
    key = jax.random.key(0)
    together = cast("multisample", key, rays, intervals).positions
    alone = cast(
        "multisample", key, jax.tree.map(lambda leaf: leaf[1:2], rays), jax.tree.map(lambda leaf: leaf[1:2], intervals)
    )
    np.testing.assert_array_equal(together[1:2], alone.positions)
    assert not np.allclose(together[0], together[1])


def test_balls_and_kinds():
    positions, radii = jnp.zeros((4, 3)), jnp.full((4,), 2.0)
    assert isinstance(cast_balls("point", positions, radii), Points)
    gaussian, samples = cast_balls("gaussian", positions, radii), cast_balls("multisample", positions, radii)
    assert isinstance(gaussian, Gaussians) and isinstance(samples, Multisamples)
    np.testing.assert_allclose(gaussian.covariances[0], 0.8 * np.eye(3), rtol=1e-6)
    np.testing.assert_allclose(samples.deviations**2, 0.8, rtol=1e-6)
    with pytest.raises(UserError, match="point_kind"):
        cast("cube", None, one_ray((0, 0, 1)), dense([1.0, 2.0]))
