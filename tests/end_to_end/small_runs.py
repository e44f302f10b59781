"""Runs of a few steps in this process, of which each program is compiled once for all the runs that have it."""

from __future__ import annotations

import contextlib
import json

import jax
import numpy as np
import pytest

from nerfjax.telemetry.meters import is_measured
from nerfjax.train.configuration import config_hash, load_config
from nerfjax.train.run import load_run, train
from nerfjax.train.stage import Stage
from nerfjax.train.state import named_leaves

STEPS = 12
SMALL = {
    "scene.source": "analytic:spheres?views=3&size=12&val=0&test=0",
    "train.steps": STEPS,
    "train.batch_rays": 32,
    "train.steps_per_dispatch": 2,
    "train.log_every": 2,
    "train.checkpoint_every": 4,
    "sampler.name": "stratified",
    "sampler.stratified.num_samples": 6,
    "field.instant_ngp.levels": 2,
    "field.instant_ngp.log2_size": 8,
    "parallel.devices": 1,
}
FLAGS = ["--config=demo", *(f"--config.{key}={value}" for key, value in SMALL.items())]


@contextlib.contextmanager
def shared_programs():
    """Inside, stages of equal config share their compiled programs; only for runs on one capture."""
    programs, dispatch_for, init_state, render = {}, Stage.dispatch_for, Stage.init_state.func, Stage._render.func

    def shared(make, kind):
        def get(stage, *arguments):
            key = (kind, config_hash(stage.config), stage.begin, *arguments)
            if key not in programs:
                programs[key] = make(stage, *arguments)
            return programs[key]

        return get

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stage, "dispatch_for", shared(dispatch_for, "dispatch"))
        patch.setattr(Stage, "init_state", property(shared(init_state, "init")))
        patch.setattr(Stage, "_render", property(shared(render, "render")))
        yield


def train_small(folder, messages: list | None = None, **changes):
    """Trains, or goes on with, a small run; what it says goes to the messages."""
    config = load_config("demo", {**SMALL, **{key.replace("__", "."): value for key, value in changes.items()}})
    return train(config, folder, say=(messages if messages is not None else []).append)


def final_leaves(folder) -> dict[str, np.ndarray]:
    """The leaves of a run's newest checkpoint, which must be its last."""
    run = load_run(folder)
    assert run.step == run.config.train.steps
    return named_leaves(jax.device_get(run.state))


def record(folder) -> list[dict]:
    """The rows of metrics.jsonl without what the machine and the moment decide."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if not is_measured(key)} for row in rows]


def assert_ends_alike(folder, other) -> None:
    """Both runs are done, with the same bits and the same record."""
    got, want = final_leaves(folder), final_leaves(other)
    assert got.keys() == want.keys()
    for name in want:
        assert np.asarray(got[name]).tobytes() == np.asarray(want[name]).tobytes(), name
    assert record(folder) == record(other)
    assert all(json.loads((each / "manifest.json").read_text())["status"] == "done" for each in (folder, other))
