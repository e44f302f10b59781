"""A run that is killed and goes on ends in the same bits as one that nobody touched."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from nerfjax.train.run import load_run

STEPS = 1000
FLAGS = [
    "--config=demo",
    "--config.scene.source=analytic:spheres?views=4&size=16&val=0&test=1",
    f"--config.train.steps={STEPS}",
    "--config.train.checkpoint_every=100",
    "--config.train.log_every=100",
    "--config.train.batch_rays=64",
    "--config.sampler.proposal.num_proposal=(12,)",
    "--config.sampler.proposal.num_final=6",
    "--config.field.instant_ngp.levels=3",
    "--config.field.instant_ngp.log2_size=9",
    "--config.network.hashgrid.levels=2",
    "--config.network.hashgrid.log2_size=9",
    "--config.parallel.devices=1",
]
CURRICULUM = [
    "--config.curriculum.stage0.until=300",
    "--config.curriculum.stage0.sampler=stratified",
    "--config.curriculum.stage0.downscale=2",
    "--config.curriculum.stage1.until=700",
    "--config.curriculum.stage1.batch_rays=32",
    "--config.curriculum.stage2.sampler=stratified",
    "--config.curriculum.stage2.sampler.stratified.num_samples=12",
]
TRAIN = "import sys; from nerfjax.cli.main import main; sys.exit(main(['train', *sys.argv[1:]]))"


def start(workdir, sampler, *more):
    arguments = [*FLAGS, f"--config.sampler.name={sampler}", f"--workdir={workdir}", *more]
    return subprocess.Popen(
        [sys.executable, "-c", TRAIN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process, expected=0):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == expected, output
    return output


def stop_after_first_checkpoint(process, workdir, number, step="*"):
    """Sends a signal as soon as a checkpoint is complete; long before the end, or the test says so."""
    deadline = time.monotonic() + 240
    while not list(workdir.glob(f"checkpoints/{step}/SHA256SUMS")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, number)


def leaves(workdir):
    run = load_run(workdir)
    assert run.step == STEPS
    return jax.tree_util.tree_flatten_with_path(jax.device_get(run.state))[0]


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("untouched") / "run"
    finish(start(workdir, "proposal"))
    return workdir


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_b84_resumed_equals_uninterrupted_bit_for_bit(how, untouched, tmp_path):
    workdir = tmp_path / "run"
    process = start(workdir, "proposal")
    stop_after_first_checkpoint(process, workdir, how)
    output = finish(process, expected=-signal.SIGKILL if how == signal.SIGKILL else 75)
    if how != signal.SIGKILL:
        assert "again" in output and "Traceback" not in output
        assert json.loads((workdir / "manifest.json").read_text())["status"] == "preempted"
    finish(start(workdir, "proposal"))
    restarts = json.loads((workdir / "manifest.json").read_text())["restarts"]
    assert len(restarts) == 1 and 0 < restarts[0]["step"] < STEPS
    for (path, one), (_, other) in zip(leaves(untouched), leaves(workdir), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=jax.tree_util.keystr(path))
    # The record holds each step once, and the same numbers (but for the clock's).
    rows = [[json.loads(line) for line in (w / "metrics.jsonl").read_text().splitlines()] for w in (untouched, workdir)]
    losses = [[(row["step"], row["loss"]) for row in each if "loss" in row] for each in rows]
    assert [step for step, _ in losses[1]] == sorted({step for step, _ in losses[1]})
    assert dict(losses[1])[STEPS] == dict(losses[0])[STEPS]


def test_a_curriculum_stopped_in_its_second_stage_ends_in_the_same_bits(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    finish(start(whole, "proposal", *CURRICULUM))
    process = start(parts, "proposal", *CURRICULUM)
    stop_after_first_checkpoint(process, parts, signal.SIGTERM, step=400)
    finish(process, expected=75)
    finish(start(parts, "proposal", *CURRICULUM))
    manifest = json.loads((parts / "manifest.json").read_text())
    assert 300 < manifest["restarts"][0]["step"] < 700
    assert [stage["sampler"]["name"] for stage in manifest["curriculum"]] == ["stratified", "proposal", "stratified"]
    for (path, one), (_, other) in zip(leaves(whole), leaves(parts), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=jax.tree_util.keystr(path))
    for workdir in (whole, parts):
        rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
        assert all(row["stage"] == (row["step"] > 300) + (row["step"] > 700) and row["rung"] == 0 for row in rows)
    # The run renders with the sampler of its last stage.
    image = load_run(parts).render_view(load_run(parts).experiment.scene.subset("test").cameras[np.array([0])])
    assert np.isfinite(image.color).all() and load_run(parts).experiment.stage.index == 2


def test_a_finished_run_is_left_alone_and_more_steps_go_on(untouched, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in untouched.glob("checkpoints/**/*")}
    output = finish(start(untouched, "proposal"))
    assert "done" in output
    assert before == {path: path.stat().st_mtime_ns for path in untouched.glob("checkpoints/**/*")}


def test_more_steps_go_on_with_the_schedule_as_it_was(tmp_path):
    """40 steps, and 20 more: the record goes on, the rate stays at its end, and status knows the new length."""
    workdir = tmp_path / "run"
    short = [f"--config.train.steps={n}" for n in (40, 60)]
    for flag, word in zip(short, ("", "keeps its length of 40 steps"), strict=True):
        arguments = [*FLAGS, "--config.sampler.name=stratified", f"--workdir={workdir}", flag]
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
