"""Configs: every choice is checked against the real signature; the hash knows what matters and nothing else."""

import json
from pathlib import Path

import pytest

from nerfjax.errors import UserError
from nerfjax.train import configuration
from nerfjax.train.build import build_experiment
from nerfjax.train.configuration import config_hash, load_config

CONFIGS = sorted(path.stem for path in (Path(__file__).parents[2] / "configs").glob("[!_]*.py"))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_binds(name):
    config = load_config(name)
    for section in configuration.FAMILIES:
        chosen, options = configuration.chosen(section, config)
        assert set(options) == set(configuration.factory_options(configuration.FAMILIES[section][chosen]))
    assert load_config(name).__class__ is config.__class__
    assert f"--config=configs/{name}.py" in (Path(__file__).parents[2] / "configs" / f"{name}.py").read_text()


def test_a_config_is_found_by_path_and_by_name(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(Path(__file__).parents[2].joinpath("configs", "demo.py").read_text().replace("600", "7"))
    assert load_config(str(path)).train.steps == 7
    assert load_config("demo").train.steps == load_config("configs/demo.py").train.steps == 600


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"sampler.name": "stratifed"}, "stratified"),
        ({"field.name": "ingp"}, "instant_ngp"),
        ({"train.stepz": 3}, "train.steps"),
        ({"sampler.proposal.num_finale": 3}, "num_final"),
        ({"train.steps": "many"}, "int"),
        ({"train.steps": 0}, "positive"),
        ({"precision": "half"}, "precision"),
        ({"data.source": "cloud"}, "resident"),
        ({"network.hashgrid.levels": (3, 4)}, "round"),
        ({"parallel.devices": 10_000}, "devices"),
        ({"train.batch_rays": 1025, "parallel.devices": 2}, "multiple of 2"),
    ],
)
def test_a_wrong_choice_is_named_with_its_remedy(overrides, message):
    with pytest.raises(UserError, match=message):
        build_experiment(load_config("demo", {"scene.source": "analytic:spheres?views=2&size=8&test=1", **overrides}))


def test_an_unknown_config_lists_the_shipped_ones():
    with pytest.raises(UserError, match="demo"):
        load_config("dmo")


def test_a_config_survives_json():
    config = load_config("nerfjax", {"train.steps": 77})
    again = configuration.config_from_json(json.loads(json.dumps(configuration.config_to_json(config))))
    assert configuration.config_to_json(again) == configuration.config_to_json(config)
    assert config_hash(again) == config_hash(config)
    assert isinstance(again.sampler.proposal.num_proposal, tuple)


def test_the_schedule_is_as_long_as_the_run_unless_it_is_told_otherwise():
    def lengths(name, overrides):
        config = load_config(name, overrides)
        chosen = configuration.schedule_section(config)
        return config.train.steps, chosen[chosen["name"]]["steps"]

    assert lengths("demo", {"train.steps": 123}) == (123, 123)
    assert lengths("demo", {"schedule.log_lerp.steps": 50}) == (600, 50)
    assert lengths("demo", {"train.steps": 123, "schedule.log_lerp.steps": 50}) == (123, 50)
    assert lengths("nerf", {}) == (1_000_000, 500_000)
    assert lengths("nerf", {"train.steps": 100}) == (100, 500_000)


def test_the_hash_ignores_paths_cadence_and_what_is_not_chosen():
    base = load_config("demo")
    same = [
        {"scene.source": "elsewhere"},
        {"train.log_every": 7},
        {"parallel.devices": 4},
        {"sampler.stratified.num_samples": 7},
    ]
    other = [
        {"train.seed": 1},
        {"scene.downscale": 2},
        {"sampler.proposal.num_final": 7},
        {"precision": "highest"},
        {"sampler.name": "stratified"},
        {"network.hashgrid.levels": 3},
    ]
    for overrides in same:
        assert config_hash(load_config("demo", overrides)) == config_hash(base), overrides
    for overrides in other:
        assert config_hash(load_config("demo", overrides)) != config_hash(base), overrides
    assert "sampler.proposal.num_final" in configuration.config_differences(
        base, load_config("demo", {"sampler.proposal.num_final": 7})
    )
