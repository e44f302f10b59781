"""The verbs on a small run whose field is a painted wall."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

import nerfjax.train.run as runs
from nerfjax.cli.main import main
from nerfjax.errors import Diverged
from nerfjax.renderer import RenderedImage
from nerfjax.runs.manifest import seal, write_manifest
from nerfjax.scenes import read_scene

SOURCE = "analytic:spheres?views=3&size=16&val=0&test=2"


@pytest.fixture(scope="module")
def scene():
    return read_scene(SOURCE)


@pytest.fixture
def run(tmp_path, monkeypatch, scene):
    """A run folder, and a ``load_run`` that loads it without training anything."""
    folder = tmp_path / "wall"
    config = {
        "train": {"steps": 40, "batch_rays": 64},
        "background": {"name": "white"},
        "scene": {"source": SOURCE, "downscale": 1},
        "field": {"name": "nerf"},
        "sampler": {"name": "stratified"},
    }
    write_manifest(
        folder, config=config, config_hash="0", scene_fingerprint="1", split={}, precision="default", seeds={"run": 0}
    )
    report = {"step": 40, "loss": 0.25, "psnr": 6.02, "seconds": 65.0, "rays_per_second": 12_345.0}
    (folder / "metrics.jsonl").write_text(json.dumps(report) + "\n")

    def render_view(camera):
        width, height = camera.size[0]
        color = np.full((height, width, 3), 0.5, np.float32)
        return RenderedImage(color, np.ones((height, width)), np.ones((height, width)))

    def load_run(workdir, *, step=None, source=None):
        experiment = SimpleNamespace(scene=scene, config=config)
        return SimpleNamespace(
            workdir=workdir, config=config, experiment=experiment, step=step or 40, render_view=render_view
        )

    monkeypatch.setattr(runs, "load_run", load_run)
    return folder


def test_eval_prints_one_json_document_and_nothing_else(run, capsys):
    assert main(["eval", str(run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((run / "eval" / "40" / "metrics.json").read_text())
    assert (document["run"], document["n"], document["split"]) == ("wall", 2, "test")
    assert (run / "report.html").exists()


def test_eval_of_another_split_and_step_stands_beside(run, capsys):
    assert main(["eval", str(run), "--split=train", "--step=20"]) == 0
    assert json.loads((run / "eval" / "20-train" / "metrics.json").read_text())["n"] == 3
    assert "PSNR" in capsys.readouterr().out
    assert main(["eval", str(run), "--split=val"]) == 2
    assert "test 2" in capsys.readouterr().err


def test_render_says_where_the_video_is(run, capsys):
    assert main(["render", str(run), "--path=orbit", "--frames=3", "--size=20x16"]) == 0
    path = run / "renders" / "orbit.mp4"
    assert str(path) in capsys.readouterr().out.replace("\n", "")
    assert path.stat().st_size > 500


def test_status_of_a_run_that_was_killed_one_that_is_done_and_a_moved_one(run, capsys):
    assert main(["status", str(run)]) == 0
    out = capsys.readouterr().out
    assert "stopped" in out and "40 of 40 (100%)" in out and "0.25000" in out and "1m05s" in out
    seal(run, status="done", step=40, seconds=70.0)
    run.rename(run.with_name("moved"))
    assert main(["status", str(run.with_name("moved"))]) == 0
    out = capsys.readouterr().out
    assert "finished" in out and "moved" in out and "1m10s" in out


def test_status_says_stage_and_rung_where_there_are_several(run, capsys):
    manifest = json.loads((run / "manifest.json").read_text())
    stage = {"sampler": {"name": "occupancy"}, "rays_by_rung": [512, 1024, 2048]}
    manifest["curriculum"] = [{"sampler": {"name": "stratified"}, "rays_by_rung": [64]}, stage]
    (run / "manifest.json").write_text(json.dumps(manifest))
    (run / "metrics.jsonl").write_text(json.dumps({"step": 40, "loss": 0.25, "stage": 1, "rung": 1}) + "\n")
    assert main(["status", str(run)]) == 0
    out = capsys.readouterr().out
    assert "2 of 2, occupancy" in out and "2 of 3, 1,024 rays a step" in out


def test_train_trains_evaluates_and_reports(run, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(runs, "train", lambda config, workdir, **options: calls.append(config.train.steps))
    assert main(["train", "--config=demo", "--config.train.steps=7", f"--workdir={run}"]) == 0
    out = capsys.readouterr().out.replace("\n", "")
    assert calls == [7]
    assert "mean" in out and str(run / "report.html") in out


def test_a_run_that_diverged_leaves_a_report_and_exits_with_3(run, monkeypatch, capsys):
    def diverge(config, workdir, **options):
        seal(workdir, status="diverged", step=3, seconds=1.0)
        raise Diverged("the loss is not finite at step 3")

    monkeypatch.setattr(runs, "train", diverge)
    assert main(["train", "--config=demo", f"--workdir={run}"]) == 3
    assert "step 3" in capsys.readouterr().err
    assert "diverged" in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--config.sampler.name=stratifeid", ["stratified"]),
        ("--config.trian.steps=3", ["train.steps"]),
        ("--config.scene.source=/nowhere", ["/nowhere"]),
    ],
)
def test_wrong_configs_exit_with_2_before_anything_is_written(tmp_path, capsys, flag, words):
    assert main(["train", "--config=demo", flag, f"--workdir={tmp_path / 'run'}"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and all(word in captured.err for word in words)
    assert list(tmp_path.iterdir()) == []
