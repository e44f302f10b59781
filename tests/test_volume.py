"""The volume rendering equation against closed forms and loops; packed rays against dense ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax import volume
from nerfjax.types import Intervals, PackedIntervals

COUNTS = (5, 0, 1, 8, 0, 3)  # slots of each ray: rays without any in the middle, and one with one
RAYS, MOST, PADDING = len(COUNTS), max(COUNTS), 7


@pytest.fixture(autouse=True)
def strict_promotion():
    with jax.numpy_dtype_promotion("strict"):
        yield


def f32(x) -> jax.Array:
    return jnp.asarray(x, jnp.float32)


def random_ray(steps: int = 24, seed: int = 0, shape=(4,)):
    rng = np.random.default_rng(seed)
    density = rng.exponential(size=(*shape, steps)) * (rng.random((*shape, steps)) < 0.6) * 3
    return f32(density), f32(rng.uniform(0.0, 0.3, (*shape, steps)))


def slow_weights(density: np.ndarray, delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights and edge transmittances of one ray, light attenuated step by step."""
    light, weights, edges = 1.0, [], [1.0]
    for depth in np.asarray(density, np.float64) * np.asarray(delta, np.float64):
        weights.append(light * (1.0 - np.exp(-depth)))
        light *= np.exp(-depth)
        edges.append(light)
    return np.array(weights), np.array(edges)


# ---------------------------------------------------------------------------- dense


def test_weights_and_transmittance_against_a_loop():
    density, delta = random_ray()
    weights = volume.weights_from_density(density, delta)
    transmittance = volume.transmittance_from_density(density, delta)
    for i in range(len(density)):
        want_weights, want_transmittance = slow_weights(density[i], delta[i])
        np.testing.assert_allclose(weights[i], want_weights, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(transmittance[i], want_transmittance, rtol=1e-5)


def test_weights_add_up_to_the_opacity():
    density, delta = random_ray(200, shape=(2, 3))
    weights = np.asarray(volume.weights_from_density(density, delta), np.float64)
    opacity = -np.expm1(-np.sum(np.asarray(density, np.float64) * np.asarray(delta, np.float64), axis=-1))
    np.testing.assert_allclose(weights.sum(-1), opacity, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 7, 300])
def test_fog_has_its_closed_form_whatever_the_steps(steps):
    sigma, length = 0.8, 2.5
    t = f32(np.sort(np.append(np.random.default_rng(1).uniform(0, length, steps - 1), [0.0, length])))
    weights = volume.weights_from_density(jnp.full(steps, sigma, jnp.float32), jnp.diff(t))
    np.testing.assert_allclose(weights.sum(), 1 - np.exp(-sigma * length), rtol=1e-5)
    near = np.exp(-sigma * np.asarray(t, np.float64))
    np.testing.assert_allclose(weights, near[:-1] - near[1:], atol=1e-6)


def test_thin_fog_keeps_its_digits():
    weights = volume.weights_from_density(jnp.full(10, 1e-9, jnp.float32), jnp.full(10, 1e-3, jnp.float32))
    np.testing.assert_allclose(weights, 1e-12, rtol=1e-5)


def test_an_opaque_end_takes_the_rest():
    density, delta = random_ray()
    weights = volume.weights_from_density(density, delta, opaque_end=True)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(weights[:, :-1], volume.weights_from_density(density, delta)[:, :-1])


@pytest.mark.parametrize("opaque_end", [False, True])
@pytest.mark.parametrize("level", [0.0, 1e-30, 1.0, 1e4, 1e38, np.inf])
def test_values_and_gradients_are_finite_at_every_density(level, opaque_end):
    delta = f32([0.0, 0.1, 1e-6, 1e9, 0.2])
    if np.isinf(level):
        delta = delta.at[0].set(1e-3)  # infinity times zero has no value
    density = jnp.full(5, level, jnp.float32)

    def total(density):
        weights = volume.weights_from_density(density, delta, opaque_end=opaque_end)
        return jnp.sum(weights * jnp.arange(1.0, 6.0)) + jnp.sum(volume.transmittance_from_density(density, delta))

    value, gradient = jax.value_and_grad(total)(density)
    assert np.isfinite(value) and np.all(np.isfinite(gradient))


def test_the_gradient_of_empty_space_can_grow_something():
    delta = jnp.full(4, 0.5, jnp.float32)
    gradient = jax.grad(lambda d: volume.weights_from_density(d, delta)[2])(jnp.zeros(4))
    np.testing.assert_allclose(gradient, [0.0, 0.0, 0.5, 0.0])


def test_gradient_against_central_differences():
    density, delta = random_ray(6, seed=3, shape=())
    density = density + 0.2
    targets = np.linspace(-1, 2, 6)
    gradient = jax.grad(lambda d: jnp.sum(volume.weights_from_density(d, delta) * f32(targets)))(density)
    for i in range(6):
        step = 1e-5 * (np.arange(6) == i)
        ends = [slow_weights(np.asarray(density, np.float64) + s * step, delta)[0] @ targets for s in (1, -1)]
        np.testing.assert_allclose(gradient[i], (ends[0] - ends[1]) / 2e-5, rtol=1e-3, atol=1e-5)


def test_compositing_against_a_loop():
    density, delta = random_ray()
    rng = np.random.default_rng(2)
    t = jnp.concatenate([jnp.ones((4, 1)), 1.0 + jnp.cumsum(delta, axis=-1)], axis=-1)
    intervals = Intervals(t=t, s=t / 10.0)
    colors, background = f32(rng.random((4, 24, 3))), f32(rng.random((4, 3)))
    far = f32([5.0, 6.0, 1e9, 8.0])
    weights = volume.weights_from_density(density, intervals.t_delta)
    got = volume.render(weights, colors, intervals, far, background)
    for i in range(4):
        w, edges = slow_weights(density[i], np.diff(np.asarray(t[i], np.float64)))
        color = sum(w[k] * np.asarray(colors[i, k], np.float64) for k in range(24)) + edges[-1] * np.asarray(
            background[i]
        )
        depth = sum(w[k] * float(intervals.t_mid[i, k]) for k in range(24)) + edges[-1] * float(far[i])
        np.testing.assert_allclose(got.color[i], color, atol=2e-6)
        np.testing.assert_allclose(got.accumulation[i], w.sum(), atol=2e-6)
        # the light that is left is known to a rounding error of 1
        np.testing.assert_allclose(got.depth[i], depth, rtol=1e-5, atol=2e-7 * float(far[i]))
    assert got.intervals is intervals and got.weights is weights


def test_an_opaque_ray_never_sees_behind():
    # the float32 sum of these weights may exceed 1
    for seed in range(5):
        density, delta = random_ray(300, seed=seed)
        t = jnp.concatenate([jnp.zeros((4, 1)), jnp.cumsum(delta, axis=-1)], axis=-1)
        weights = volume.weights_from_density(density + 3.0, delta, opaque_end=True)
        far, colors = jnp.full(4, 1e9, jnp.float32), jnp.ones((4, 300, 3))
        got = volume.composite(weights, colors, Intervals(t=t, s=t), far, jnp.zeros((4, 3)))
        assert np.all(np.asarray(got.depth) >= 0.0)
        np.testing.assert_allclose(got.color, 1.0, rtol=1e-6)


# ---------------------------------------------------------------------------- packed


def dense_and_packed(seed: int = 0):
    """The same rays both ways: dense ones are filled up with intervals of no length behind the last."""
    rng = np.random.default_rng(seed)
    t = np.zeros((RAYS, MOST + 1))
    for i, count in enumerate(COUNTS):
        t[i, : count + 1] = np.sort(rng.uniform(1.0, 4.0, count + 1))
        t[i, count + 1 :] = t[i, count]
    values = {"density": rng.exponential(size=(RAYS, MOST)) * 2, "colors": rng.random((RAYS, MOST, 3))}
    start = np.cumsum([0, *COUNTS[:-1]])

    def pack(x, fill):
        rows = [x[i, :count] for i, count in enumerate(COUNTS)]
        return np.concatenate([*rows, np.full((PADDING, *x.shape[2:]), fill)])

    packed = PackedIntervals(
        t0=f32(pack(t[:, :-1], 0.0)),
        t1=f32(pack(t[:, 1:], 0.0)),
        ray=jnp.asarray(np.concatenate([np.repeat(np.arange(RAYS), COUNTS), np.full(PADDING, RAYS)]), jnp.int32),
        start=jnp.asarray(start, jnp.int32),
        count=jnp.asarray(COUNTS, jnp.int32),
        overflow=jnp.zeros((), jnp.int32),
    )
    flat = {name: f32(pack(x, 0.7)) for name, x in values.items()}
    return Intervals(t=f32(t), s=f32(t)), {k: f32(v) for k, v in values.items()}, packed, flat


def test_packed_rays_equal_dense_rays():
    intervals, values, packed, flat = dense_and_packed()
    far, background = f32(np.linspace(5, 9, RAYS)), f32(np.random.default_rng(3).random((RAYS, 3)))
    dense_weights = volume.render_weights(values["density"], intervals)
    packed_weights = volume.render_weights(flat["density"], packed)
    for i, count in enumerate(COUNTS):
        begin = int(packed.start[i])
        np.testing.assert_allclose(
            packed_weights[begin : begin + count], dense_weights[i, :count], rtol=1e-5, atol=1e-7
        )
    np.testing.assert_array_equal(packed_weights[-PADDING:], 0.0)
    a = volume.render(dense_weights, values["colors"], intervals, far, background)
    b = volume.render(packed_weights, flat["colors"], packed, far, background)
    for name in ("color", "accumulation", "depth"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-5, atol=1e-6, err_msg=name)


def test_rays_without_slots_show_the_background():
    _, _, packed, flat = dense_and_packed()
    far, background = f32(np.linspace(5, 9, RAYS)), f32(np.random.default_rng(3).random((RAYS, 3)))
    got = volume.packed_composite(
        volume.packed_weights_from_density(flat["density"], packed), flat["colors"], packed, far, background
    )
    for i in np.flatnonzero(np.asarray(COUNTS) == 0):
        np.testing.assert_array_equal(got.color[i], background[i])
        assert got.accumulation[i] == 0.0 and got.depth[i] == far[i]


def test_packed_gradients_equal_dense_gradients():
    intervals, values, packed, flat = dense_and_packed()
    far, background = f32(np.linspace(5, 9, RAYS)), jnp.ones((RAYS, 3))
    coefficients = f32(np.random.default_rng(4).normal(size=(RAYS, 3)))

    def total(density, colors, intervals):
        weights = volume.render_weights(density, intervals)
        rendering = volume.render(weights, colors, intervals, far, background)
        return jnp.sum(rendering.color * coefficients) + jnp.sum(rendering.depth)

    gradient = jax.jit(jax.grad(total, argnums=(0, 1)))
    dense = gradient(values["density"], values["colors"], intervals)
    ragged = gradient(flat["density"], flat["colors"], packed)
    for a, b in zip(dense, ragged, strict=True):
        for i, count in enumerate(COUNTS):
            begin = int(packed.start[i])
            np.testing.assert_allclose(b[begin : begin + count], a[i, :count], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(b[-PADDING:], 0.0)


@pytest.mark.parametrize("level", [0.0, 1e38, np.inf])
def test_packed_values_and_gradients_are_finite_at_every_density(level):
    _, _, packed, flat = dense_and_packed()
    density = jnp.full(flat["density"].shape, level, jnp.float32)  # in padding, too: infinity times no length

    def total(density):
        return jnp.sum(jnp.square(volume.packed_weights_from_density(density, packed)))

    value, gradient = jax.value_and_grad(total)(density)
    assert np.isfinite(value) and np.all(np.isfinite(gradient))
    np.testing.assert_array_equal(gradient[-PADDING:], 0.0)


def test_no_rays_have_slots():
    _, _, packed, flat = dense_and_packed()
    empty = packed.replace(
        ray=jnp.full_like(packed.ray, RAYS), t0=jnp.zeros_like(packed.t0), t1=jnp.zeros_like(packed.t1)
    )
    weights = volume.packed_weights_from_density(flat["density"], empty)
    got = volume.packed_composite(weights, flat["colors"], empty, jnp.full(RAYS, 3.0), jnp.ones((RAYS, 3)))
    np.testing.assert_array_equal(got.color, 1.0)
    np.testing.assert_array_equal(got.depth, 3.0)


def test_an_opaque_end_of_packed_rays_is_refused():
    _, _, packed, flat = dense_and_packed()
    with pytest.raises(ValueError, match="opaque_end"):
        volume.render_weights(flat["density"], packed, opaque_end=True)
