"""Spacings and contractions: exact ends, inverse to each other, finite wherever a scene may lie."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.geometry.warps import SPACINGS, contract, normalize_to_box, s_from_t, spacing, t_from_s, uncontract

RANGES = [(0.0, 1.0), (0.05, 1e3), (0.2, 1e6), (0.1, 1e9), (2.0, 6.0), (0.0, 1e9)]
# The definitions, increasing, in float64.
ORACLES = {
    "linear": lambda t: t,
    "disparity": lambda t: -1 / t,
    "log": np.log,
    "sqrt": np.sqrt,
    "piecewise": lambda t: np.where(t < 1, t / 2, 1 - 0.5 / np.maximum(t, 1)),
    "power": lambda t: 2.5 / -1.5 * ((2 * t / 2.5 + 1) ** -1.5 - 1),  # |p - 1|/p ((x/|p - 1| + 1)^p - 1)
}


def ranges(name):
    return [ends for ends in RANGES if ends[0] > 0 or not SPACINGS[name].needs_positive_near]


@pytest.mark.parametrize("name", SPACINGS)
def test_spacing_has_exact_ends_rises_and_inverts(name):
    s = jnp.linspace(0, 1, 2001, dtype=jnp.float32)

    @jax.jit
    def there_and_back(near, far):
        slopes = jax.vmap(
            jax.grad(lambda *x: t_from_s(name, x[0][None], *x[1:])[0], argnums=(0, 1, 2)), (0, None, None)
        )
        t = t_from_s(name, s, near, far)
        return t, s_from_t(name, t, near, far), slopes(s, near, far)

    for near, far in ranges(name):
        with jax.numpy_dtype_promotion("strict"):
            t, back, slopes = there_and_back(jnp.float32(near), jnp.float32(far))
        assert t[0] == np.float32(near) and t[-1] == np.float32(far)
        assert np.all(np.diff(t) >= 0) and np.all(np.isfinite(t))
        np.testing.assert_allclose(back, s, atol=5e-7)
        assert all(np.all(np.isfinite(slope)) for slope in slopes)


@pytest.mark.parametrize("name", SPACINGS)
def test_spacing_is_the_published_function(name):
    for near, far in ranges(name):
        t = np.geomspace(max(near, 1e-3), far, 200)
        g = ORACLES[name](np.append(t, [near, far]))
        expected = (g[:-2] - g[-2]) / (g[-1] - g[-2])
        np.testing.assert_allclose(s_from_t(name, jnp.asarray(t, jnp.float32), near, far), expected, atol=2e-6)


@pytest.mark.parametrize("name", ["disparity", "power", "piecewise"])
def test_far_distances_keep_their_precision(name):
    s = jnp.asarray([1 - 2.0**-20, 1 - 2.0**-12], jnp.float32)
    t = np.asarray(t_from_s(name, s, 0.2, 1e6), np.float64)
    g = ORACLES[name](np.concatenate([t, [0.2, 1e6]]))
    left = (g[3] - g[:2]) / (g[3] - g[2])
    np.testing.assert_allclose(left, [2.0**-20, 2.0**-12], rtol=1e-4)


def test_ends_may_differ_from_ray_to_ray():
    near, far = jnp.asarray([0.5, 1.0, 2.0]), jnp.asarray([2.0, 10.0, 2.5])
    s = jnp.broadcast_to(jnp.linspace(0, 1, 5), (3, 5))
    for name in SPACINGS:
        t = t_from_s(name, s, near, far)
        for ray in range(3):
            alone = t_from_s(name, s[ray], float(near[ray]), float(far[ray]))
            np.testing.assert_allclose(t[ray], alone, rtol=1e-6)
        np.testing.assert_allclose(s_from_t(name, t, near, far), s, atol=2e-6)


def test_degenerate_and_outside_distances_stay_finite():
    for name in SPACINGS:
        t = jnp.asarray([0.0, 1.0, 2.0, 1e9])
        assert np.all(np.isfinite(s_from_t(name, t, 1.0, 1.0)))
        assert s_from_t(name, t, 1.0, 4.0)[0] == 0 and s_from_t(name, t, 1.0, 4.0)[-1] == 1


def test_unknown_names_and_a_near_of_zero_are_refused():
    with pytest.raises(UserError, match="disparity"):
        spacing("dispairty")
    for name in ("disparity", "log"):
        with pytest.raises(UserError, match="near"):
            t_from_s(name, jnp.linspace(0, 1, 3), 0.0, 1.0)
    with pytest.raises(UserError, match="inf"):
        contract(jnp.zeros((1, 3)), ord="l1")


@pytest.mark.parametrize("ord", ["l2", "inf"])
def test_contraction_is_finite_with_its_gradients(ord):
    shapes = np.concatenate([np.random.default_rng(0).normal(size=(64, 3)), np.eye(3), -np.ones((1, 3))])
    scales = np.asarray([0.0, 1e-30, 1e-3, 0.5, 1.0, 3.0, 1e3, 1e6, 1e12, 1e18])
    x = (scales[:, None, None] * shapes).reshape(-1, 3).astype(np.float32)
    warp = jax.jit(lambda x: contract(x, ord=ord))
    with jax.numpy_dtype_promotion("strict"):
        y = warp(x)
        forward, reverse = (
            np.asarray(jax.jit(jax.vmap(mode(warp)))(x), np.float64) for mode in (jax.jacfwd, jax.jacrev)
        )
    assert np.all(np.isfinite(forward)) and np.all(np.isfinite(reverse))
    exact = x.astype(np.float64)
    size = np.linalg.norm(exact, axis=-1, keepdims=True, ord=2 if ord == "l2" else np.inf)
    safe = np.maximum(size, 1)
    np.testing.assert_allclose(y, np.where(size > 1, (2 - 1 / safe) * exact / safe, exact), rtol=2e-6, atol=1e-30)
    np.testing.assert_allclose(forward * safe[..., None], reverse * safe[..., None], atol=1e-5)
    # f stretches by 2/n - 1/n^2 across x: relative to that the gradient is right even at 1e18.
    across = 2 / safe - 1 / safe**2
    if ord == "l2":
        np.testing.assert_allclose(np.linalg.svd(reverse, compute_uv=False)[:, :2], across + [[0, 0]], rtol=1e-4)
    assert np.all(np.abs(reverse).max((1, 2)) <= 2 * across[:, 0])


@pytest.mark.parametrize("ord", ["l2", "inf"])
def test_uncontract_inverts(ord):
    x = jax.random.normal(jax.random.key(1), (500, 3)) * jnp.geomspace(1e-3, 300.0, 500)[:, None]
    back = uncontract(contract(x, ord=ord), ord=ord)
    # Near radius 2 the distance is 1 / (2 - |y|): the relative error grows with it.
    size = np.linalg.norm(x, axis=-1, keepdims=True)
    assert np.max(np.abs(back - x) / size / np.maximum(size, 1)) < 1e-6
    assert np.all(np.isfinite(uncontract(jnp.asarray([[2.0, 0, 0], [0, 2.5, 0], [0, 0, 0]]), ord=ord)))


def test_box_maps_to_the_cube():
    box = np.asarray([[-1.0, 2, 3], [3.0, 4, 8]], np.float32)
    corners = jnp.asarray([[box[0], box[1]], [box.mean(0), [-1, 4, 8]]])
    expected = [[[-1, -1, -1], [1, 1, 1]], [[0, 0, 0], [-1, 1, 1]]]
    np.testing.assert_allclose(normalize_to_box(corners, box), expected, atol=1e-6)
