"""The statistics of ``experiments/sampler_study.py``, and that an interrupted study goes on."""

from __future__ import annotations

import importlib.util
import json
import pathlib

import numpy as np
import pytest

from nerfjax.samplers import SAMPLERS

FILE = pathlib.Path(__file__).resolve().parents[2] / "experiments" / "sampler_study.py"


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("sampler_study", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_sampler_can_be_configured(study):
    assert set(SAMPLERS) <= set(study.SETTINGS)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_its_settings_are_options(study, sampler):
    from types import SimpleNamespace

    config = study.make_config(sampler, 1, SimpleNamespace(scene="analytic:fog", batch_rays=64))
    assert config.sampler.name == sampler and config.train.seed == 1


def test_the_interval_covers_the_mean_as_often_as_it_says(study):
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((4000, 3))
    covered = np.mean([abs(mean) < half for mean, half in map(study.interval, samples.tolist())])
    assert abs(covered - study.CONFIDENCE) < 0.012
    assert study.interval([1.0]) == (1.0, float("inf"))


def test_only_intervals_that_are_apart_are_ranked(study):
    values = {"good": [30.0, 30.1, 30.2], "bad": [20.0, 20.1, 20.2], "noisy": [10.0, 20.0, 30.0], "single": [50.0]}
    assert study.ranking(values) == [("good", "bad")]


def test_a_finished_run_is_not_trained_again(study, tmp_path, monkeypatch, capsys):
    trained = []

    def train_run(sampler, seed, options):
        trained.append((sampler, seed))
        quality = {"stratified": 20.0, "hierarchical": 25.0}[sampler] + 0.1 * seed
        return [
            {"cost": kind, "share": share, "seconds": 1.0, "evaluations": 1.0, "step": 10, "psnr": quality + share}
            for kind in study.COSTS for share in study.SHARES
        ]  # fmt: skip

    monkeypatch.setattr(study, "train_run", train_run)
    flags = ["--samplers=stratified,hierarchical", f"--out={tmp_path}"]
    assert study.main([*flags, "--seeds=2"]) == 0 and len(trained) == 4
    assert study.main([*flags, "--seeds=3"]) == 0 and trained[4:] == [("stratified", 2), ("hierarchical", 2)]
    out = capsys.readouterr().out
    assert "hierarchical is better than stratified" in out and "stratified is better" not in out
    assert (tmp_path / "quality_by_cost.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "stratified-0.json").read_text())["points"][0]["psnr"] == 20.125
    assert study.main([*flags, "--seeds=1", "--seconds=7"]) == 0 and len(trained) == 8  # another study
