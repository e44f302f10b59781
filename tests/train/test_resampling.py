"""Coarse to fine: a stage of another resolution goes on from the same function of space."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_ladder import train

from nerfjax.errors import UserError
from nerfjax.train.build import build_experiment
from nerfjax.train.configuration import load_config
from nerfjax.train.curriculum import stage_plans
from nerfjax.train.state import named_leaves
from nerfjax.types import Points

TINY = {
    "scene.source": "analytic:spheres?views=4&size=16&test=1",
    "train.batch_rays": 32,
    "train.steps": 10,
    "train.steps_per_dispatch": 5,
    "train.ema": 0.5,
    "field.name": "tensorf",
    "field.tensorf.resolution": 9,
    "field.tensorf.density_components": 2,
    "field.tensorf.appearance_components": 2,
    "field.tensorf.features": 3,
    "field.tensorf.color_width": 4,
    "field.tensorf.color_layers": 1,
    "field.tensorf.density_shift": 0.0,
    "sampler.name": "stratified",
    "sampler.stratified.num_samples": 6,
    "curriculum": {"stage0": {"until": 5, "field": {"tensorf": {"resolution": 5}}, "l1_weight": 0.1}, "stage1": {}},
    "parallel.devices": 1,
}


def experiment_with(changes=None):
    return build_experiment(load_config("demo", {**TINY, **(changes or {})}))


def density(stage, params):
    module = stage.parts.renderer.field
    low, high = module.domain.lower, module.domain.upper
    positions = jax.random.uniform(jax.random.key(3), (50, 3), minval=jnp.asarray(low), maxval=jnp.asarray(high))
    points = Points(positions, jnp.zeros(50))
    return jax.jit(lambda params: module.apply({"params": params}, points, method="density"))(params)


def test_a_finer_stage_starts_from_the_same_function():
    """Cells are halved, so that nothing is lost; parameters of no table stay, moments of tables start anew."""
    first, second = experiment_with().stages
    state = first.init_state()
    ones = jax.tree.map(jnp.ones_like, state.opt_state)
    average = jax.tree.map(lambda leaf: 0.5 * leaf, state.params)
    state = state.replace(step=jnp.int32(5), opt_state=ones, ema=average)
    entered = second.enter(first, state)
    assert jax.tree.map(jnp.shape, entered) == jax.tree.map(lambda leaf: leaf.shape, second.abstract_state)
    assert entered.params["field"]["tables"]["density_planes"][0].shape == (9, 9, 2)
    for tree in ("params", "ema"):
        before, after = getattr(state, tree)["field"], getattr(entered, tree)["field"]
        for got, want in zip(density(second, after), density(first, before), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    for name, leaf in named_leaves(entered).items():
        if name.startswith(("params/field/basis", "params/field/color_head")):
            np.testing.assert_array_equal(leaf, named_leaves(state)[name])
        if name.startswith("opt_state") and leaf.dtype == jnp.float32:
            np.testing.assert_array_equal(leaf, jnp.zeros_like(leaf) if "tables" in name else jnp.ones_like(leaf), name)


def test_a_run_goes_through_its_stages(tmp_path):
    state, reports = train(experiment_with(), tmp_path)
    assert int(state.step) == 10 and [report["stage"] for report in reports] == [0, 1]
    assert "loss/l1" in reports[0] and "loss/l1" not in reports[1]
    assert state.params["field"]["tables"]["density_lines"][0].shape == (9, 2)


def test_the_published_stages():
    plans = stage_plans(load_config("tensorf"))
    assert [plan.until for plan in plans] == [2000, 3000, 4000, 5500, 7000, None]
    assert [plan.changes.get("field.tensorf.resolution", 300) for plan in plans] == [128, 152, 180, 213, 253, 300]
    assert [plan.changes.get("train.l1_weight", 4e-5) for plan in plans] == [8e-5] + [4e-5] * 5
    assert load_config("tensorf:cp").field.tensorf.resolution == 500
    plans = stage_plans(load_config("plenoxels"))
    assert [plan.changes.get("field.plenoxels.resolution", 512) for plan in plans] == [256, 512]
    for name in ("tensorf:tucker", "plenoxels:huge"):
        with pytest.raises(UserError, match="unknown"):
            load_config(name)


@pytest.mark.parametrize(
    "changes",
    [
        {"curriculum.stage0.field.tensorf.appearance_components": 3},
        {"curriculum.stage0.field.tensorf.features": 5},
        {"curriculum.stage0.field.tensorf.decomposition": "cp"},
        {"field.name": "instant_ngp", "curriculum.stage0": {"until": 5, "field": {"instant_ngp": {"levels": 3}}}},
    ],
)
def test_what_is_no_change_of_resolution_is_refused_before_anything_compiles(changes):
    with pytest.raises(UserError, match=r"stage 1 .* cannot be taken over"):
        experiment_with(changes)
