"""Edges that respect gaps, against a slow reading of the same rule."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.samplers.gaps import EVEN, Stage, dense_edges, ladder, packed_edges

RAYS, STEPS = 300, 24


def random_stage(seed: int, share: float = 0.6) -> Stage:
    rng = np.random.default_rng(seed)
    s = np.sort(rng.random((RAYS, STEPS + 1)), axis=-1).astype(np.float32)
    s[:, 0], s[:, -1] = 0.0, 1.0
    empty = rng.random((RAYS, STEPS)) < share
    weights = np.where(empty, 0.0, 0.01 + rng.random((RAYS, STEPS))).astype(np.float32)
    return Stage(jnp.asarray(s), jnp.asarray(weights), jnp.asarray(empty))


def ends_of_gaps(empty: np.ndarray, count: int) -> list[int]:
    """Nodes at which a heeded gap begins or ends, inside the ray."""
    if empty.all():
        return []
    heeded, gaps = [], 0
    for k, nothing in enumerate(empty):
        gaps += nothing and (k == 0 or not empty[k - 1])
        heeded.append(nothing and gaps <= count // 4)
    return [k for k in range(1, len(heeded)) if heeded[k] != heeded[k - 1]]


def edges_of(stage: Stage, count: int, jitter=None) -> np.ndarray:
    rays = stage.s.shape[0]
    return np.asarray(dense_edges(ladder(stage, jnp.full(rays, count, jnp.int32)), count, jitter))


@pytest.mark.parametrize("count", [1, 2, 4, 9, 32])
def test_gaps_have_edges_at_their_ends(count):
    stage = random_stage(count)
    jitter = jnp.asarray(np.random.default_rng(0).random((RAYS, max(count - 1, 1))), jnp.float32)
    for edges in (edges_of(stage, count), edges_of(stage, count, jitter if count > 1 else None)):
        assert edges.shape == (RAYS, count + 1) and np.all(np.diff(edges) >= 0)
        np.testing.assert_array_equal(edges[:, [0, -1]], np.broadcast_to([0.0, 1.0], (RAYS, 2)))
        found = [
            np.all(np.isin(np.asarray(stage.s)[i, ends_of_gaps(np.asarray(stage.empty)[i], count)], edges[i]))
            for i in range(RAYS)
        ]
        assert np.mean(found) == 1.0


def test_a_gap_is_one_interval_and_stretches_share_the_rest_by_weight():
    s = np.linspace(0, 1, 17, dtype=np.float32)[None]
    weights = np.array([[0, 0, 1, 1, 0, 0, 0, 2, 0, 0, 0, 0, 3, 3, 0, 0]], np.float32)
    stage = Stage(jnp.asarray(s), jnp.asarray(weights), jnp.asarray(weights == 0))
    edges = 16 * edges_of(stage, 44)[0]
    inside = [np.sum((edges >= a - 1e-5) & (edges <= b + 1e-5)) - 1 for a, b in ((2, 4), (7, 8), (12, 14))]
    assert inside == [8, 8, 24]  # 40 intervals in proportion 2 : 2 : 6
    for a, b in ((0, 2), (4, 7), (8, 12), (14, 16)):
        assert np.sum((edges >= a - 1e-5) & (edges <= b + 1e-5)) == 2


def test_without_gaps_the_edges_are_quantiles():
    stage = random_stage(3, share=0.0)
    weights = np.asarray(stage.weights, np.float64) / np.sum(stage.weights, axis=-1, keepdims=True)
    weights = (weights + EVEN * np.diff(stage.s)) / (1 + EVEN)
    cdf = np.concatenate([np.zeros((RAYS, 1)), np.cumsum(weights, axis=-1)], axis=-1)
    wanted = np.stack([np.interp(np.arange(11) / 10, cdf[i], np.asarray(stage.s)[i]) for i in range(RAYS)])
    np.testing.assert_allclose(edges_of(stage, 10), wanted, atol=2e-5)


@pytest.mark.parametrize("case", ["all empty", "no weight", "no width"])
def test_degenerate_rays_are_divided_all_the_same(case):
    s = np.linspace(0, 1, 9, dtype=np.float32)[None]
    s = np.full_like(s, 0.5) if case == "no width" else s
    empty = np.full((1, 8), case == "all empty")
    weights = np.zeros((1, 8), np.float32)
    edges = edges_of(Stage(jnp.asarray(s), jnp.asarray(weights), jnp.asarray(empty)), 6)
    assert np.all(np.isfinite(edges)) and np.all(np.diff(edges) >= 0)
    if case != "no width":
        np.testing.assert_allclose(edges[0], np.arange(7) / 6, atol=1e-5)


def test_packed_edges_equal_dense_ones():
    stage, count = random_stage(5), 7
    rungs = ladder(stage, jnp.full(RAYS, count, jnp.int32))
    jitter = jnp.asarray(np.random.default_rng(1).random((RAYS, count - 1)), jnp.float32)
    ray = jnp.repeat(jnp.arange(RAYS, dtype=jnp.int32), count - 1)
    edge = jnp.tile(jnp.arange(1, count, dtype=jnp.int32), RAYS)
    for shift in (None, jitter):
        dense = dense_edges(rungs, count, shift)[:, 1:-1].reshape(-1)
        packed = packed_edges(rungs, ray, edge, None if shift is None else shift.reshape(-1))
        np.testing.assert_array_equal(dense, packed)


def test_nothing_flows_back_into_a_stage():
    stage = random_stage(7)

    def total(weights):
        rungs = ladder(stage._replace(weights=weights), jnp.full(RAYS, 8, jnp.int32))
        return jnp.sum(dense_edges(rungs, 8, None))

    assert np.all(np.asarray(jax.grad(total)(stage.weights)) == 0)
