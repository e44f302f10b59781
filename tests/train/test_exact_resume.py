"""Whatever a run is made of, one that was stopped and goes on ends in the same bits as one that was not.

Every sampler, pixel sampler and source of data takes part, and each with a schedule in which what it carries changes:
grids and maps are refreshed before and after the stop. A member that is new is found missing here.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from nerfjax.errors import Preempted
from nerfjax.pixels import PIXELS
from nerfjax.samplers import SAMPLERS
from nerfjax.telemetry.meters import is_measured
from nerfjax.train.build import build_experiment
from nerfjax.train.checkpoint import Checkpoints
from nerfjax.train.configuration import load_config
from nerfjax.train.loop import StopSignal, fit
from nerfjax.train.run import restore_or_init
from nerfjax.train.stage import Stage
from nerfjax.train.state import named_leaves

STEPS, STOP = 6, 3  # a report is due at every second step, an evaluation at every one
TINY = {
    "scene.source": "analytic:spheres?views=3&size=12&val=0&test=0",
    "train.batch_rays": 32,
    "train.steps": STEPS,
    "train.steps_per_dispatch": 1,
    "field.instant_ngp.levels": 1,
    "field.instant_ngp.log2_size": 6,
    "network.hashgrid.levels": 1,
    "network.hashgrid.log2_size": 6,
    "sampler.stratified.num_samples": 4,
    "sampler.hierarchical.num_coarse": 4,
    "sampler.hierarchical.num_fine": 4,
    "sampler.proposal.num_proposal": (4,),
    "sampler.proposal.num_final": 4,
    "sampler.occupancy.resolution": 8,
    "sampler.occupancy.diagonal_steps": 32,
    "sampler.occupancy.samples_per_ray": 8.0,
    "sampler.occupancy.warmup": 2,
    "sampler.occupancy.period": 2,
    "sampler.compose.resolution": 8,
    "sampler.compose.num_first": 8,
    "sampler.compose.num_proposal": (4,),
    "sampler.compose.num_final": 4,
    "sampler.compose.warmup": 2,
    "sampler.compose.period": 2,
    "sampler.adaptive.num_proposal": (4,),
    "sampler.adaptive.samples_per_ray": 4.0,
    "sampler.neus.num_uniform": 4,
    "sampler.neus.num_importance": 4,
    "pixels.patches.size": 2,
    "pixels.per_image.images_per_batch": 2,
    "pixels.center_crop.steps": 4,
    "pixels.error_guided.interval": 2,
    "pixels.error_guided.growth": 1.0,
    "parallel.devices": 1,
}
STAGES = {"stage0": {"until": 2, "sampler": "stratified", "downscale": 2}, "stage1": {"until": 4}, "stage2": {}}


class Row(NamedTuple):
    """A run: a sampler, a pixel sampler, and what else is not ``TINY``'s."""

    sampler: str = "stratified"
    pixels: str = "uniform"
    changes: dict[str, Any] = {}


ROWS = {
    "stratified, stratified": Row("stratified", "stratified"),
    "hierarchical, low_discrepancy": Row("hierarchical", "low_discrepancy"),
    "proposal, error_guided": Row("proposal", "error_guided", {"train.ema": 0.9}),
    "occupancy, center_crop": Row("occupancy", "center_crop", {"train.rungs": 2}),
    "compose, per_image": Row("compose", "per_image"),
    "adaptive, patches": Row("adaptive", "patches"),
    "neus, solid_angle": Row("neus", "solid_angle"),
    "masked": Row(pixels="masked"),
    "foreground": Row(pixels="foreground"),
    "edges": Row(pixels="edges"),
    "curriculum": Row("proposal", changes={"curriculum": STAGES, "pixels.name": "error_guided"}),
    "stream of rays": Row(changes={"data.source": "stream"}),
    "stream of views": Row(changes={"data.source": "stream", "data.layout": "views", "data.images_per_batch": 2}),
}


@pytest.fixture(autouse=True, scope="module")
def programs_that_compile_fast():
    """Nothing here is about speed: what is compiled without optimisations is done in half the time."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


class Recorder:
    def __init__(self):
        self.reports = []

    def write(self, report):
        self.reports.append({name: value for name, value in report.items() if not is_measured(name)})

    def close(self):
        pass


def train(experiment, folder, *, stop_at: int = -1):
    """Trains, or goes on; returns the named leaves of the state and the reports."""
    with Checkpoints(folder) as checkpoints, StopSignal() as stop:
        state, meta = restore_or_init(experiment, checkpoints)
        recorder = Recorder()

        def on_eval(state, step):
            if step == stop_at - 1:
                stop.request("the test")
            return {"eval/step": step, "eval/of_state": int(state.step)}

        resumed = {"pending": meta.get("interval"), "missed": meta.get("evaluation")}
        options = dict(steps_per_dispatch=1, log_every=2, eval_every=1, on_eval=on_eval, writers=[recorder], stop=stop)
        try:
            state = fit(state=state, stages=experiment.stages, checkpoints=checkpoints, **options, **resumed)
        except Preempted:
            state, meta = restore_or_init(experiment, checkpoints)
            assert meta["step"] == stop_at
    return named_leaves(jax.device_get(state)), recorder.reports


def assert_same(got, want):
    assert got.keys() == want.keys()
    for name in want:
        assert np.asarray(got[name]).tobytes() == np.asarray(want[name]).tobytes(), name


def test_every_member_has_a_row():
    plans = [{row.sampler for row in ROWS.values()}, {row.pixels for row in ROWS.values()}]
    assert plans == [set(SAMPLERS), set(PIXELS)]


@pytest.mark.parametrize("name", ROWS)
def test_resumed_equals_uninterrupted_bit_for_bit(name, tmp_path, monkeypatch):
    """State and record; stopped between two reports, with an evaluation due."""
    monkeypatch.setenv("NERFJAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Stage, "dispatch_for", functools.cache(Stage.dispatch_for))  # the same programs, made once
    row = ROWS[name]
    config = load_config("demo", {**TINY, "sampler.name": row.sampler, "pixels.name": row.pixels, **row.changes})
    experiment = build_experiment(config)
    want, reports = train(experiment, tmp_path / "whole")
    assert int(want["step"]) == STEPS and any("loss" in report for report in reports)
    half, first = train(experiment, tmp_path / "parts", stop_at=STOP)
    assert any(half[leaf].tobytes() != want[leaf].tobytes() for leaf in want.keys() & half.keys())
    got, second = train(experiment, tmp_path / "parts")
    assert_same(got, want)
    assert first + second == reports
