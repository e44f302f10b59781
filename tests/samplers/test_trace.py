"""What ``trace`` keeps is what the sampler did, dense or packed, beside the exact weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.samplers import Sampler, SamplerState, hierarchical, stratified
from nerfjax.samplers.base import no_loss, no_refresh, stateless
from nerfjax.samplers.trace import trace
from nerfjax.types import PackedIntervals, Rays, SamplerInfo, zeros_int
from nerfjax.volume import packed_weights_from_density

DENSITY = 0.7
COUNTS = (3, 0, 5, 1)


def make_rays(count: int = len(COUNTS)) -> Rays:
    index = jnp.arange(count, dtype=jnp.int32)
    return Rays(
        origins=jnp.zeros((count, 3)), directions=jnp.broadcast_to(jnp.asarray([0.0, 0.0, -1.0]), (count, 3)),
        near=0.5 + 0.1 * index, far=3.0 + 0.2 * index, footprint=jnp.full((count,), 1e-3),
        camera_index=jnp.full((count,), -1, jnp.int32), index=index,
    )  # fmt: skip


def even_density(rays, intervals, *, level):
    del rays, level
    return jnp.full_like(intervals.t_mid, DENSITY)


def transmittance(rays: Rays):
    near = np.asarray(rays.near)[:, None]
    return lambda t: np.exp(-DENSITY * (t - near))


def ragged() -> Sampler:
    """Packs equal intervals with a gap before each, a different number on every ray, and two slots of padding."""

    def sample(key, state, rays, density_fn, *, step):
        pieces = [(n, i) for i, n in enumerate(COUNTS)]
        ray = jnp.asarray([i for n, i in pieces for _ in range(n)] + [len(COUNTS)] * 2, jnp.int32)
        lane = jnp.asarray([k for n, _ in pieces for k in range(n)] + [0] * 2, jnp.float32)
        t0 = jnp.where(ray < len(COUNTS), rays.near.at[ray].get(mode="clip") + 0.3 * lane + 0.1, 0.0)
        count = jnp.asarray(COUNTS, jnp.int32)
        packed = PackedIntervals(
            t0=t0, t1=jnp.where(ray < len(COUNTS), t0 + 0.2, 0.0), ray=ray,
            start=jnp.cumsum(count, dtype=jnp.int32) - count, count=count, overflow=zeros_int(),
        )  # fmt: skip
        evaluations = jnp.sum(count).astype(jnp.float32) / len(COUNTS)
        return packed, SamplerInfo((), evaluations, jnp.zeros(()), zeros_int(), rays.far)

    return Sampler(stateless, sample, no_refresh, no_loss)


@pytest.fixture(scope="module")
def two_levels():
    rays, sampler = make_rays(), hierarchical(num_coarse=4, num_fine=6)
    key, state = jax.random.key(3), SamplerState(params={}, aux={})
    record = trace(key, sampler, state, rays, even_density, step=5, transmittance=transmittance(rays)).numpy()
    return rays, sampler.sample(key, state, rays, even_density, step=5), record


def test_dense_levels_are_what_the_sampler_returned(two_levels):
    rays, (intervals, info), record = two_levels
    coarse, fine = record.levels
    np.testing.assert_allclose(fine.edges, intervals.t, rtol=1e-6)
    np.testing.assert_allclose(fine.t_point, intervals.t_eval, rtol=1e-6)
    np.testing.assert_allclose(coarse.weights, info.levels[0].weights, rtol=1e-6)
    assert coarse.main_field and record.final is fine
    assert record.evaluations == info.evaluations == coarse.count[0] + fine.count[0]
    np.testing.assert_array_equal(record.t_end, rays.far)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(record))


def test_exact_weights_are_differences_of_the_transmittance(two_levels):
    rays, _, record = two_levels
    for level in record.levels:
        np.testing.assert_allclose(level.exact_weights, level.weights, atol=1e-6)  # exact where the density is even
        through = np.exp(-DENSITY * np.asarray(rays.far - rays.near))
        np.testing.assert_allclose(level.exact_weights.sum(axis=-1), 1.0 - through, rtol=1e-5)


def test_packed_rays_become_rows():
    rays, sampler = make_rays(), ragged()
    key, state = jax.random.key(0), SamplerState(params={}, aux={})
    packed, _ = sampler.sample(key, state, rays, even_density, step=0)
    weights = packed_weights_from_density(jnp.full(packed.t0.shape, DENSITY), packed)
    level = trace(key, sampler, state, rays, even_density, transmittance=transmittance(rays)).numpy().final
    assert level.t0.shape == (len(COUNTS), max(COUNTS))
    np.testing.assert_array_equal(level.count, COUNTS)
    for i, count in enumerate(COUNTS):
        mine = np.asarray(packed.ray) == i
        np.testing.assert_array_equal(level.t0[i, :count], np.asarray(packed.t0)[mine])
        np.testing.assert_array_equal(level.t1[i, :count], np.asarray(packed.t1)[mine])
        np.testing.assert_array_equal(level.t_point[i, :count], np.asarray(packed.t_mid)[mine])
        np.testing.assert_allclose(level.weights[i, :count], np.asarray(weights)[mine], rtol=1e-6)
        begin, end = (transmittance(rays)(np.asarray(t, np.float64))[i] for t in (level.t0, level.t1))
        np.testing.assert_allclose(level.exact_weights[i, :count], (begin - end)[:count], rtol=1e-6)
        for values in (level.density, level.weights, level.exact_weights):
            assert not values[i, count:].any()
        assert (level.t0[i, count:] == level.t1[i, count:]).all()


def test_without_the_truth_there_are_no_exact_weights():
    rays, sampler = make_rays(), stratified(num_samples=3)
    record = trace(jax.random.key(0), sampler, SamplerState(params={}, aux={}), rays, even_density)
    assert record.final.exact_weights is None and len(record.levels) == 1
