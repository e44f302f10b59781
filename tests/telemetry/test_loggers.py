"""Loggers of experiment trackers, with a tracker that is not there and one that is not real."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.telemetry.loggers import open_logger
from nerfjax.telemetry.writers import Writer

ABOUT = dict(config={"train": {"steps": 7}}, identity="2026 abc")


class FakeWandb(types.ModuleType):
    def __init__(self):
        super().__init__("wandb")
        self.inits, self.logged, self.finished = [], [], 0

    def init(self, **options):
        self.inits.append(options)
        return types.SimpleNamespace(log=lambda values, step: self.logged.append((step, values)), finish=self.finish)

    def finish(self):
        self.finished += 1

    def Image(self, pixels):
        return ("image", pixels.shape)


@pytest.fixture
def wandb(monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return fake


def test_reports_and_pictures_go_to_the_tracker(tmp_path, wandb):
    (logger,) = open_logger("wandb", tmp_path / "fox", **ABOUT)
    assert isinstance(logger, Writer)
    logger.write({"step": 5, "loss": 0.5, "eval/view": np.zeros((4, 8, 3), np.uint8)})
    logger.close()
    (init,) = wandb.inits
    assert init["name"] == "fox" and init["config"] == ABOUT["config"] and init["project"] == "nerfjax"
    assert wandb.logged == [(5, {"loss": 0.5, "eval/view": ("image", (4, 8, 3))})] and wandb.finished == 1


def test_a_moved_run_goes_on_as_the_same_one(tmp_path, wandb):
    for folder, identity in (("a", "one"), ("b", "one"), ("a", "two")):
        open_logger("wandb", tmp_path / folder, config={}, identity=identity)
    first, moved, other = (init["id"] for init in wandb.inits)
    assert first == moved != other and all(init["resume"] == "allow" for init in wandb.inits)


def test_no_logger_is_the_default(tmp_path):
    assert open_logger("", tmp_path, **ABOUT) == ()


def test_a_logger_that_is_unknown_or_not_installed_is_a_clear_error(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="did you mean 'wandb'"):
        open_logger("wandbb", tmp_path, **ABOUT)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install 'nerfjax\[wandb\]'"):
        open_logger("wandb", tmp_path, **ABOUT)
