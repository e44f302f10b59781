"""Going on with a run: refused where it is another one, let through when told so, a no-op where it is done."""

from __future__ import annotations

import json
import shutil

import jax
import numpy as np
import pytest
from test_curriculum import TINY
from test_loop import DATA, Recorder, initial_state
from test_loop import run as run_toy

from nerfjax.errors import Preempted, UserError
from nerfjax.runs.manifest import read_manifest
from nerfjax.train.best_checkpoints import missed_evaluation, recorded_scores
from nerfjax.train.checkpoint import Checkpoints, abstract_from_state
from nerfjax.train.configuration import load_config
from nerfjax.train.loop import StopSignal
from nerfjax.train.resume import keep_schedule
from nerfjax.train.run import load_run, train

SCORES = {5: 20.0, 10: 30.0, 15: 25.0}


def config_with(**changes):
    options = {
        **{"sampler.name": "stratified", "train.steps": 15, "train.log_every": 5, "train.steps_per_dispatch": 5},
        **{"train.checkpoint_every": 10, "train.eval_every": 5, "train.keep_best": 1, "train.compile_ahead": False},
    }
    return load_config("demo", {**TINY, **options, **changes})


def score(experiment, state):
    return {"eval/psnr": SCORES.get(int(state.step), 1.0)}


def go_on(workdir, **options):
    """Returns the messages."""
    said = []
    changes = {key: value for key, value in options.items() if key != "allow"}
    train(
        config_with(**changes), workdir, score=score, say=said.append, allow_config_change=options.get("allow", False)
    )
    return "\n".join(said)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("done") / "run"
    go_on(folder)
    return folder


@pytest.fixture
def copy(done, tmp_path):
    return shutil.copytree(done, tmp_path / "run")


def test_the_best_checkpoint_is_kept_and_found(done):
    """Step 5 was saved only because it was evaluated, and went when step 10 turned out to be better."""
    assert Checkpoints(done, read_only=True).steps() == (10, 15) and recorded_scores(done) == SCORES
    assert load_run(done, step="best").step == 10


def test_without_evaluations_there_is_no_best(copy):
    (copy / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match="none of the run's checkpoints was evaluated"):
        load_run(copy, step="best")


def test_a_finished_run_is_a_no_op_that_says_so(copy):
    before = contents(copy)
    assert "the run is done: 15 steps, nothing to do" in go_on(copy)
    assert contents(copy) == before
    assert "the run is done: 15 steps" in go_on(copy, **{"train.steps": 12})  # not cut short either
    assert contents(copy) == before


def test_another_configuration_is_refused_with_all_that_differs(copy):
    before = contents(copy)
    with pytest.raises(UserError) as caught:
        go_on(copy, **{"train.seed": 1, "optimizer.adam.b1": 0.8, "train.ema": 0.9, "train.log_every": 3})
    message = str(caught.value)
    for part in (
        "train.seed: 0 there, 1 now",
        "b1: 0.9 there, 0.8 now",
        "train.ema: 0.0 there",
        "--allow-config-change",
    ):
        assert part in message
    assert "log_every" not in message and contents(copy) == before


def test_another_scene_is_refused_with_what_differs(copy):
    before = contents(copy)
    with pytest.raises(UserError) as caught:
        go_on(copy, **{"scene.source": "analytic:spheres?views=5&size=16&test=1"})
    message = str(caught.value)
    for part in (
        "scene_fingerprint",
        "split.train: '4 frames' there, '5 frames",
        "scene.cameras",
        "--allow-config-change",
    ):
        assert part in message
    assert contents(copy) == before


def test_what_is_allowed_to_differ_is_recorded(copy):
    """Another rate of Adam and a longer run; the same command then finds the run done."""
    changed = {"optimizer.adam.b1": 0.8, "train.steps": 20}
    old = read_manifest(copy)
    said = go_on(copy, allow=True, **changed)
    assert "config.optimizer.adam.b1: 0.9 there, 0.8 now" in said and "keeps its length of 15 steps" in said
    manifest = read_manifest(copy)
    (restart,) = manifest["restarts"]
    assert restart["allowed_changes"] == {"config.optimizer.adam.b1": [0.9, 0.8]} and restart["step"] == 15
    assert restart["differs"]["config_hash"] == [old["config_hash"], manifest["config_hash"]]
    assert manifest["config"]["optimizer"]["adam"]["b1"] == 0.8 and manifest["end"]["step"] == 20
    assert "the run is done: 20 steps" in go_on(copy, **changed)
    with pytest.raises(UserError, match=r"b1: 0.8 there, 0.9 now"):
        go_on(copy, **{"train.steps": 20})


def test_a_checkpoint_of_another_run_is_refused(copy):
    (copy / "manifest.json").unlink()
    with pytest.raises(UserError, match="another run than the folder's manifest") as caught:
        go_on(copy, **{"train.seed": 1})
    assert caught.value.field == "config_hash" and not (copy / "manifest.json").exists()


def test_a_run_that_was_killed_after_its_last_step_is_evaluated_and_sealed(copy):
    manifest, record = read_manifest(copy), (copy / "metrics.jsonl").read_text()
    (copy / "manifest.json").write_text(json.dumps({**manifest, "status": "running", "end": None}))
    lines = record.splitlines(keepends=True)
    assert "eval/psnr" in lines[-1]
    (copy / "metrics.jsonl").write_text("".join(lines[:-1]))
    go_on(copy)
    assert read_manifest(copy)["status"] == "done" and (copy / "metrics.jsonl").read_text() == record


def test_a_run_folder_of_an_older_version_goes_on(copy):
    """Keys that its version did not know have the defaults; the record of the hash is another one."""
    manifest = read_manifest(copy)
    for key in ("ema", "keep_best", "keep_latest"):
        del manifest["config"]["train"][key]
    (copy / "manifest.json").write_text(json.dumps({**manifest, "config_hash": "of then"}))
    assert load_run(copy).step == 15
    assert "the run is done" in go_on(copy)


def test_an_evaluation_that_a_signal_prevented_is_known_and_made_up_for_first(tmp_path):
    recorder, evaluated = Recorder(), []

    def on_eval(state, step):
        evaluated.append((step, int(state.step)))
        return {"eval/psnr": float(step)}

    options = dict(total_steps=20, eval_every=10, on_eval=on_eval, writers=[recorder])
    with Checkpoints(tmp_path) as checkpoints, StopSignal(signals=()) as stop:
        feed = lambda step, count: (stop.request("SIGTERM") if step == 5 else None, DATA)[1]  # noqa: E731
        with pytest.raises(Preempted):
            run_toy(checkpoints=checkpoints, stop=stop, feed=feed, **options)
        assert evaluated == [] and [row["step"] for row in recorder.reports] == [10]
        missed = missed_evaluation(tmp_path, checkpoints, 10)
        state, _ = checkpoints.restore(abstract_from_state(initial_state()))
        run_toy(checkpoints=checkpoints, state=state, missed=missed, **options)
        assert checkpoints.scores == {10: 10.0, 20: 20.0} and evaluated == [(10, 10), (20, 20)]
        made_up = {"step": 10, "stage": 0, "rung": 0, "eval/psnr": 10.0}
        assert missed == {"stage": 0, "rung": 0} and recorder.reports[1] == made_up
        (tmp_path / "metrics.jsonl").write_text(json.dumps(made_up) + "\n")
        assert missed_evaluation(tmp_path, checkpoints, 10) is None


@pytest.mark.parametrize(("schedule", "end"), [("log_lerp", "0.001 to 0.001"), ("cosine", "0 to 0; the further steps")])
def test_more_steps_keep_the_schedule_and_say_what_the_rate_will_be(schedule, end):
    said = []
    options = {"schedule.name": schedule, "schedule.log_lerp.delay_steps": 0}
    before, now = (config_with(**options, **{"train.steps": steps}) for steps in (15, 40))
    kept = keep_schedule(now, before, said.append)
    assert kept.schedule[schedule].steps == 15 and now.schedule[schedule].steps == 0
    assert "from step 15 to 40 the rate goes from" in said[0] and end in said[0]
    assert keep_schedule(now, now, said.append) is now and len(said) == 1
    longer = config_with(**options, **{"train.steps": 40, f"schedule.{schedule}.steps": 40})
    assert keep_schedule(longer, before, said.append) is longer  # given by hand: a change of the configuration


def test_what_was_done_after_the_last_checkpoint_is_done_again_in_the_same_bits(done, copy):
    shutil.rmtree(copy / "checkpoints" / "15")
    go_on(copy)
    one, other = (load_run(folder).state for folder in (done, copy))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
    numbers = ("step", "loss", "psnr", "learning_rate", "eval/psnr")
    was, now = ([{key: row.get(key) for key in numbers} for row in rows(folder)] for folder in (done, copy))
    assert was == now and read_manifest(copy)["restarts"][0]["step"] == 10
