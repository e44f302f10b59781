"""A run that is killed and goes on ends in the same bits as one that nobody touched."""

import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from nerfjax.train.run import load_run

PATH = pathlib.Path(__file__).resolve().parents[2] / "experiments" / "kill.py"
SPEC = importlib.util.spec_from_file_location("kill", PATH)
kill = importlib.util.module_from_spec(SPEC)
sys.modules["kill"] = kill
SPEC.loader.exec_module(kill)

STEPS = 1000
FLAGS = [
    "--config=demo",
    "--config.scene.source=analytic:spheres?views=4&size=16&val=0&test=1",
    f"--config.train.steps={STEPS}",
    "--config.train.checkpoint_every=100",
    "--config.train.log_every=100",
    "--config.train.eval_every=300",
    "--config.train.batch_rays=64",
    "--config.sampler.proposal.num_proposal=(12,)",
    "--config.sampler.proposal.num_final=6",
    "--config.field.instant_ngp.levels=3",
    "--config.field.instant_ngp.log2_size=9",
    "--config.network.hashgrid.levels=2",
    "--config.network.hashgrid.log2_size=9",
    "--config.parallel.devices=1",
    "--config.sampler.name=proposal",
    "--config.curriculum.stage0.until=300",
    "--config.curriculum.stage0.sampler=stratified",
    "--config.curriculum.stage0.downscale=2",
    "--config.curriculum.stage1.until=700",
    "--config.curriculum.stage1.batch_rays=32",
    "--config.curriculum.stage2.sampler=stratified",
    "--config.curriculum.stage2.sampler.stratified.num_samples=12",
]
TRAIN = "import sys; from nerfjax.cli.main import main; sys.exit(main(['train', *sys.argv[1:]]))"


def start(workdir):
    command = [sys.executable, "-c", TRAIN, *FLAGS, f"--workdir={workdir}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process, expected=0):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == expected, output
    return output


def stop_after_checkpoint(process, workdir, number, step):
    """Sends a signal as soon as a checkpoint is complete; long before the end, or the test says so."""
    deadline = time.monotonic() + 240
    while not list(workdir.glob(f"checkpoints/{step}/SHA256SUMS")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, number)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("untouched") / "run"
    finish(start(workdir))
    return workdir


KILLS = [kill.Moment("checkpoint", 100, 0.05), kill.Moment("stage", 300, 0.5), kill.Moment("evaluation", 600, 0.1)]


def test_three_kills_end_in_the_same_bits(untouched, tmp_path):
    """In the first checkpoint, at a change of stage, in an evaluation: ``make trial NAME=kill`` does it 20 times."""
    workdir = tmp_path / "run"
    for moment in KILLS:
        code, output, _ = kill.start(workdir, moment, signal.SIGKILL, flags=FLAGS)
        assert code == -signal.SIGKILL, output
    finish(start(workdir))
    assert len(json.loads((workdir / "manifest.json").read_text())["restarts"]) == 3
    assert kill.differences(untouched, workdir)[2] == []


@pytest.mark.parametrize(("how", "step"), [(signal.SIGTERM, 100), (signal.SIGINT, 400)])
def test_b84_resumed_equals_uninterrupted_bit_for_bit(how, step, untouched, tmp_path):
    workdir = tmp_path / "run"
    process = start(workdir)
    stop_after_checkpoint(process, workdir, how, step)
    output = finish(process, expected=75)
    assert "again" in output and "Traceback" not in output
    assert json.loads((workdir / "manifest.json").read_text())["status"] == "preempted"
    finish(start(workdir))
    restarts = json.loads((workdir / "manifest.json").read_text())["restarts"]
    assert len(restarts) == 1 and step < restarts[0]["step"] < STEPS
    # The state has the same bits, and the record the same numbers, but for the clock's.
    assert kill.differences(untouched, workdir)[2] == []


def test_every_stage_of_the_curriculum_leaves_its_mark(untouched):
    manifest = json.loads((untouched / "manifest.json").read_text())
    assert [stage["sampler"]["name"] for stage in manifest["curriculum"]] == ["stratified", "proposal", "stratified"]
    rows = [json.loads(line) for line in (untouched / "metrics.jsonl").read_text().splitlines()]
    assert all(row["stage"] == (row["step"] > 300) + (row["step"] > 700) and row["rung"] == 0 for row in rows)
    # The run renders with the sampler of its last stage.
    run = load_run(untouched)
    image = run.render_view(run.experiment.scene.subset("test").cameras[np.array([0])])
    assert np.isfinite(image.color).all() and run.experiment.stage.index == 2


def test_a_finished_run_is_left_alone_and_more_steps_go_on(untouched, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in untouched.glob("checkpoints/**/*")}
    output = finish(start(untouched))
    assert "done" in output
    assert before == {path: path.stat().st_mtime_ns for path in untouched.glob("checkpoints/**/*")}


def test_more_steps_go_on_with_the_schedule_as_it_was(tmp_path):
    """40 steps, and 20 more: the record goes on, the rate stays at its end, and status knows the new length."""
    workdir = tmp_path / "run"
    short = [f"--config.train.steps={n}" for n in (40, 60)]
    for flag, word in zip(short, ("", "keeps its length of 40 steps"), strict=True):
        arguments = [*FLAGS, f"--workdir={workdir}", flag]
        process = subprocess.run([sys.executable, "-c", TRAIN, *arguments], capture_output=True, text=True)
        assert process.returncode == 0 and word in process.stderr, process.stderr
    manifest = json.loads((workdir / "manifest.json").read_text())
    assert manifest["config"]["train"]["steps"] == 60 and manifest["restarts"][0]["step"] == 40
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    rates = {row["step"]: row["learning_rate"] for row in rows if "loss" in row}
    assert rates[60] == pytest.approx(1e-3, rel=1e-3)


def test_a_run_is_read_from_another_folder(untouched, tmp_path, monkeypatch):
    moved = tmp_path / "moved"
    shutil.copytree(untouched, moved)
    monkeypatch.chdir(tmp_path)
    assert load_run("moved").step == STEPS
