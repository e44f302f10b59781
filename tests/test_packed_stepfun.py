"""Lookups from packed slots against the same lookups of dense rays, and the losses made of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax import losses, packed_stepfun, stepfun
from nerfjax.types import PackedIntervals, zeros_int

RAYS, SLOTS, STEPS = 6, 5, 11


def random_edges(rng, count: int, *, repeats: bool = True) -> np.ndarray:
    """Sorted edges [RAYS, count + 1] from 0 to 1, on a coarse lattice so that many coincide."""
    values = rng.integers(0, 17, (RAYS, count + 1)) / 16 if repeats else rng.random((RAYS, count + 1))
    values = np.sort(values, axis=-1).astype(np.float32)
    values[:, 0], values[:, -1] = 0.0, 1.0
    return values


def packed_of(count: int = SLOTS, padding: int = 3) -> PackedIntervals:
    """Slots of RAYS rays with ``count`` each, then padding."""
    ray = np.concatenate([np.repeat(np.arange(RAYS), count), np.full(padding, RAYS)])
    return PackedIntervals(
        t0=jnp.zeros(len(ray)), t1=jnp.zeros(len(ray)), ray=jnp.asarray(ray, jnp.int32),
        start=jnp.arange(RAYS, dtype=jnp.int32) * count, count=jnp.full(RAYS, count, jnp.int32), overflow=zeros_int(),
    )  # fmt: skip


def flat(dense, padding: int = 3) -> jnp.ndarray:
    return jnp.concatenate([jnp.asarray(dense, jnp.float32).reshape(-1), jnp.zeros(padding)])


@pytest.mark.parametrize("method", ["search", "compare", "auto"])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 12])
def test_lookups_equal_the_dense_ones(size, method):
    rng = np.random.default_rng(size)
    nodes, x = (
        random_edges(rng, max(size - 1, 1))[:, :size],
        rng.integers(-1, 18, (RAYS, SLOTS)).astype(np.float32) / 16,
    )
    ray = packed_of().ray
    for side in ("left", "right"):
        found = packed_stepfun.count_before(jnp.asarray(nodes), flat(x), ray, side=side, method=method)
        wanted = np.sum(nodes[:, None, :] <= x[..., None] if side == "right" else nodes[:, None, :] < x[..., None], -1)
        np.testing.assert_array_equal(found[: RAYS * SLOTS].reshape(RAYS, SLOTS), wanted)
    if size > 1:
        values = jnp.asarray(rng.random((RAYS, size)), jnp.float32)
        found = packed_stepfun.interpolate(flat(x), jnp.asarray(nodes), values, ray, method=method)
        wanted = stepfun.interpolate(jnp.asarray(x), jnp.asarray(nodes), values)
        np.testing.assert_array_equal(found[: RAYS * SLOTS].reshape(RAYS, SLOTS), wanted)


def test_bound_and_blur_equal_the_dense_ones():
    rng = np.random.default_rng(0)
    s, s_p = (jnp.asarray(random_edges(rng, count)) for count in (SLOTS, STEPS))
    w, w_p = (jnp.asarray(rng.random((RAYS, count)), jnp.float32) for count in (SLOTS, STEPS))
    ray = packed_of().ray
    found = packed_stepfun.bound(flat(s[:, :-1]), flat(s[:, 1:]), ray, s_p, w_p)
    wanted = stepfun.bound(s, s_p, w_p)
    np.testing.assert_allclose(found[: RAYS * SLOTS].reshape(RAYS, SLOTS), wanted, atol=1e-6)
    for half_width in (0.03, 0.003):
        found = packed_stepfun.blur_resample(s_p, flat(s[:, :-1]), flat(s[:, 1:]), flat(w), ray, half_width)
        np.testing.assert_allclose(found, stepfun.blur_resample(s_p, s, w, half_width), atol=2e-6)


@pytest.mark.parametrize("kind", ["mipnerf360", "antialiased"])
def test_packed_losses_equal_the_dense_ones_and_so_do_their_gradients(kind):
    rng = np.random.default_rng(1)
    s, s_p = (jnp.asarray(random_edges(rng, count, repeats=False)) for count in (SLOTS, STEPS))
    w = jnp.asarray(0.3 * rng.random((RAYS, SLOTS)), jnp.float32)
    w_p = jnp.asarray(0.05 * rng.random((RAYS, STEPS)), jnp.float32)
    packed = packed_of()

    def dense_loss(w_p):
        if kind == "antialiased":
            return losses.interlevel_antialiased((s, w), (s_p, w_p), half_width=0.03)
        return losses.interlevel((s, w), (s_p, w_p))

    def packed_loss(w_p):
        ends = flat(s[:, :-1]), flat(s[:, 1:])
        if kind == "antialiased":
            return losses.packed_interlevel_antialiased(*ends, flat(w), packed, (s_p, w_p), half_width=0.03)
        return losses.packed_interlevel(*ends, flat(w), packed, (s_p, w_p))

    (wanted, slope), (found, packed_slope) = (jax.value_and_grad(loss)(w_p) for loss in (dense_loss, packed_loss))
    assert float(wanted) > 0.01
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(packed_slope, slope, rtol=1e-4, atol=1e-5 * float(np.max(np.abs(slope))))


def test_the_order_of_edges_alone_decides_the_bound():
    """World units serve as well as normalized ones."""
    rng = np.random.default_rng(2)
    s, s_p = (jnp.asarray(random_edges(rng, count)) for count in (SLOTS, STEPS))
    w, w_p = flat(0.3 * rng.random((RAYS, SLOTS))), jnp.asarray(0.05 * rng.random((RAYS, STEPS)), jnp.float32)
    one, other = (
        losses.packed_interlevel(flat(warp(s[:, :-1])), flat(warp(s[:, 1:])), w, packed_of(), (warp(s_p), w_p))
        for warp in (lambda x: x, lambda x: jnp.exp(3 * x))
    )
    np.testing.assert_array_equal(one, other)
