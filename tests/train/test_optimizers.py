"""Schedules at their landmarks, and what the optimizer does to which parameter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.train.optimizers import SCHEDULES, adam, cosine, exponential, log_lerp


def test_log_lerp_is_geometric_and_stays():
    schedule = log_lerp(initial=1e-2, final=1e-4, steps=100)
    np.testing.assert_allclose([schedule(s) for s in (0, 50, 100, 500)], [1e-2, 1e-3, 1e-4, 1e-4], rtol=1e-5)


def test_delayed_warm_up_begins_at_the_scale_and_vanishes():
    schedule = log_lerp(initial=1.0, final=1.0, steps=100, delay_steps=10, delay_scale=0.01)
    np.testing.assert_allclose(
        [schedule(s) for s in (0, 5, 10, 50)], [0.01, 0.01 + 0.99 * np.sqrt(0.5), 1, 1], rtol=1e-5
    )


def test_exponential_and_cosine():
    np.testing.assert_allclose(exponential(initial=2.0, rate=0.1, steps=10)(20), 0.02, rtol=1e-5)
    schedule = cosine(initial=1.0, final=0.2, steps=110, warmup=10)
    np.testing.assert_allclose([schedule(s) for s in (4, 10, 60, 110, 900)], [0.5, 1.0, 0.6, 0.2, 0.2], rtol=1e-5)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_a_function_of_the_step_alone_and_traceable(name):
    schedule = SCHEDULES[name](steps=100)
    steps = jnp.arange(0, 200, 7)
    traced = jax.jit(jax.vmap(schedule))(steps)
    np.testing.assert_allclose(traced, [schedule(s) for s in steps], rtol=1e-5)


PARAMS = {"tables": {"level_00": jnp.ones(3)}, "mlp": {"kernel": jnp.ones(3)}}


def update(gradient, **options):
    optimizer = adam(schedule=lambda step: jnp.float32(0.1), **options)
    return optimizer.update(gradient, optimizer.init(PARAMS), PARAMS)[0]


def test_the_first_step_of_adam_is_the_learning_rate_against_the_sign():
    gradient = jax.tree.map(lambda leaf: leaf * jnp.asarray([1e-3, -5.0, 0.0]), PARAMS)
    for leaf in jax.tree.leaves(update(gradient)):
        np.testing.assert_allclose(leaf, [-0.1, 0.1, 0.0], rtol=1e-4)


def test_weight_decay_spares_tables_and_table_rate_scales_them():
    zero = jax.tree.map(jnp.zeros_like, PARAMS)
    decayed = update(zero, weight_decay=1e-2)
    np.testing.assert_array_equal(decayed["tables"]["level_00"], 0.0)
    np.testing.assert_allclose(decayed["mlp"]["kernel"], -0.1, rtol=1e-4)
    scaled = update(PARAMS, table_rate=3.0)
    np.testing.assert_allclose(scaled["tables"]["level_00"], -0.3, rtol=1e-4)
    np.testing.assert_allclose(scaled["mlp"]["kernel"], -0.1, rtol=1e-4)


def test_clipping_bounds_the_global_norm_before_adam():
    optimizer = adam(schedule=lambda step: jnp.float32(1.0), clip_norm=0.5)
    _, state = optimizer.update(jax.tree.map(lambda leaf: leaf * 100.0, PARAMS), optimizer.init(PARAMS), PARAMS)
    first_moment = jax.tree.leaves([s.mu for s in state if hasattr(s, "mu")])
    np.testing.assert_allclose(np.sqrt(sum(np.sum(m**2) for m in first_moment)), 0.1 * 0.5, rtol=1e-4)
