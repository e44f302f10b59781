"""The average of the parameters that a run renders with, and the factor on its learning rate."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_curriculum import TINY, state_of

from nerfjax.renderer import RenderedImage
from nerfjax.train.averages import update_average
from nerfjax.train.build import build_experiment
from nerfjax.train.checkpoint import Checkpoints
from nerfjax.train.configuration import load_config
from nerfjax.train.state import named_leaves, shared_leaves

STAGES = {"stage0": {"until": 3, "sampler": "stratified"}, "stage1": {"sampler": "proposal"}}


@pytest.fixture(scope="module")
def experiment():
    return build_experiment(load_config("demo", {**TINY, "curriculum": STAGES, "train.ema": 0.9}))


@pytest.fixture(scope="module")
def dispatch(experiment):
    return experiment.dispatch_for(1)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.device_get(tree))]


def test_the_average_is_the_weighted_mean_of_all_parameters_so_far():
    params = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    average = {"kernel": jnp.asarray(params[0])}
    weights = np.zeros(200)
    weights[0] = 1.0
    for step in range(199):
        average = update_average(average, {"kernel": jnp.asarray(params[step + 1])}, step=step, decay=0.95)
        decay = min(0.95, (1 + step) / (10 + step))
        weights *= decay
        weights[step + 1] = 1 - decay
    np.testing.assert_allclose(average["kernel"], weights @ params, atol=1e-5)
    assert weights.sum() == pytest.approx(1.0) and weights[0] < 1e-6
    assert update_average(None, params[0], step=0, decay=0.0) is None


def test_the_step_averages_what_it_trains_and_the_run_renders_with_it(experiment, dispatch):
    state = experiment.init_state()
    want = leaves(state.params)
    for step in range(3):
        state, _ = dispatch(state, experiment.data)
        weight = np.float32(1 - min(0.9, (1 + step) / (10 + step)))
        want = [a + weight * (p - a) for a, p in zip(want, leaves(state.params), strict=True)]
    assert jax.tree.structure(state.ema) == jax.tree.structure(state.params)
    for name, got, wanted in zip(named_leaves(state.params), leaves(state.ema), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-7, err_msg=name)
    seen, stage = [], experiment.stage

    def render(params, *rest):
        seen.append(params)
        return RenderedImage(*[np.zeros((1, 1))] * 3)

    dataclasses.replace(stage, image_renderer=lambda: render).render_image(
        state, experiment.scene.cameras[np.array([0])]
    )
    assert seen == [state.ema] and state.ema is not state.params
    assert state.replace(ema=None).render_params is state.params


def test_the_average_comes_back_and_goes_over_to_the_next_stage(experiment, dispatch, tmp_path):
    first, second = experiment.stages
    state, _ = dispatch(first.init_state(), experiment.data)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, {})
        checkpoints.wait()
        restored, _ = checkpoints.restore(first.abstract_state)
    for a, b in zip(leaves(restored), leaves(state), strict=True):
        np.testing.assert_array_equal(a, b)
    entered = second.enter(first, restored.replace(rate_scale=restored.rate_scale * 0.5))
    for a, b in zip(leaves(entered.ema["field"]), leaves(state.ema["field"]), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(leaves(entered.ema["sampler"]), leaves(entered.params["sampler"]), strict=True):
        np.testing.assert_array_equal(a, b)  # of what is new, the average begins with the initial value
    assert leaves(entered.ema["sampler"]) and float(entered.rate_scale) == 0.5
    assert jax.tree.structure(entered) == jax.tree.structure(second.abstract_state)


def test_an_average_is_taken_over_with_its_parameter():
    old = state_of(params={"field": jnp.zeros(3), "sampler": (jnp.zeros(3),)})
    old = old.replace(ema=old.params)
    shared = shared_leaves(old, old, same_sampler=False, same_pixels=True)
    assert "ema/field" in shared and "ema/sampler/0" not in shared
    assert "ema/sampler/0" in shared_leaves(old, old, same_sampler=True, same_pixels=True)


def test_the_rate_scale_multiplies_the_update_without_another_compilation(experiment, dispatch):
    def stepped(scale):
        state = experiment.init_state()
        before = leaves(state.params)
        state, metrics = dispatch(state.replace(rate_scale=state.rate_scale * scale), experiment.data)
        return [a - b for a, b in zip(leaves(state.params), before, strict=True)], metrics["learning_rate"][0]

    (whole, rate), (half, half_rate), (none, no_rate) = (stepped(scale) for scale in (1.0, 0.5, 0.0))
    for one, other, nothing in zip(whole, half, none, strict=True):
        np.testing.assert_allclose(other, 0.5 * one, rtol=1e-3, atol=1e-6)
        assert not nothing.any()
    assert (half_rate, no_rate) == (0.5 * rate, 0.0) and rate > 0
    assert dispatch._cache_size() == 1


def test_a_restored_state_has_the_shardings_of_the_initial_one_and_compiles_nothing(experiment, dispatch, tmp_path):
    state, _ = dispatch(experiment.init_state(), experiment.data)
    compiled = dispatch._cache_size()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, {})
        checkpoints.wait()
        restored, _ = checkpoints.restore(experiment.abstract_state)
    initial = named_leaves(experiment.init_state())
    for name, leaf in named_leaves(restored).items():
        want = initial[name]
        assert (leaf.sharding, leaf.committed, leaf.aval) == (want.sharding, want.committed, want.aval), name
    dispatch(restored, experiment.data)
    assert dispatch._cache_size() == compiled == 1
