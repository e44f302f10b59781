"""Stages of a run: how they are written, what carries over, and that an interrupted run ends in the same bits."""

from __future__ import annotations

import functools
import json
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_ladder import train

from nerfjax.cli.config_flags_parser import parse_config
from nerfjax.errors import UserError
from nerfjax.train import configuration
from nerfjax.train.build import build_experiment, check
from nerfjax.train.configuration import config_hash, load_config
from nerfjax.train.curriculum import stage_plans
from nerfjax.train.stage import Stage
from nerfjax.train.state import TrainState, named_leaves, shared_leaves

TINY = {
    "scene.source": "analytic:spheres?views=4&size=16&test=1",
    "train.batch_rays": 64,
    "train.steps": 40,
    "train.steps_per_dispatch": 5,
    "field.instant_ngp.levels": 2,
    "field.instant_ngp.log2_size": 8,
    "network.hashgrid.levels": 2,
    "network.hashgrid.log2_size": 8,
    "sampler.proposal.num_proposal": (8,),
    "sampler.proposal.num_final": 6,
    "sampler.stratified.num_samples": 8,
    "parallel.devices": 1,
}
STAGES = {
    "stage0": {"until": 12, "sampler": "stratified", "downscale": 2},
    "stage1": {"until": 30, "sampler": {"name": "proposal"}, "batch_rays": 32, "distortion_weight": 0.01},
    "stage2": {"sampler": {"name": "stratified", "stratified": {"num_samples": 12}}},
}


def config_with(curriculum, **changes):
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    return load_config("demo", {**TINY, "curriculum": curriculum, **changes})


def test_a_run_without_a_curriculum_is_one_stage():
    (plan,) = stage_plans(load_config("demo"))
    assert (plan.begin, plan.until, plan.downscale, plan.changes) == (0, None, 1, {})


def test_a_stage_changes_the_config_and_no_other_stage():
    config = config_with(STAGES, scene__downscale=3)
    plans = stage_plans(config)
    assert [(plan.begin, plan.until) for plan in plans] == [(0, 12), (12, 30), (30, None)]
    stages = [configuration.stage_config(config, plan) for plan in plans]
    assert [stage.sampler.name for stage in stages] == ["stratified", "proposal", "stratified"]
    assert [stage.sampler.stratified.num_samples for stage in stages] == [8, 8, 12]
    assert [stage.train.batch_rays for stage in stages] == [64, 32, 64]
    assert [stage.train.distortion_weight for stage in stages] == [0.0, 0.01, 0.0]
    assert [stage.scene.downscale for stage in stages] == [6, 3, 3]


def test_a_stage_is_set_key_by_key_in_a_file_and_on_the_command_line(tmp_path):
    want = config_with(STAGES)
    path = tmp_path / "mine.py"
    path.write_text(
        "from nerfjax.train.configuration import load_config\n"
        "def get_config(arg=None):\n"
        f"    config = load_config('demo', {TINY!r})\n"
        f"    config.curriculum = {STAGES!r}\n"
        "    config.curriculum.stage2 = dict(sampler=dict(name='stratified'))\n"
        "    return config\n"
    )
    keys = {
        "stage2.sampler.stratified.num_samples": "12", "stage1.until": "30", "stage0.until": "12",
        "stage0.sampler": "stratified", "stage0.downscale": "2", "stage1.sampler.name": "proposal",
        "stage1.train.batch_rays": "32", "stage1.distortion_weight": "0.01", "stage2.sampler.name": "stratified",
    }  # fmt: skip
    flags = [f"--config.curriculum.{key}={value}" for key, value in keys.items()]
    tiny = tmp_path / "tiny.py"
    tiny.write_text(
        "from nerfjax.train.configuration import load_config\n"
        f"def get_config(arg=None):\n    return load_config('demo', {TINY!r})\n"
    )
    from_file = parse_config(str(path), ["--config.curriculum.stage2.sampler.stratified.num_samples=12"])
    for config in (from_file, parse_config(str(tiny), flags)):
        assert config_hash(config) == config_hash(want)
        again = configuration.config_from_json(json.loads(json.dumps(configuration.config_to_json(config))))
        assert config_hash(again) == config_hash(config)
        check(again)


def test_the_hash_covers_the_curriculum():
    base = config_with(STAGES)
    assert config_hash(config_with({})) == config_hash(load_config("demo", TINY))
    same = [
        {"curriculum.stage2.until": 40},
        {"curriculum.stage2.sampler.proposal.num_final": 3},
        {"train.compile_ahead": False},
    ]
    other = [
        {"curriculum.stage0.until": 13},
        {"curriculum.stage0.downscale": 4},
        {"curriculum.stage2.sampler.stratified.num_samples": 13},
        {"curriculum": {}},
    ]
    for change in same:
        assert config_hash(config_with(STAGES, **change)) == config_hash(base), change
    for change in other:
        assert config_hash(load_config("demo", {**TINY, "curriculum": STAGES, **change})) != config_hash(base), change


@pytest.mark.parametrize(
    ("curriculum", "message"),
    [
        ({"stage0": {"untill": 5}, "stage1": {}}, "until"),
        ({"stage0": {"until": 5, "sampler": "stratifed"}, "stage1": {}}, "stratified"),
        ({"stage0": {"until": 5, "sampler": {"stratified": {"num_sample": 3}}}, "stage1": {}}, "num_samples"),
        ({"stage0": {"until": 5, "train": {"steps": 3}}, "stage1": {}}, "cannot change"),
        ({"stage0": {"until": 5, "field": {"name": "nerf"}}, "stage1": {}}, "cannot change"),
        ({"stage0": {"until": 5, "batch_rays": "many"}, "stage1": {}}, "another type"),
        ({"stage0": {"until": 5, "batch_rays": 8, "train": {"batch_rays": 9}}, "stage1": {}}, "twice"),
        ({"stage0": {"until": 5, "downscale": 0}, "stage1": {}}, "downscale must be a positive"),
        ({"stage0": {"until": 5, "sampler": "auto"}, "stage1": {}}, "auto"),
        ({"stage0": {"until": 2.5}, "stage1": {}}, "until must be a positive"),
        ({"stage0": {"until": 0}, "stage1": {}}, "positive"),
        ({"stage0": {"until": 9}, "stage1": {"until": 9}, "stage2": {}}, "one after the other"),
        ({"stage0": {"until": 9}, "stage1": {"until": 5}, "stage2": {}}, "above 9"),
        ({"stage0": {}, "stage1": {}}, "must say when it ends"),
        ({"stage0": {"until": 5}, "stage1": {"until": 30}}, "ends before the run"),
        ({"stage0": {"until": 5}, "stage2": {}}, "numbered"),
        ({"warmup": {"until": 5}}, "stage0"),
        ({"stage0": 3}, "dict"),
        (3, "stages"),
    ],
)
def test_a_wrong_stage_is_named_with_its_remedy(curriculum, message):
    with pytest.raises(UserError, match=message):
        check(config_with(curriculum))


def test_a_wrong_flag_of_a_stage_is_named_with_its_remedy():
    for flag, message in {
        "stage0.untill=3": "until",
        "stage0=3": "until",
        "stge0.until=3": "stage0.until",
        "stage0.until=soon": "int",
        "stage0.sampler.proposal.num_finale=3": "num_final",
    }.items():
        with pytest.raises(UserError, match=message):
            parse_config("demo", [f"--config.curriculum.{flag}"])


def state_of(**parts) -> TrainState:
    empty = dict(params={}, sampler_aux={}, pixel_state={}, opt_state={}, key=jnp.zeros(2))
    scalars = dict.fromkeys(("step", "first_bad_step", "bad_tensor"), jnp.int32(0))
    return TrainState(**scalars, rung=jnp.zeros(2, jnp.int32), rate_scale=jnp.ones(()), **{**empty, **parts})


def test_what_carries_over():
    field, table = {"kernel": jnp.zeros((2, 3))}, jnp.zeros((4, 2))
    moments = {"mu": {"field": field, "sampler": (table,)}, "count": jnp.int32(3)}
    before = state_of(
        params={"field": field, "sampler": (table,)}, opt_state=(moments,), pixel_state={"map": jnp.zeros(3)},
        sampler_aux={"grid": jnp.zeros(3), "count": jnp.int32(0)},
    )  # fmt: skip
    always = {"step", "first_bad_step", "bad_tensor", "key", "rate_scale", "params/field/kernel", "opt_state/0/count"}
    always.add("opt_state/0/mu/field/kernel")
    sampler = {"params/sampler/0", "opt_state/0/mu/sampler/0"}
    aux = {"sampler_aux/grid", "sampler_aux/count"}
    share = functools.partial(shared_leaves, before)
    assert share(before, same_sampler=False, same_pixels=False) == always
    assert share(before, same_sampler=True, same_pixels=True) == always | sampler | aux | {"pixel_state/map"}
    # A grid of another size takes its counters with it; a table of another size takes its moments.
    grid = before.replace(sampler_aux={"grid": jnp.zeros(4), "count": jnp.int32(0)})
    assert share(grid, same_sampler=True, same_pixels=False) == always | sampler
    other = jnp.zeros((5, 2))
    moments = {**moments, "mu": {"field": field, "sampler": (other,)}}
    wider = before.replace(params={"field": field, "sampler": (other,)}, opt_state=(moments,))
    assert share(wider, same_sampler=True, same_pixels=False) == always | aux


def compilations(caplog) -> int:
    return sum("Finished XLA compilation of jit(train_dispatch)" in line for line in caplog.messages)


@pytest.fixture
def compile_log(caplog):
    caplog.set_level(logging.WARNING)
    jax.config.update("jax_log_compiles", True)
    yield functools.partial(compilations, caplog)
    jax.config.update("jax_log_compiles", False)


def test_three_stages_are_three_compilations(compile_log, tmp_path):
    """At multiples of steps_per_dispatch there is one length of dispatch; compiled ahead, it is the same program."""
    stages = {**STAGES, "stage0": {**STAGES["stage0"], "until": 15}}
    results = []
    for ahead in (False, True):
        before = compile_log()
        experiment = build_experiment(config_with(stages))
        results.append(train(experiment, tmp_path / str(ahead), compile_ahead=ahead))
        assert compile_log() - before == 3
    (state, reports), (same, _) = results
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)
    assert int(state.step) == 40 and [r["stage"] for r in reports] == [0] * 3 + [1] * 3 + [2] * 2
    assert [r["samples_per_ray"] for r in reports] == [8.0] * 3 + [6.0] * 3 + [12.0] * 2
    assert [r["rays_per_step"] for r in reports] == [64] * 3 + [32] * 3 + [64] * 2
    assert ("loss/interlevel" in reports[3]) and "loss/interlevel" not in reports[2]
    assert ("loss/distortion" in reports[3]) and "loss/distortion" not in reports[6]


def test_an_interrupted_curriculum_ends_in_the_same_bits(tmp_path, monkeypatch):
    """Stratified at half the resolution, proposal, stratified; stopped inside of stage two and at both boundaries."""
    monkeypatch.setattr(Stage, "dispatch_for", functools.cache(Stage.dispatch_for))  # the same programs, made once
    experiment = build_experiment(config_with(STAGES))
    assert [stage.feed.images.table.width.max() for stage in experiment.stages] == [8, 16, 16]
    assert experiment.stages[1].feed is experiment.stages[2].feed
    want, reports = train(experiment, tmp_path / "whole")
    # A dispatch never straddles a boundary, and neither does a report: 12 is no multiple of 5.
    assert [r["step"] for r in reports] == [5, 10, 12, 15, 20, 25, 30, 35, 40]
    assert [r["stage"] for r in reports] == [0, 0, 0, 1, 1, 1, 1, 2, 2]
    parts = tmp_path / "parts"
    for stop_after, stopped in ((10, 12), (15, 20), (25, 30)):
        assert train(experiment, parts, stop_after=stop_after)[0] == stopped
    got, _ = train(experiment, parts)
    leaves = named_leaves(want)
    for name, leaf in named_leaves(got).items():
        np.testing.assert_array_equal(leaf, leaves[name], err_msg=name)
    assert not any(name.startswith("params/sampler") for name in leaves)


def test_a_stage_starts_from_the_field_of_the_one_before_and_the_seed():
    experiment = build_experiment(config_with(STAGES))
    first, second = experiment.stages[:2]
    state = first.init_state()
    marked = jax.tree.map(lambda leaf: leaf + jnp.ones((), leaf.dtype), state.params["field"])
    state = state.replace(params={**state.params, "field": marked}, step=jnp.int32(12))
    entered, fresh = second.enter(first, state), second.init_state()
    for a, b in zip(jax.tree.leaves(entered.params["field"]), jax.tree.leaves(marked), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(jax.tree.leaves(entered.params["sampler"]), jax.tree.leaves(fresh.params["sampler"]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert jax.tree.leaves(entered.params["sampler"]) and int(entered.step) == 12
    assert jax.tree.structure(entered) == jax.tree.structure(second.abstract_state)


def test_a_state_at_a_boundary_is_of_the_stage_that_ends_there():
    experiment = build_experiment(config_with(STAGES), with_data=False)
    assert [experiment.stage_of(step).index for step in (0, 1, 12, 13, 30, 31, 40)] == [0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("until", "stages"), [(39, 2), (40, 1), (41, 1), (1000, 1)])
def test_a_stage_that_the_run_does_not_reach_is_left_out(until, stages):
    experiment = build_experiment(config_with({"stage0": {"until": until}, "stage1": {}}), with_data=False)
    assert len(experiment.stages) == stages and experiment.stages[-1].end == 40
