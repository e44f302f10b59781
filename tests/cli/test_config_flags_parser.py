"""--config.KEY=VALUE: typed, checked, and never global."""

from __future__ import annotations

import ml_collections
import pytest
from absl import flags

from nerfjax.cli.config_flags_parser import overrides_from_flags, parse_config
from nerfjax.errors import UserError


@pytest.fixture
def config():
    return ml_collections.ConfigDict(
        {
            "train": {"steps": 100, "rate": 1e-2, "resume": True},
            "sampler": {"name": "stratified", "stratified": {"num_samples": 64, "counts": (64, 32)}},
            "note": None,
        }
    )


def test_values_take_the_type_of_the_key(config):
    arguments = [
        "--config.train.steps=20", "--config.train.rate=1", "--config.train.resume=false",
        "--config.sampler.name=proposal", "--config.sampler.stratified.counts=(8,4,2)", "--config.train.steps=30",
    ]  # fmt: skip
    assert overrides_from_flags(config, arguments) == {
        "train.steps": 30,
        "train.rate": 1.0,
        "train.resume": False,
        "sampler.name": "proposal",
        "sampler.stratified.counts": (8, 4, 2),
    }
    assert config.train.steps == 100


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3), ("(1, 2)", (1, 2)), ("plain text", "plain text"), ("None", None)]
)
def test_a_key_without_a_type_takes_a_literal_or_text(config, text, value):
    assert overrides_from_flags(config, [f"--config.note={text}"]) == {"note": value}


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--config.train.stepz=3", ["config.train.stepz", "train.steps"]),
        ("--config.trian.steps=3", ["config.trian.steps", "train.steps"]),
        ("--config.sampler.stratified.num_sample=3", ["sampler.stratified.num_samples"]),
        ("--config.sampler=proposal", ["group", "--config.sampler.name="]),
        ("--config.train.steps=many", ["config.train.steps", "many", "int", "100"]),
        ("--config.train.steps=2.5", ["config.train.steps", "2.5"]),
        ("--config.train.resume=perhaps", ["config.train.resume", "perhaps", "bool"]),
    ],
)
def test_mistakes_are_named_with_what_was_meant(config, argument, words):
    with pytest.raises(UserError) as caught:
        overrides_from_flags(config, [argument])
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_no_global_flag_exists(config):
    overrides_from_flags(config, ["--config.train.steps=20"])
    assert "config" not in flags.FLAGS


def test_a_shipped_config_by_name_and_by_path():
    by_name = parse_config("demo", ["--config.train.steps=7"])
    assert by_name.train.steps == 7
    with pytest.raises(UserError, match="demo"):
        parse_config("dmeo", [])
    with pytest.raises(UserError, match="train.steps"):
        parse_config("demo", ["--config.train.step=7"])


def test_an_option_of_a_member_that_is_not_chosen_is_said_to_have_no_effect(capsys):
    parse_config("nerf", ["--config.schedule.log_lerp.initial=1.0", "--config.schedule.exponential.initial=1.0"])
    said = capsys.readouterr().err
    assert "config.schedule.log_lerp.initial has no effect: config.schedule.name is exponential" in said
    assert "exponential.initial has" not in said
