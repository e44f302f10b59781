"""Penalties of parameters: what is added up, how it is weighted, and that its gradient is counted once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.train.build import build_experiment
from nerfjax.train.configuration import default_config, load_config
from nerfjax.train.penalties import PENALTIES
from nerfjax.train.step import make_gradient

TINY = {
    "scene.source": "analytic:spheres?views=4&size=16&test=1",
    "train.batch_rays": 16,
    "train.steps": 10,
    "train.steps_per_dispatch": 5,
    "field.name": "kplanes",
    "field.kplanes.resolution": 4,
    "field.kplanes.multipliers": (1,),
    "field.kplanes.features": 2,
    "field.kplanes.density_width": 4,
    "field.kplanes.color_layers": 1,
    "network.name": "kplanes",
    "network.kplanes.resolution": 4,
    "network.kplanes.width": 4,
    "sampler.proposal.num_proposal": (6,),
    "sampler.proposal.num_final": 6,
    "optimizer.adam.weight_decay": 0.0,
    "parallel.devices": 2,
}


def experiment_with(**changes):
    return build_experiment(load_config("demo", {**TINY, **{key.replace("__", "."): v for key, v in changes.items()}}))


def variation(tables):
    """Of the field's planes, or a network's: leaves of three axes, the last one of features."""
    planes = [leaf for leaf in jax.tree.leaves(tables) if leaf.ndim == 3]
    return sum(jnp.mean(jnp.diff(plane, axis=axis) ** 2) for plane in planes for axis in (0, 1))


def test_field_and_networks_are_penalised_once_whatever_the_number_of_devices():
    """At a weight beside which the colours' loss is nothing, the loss and its gradient are those of the penalty."""
    weight = 1e6
    experiment = experiment_with(train__tv_weight=weight)
    parts, state = experiment.parts, experiment.init_state()
    loss, gradient = make_gradient(parts, experiment.mesh)(state, experiment.data)

    def want(params):
        return weight * (variation(params["field"]["tables"]) + variation(params["sampler"]))

    value, slope = jax.jit(jax.value_and_grad(want))(state.params)
    np.testing.assert_allclose(loss, value, rtol=1e-4)
    for part in ("field", "sampler"):
        compared = [
            (np.asarray(a), np.asarray(b))
            for a, b in zip(jax.tree.leaves(gradient[part]), jax.tree.leaves(slope[part]), strict=True)
            if a.ndim == 3
        ]
        assert len(compared) == 3
        for got, expected in compared:
            np.testing.assert_allclose(got, expected, atol=2e-4 * np.max(np.abs(expected)))


def test_a_penalty_that_nobody_has_is_named():
    with pytest.raises(UserError, match="'l1' penalty") as error:
        experiment_with(train__l1_weight=0.1)
    assert "config.train.tv_weight" in str(error.value)
    with pytest.raises(UserError, match="'tv' penalty"):
        build_experiment(load_config("demo", {"scene.source": TINY["scene.source"], "train.tv_weight": 0.1}))
    with pytest.raises(UserError, match="at least 0"):
        experiment_with(train__tv_weight=-0.1)


def test_every_penalty_is_a_key_of_the_config_and_off():
    assert all(default_config().train[f"{name}_weight"] == 0.0 for name in PENALTIES)
    assert not experiment_with().parts.objective.penalties
