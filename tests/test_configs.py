"""Every file of ``configs/`` builds on a toy capture, and its training step moves every part of the model."""

from pathlib import Path

import jax
import numpy as np
import pytest

from nerfjax.train import configuration
from nerfjax.train.build import build_experiment
from nerfjax.train.configuration import load_config

CONFIGS = sorted(path.stem for path in (Path(__file__).parents[1] / "configs").glob("[!_]*.py"))
VARIANTS = ("mipnerf360:bounded",)
# The largest value of an option, whatever member it belongs to: what is left of a method must compile in seconds.
TOY = {
    "depth": 2, "width": 8, "color_width": 8, "density_width": 8, "bottleneck_width": 8, "color_layers": 1,
    "levels": 2, "log2_size": 8, "max_resolution": 32, "resolution": 8, "features": 2,
    "num_proposal": 6, "num_final": 4, "num_coarse": 6, "num_fine": 4, "num_samples": 6, "diagonal_steps": 16,
    "density_components": 2, "appearance_components": 3,
}  # fmt: skip
TRAINING = {
    "scene.source": "analytic:spheres?views=2&size=8&test=1", "train.steps": 2, "train.batch_rays": 8,
    "parallel.devices": 1,
}  # fmt: skip


def smaller(value, most):
    if isinstance(value, (tuple, list)):
        return tuple(smaller(part, most) for part in value)
    return min(value, most)


def toy(name):
    """The config with the options of the chosen members cut to ``TOY``, and the stages that fit no more left out."""
    config = load_config(name)
    changes = dict(TRAINING, curriculum={})
    for section in ("field", "network", "sampler"):
        chosen, options = configuration.chosen(section, config)
        small = {key: smaller(options[key], most) for key, most in TOY.items() if key in options}
        changes |= {f"{section}.{chosen}.{key}": value for key, value in small.items()}
    return load_config(name, changes)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_builds_and_trains(name):
    experiment = build_experiment(toy(name))
    before = experiment.init_state()
    params = jax.device_get(before.params)
    state, metrics = experiment.dispatch_for(2)(before, experiment.data)
    assert int(state.step) == 2 and int(state.first_bad_step) == -1
    assert np.all(np.isfinite(metrics["loss"])) and np.all(metrics["grad_norm"] > 0)
    for part, leaves in jax.device_get(state.params).items():
        moved = [np.any(a != b) for a, b in zip(jax.tree.leaves(leaves), jax.tree.leaves(params[part]), strict=True)]
        assert any(moved) or not moved, part


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_builds(name):
    experiment = build_experiment(toy(name), with_data=False)
    assert jax.tree.leaves(jax.eval_shape(experiment.init_state).params)


def test_annealing_is_as_long_as_the_run_where_it_is_published_so():
    assert load_config("mipnerf360").sampler.proposal.anneal_steps == 250_000
    assert load_config("mipnerf360", {"train.steps": 900}).sampler.proposal.anneal_steps == 900


def test_one_proposal_network_serves_the_rounds_of_mipnerf360():
    config = toy("mipnerf360")
    assert len(config.sampler.proposal.num_proposal) == 2
    params = jax.eval_shape(build_experiment(config, with_data=False).init_state).params
    assert len(params["sampler"]) == 1
