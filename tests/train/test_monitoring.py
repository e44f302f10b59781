"""A run that is watched by everything at once: its reports, its record, its tracker, its trace, its status."""

from __future__ import annotations

import json
import math
import pathlib
import sys

import numpy as np
import pytest

from nerfjax.cli.main import main
from nerfjax.errors import UserError
from nerfjax.runs.records import read_record
from nerfjax.runs.spending import spent_by
from nerfjax.samplers.occupancy_share import occupancy_share
from nerfjax.telemetry import costs
from nerfjax.train.configuration import bound_config, load_config
from nerfjax.train.run import train

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "runs"), str(HERE.parent / "telemetry")]
from prepared_runs import schema_of, violations  # noqa: E402
from test_loggers import FakeWandb  # noqa: E402

SMALL = {
    "scene.source": "analytic:spheres?views=3&size=16&val=0&test=1",
    "scene.examine": False,
    "train.steps": 12,
    "train.batch_rays": 32,
    "train.steps_per_dispatch": 3,
    "train.log_every": 3,
    "train.eval_every": 6,
    "train.checkpoint_every": 6,
    "train.compile_ahead": False,
    "train.price_per_device_hour": 2.0,
    "train.logger": "wandb",
    "parallel.devices": 1,
    "sampler.name": "occupancy",
    "sampler.occupancy.resolution": 16,
    "sampler.occupancy.diagonal_steps": 32,
    "sampler.occupancy.samples_per_ray": 8.0,
    "field.instant_ngp.levels": 2,
    "field.instant_ngp.log2_size": 8,
}


class Watched:
    """What a run left, and what its writers took."""

    def __init__(self, folder: pathlib.Path):
        self.folder, self.wandb, self.taken, self.closed = folder, FakeWandb(), [], False
        self.write = lambda report: self.taken.append(dict(report))

    def close(self) -> None:
        self.closed = True

    @property
    def reports(self) -> list[dict]:
        rows = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        return [row for row in rows if "loss" in row]


def score(experiment, state) -> dict:
    grid = float(occupancy_share(state.sampler_aux))
    return {"eval/psnr": 20.0, "eval/occupancy": grid, "eval/view": np.zeros((4, 8, 3), np.uint8)}


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    found = Watched(tmp_path_factory.mktemp("watched") / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "wandb", found.wandb)
        patch.setattr(costs, "SIDES", {"cpu": 64})
        train(load_config("demo", SMALL), found.folder, score=score, writers=[found], profile=(6, 9))
    return found


def test_a_report_says_what_the_time_went_to_and_what_it_cost(watched):
    reports = watched.reports
    assert [report["step"] for report in reports] == [3, 6, 9, 12]
    for report in reports:
        parts = [value for name, value in report.items() if name.startswith("time/")]
        assert len(parts) == 7 and all(part >= 0 for part in parts)
        for name in ("step_seconds", "samples_per_second", "flops_per_step", "flops_per_second", "matmul_share"):
            assert report[name] > 0
        for name in ("device_memory_bytes", "host_memory_bytes"):
            assert report[name] > 2**16
        assert report["cpu_cores"] >= 0 and 0 <= report["occupancy"] <= 1 and 0 <= report["packed_fill"] <= 1
        assert math.isclose(report["device_hours"], report["seconds"] / 3600)
        assert math.isclose(report["cost"], 2 * report["device_hours"])
    assert reports[0]["time/compilation"] == reports[0]["compile_seconds"] > 0
    assert [report["time/compilation"] for report in reports[1:]] == [0, 0, 0]
    # What was saved and evaluated at step 6 counts in the report after it.
    for part in ("time/checkpoint", "time/evaluation"):
        assert reports[1][part] == 0 < reports[2][part]
    assert sum("save/blocked_seconds" in report for report in reports) <= 1


def test_the_occupancy_of_the_report_is_that_of_the_grid(watched):
    grids = {row["step"]: row["eval/occupancy"] for row in watched.taken if "eval/occupancy" in row}
    assert grids == {r["step"]: r["occupancy"] for r in watched.reports if r["step"] in (6, 12)}


def test_pictures_go_to_who_can_show_them_and_not_into_the_record(watched):
    rows = [json.loads(line) for line in (watched.folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "eval/psnr" in row] == [6, 12]
    assert not any("eval/view" in row for row in rows)
    assert [row["step"] for row in watched.taken if "eval/view" in row] == [6, 12] and not watched.closed
    assert [step for step, values in watched.wandb.logged if "eval/view" in values] == [6, 12]
    assert watched.wandb.finished == 1 and watched.wandb.inits[0]["config"]["train"]["steps"] == 12
    assert (watched.folder / "tensorboard").is_dir()


def test_the_manifest_knows_the_operations_and_the_saves(watched):
    manifest = json.loads((watched.folder / "manifest.json").read_text())
    assert violations(manifest, schema_of("manifest")) == []
    assert manifest["flops_per_step"] == watched.reports[0]["flops_per_step"]
    assert manifest["end"]["saves"]["count"] == 2 and manifest["end"]["saves"]["background_seconds"] > 0
    record = read_record(watched.folder, label="A", name="run", flat_config=bound_config)
    assert spent_by(record, 12).flops == pytest.approx(12 * manifest["flops_per_step"])


def test_the_trace_is_written(watched):
    assert list((watched.folder / "profile").rglob("*.xplane.pb"))


def test_status_shows_the_figures(watched, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["status", str(watched.folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert violations(document, schema_of("status")) == []
    assert document["state"] == "finished" and document["step"] == 12 and document["checkpoints"] == [6, 12]
    assert math.isclose(sum(document["time_shares"].values()), 1)
    assert document["speed"]["flops_per_second"] > 0 and document["resources"]["cost"] > 0
    assert list(document["compile_seconds"]) == ["0"]
    assert main(["status", str(watched.folder), "--watch"]) == 0  # a run that has ended is shown once
    out = capsys.readouterr().out
    for words in ("samples/s", "grid occupied", "device memory", "FLOP/s", "of what matrix products", "device-hours"):
        assert words in out
    assert main(["status", str(watched.folder), "--watch", "--json"]) == 2


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("train.logger", "wandbb", "wandb"), ("train.price_per_device_hour", -1.0, "negative")],
)
def test_wrong_monitoring_is_refused_before_anything_is_made(tmp_path, key, value, words):
    with pytest.raises(UserError, match=words):
        train(load_config("demo", {**SMALL, "train.logger": "", key: value}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_monitoring_does_not_make_another_run():
    plain = bound_config(load_config("demo"))
    assert bound_config(load_config("demo", {"train.logger": "wandb", "train.price_per_device_hour": 3.0})) == plain
