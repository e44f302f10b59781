"""A run that diverges keeps the step for a replay, and goes back with a lower rate where that is wanted."""

from __future__ import annotations

import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from nerfjax.errors import Diverged, UserError
from nerfjax.numerics import named
from nerfjax.runs.manifest import read_manifest, write_manifest
from nerfjax.train import divergence, replay
from nerfjax.train.build import build_experiment
from nerfjax.train.configuration import load_config
from nerfjax.train.fault_trace import FaultTrace
from nerfjax.train.run import load_run, train

TINY = {
    "scene.source": "analytic:spheres?views=3&size=16&val=0&test=0",
    "train.steps": 15,
    "train.steps_per_dispatch": 5,
    "train.checkpoint_every": 5,
    "train.log_every": 5,
    "train.batch_rays": 32,
    "train.compile_ahead": False,
    "sampler.name": "stratified",
    "sampler.stratified.num_samples": 4,
    "field.name": "nerf",
    "field.nerf.depth": 1,
    "field.nerf.width": 8,
    "field.nerf.position_degrees": 2,
    "field.nerf.direction_degrees": 1,
    "field.nerf.color_width": 8,
    "parallel.devices": 1,
}
# Adam's first step is as long as the rate.
TOO_FAST = {"schedule.log_lerp.initial": 1e20, "schedule.log_lerp.final": 1e20, "schedule.log_lerp.delay_steps": 0}
ROLLBACK = {"train.on_divergence": "rollback", "train.rollback_factor": 1e-22}


@pytest.fixture(scope="module")
def rolled_back(tmp_path_factory):
    """A run that diverges at its second step, goes back to its beginning and ends well, and what it said."""
    workdir, said = tmp_path_factory.mktemp("rolled_back") / "run", []
    train(load_config("demo", {**TINY, **TOO_FAST, **ROLLBACK}), workdir, say=said.append)
    return workdir, said


def test_a_rollback_lowers_the_rate_is_recorded_and_trains_on(rolled_back):
    workdir, said = rolled_back
    message = next(text for text in said if "diverged" in text)
    path = workdir / "replay" / "1.msgpack"
    assert f"--replay={path}" in message and "rolled back to step 0" in message and path.exists()
    manifest = read_manifest(workdir)
    assert manifest["status"] == "done" and len(manifest["rollbacks"]) == 1
    entry = manifest["rollbacks"][0]
    assert (entry["step"], entry["restored_step"]) == (1, 0) and entry["rate_scale"] == pytest.approx(1e-22)
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert rows[0]["step"] == 0 and rows[0]["rollback_from_step"] == 1  # and no row of what was taken back
    assert [row["step"] for row in rows if "loss" in row] == [5, 10, 15]
    assert all(row["learning_rate"] == pytest.approx(1e-2, rel=1e-4) for row in rows if "loss" in row)
    assert sum("compile_seconds" in row for row in rows) == 0  # it went on with the program that it had
    assert float(load_run(workdir).state.rate_scale) == pytest.approx(1e-22)


def test_a_replay_does_the_step_again_and_names_tensor_place_and_line(rolled_back):
    workdir, _ = rolled_back
    lines: list[str] = []
    assert replay.replay(workdir / "replay" / "1.msgpack", say=lines.append)
    text = "\n".join(lines)
    first = next(line for line in lines if line.startswith("  first:"))
    assert "step 1 diverges again" in text and "colors of samples" in first
    assert "dot_general at nerfjax/precision.py:" in text and "called at nerfjax/fields/nerf.py:" in text
    # In the order of computation: what comes before is finite, what comes after is not.
    order = [next(n for n, line in enumerate(lines) if line[4:].startswith(name)) for name in (
        "state/params/field/", "rays/origins", "samples/t", "density ", "colors of samples", "loss/color", "gradient of"
    )]  # fmt: skip
    assert order == sorted(order) and [lines[n][2] for n in order] == [" ", " ", " ", " ", "!", "!", "!"]


def test_a_step_that_is_fine_is_said_to_be_fine(tmp_path):
    experiment = build_experiment(load_config("demo", TINY))
    about = dict(step=0, tensor="loss", fingerprint=experiment.scene.fingerprint())
    path, lines = replay.write_replay(tmp_path, experiment, experiment.init_state(), **about), []
    assert not replay.replay(path, say=lines.append)
    assert "does not diverge" in lines[0]

    for spoil in (
        lambda b: b[:-100],
        lambda b: b[:2000] + bytes([b[2000] ^ 1]) + b[2001:],
        lambda b: b"",
        lambda b: b"?",
    ):
        (tmp_path / "bad.msgpack").write_bytes(spoil(path.read_bytes()))
        with pytest.raises(UserError, match="damaged"):
            replay.read_replay(tmp_path / "bad.msgpack")
    with pytest.raises(UserError, match="no such"):
        replay.read_replay(tmp_path / "none.msgpack")
    with pytest.raises(UserError, match="capture"):
        replay.replay(path, source="analytic:spheres?views=4&size=16&val=0&test=0")


@struct.dataclass
class Little:
    step: jax.Array
    rate_scale: jax.Array


def little(step: int, rate_scale: float = 1.0) -> Little:
    return Little(jnp.int32(step), jnp.float32(rate_scale))


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes the divergence of a run that is not there."""
    write_manifest(tmp_path, config={}, config_hash="", scene_fingerprint="", split={}, precision="default", seeds={})
    monkeypatch.setattr(
        divergence, "write_replay", lambda workdir, experiment, state, *, step, **more: f"{step}.msgpack"
    )

    def make(choice: str, earlier=None):
        config = types.SimpleNamespace(train=types.SimpleNamespace(on_divergence=choice, rollback_factor=0.25))
        said: list[str] = []
        experiment = types.SimpleNamespace(config=config)
        run = divergence.Divergence(experiment, tmp_path, fingerprint="f", earlier=earlier, say=said.append)
        return run, said

    return make


def always_diverging(state, row):
    raise Diverged("diverged", step=int(state.step) + 3, tensor="loss", state=state)


def test_it_stops_where_that_is_wanted(make):
    run, said = make("stop")
    with pytest.raises(Diverged, match="--replay=3.msgpack") as caught:
        run.fit(always_diverging, lambda: (little(0), {}), little(0))
    assert caught.value.exit_code == 3 and said == []


def test_it_goes_back_twice_and_no_more(make, tmp_path):
    run, said = make("rollback")
    with pytest.raises(Diverged, match="2 did not help"):
        run.fit(always_diverging, lambda: (little(10), {}), little(20))
    scales = [entry["rate_scale"] for entry in read_manifest(tmp_path)["rollbacks"]]
    assert scales == [0.25, 0.0625] and len(said) == 2
    # Started anew, it has had its two; and a checkpoint from before them gets the lowest rate.
    again, _ = make("rollback", read_manifest(tmp_path))
    np.testing.assert_allclose(again.with_rate(little(10)).rate_scale, 0.0625)
    with pytest.raises(Diverged, match="2 did not help"):
        again.fit(always_diverging, lambda: (little(10), {}), little(10))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("on_divergence", "rolback", ["'rollback'"]), ("rollback_factor", 1.0, ["rollback_factor", "below 1"])],
)
def test_choices_that_do_not_exist_are_refused(key, value, words):
    with pytest.raises(UserError) as caught:
        divergence.check_options(load_config("demo", {f"train.{key}": value}))
    assert all(word in str(caught.value) for word in words)


def test_a_trace_blames_what_made_the_number_and_not_what_was_thrown_away():
    def loss(x, y):
        safe = named("safe", jnp.where(x > 0, jnp.log(x), 0.0))  # log(0) is thrown away
        late = named("late", jax.jit(lambda v: jnp.exp(60.0 * v))(safe))
        return jnp.sum(jax.nn.relu(late) * y)

    x, y = jnp.array([0.0, 1.0, 7.0]), jnp.ones((3,))
    program = jax.make_jaxpr(jax.value_and_grad(loss))(x, y)
    trace = FaultTrace(program, [x, y], ["x", "y"], ["loss", "gradient"])
    assert [tensor.name for tensor in trace.tensors] == ["x", "y", "safe", "late", "loss", "gradient"]
    assert trace.first.name == "late" and trace.first.above == 1 and trace.first.origin.operation == "exp"
    assert (trace.first.least, trace.first.largest) == (1.0, 1.0)

    y = y.at[1].set(jnp.nan)
    trace = FaultTrace(program, [x, y], ["x", "y"], ["loss", "gradient"])
    assert trace.first.name == "y" and trace.first.nan == 1 and "came with y" in str(trace.first.origin)
