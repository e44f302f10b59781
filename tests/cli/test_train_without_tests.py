"""``nerfjax train`` on a capture without test frames says at its end that there is nothing to evaluate."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import nerfjax.evaluate
import nerfjax.runs.report
import nerfjax.train.run
from nerfjax.cli.main import main
from nerfjax.scenes import read_scene


@pytest.mark.parametrize(("test", "said"), [(0, True), (2, False)])
def test_nothing_to_evaluate(tmp_path, monkeypatch, capsys, test, said):
    scene = read_scene(f"analytic:spheres?views=4&size=8&val=0&test={test}")
    run = SimpleNamespace(experiment=SimpleNamespace(scene=scene))
    monkeypatch.setattr(nerfjax.train.run, "train", lambda *_, **__: None)
    monkeypatch.setattr(nerfjax.train.run, "load_run", lambda *_, **__: run)
    evaluation = {"mean": {"psnr": 30.0, "ssim": 0.9}, "step": 1}
    monkeypatch.setattr(nerfjax.evaluate, "evaluate_run", lambda *_, **__: evaluation)
    monkeypatch.setattr(nerfjax.evaluate, "print_table", lambda *_, **__: print("the table"))
    monkeypatch.setattr(nerfjax.runs.report, "write_report", lambda *_, **__: tmp_path / "report.html")
    assert main(["train", "--config=demo", f"--workdir={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert ("no test frames: nothing to evaluate" in out and "?test=8" in out) == said and ("the table" in out) != said
