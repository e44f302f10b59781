"""A number out of its range is refused before anything compiles, with exit code 2."""

from __future__ import annotations

import math

import pytest

from nerfjax.cli.main import main
from nerfjax.errors import UserError
from nerfjax.train.build import check
from nerfjax.train.configuration import FAMILIES, factory_options, flat_keys, load_config
from nerfjax.train.optimizers import OPTIMIZERS, SCHEDULES
from nerfjax.train.ranges import RANGES

WRONG = [
    *[(f"train.{key}", value) for key in ("steps", "batch_rays", "log_every", "checkpoint_every") for value in (0, -3)],
    ("train.steps_per_dispatch", 0),
    *[(f"train.{key}", -1) for key in ("eval_every", "keep_every", "keep_best", "seed")],
    ("train.seed", 2**32),  # the same numbers as seed 0
    ("train.keep_latest", 1),
    *[("train.ema", value) for value in (-0.1, 1.0, 1.5, math.nan)],
    *[(f"train.{key}_weight", value) for key in ("coarse", "distortion", "depth") for value in (-1.0, math.inf)],
    *[("schedule.log_lerp.initial", value) for value in (-1e-3, 0.0, math.nan, math.inf)],
    ("schedule.log_lerp.final", 0.0),
    ("schedule.log_lerp.steps", -1),
    ("schedule.log_lerp.delay_steps", -1),
    ("schedule.log_lerp.delay_scale", 1.5),
    ("schedule.exponential.rate", -0.1),
    ("schedule.exponential.warmup", -1),
    ("schedule.cosine.final", -1e-5),
    *[(f"optimizer.adam.{key}", value) for key in ("b1", "b2") for value in (-0.1, 1.0)],
    ("optimizer.adam.eps", 0.0),
    *[(f"optimizer.adam.{key}", -1.0) for key in ("weight_decay", "clip_norm", "table_rate")],
    ("loss.charbonnier.padding", 0.0),
    ("data.memory_mb", 0),
    ("evaluation.memory_mb", -1),
]


def config_with(**changes):
    members = {f"{key.split('.')[0]}.name": key.split(".")[1] for key in changes if key.split(".")[0] in FAMILIES}
    return load_config("demo", {**members, **changes})


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_number_out_of_its_range_is_named(key, value):
    with pytest.raises(UserError) as caught:
        check(config_with(**{key: value}))
    assert caught.value.field == f"config.{key}" and caught.value.exit_code == 2
    assert f"config.{key} must be" in str(caught.value)


def test_the_wrong_number_of_a_stage_is_named_there_and_what_is_not_chosen_is_free():
    config = config_with(**{"curriculum.stage0.until": 5, "curriculum.stage1.distortion_weight": -1.0})
    with pytest.raises(UserError) as caught:
        check(config)
    assert caught.value.field == "config.curriculum.stage1.distortion_weight"
    check(load_config("demo", {"schedule.cosine.initial": -1.0}))


def test_the_best_checkpoints_need_evaluations():
    with pytest.raises(UserError, match="evaluated"):
        check(config_with(**{"train.keep_best": 2, "train.eval_every": 0}))
    check(config_with(**{"train.keep_best": 2, "train.eval_every": 10}))


def test_every_number_of_the_training_has_a_range():
    known = flat_keys(load_config("demo"))
    assert set(RANGES) <= set(known)
    tables = {"schedule": SCHEDULES, "optimizer": OPTIMIZERS}
    options = {f"{s}.{m}.{o}" for s, table in tables.items() for m in table for o in factory_options(table[m])}
    assert options <= set(RANGES)
    elsewhere = {"train.rungs", "train.rollback_factor", "train.price_per_device_hour"}
    numbers = {k for k, v in known.items() if k.startswith("train.") and type(v) in (int, float)}
    assert numbers - elsewhere <= set(RANGES)


def test_the_command_line_ends_with_2_and_leaves_no_folder(tmp_path, capsys):
    workdir = tmp_path / "run"
    flags = ["--config=demo", f"--workdir={workdir}", "--config.schedule.log_lerp.initial=-0.001"]
    assert main(["train", *flags]) == 2
    assert "config.schedule.log_lerp.initial must be positive" in capsys.readouterr().err
    assert not workdir.exists()
