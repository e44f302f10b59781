"""Losses against their definitions, written as loops in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax import losses
from nerfjax.types import PackedIntervals

RAYS = 5


@pytest.fixture(autouse=True)
def strict_promotion():
    with jax.numpy_dtype_promotion("strict"):
        yield


def f32(x) -> jax.Array:
    return jnp.asarray(x, jnp.float32)


def histogram(steps: int, seed: int) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(seed)
    s = np.sort(rng.random((RAYS, steps + 1)), axis=-1)
    s[:, 0], s[:, -1] = 0.0, 1.0
    w = rng.dirichlet(np.full(steps, 0.3), RAYS)
    w[0] = 0.0
    w[1] = np.arange(steps) == steps // 2
    return f32(s), f32(w)


def f64(x) -> np.ndarray:
    return np.asarray(x, np.float64)


# ---------------------------------------------------------------------------- colour


def test_l2():
    rng = np.random.default_rng(0)
    a, b, weight = rng.random((7, 3)), rng.random((7, 3)), rng.random(7)
    np.testing.assert_allclose(losses.l2(f32(a), f32(b)), np.mean((a - b) ** 2), rtol=1e-5)
    want = np.mean([weight[i] * np.mean((a[i] - b[i]) ** 2) for i in range(7)])
    np.testing.assert_allclose(losses.l2(f32(a), f32(b), f32(weight)), want, rtol=1e-5)


def test_charbonnier():
    rng = np.random.default_rng(0)
    a, b, weight = rng.random((7, 3)), rng.random((7, 3)), rng.random(7)
    error = np.sqrt((a - b) ** 2 + 0.1**2)
    np.testing.assert_allclose(losses.charbonnier(f32(a), f32(b), padding=0.1), error.mean(), rtol=1e-5)
    got = losses.charbonnier(f32(a), f32(b), f32(weight), padding=0.1)
    np.testing.assert_allclose(got, (error.mean(-1) * weight).mean(), rtol=1e-5)
    # its slope is bounded, and 0 where the error is
    gradient = jax.grad(lambda a: losses.charbonnier(a, jnp.zeros((2, 1))))(f32([[0.0], [100.0]]))
    np.testing.assert_allclose(gradient, [[0.0], [0.5]], atol=1e-6)


@pytest.mark.parametrize("loss", [losses.l2, losses.charbonnier])
def test_rays_of_no_weight_have_no_say(loss):
    prediction, target = f32(np.random.default_rng(1).random((2, 4, 3)))
    weight = f32([1.0, 0.0, 2.0, 0.0])
    changed = prediction.at[1].set(50.0).at[3].set(-7.0)
    assert loss(prediction, target, weight) == loss(changed, target, weight)


# ---------------------------------------------------------------------------- interlevel


def slow_interlevel(target, proposal) -> float:
    (s, w), (s_p, w_p), total = map(f64, target), map(f64, proposal), 0.0
    for i in range(RAYS):
        for j in range(w.shape[1]):
            bound = sum(
                w_p[i, k] for k in range(w_p.shape[1]) if min(s[i, j + 1], s_p[i, k + 1]) > max(s[i, j], s_p[i, k])
            )
            total += max(0.0, w[i, j] - bound) ** 2 / (w[i, j] + losses.INTERLEVEL_EPSILON)
    return total / RAYS


def test_interlevel_against_a_loop():
    target, proposal = histogram(12, 1), histogram(20, 2)
    want = slow_interlevel(target, proposal)
    assert want > 0.1
    np.testing.assert_allclose(jax.jit(losses.interlevel)(target, proposal), want, rtol=1e-4)


def test_interlevel_is_zero_where_the_bound_covers():
    s, w = histogram(12, 1)
    assert losses.interlevel((s, w), (s, w * 1.01 + 1e-6)) == 0.0
    assert float(losses.interlevel((s, w), (s, w))) < 1e-9  # rounding of the bound
    assert losses.interlevel((s, w), (f32([[0.0, 1.0]] * RAYS), f32([[1.001]] * RAYS))) == 0.0
    # a proposal that is finer but bounds each interval by its own mass
    fine = jnp.sort(jnp.concatenate([s, 0.5 * (s[:, 1:] + s[:, :-1])], axis=-1), axis=-1)
    assert float(losses.interlevel((s, w), (fine, jnp.repeat(w / 2, 2, axis=-1)))) < 1e-9


def test_interlevel_trains_the_proposal_alone_and_raises_it_where_it_is_short():
    target, proposal = histogram(12, 1), histogram(20, 2)
    gradients = jax.jit(jax.grad(losses.interlevel, argnums=(0, 1)))(target, proposal)
    for leaf in (*gradients[0], gradients[1][0]):
        np.testing.assert_array_equal(leaf, 0.0)
    pull = np.asarray(gradients[1][1])
    assert np.all(np.isfinite(pull)) and np.all(pull <= 1e-6) and pull.min() < -1e-3


def test_interlevel_gradient_against_differences():
    target, (s_p, w_p) = histogram(6, 3), histogram(8, 4)
    gradient = jax.grad(lambda w: losses.interlevel(target, (s_p, w)))(w_p)
    for i, k in ((2, 3), (3, 1), (4, 7)):
        ends = []
        for step in (1e-6, -1e-6):
            moved = f64(w_p)
            moved[i, k] += step
            ends.append(slow_interlevel(target, (s_p, moved)))
        np.testing.assert_allclose(gradient[i, k], (ends[0] - ends[1]) / 2e-6, rtol=1e-3, atol=1e-5)


def slow_antialiased(target, proposal, half_width: float) -> float:
    """By a box of many points that each carry a share of the weight."""
    (s, w), (s_p, w_p), total = map(f64, target), map(f64, proposal), 0.0
    box = half_width * ((np.arange(4000) + 0.5) / 2000 - 1)
    for i in range(RAYS):
        cdf = np.concatenate([[0.0], np.cumsum(w[i])])
        blurred = np.diff([np.interp(x + box, s[i], cdf).mean() for x in s_p[i]])
        total += np.sum(np.maximum(0.0, blurred - w_p[i]) ** 2 / (w_p[i] + losses.INTERLEVEL_EPSILON))
    return total / RAYS


@pytest.mark.parametrize("half_width", [0.1, 0.03, 0.003])
def test_antialiased_interlevel_against_a_loop(half_width):
    target, (s_p, w_p) = histogram(12, 1), histogram(20, 2)
    proposal = s_p, 0.9 * w_p + 0.005
    got = losses.interlevel_antialiased(target, proposal, half_width=half_width)
    np.testing.assert_allclose(got, slow_antialiased(target, proposal, half_width), rtol=2e-3)


def test_antialiased_interlevel_changes_smoothly_when_an_edge_crosses_another():
    s_p, w_p = f32([[0.0, 0.4, 1.0]]), f32([[0.1, 0.2]])

    def at(shift: float) -> tuple[float, float]:
        target = f32([[0.0, 0.39 + shift, 0.41 + shift, 1.0]]), f32([[0.0, 1.0, 0.0]])
        return tuple(
            float(x)
            for x in (
                losses.interlevel(target, (s_p, w_p)),
                losses.interlevel_antialiased(target, (s_p, w_p), half_width=0.03),
            )
        )

    jumps = np.abs(np.diff([at(shift) for shift in np.linspace(-0.06, 0.06, 121)], axis=0)).max(axis=0)
    spread = np.ptp([at(shift) for shift in (-0.06, 0.0, 0.06)], axis=0)
    assert jumps[0] > 0.9 * spread[0] and jumps[1] < 0.1 * spread[1]


def test_antialiased_interlevel_trains_the_proposal_alone():
    target, proposal = histogram(12, 1), histogram(20, 2)
    gradients = jax.jit(jax.grad(lambda a, b: losses.interlevel_antialiased(a, b, half_width=0.03), argnums=(0, 1)))(
        target, proposal
    )
    for leaf in (*gradients[0], gradients[1][0]):
        np.testing.assert_array_equal(leaf, 0.0)
    pull = np.asarray(gradients[1][1])
    assert np.all(np.isfinite(pull)) and np.all(pull <= 0.0) and pull.min() < -1e-3


# ---------------------------------------------------------------------------- distortion


def slow_distortion(s, w) -> float:
    s, w, total = f64(s), f64(w), 0.0
    for i in range(len(s)):
        middle = (s[i, 1:] + s[i, :-1]) / 2
        for j in range(w.shape[1]):
            total += w[i, j] ** 2 * (s[i, j + 1] - s[i, j]) / 3
            total += sum(w[i, j] * w[i, k] * abs(middle[j] - middle[k]) for k in range(w.shape[1]))
    return total / len(s)


@pytest.mark.parametrize("steps", [1, 2, 3, 17, 64])
def test_distortion_equals_the_double_sum(steps):
    s, w = histogram(steps, steps)
    np.testing.assert_allclose(losses.distortion(s, w), slow_distortion(s, w), rtol=1e-5)


def test_distortion_of_weights_in_one_place_keeps_its_digits():
    s = f32([0.7 + 1e-5 * np.arange(9)])
    w = f32([np.full(8, 1 / 8)])
    np.testing.assert_allclose(losses.distortion(s, w), slow_distortion(s, w), rtol=1e-5)


def test_distortion_gradient_against_differences():
    s, w = histogram(7, 3)
    by_s, by_w = jax.jit(jax.grad(losses.distortion, argnums=(0, 1)))(s, w)
    for i, k in ((0, 3), (2, 0), (3, 6), (4, 4)):
        for got, which in ((by_s, 0), (by_w, 1)):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [f64(s), f64(w)]
                moved[which][i, k] += step
                ends.append(slow_distortion(*moved))
            np.testing.assert_allclose(got[i, k], (ends[0] - ends[1]) / 2e-6, rtol=1e-3, atol=1e-6)


def test_packed_distortion_equals_the_dense_one():
    s, w = histogram(6, 8)
    counts = [6, 0, 6, 2, 6]  # ray 1 left empty, ray 3 cut short
    w = w.at[1].set(0.0).at[3, 2:].set(0.0)
    keep = np.arange(6)[None, :] < np.asarray(counts)[:, None]
    padding = 5

    def pack(x):
        return f32(np.concatenate([np.asarray(x)[keep], np.zeros(padding)]))

    ray = np.concatenate([np.repeat(np.arange(RAYS), counts), np.full(padding, RAYS)])
    packed = PackedIntervals(
        t0=pack(s[:, :-1]),
        t1=pack(s[:, 1:]),
        ray=jnp.asarray(ray, jnp.int32),
        start=jnp.asarray(np.cumsum([0, *counts[:-1]]), jnp.int32),
        count=jnp.asarray(counts, jnp.int32),
        overflow=jnp.zeros((), jnp.int32),
    )
    got = losses.packed_distortion(packed.t0, packed.t1, pack(w), packed)
    np.testing.assert_allclose(got, losses.distortion(s, w), rtol=1e-5)
    gradient = jax.grad(lambda w: losses.packed_distortion(packed.t0, packed.t1, w, packed))(pack(w))
    dense = jax.grad(losses.distortion, argnums=1)(s, w)
    np.testing.assert_allclose(gradient[:-padding], np.asarray(dense)[keep], rtol=1e-4, atol=1e-6)
