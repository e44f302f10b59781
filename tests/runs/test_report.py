"""A run's page and a run's progress, read from the folder alone."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.evaluate import evaluate
from nerfjax.geometry.cameras import cameras_from
from nerfjax.renderer import RenderedImage
from nerfjax.runs.figures import CSS_VARIABLE, average_in_bins, curve
from nerfjax.runs.manifest import seal, write_manifest
from nerfjax.runs.progress import read_evaluations, read_metrics, read_progress
from nerfjax.runs.report import MAX_VIEWS, write_report
from nerfjax.scenes.base import Frame
from nerfjax.scenes.images import ImageReference

CONFIG = {
    "train": {"steps": 400, "batch_rays": 1024},
    "field": {"name": "nerf"},
    "sampler": {"name": "stratified"},
    "scene": {"source": "<fox>", "downscale": 8},
}


def add_metrics(folder, count: int = 40) -> None:
    lines = [
        {"step": 10 * i, "loss": 1 / i, "psnr": 20 + 0.1 * i, "learning_rate": 1e-2 * 0.9**i, "rays_per_second": 1e4,
         "seconds": 2.0 * i, "eta_seconds": 100.0 - i, "data_wait": 0.01, "samples_per_ray": 96.0}
        for i in range(1, count + 1)
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def add_evaluation(folder, *, views: int = 9, step: int = 400, size: tuple[int, int] = (24, 16)) -> None:
    random = np.random.default_rng(0)
    target = random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    noise = iter(np.linspace(0.02, 0.3, views))
    frames = [
        Frame(f"<b>view{i}</b>.png", ImageReference(None, size, loader=lambda: target), "test") for i in range(views)
    ]

    def render(camera):
        color = np.clip(target / 255 + next(noise) * random.normal(size=target.shape), 0, 1)
        return RenderedImage(color.astype(np.float32), np.ones(size[::-1]), np.ones(size[::-1]))

    cameras = cameras_from(np.tile(np.eye(4), (views, 1, 1)), 20.0, size=size)
    evaluate(render, frames, cameras, out=folder / "eval" / str(step), run=folder.name, step=step)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "fox & friends"
    write_manifest(
        folder, config=CONFIG, config_hash="0", scene_fingerprint="1", split={"test": []}, precision="default",
        seeds={"run": 0}, note="<script>alert(1)</script>",
    )  # fmt: skip
    return folder


def test_the_page_stands_alone_and_escapes_what_it_shows(run):
    add_metrics(run)
    add_evaluation(run)
    page = write_report(run).read_text()
    assert "<script" not in page and "<b>view" not in page and "&lt;b&gt;view" in page
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert "http" not in re.sub(r'"http://www\.w3\.org/[^"]*"', "", page)
    assert "fox &amp; friends" in page


def test_the_page_shows_the_extremes_and_their_number(run):
    add_metrics(run)
    add_evaluation(run, views=9)
    page = write_report(run).read_text()
    images = json.loads((run / "eval" / "400" / "metrics.json").read_text())["images"]
    for image in (min(images, key=lambda i: i["psnr"]), max(images, key=lambda i: i["psnr"])):
        assert f"{image['psnr']:.2f} dB" in page
    assert page.count("data:image") == 4 * MAX_VIEWS
    assert f"{MAX_VIEWS} of 9 views" in page


def test_the_latest_evaluation_counts(run):
    add_evaluation(run, step=90, views=1)
    add_evaluation(run, step=400, views=2)
    assert "Test views, step 400" in write_report(run).read_text()


def test_a_run_that_just_began_has_a_page(run):
    assert "Not evaluated yet" in write_report(run).read_text()


def test_no_run_no_page(tmp_path):
    with pytest.raises(UserError):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_big_pictures_become_small(run):
    add_evaluation(run, views=1, size=(900, 700))
    assert write_report(run).stat().st_size < 1_500_000


def test_curves_follow_the_pages_colours():
    svg = curve([(0.0, 1.0), (10.0, 0.1)], title="loss", marks=[(10.0, 0.1)], labels=("a", "b"), log=True)
    assert svg.startswith("<svg") and svg.rstrip().endswith("</svg>")
    assert all(f"var({name})" in svg for name in CSS_VARIABLE.values())
    assert not re.search(r"#(?!0000)[0-9a-f]{6}", svg.replace("#ffffff", ""))


def test_binning_keeps_the_mean_and_leaves_out_what_is_not_finite():
    steps = np.arange(1000.0)
    binned_steps, values = average_in_bins([*zip(steps, steps**2, strict=True), (5.0, np.nan)], max_points=100)
    assert len(values) == 100
    assert values.mean() == pytest.approx(np.mean(steps**2))
    assert np.all(np.diff(binned_steps) > 0)
    assert average_in_bins([])[0].shape == (0,)


def test_metrics_survive_a_torn_line(run):
    add_metrics(run, 3)
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 40, "lo')
    assert [report["step"] for report in read_metrics(run)] == [10, 20, 30]


def lock(run, pid: int, host: str) -> None:
    (run / ".lock").write_text(f"process {pid} on {host}, since 2026-01-01T00:00:00+00:00\n")


def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    return child.pid


def test_running_means_that_the_holder_of_the_lock_lives(run):
    add_metrics(run, 12)
    assert read_progress(run).state == "stopped"
    lock(run, os.getpid(), platform.node())
    assert read_progress(run).state == "running"
    lock(run, dead_pid(), platform.node())
    assert read_progress(run).state == "stopped"


def test_on_another_host_running_means_that_it_reported_lately(run):
    lock(run, 1, "elsewhere")
    assert read_progress(run).state == "stopped"
    add_metrics(run, 12)
    assert read_progress(run).state == "running"
    os.utime(run / "metrics.jsonl", (1, 1))
    assert read_progress(run).state == "stopped"


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("done", "finished"),
        ("preempted", "stopped"),
        ("interrupted", "stopped"),
        ("diverged", "diverged"),
        ("failed", "failed"),
    ],
)
def test_the_seal_says_how_a_run_ended(run, status, state):
    seal(run, status=status, step=400, seconds=3.0)
    assert read_progress(run).state == state


def test_progress_survives_a_move(run, tmp_path):
    add_metrics(run, 12)
    add_evaluation(run, views=1, step=100)
    for step in (50, 100):
        (run / "checkpoints" / str(step)).mkdir(parents=True)
    (run / "checkpoints" / "110.orbax-checkpoint-tmp-1").mkdir()
    shutil.move(run, tmp_path / "elsewhere")
    progress = read_progress(tmp_path / "elsewhere")
    assert (progress.step, progress.total_steps, progress.checkpoints) == (120, 400, (50, 100))
    assert progress.last["loss"] == pytest.approx(1 / 12)
    assert list(read_evaluations(tmp_path / "elsewhere")) == [100]
    assert list(progress.evaluations) == [100]
