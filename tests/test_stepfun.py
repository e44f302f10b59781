"""The calculus of step functions against slow loops in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nerfjax import stepfun

RAYS = 6

# Compiled as a whole: op by op, these tests take several times as long.
count_before = jax.jit(stepfun.count_before, static_argnames=("side", "method"))
invert_cdf = jax.jit(stepfun.invert_cdf, static_argnames="method")
interpolate = jax.jit(stepfun.interpolate)
sample = jax.jit(stepfun.sample, static_argnames=("n", "padding"))
sample_intervals = jax.jit(stepfun.sample_intervals, static_argnames=("n", "padding"))
cdf_from_weights = jax.jit(stepfun.cdf_from_weights, static_argnames="padding")
resample, bound = jax.jit(stepfun.resample), jax.jit(stepfun.bound)
blur_resample = jax.jit(stepfun.blur_resample, static_argnames="half_width")


@pytest.fixture(autouse=True)
def strict_promotion():
    with jax.numpy_dtype_promotion("strict"):
        yield


def step_functions(steps: int = 9, seed: int = 0, *, zero_width: bool = True) -> tuple[jax.Array, jax.Array]:
    """Random edges in [0, 1], some equal, and weights, some zero; the first rays are extreme."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.random((RAYS, steps + 1)), axis=-1)
    if zero_width:
        t[3, 4] = t[3, 3]
    w = rng.exponential(size=(RAYS, steps)) * (rng.random((RAYS, steps)) < 0.7)
    w[0] = 0.0
    w[1] = np.arange(steps) == 5
    w[2] *= 1e-12
    if zero_width:
        w[3, 3] = 0.0
    return jnp.asarray(t, jnp.float32), jnp.asarray(w, jnp.float32)


def f64(x) -> np.ndarray:
    return np.asarray(x, np.float64)


# ---------------------------------------------------------------------------- weights, pdf, cdf


def test_pdf_and_weights_are_inverse():
    t, w = step_functions()
    p = stepfun.pdf_from_weights(t, w)
    np.testing.assert_allclose(stepfun.weights_from_pdf(t, p), w, rtol=1e-6)
    assert p[3, 3] == 0.0 and np.all(np.isfinite(p))
    np.testing.assert_allclose(p[4] * np.diff(f64(t[4])), w[4], rtol=1e-4)


@pytest.mark.parametrize("padding", [0.0, 0.01])
@pytest.mark.parametrize("steps", [1, 2, 9, 300])
def test_cdf(steps, padding):
    _, w = step_functions(max(steps, 6), zero_width=False)
    w = w[:, -steps:]
    cdf = np.asarray(cdf_from_weights(w, padding=padding))
    assert cdf.shape == (RAYS, steps + 1)
    assert np.all(cdf[:, 0] == 0.0) and np.all(cdf[:, -1] == 1.0) and np.all(np.diff(cdf) >= 0.0)
    for i in range(RAYS):
        share = f64(w[i]) + padding
        share = share / share.sum() if share.sum() > 0 else np.full(steps, 1 / steps)
        np.testing.assert_allclose(cdf[i, 1:], np.cumsum(share), atol=1e-5)


def test_cdf_is_monotone_whatever_the_rounding():
    rng = np.random.default_rng(0)
    w = rng.random((2000, 129)) * (rng.random((2000, 129)) < 0.3) * 10.0 ** rng.integers(-9, 3, (2000, 129))
    assert np.all(np.diff(np.asarray(cdf_from_weights(jnp.asarray(w, jnp.float32)))) >= 0.0)


# ---------------------------------------------------------------------------- lookup and inversion


@pytest.mark.parametrize("method", stepfun.LOOKUP_METHODS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_count_before(side, method):
    t, _ = step_functions()
    x = jnp.concatenate(
        [t[:, ::2], jnp.asarray(np.random.default_rng(1).uniform(-0.5, 1.5, (RAYS, 11)), jnp.float32)], -1
    )
    want = [np.searchsorted(np.asarray(t[i]), np.asarray(x[i]), side=side) for i in range(RAYS)]
    np.testing.assert_array_equal(count_before(t, x, side=side, method=method), want)


def slow_inverse(u: float, t: np.ndarray, cdf: np.ndarray) -> float:
    for i in range(len(t) - 1):
        if cdf[i] <= u < cdf[i + 1]:
            return t[i] + (u - cdf[i]) / (cdf[i + 1] - cdf[i]) * (t[i + 1] - t[i])
    raise AssertionError("no step holds u")


@pytest.mark.parametrize("method", stepfun.LOOKUP_METHODS)
def test_inversion_against_a_loop(method):
    t, w = step_functions()
    cdf = cdf_from_weights(w)
    u = jnp.asarray(np.sort(np.random.default_rng(2).random((RAYS, 33)), axis=-1), jnp.float32)
    u = u.at[:, 0].set(0.0).at[:, -1].set(stepfun.U_MAX)
    got = np.asarray(invert_cdf(u, t, cdf, method=method))
    assert np.all(np.diff(got) >= 0) and np.all(got >= t[:, :1]) and np.all(got <= t[:, -1:])
    want = [[slow_inverse(float(v), f64(t[i]), f64(cdf[i])) for v in u[i]] for i in range(RAYS)]
    np.testing.assert_allclose(got, want, atol=2e-5)
    np.testing.assert_array_equal(got, invert_cdf(u, t, cdf, method="search"))


def test_inversion_is_sorted_whatever_the_rounding():
    rng = np.random.default_rng(0)
    w = rng.random((500, 65)) * 10.0 ** rng.integers(-9, 1, (500, 65))
    t = np.sort(rng.random((500, 66)) ** 4, axis=-1)
    u = np.sort(rng.random((500, 200)), axis=-1)
    t, w, u = (jnp.asarray(x, jnp.float32) for x in (t, w, u))
    got = np.asarray(invert_cdf(u, t, cdf_from_weights(w)))
    assert np.all(np.diff(got) >= 0) and np.all(got >= t[:, :1]) and np.all(got <= t[:, -1:])


def test_interpolation():
    t, w = step_functions(zero_width=False)
    x = jnp.asarray(np.random.default_rng(3).uniform(-0.2, 1.2, (RAYS, 40)), jnp.float32)
    values = jnp.cumsum(jnp.pad(w, ((0, 0), (1, 0))), axis=-1)
    want = [np.interp(f64(x[i]), f64(t[i]), f64(values[i])) for i in range(RAYS)]
    np.testing.assert_allclose(interpolate(x, t, values), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 33])
@pytest.mark.parametrize("per", ["stratum", "ray", "none"])
def test_one_sample_per_stratum(per, n):
    if per == "none":
        u = np.asarray(stepfun.stratified_uniform(None, n))
        np.testing.assert_allclose(u, (np.arange(n) + 0.5) / n, rtol=1e-6)
        return
    jitter = np.random.default_rng(0).random((200, n if per == "stratum" else 1)).astype(np.float32)
    jitter[0], jitter[1] = 0.0, stepfun.U_MAX
    u = np.asarray(stepfun.stratified_uniform(jnp.asarray(jitter), n))
    assert u.shape == (200, n) and u.min() >= 0.0 and u.max() < 1.0 and np.all(np.diff(u) >= 0)
    np.testing.assert_allclose(u, (np.arange(n) + jitter.astype(np.float64)) / n, atol=1e-6)


def test_samples_are_distributed_as_the_weights():
    t, w = step_functions(5, seed=7)
    t, w = t[5], w[5] + 0.05
    jitter = jnp.asarray(np.random.default_rng(4).random((20000, 1)), jnp.float32)
    x = sample(jitter, t, w, 1)[:, 0]
    counts = np.histogram(np.asarray(x), np.asarray(t))[0]
    share = f64(w) / f64(w).sum()
    assert stats.chisquare(counts, share * len(x)).pvalue > 1e-4
    inside = (f64(x) - f64(t[2])) / (f64(t[3]) - f64(t[2]))
    assert stats.kstest(inside[(inside > 0) & (inside < 1)], "uniform").pvalue > 1e-4


def test_steps_of_zero_width_get_no_padding():
    t = jnp.asarray([0.0, 0.3, 0.3, 0.3, 1.0])
    w = jnp.asarray([0.0, 0.0, 0.0, 0.0])
    x = sample(None, t, w, 100, padding=0.01)
    assert 45 <= np.sum(np.asarray(x) < 0.3) <= 55 and np.sum(np.asarray(x) == 0.3) <= 1


@pytest.mark.parametrize("n", [1, 2, 17])
@pytest.mark.parametrize("per", ["stratum", "ray", "none"])
def test_intervals_are_sorted_and_inside(per, n):
    t, w = step_functions()
    rng = np.random.default_rng(5)
    jitter = {"none": None, "ray": rng.random((RAYS, 1)), "stratum": rng.random((RAYS, n))}[per]
    jitter = None if jitter is None else jnp.asarray(jitter, jnp.float32)
    edges = np.asarray(sample_intervals(jitter, t, w, n, padding=1e-3))
    assert edges.shape == (RAYS, n + 1) and np.all(np.diff(edges) >= 0)
    assert np.all(edges >= t[:, :1]) and np.all(edges <= t[:, -1:])
    if n == 1:
        np.testing.assert_array_equal(edges, np.stack([t[:, 0], t[:, -1]], axis=-1))
        return
    centers = f64(sample(jitter, t, w, n, padding=1e-3))
    np.testing.assert_allclose(edges[:, 1:-1], (centers[:, 1:] + centers[:, :-1]) / 2, atol=1e-6)
    first = np.maximum(2 * centers[:, 0] - edges[:, 1], t[:, 0])
    np.testing.assert_allclose(edges[:, 0], first, atol=1e-6)


def test_leading_axes_broadcast_and_one_ray_is_enough():
    t, w = step_functions()
    u = stepfun.stratified_uniform(None, 7)
    cdf = cdf_from_weights(w)
    whole = invert_cdf(u, t, cdf)
    assert whole.shape == (RAYS, 7)
    np.testing.assert_array_equal(whole[4], invert_cdf(u, t[4], cdf[4]))
    np.testing.assert_array_equal(whole, jax.jit(jax.vmap(lambda t, c: stepfun.invert_cdf(u, t, c)))(t, cdf))
    folded = invert_cdf(u, t.reshape(2, 3, -1), cdf.reshape(2, 3, -1))
    np.testing.assert_array_equal(folded.reshape(RAYS, 7), whole)


@pytest.mark.parametrize("move", ["resample", "bound", "blur_resample", "dilate"])
def test_edges_common_to_all_rays_and_vmapped_rays(move):
    function = {
        "blur_resample": lambda a, t, w: stepfun.blur_resample(a, t, w, 0.05),
        "dilate": lambda a, t, w: stepfun.dilate(t, w, 0.1, domain=(0.0, 1.0))[1],
    }.get(move) or getattr(stepfun, move)
    (t, w), common = step_functions(), jnp.linspace(0.0, 1.0, 6)
    whole = jax.jit(function)(common, t, w)
    each = jax.jit(jax.vmap(lambda t, w: function(common, t, w)))(t, w)
    np.testing.assert_allclose(whole, each, rtol=1e-6, atol=1e-7)


def test_percentiles():
    t, w = jnp.asarray([1.0, 2.0, 4.0, 5.0]), jnp.asarray([1.0, 2.0, 1.0])
    q = jnp.asarray([0.0, 12.5, 25.0, 50.0, 75.0, 100.0])
    np.testing.assert_allclose(stepfun.weighted_percentile(t, w, q), [1.0, 1.5, 2.0, 3.0, 4.0, 5.0], rtol=1e-6)


@pytest.mark.parametrize("sizes", [(1, 1), (5, 5), (65, 33)])
def test_merging(sizes):
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(np.sort(rng.integers(0, 20, (RAYS, n)) / 19, axis=-1), jnp.float32) for n in sizes)
    want = np.sort(np.concatenate([a, b], axis=-1), axis=-1)
    np.testing.assert_array_equal(jax.jit(stepfun.merge_edges)(a, b), want)
    np.testing.assert_array_equal(stepfun.merge_edges(a[0], b[0]), want[0])


# ---------------------------------------------------------------------------- shaping the weights


def test_annealing():
    w = jnp.asarray([0.0, 1e-6, 0.2, 0.8])
    np.testing.assert_allclose(stepfun.anneal(w, 0.0), np.ones(4))
    np.testing.assert_allclose(stepfun.anneal(w, jnp.float32(1.0)), w, rtol=1e-5, atol=1e-29)
    np.testing.assert_allclose(stepfun.anneal(w, 5.0), w, rtol=1e-5, atol=1e-29)
    half = np.asarray(stepfun.anneal(w, 0.1, slope=10.0))
    np.testing.assert_allclose(half[1:], f64(w[1:]) ** (1.0 / 1.9), rtol=1e-5)
    assert np.all(np.diff(half) > 0)
    gradient = jax.grad(lambda w: jnp.sum(stepfun.anneal(w, 0.1)))(w)
    assert np.all(np.isfinite(gradient))


def test_blurring_weights():
    _, w = step_functions()
    got = f64(stepfun.blur_weights(w))
    for i in range(RAYS):
        for k in range(w.shape[-1]):
            row, last = f64(w[i]), w.shape[-1] - 1
            left, right = max(row[max(k - 1, 0)], row[k]), max(row[k], row[min(k + 1, last)])
            np.testing.assert_allclose(got[i, k], (left + right) / 2, rtol=1e-6)
    assert np.all(got >= f64(w) * (1 - 1e-6))


@pytest.mark.parametrize("dilation", [0.0, 0.003, 0.1, 2.0])
@pytest.mark.parametrize("steps", [1, 2, 9, 64])
def test_dilation_is_the_largest_height_nearby(steps, dilation):
    t, w = step_functions(max(steps, 6), seed=steps)
    t, w = t[:, -steps - 1 :], w[:, -steps:]
    edges, weights = (f64(x) for x in jax.jit(lambda t, w: stepfun.dilate(t, w, dilation, domain=(0.0, 1.0)))(t, w))
    assert edges.shape == (RAYS, 2 * steps) and weights.shape == (RAYS, 2 * steps - 1)
    assert np.all(np.diff(edges) >= 0) and edges.min() >= 0 and edges.max() <= 1
    p, t = f64(stepfun.pdf_from_weights(t, w)), f64(t)
    x = np.random.default_rng(0).random(300)
    for i in range(RAYS):
        # away from edges, where rounding decides
        sure = np.abs(x[:, None] - np.concatenate([t[i] - dilation, t[i] + dilation])).min(1) > 1e-5
        for v in x[sure]:
            near = (t[i, :-1] - dilation < v) & (v < t[i, 1:] + dilation)
            bin_ = np.flatnonzero((edges[i, :-1] <= v) & (v < edges[i, 1:]))
            got = weights[i, bin_[0]] / np.diff(edges[i])[bin_[0]] if len(bin_) else 0.0
            np.testing.assert_allclose(got, p[i][near].max(initial=0.0), rtol=1e-4)


# ---------------------------------------------------------------------------- moving weights


def overlap(a0, a1, b0, b1) -> float:
    return max(0.0, min(a1, b1) - max(a0, b0))


def other_edges(n: int = 14, low: float = -0.1, high: float = 1.1) -> jax.Array:
    return jnp.asarray(np.sort(np.random.default_rng(9).uniform(low, high, (RAYS, n + 1)), axis=-1), jnp.float32)


def test_resampling_keeps_integrals():
    (t, w), t_new = step_functions(), other_edges()
    got = f64(resample(t_new, t, w))
    for i in range(RAYS):
        a, b, row = f64(t[i]), f64(t_new[i]), f64(w[i])
        width = np.diff(a)
        for j in range(len(b) - 1):
            want = sum(
                row[k] * overlap(a[k], a[k + 1], b[j], b[j + 1]) / width[k] for k in range(len(row)) if width[k] > 0
            )
            np.testing.assert_allclose(got[i, j], want, atol=3e-5)
    wide = t_new.at[:, 0].set(-1.0).at[:, -1].set(2.0)
    np.testing.assert_allclose(resample(wide, t, w).sum(-1), w.sum(-1), rtol=1e-5)


def test_resampling_to_the_same_edges_changes_nothing():
    t, w = step_functions(zero_width=False)
    np.testing.assert_allclose(resample(t, t, w), w, atol=2e-6)


def test_the_bound_adds_up_all_overlapping_steps():
    (t_p, w_p), t = step_functions(), other_edges()
    t = t.at[:, 3].set(t_p[:, 4])  # a common edge is no overlap
    t = jnp.sort(t, axis=-1)
    got = f64(bound(t, t_p, w_p))
    for i in range(RAYS):
        a, b = f64(t[i]), f64(t_p[i])
        for j in range(len(a) - 1):
            want = sum(float(w_p[i, k]) for k in range(len(b) - 1) if overlap(a[j], a[j + 1], b[k], b[k + 1]) > 0.0)
            np.testing.assert_allclose(got[i, j], want, atol=2e-6)
    np.testing.assert_allclose(bound(t_p, t_p, w_p)[4], w_p[4], atol=1e-6)


def test_the_gradient_of_the_bound_counts_overlaps():
    (t_p, w_p), t = step_functions(zero_width=False), other_edges()
    gradient = jax.grad(lambda w: jnp.sum(stepfun.bound(t, t_p, w)))(w_p)
    for i in range(RAYS):
        a, b = f64(t[i]), f64(t_p[i])
        want = [sum(overlap(a[j], a[j + 1], b[k], b[k + 1]) > 0 for j in range(len(a) - 1)) for k in range(len(b) - 1)]
        np.testing.assert_allclose(gradient[i], want, atol=1e-6)


def blurred_integral(x: np.ndarray, t: np.ndarray, w: np.ndarray, half_width: float) -> np.ndarray:
    """Integral up to x of (step function convolved with a box), by the mean over the box of the function's integral."""
    inside = (np.arange(20000) + 0.5) / 20000 * 2 - 1
    cdf = np.concatenate([[0.0], np.cumsum(w)])
    return np.array([np.interp(v + half_width * inside, t, cdf).mean() for v in x])


@pytest.mark.parametrize("half_width", [0.3, 0.03, 0.003])
def test_blurring_against_numerical_convolution(half_width):
    (t, w), t_new = step_functions(zero_width=False), other_edges(low=-0.4, high=1.4)
    got = blur_resample(t_new, t, w, half_width)
    for i in range(RAYS):
        want = np.diff(blurred_integral(f64(t_new[i]), f64(t[i]), f64(w[i]), half_width))
        np.testing.assert_allclose(got[i], want, atol=2e-5 * max(1.0, float(w[i].sum())))


def test_blurring_keeps_mass_also_of_thin_steps():
    t = jnp.asarray([0.2, 0.5, 0.5, 0.5 + 1e-6, 0.8])
    w = jnp.asarray([0.1, 0.4, 0.3, 0.2])
    whole = blur_resample(jnp.asarray([-1.0, 2.0]), t, w, 0.01)
    np.testing.assert_allclose(whole, [1.0], rtol=1e-6)
    halves = blur_resample(jnp.asarray([-1.0, 0.5, 2.0]), t, w, 0.01)
    np.testing.assert_allclose(halves, [0.45, 0.55], atol=1e-3)  # the thin ones are cut in half


def test_gradients_are_finite_everywhere():
    t, w = step_functions()
    new, u = other_edges(low=0.0, high=1.0), stepfun.stratified_uniform(None, 5)

    def everything(t, w):
        edges, dilated = stepfun.dilate(t, w, 0.02, domain=(0.0, 1.0))
        return sum(
            jnp.sum(jnp.square(x))
            for x in (
                stepfun.pdf_from_weights(t, w),
                stepfun.cdf_from_weights(w),
                stepfun.invert_cdf(u, t, stepfun.cdf_from_weights(w)),
                stepfun.sample_intervals(None, t, w, 4, padding=0.01),
                stepfun.resample(new, t, w),
                stepfun.bound(new, t, w),
                stepfun.blur_resample(new, t, w, 0.03),
                stepfun.blur_weights(w),
                stepfun.anneal(w, 0.3),
                stepfun.merge_edges(edges, new),
                dilated,
            )
        )

    for gradient in jax.jit(jax.grad(everything, argnums=(0, 1)))(t, w):
        assert np.all(np.isfinite(gradient)) and np.any(np.asarray(gradient) != 0)
