"""The compiled training step: its gradient on one device and on eight, divergence, compilation, dispatches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.train.build import build_experiment
from nerfjax.train.configuration import load_config
from nerfjax.train.step import make_gradient

SMALL = {
    "scene.source": "analytic:spheres?views=4&size=16&test=1",
    "train.batch_rays": 64,
    "train.steps": 40,
    "sampler.proposal.num_proposal": (12,),
    "sampler.proposal.num_final": 6,
    "field.instant_ngp.levels": 3,
    "field.instant_ngp.log2_size": 9,
    "network.hashgrid.levels": 2,
    "network.hashgrid.log2_size": 9,
}


def small_experiment(**overrides):
    changes = {key.replace("__", "."): value for key, value in overrides.items()}
    return build_experiment(load_config("demo", {**SMALL, "parallel.devices": 1, **changes}))


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.device_get(tree))]


@pytest.fixture(scope="module")
def one_device():
    return small_experiment()


@pytest.mark.parametrize("sampler", ["stratified", "hierarchical", "proposal"])
def test_the_gradient_of_eight_devices_is_that_of_one(sampler):
    """The gradient itself: a forgotten (or doubled) all-reduce leaves the loss right and scales the gradient."""
    results = []
    for devices in (1, 8):
        experiment = small_experiment(parallel__devices=devices, sampler__name=sampler)
        assert experiment.mesh.size == devices
        results.append(make_gradient(experiment.parts, experiment.mesh)(experiment.init_state(), experiment.data))
    (loss, gradient), (loss_of_eight, gradient_of_eight) = results
    np.testing.assert_allclose(loss_of_eight, loss, rtol=1e-5)
    # 1e-4 of the whole gradient; of each tensor, whose sum may all but cancel, enough to see a wrong all-reduce.
    pairs = list(zip(experiment.tensor_names, leaves(gradient), leaves(gradient_of_eight), strict=False))
    norm = [np.sqrt(sum(np.sum(x(pair) ** 2) for pair in pairs)) for x in (lambda p: p[1] - p[2], lambda p: p[1])]
    assert norm[0] <= 1e-4 * norm[1]
    for name, one, eight in pairs:
        assert np.linalg.norm(eight - one) <= 1e-2 * np.linalg.norm(one), name
    assert all(np.linalg.norm(leaf) > 0 for leaf in leaves(gradient["field"]))


def test_the_first_losses_of_eight_devices_are_those_of_one(one_device):
    eight = small_experiment(parallel__devices=8)
    losses = [e.dispatch_for(20)(e.init_state(), e.data)[1]["loss"] for e in (one_device, eight)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


def test_a_dispatch_of_ten_steps_is_ten_dispatches_of_one(one_device):
    together, metrics = one_device.dispatch_for(10)(one_device.init_state(), one_device.data)
    single, state, losses = one_device.dispatch_for(1), one_device.init_state(), []
    for _ in range(10):
        state, reported = single(state, one_device.data)
        losses.append(reported["loss"][0])
    assert int(state.step) == int(together.step) == 10
    np.testing.assert_allclose(metrics["loss"], np.asarray(losses), rtol=1e-5)
    for a, b in zip(leaves(together), leaves(state), strict=True):
        # Two programs round differently, and Adam turns a gradient of nearly zero into a step of some size.
        difference = np.linalg.norm(np.float64(a) - np.float64(b))
        assert difference <= 1e-2 * np.linalg.norm(np.float64(b))


def test_the_second_dispatch_compiles_nothing(one_device):
    dispatch = one_device.dispatch_for(2)
    state, _ = dispatch(one_device.init_state(), one_device.data)
    dispatch(state, one_device.data)
    assert dispatch._cache_size() == 1


def test_training_lowers_the_loss(one_device):
    _, metrics = one_device.dispatch_for(40)(one_device.init_state(), one_device.data)
    loss = np.asarray(metrics["loss/color"])
    assert loss[-5:].mean() < 0.6 * loss[:5].mean()
    assert set(metrics) >= {"loss", "psnr", "learning_rate", "grad_norm", "samples_per_ray", "loss/interlevel"}
    np.testing.assert_array_equal(metrics["samples_per_ray"], 6.0)


def test_after_a_non_finite_gradient_the_state_passes_through_unchanged(one_device):
    """Poisons one weight: the step, and the tensor that was hit first, are named; nothing else moves."""
    state = one_device.init_state()
    state, _ = one_device.dispatch_for(3)(state, one_device.data)
    kernel = state.params["field"]["color_head"]["out"]["kernel"]
    state.params["field"]["color_head"]["out"]["kernel"] = kernel.at[0, 0].set(jnp.nan)
    before = leaves(state)
    after, _ = one_device.dispatch_for(5)(state, one_device.data)
    assert int(after.first_bad_step) == 3 and int(after.step) == 3
    assert "field/color_head" in one_device.tensor_names[int(after.bad_tensor)]
    kept = leaves(after.replace(first_bad_step=jnp.int32(-1), bad_tensor=jnp.int32(-1)))
    for a, b in zip(before, kept, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_compiled_step_has_no_host_transfer_and_no_float64(one_device):
    text = one_device.dispatch_for(2).lower(one_device.init_state(), one_device.data).compile().as_text()
    assert "f64" not in text
    assert not any(word in text for word in ("infeed", "outfeed", "send(", "recv(", "host_compute", "CallbackTo"))


def test_random_background_hides_nothing():
    """With a random background and a transparent target, the target follows the background."""
    experiment = small_experiment(background__name="random")
    _, metrics = experiment.dispatch_for(40)(experiment.init_state(), experiment.data)
    loss = np.asarray(metrics["loss/color"])
    assert np.all(np.isfinite(loss)) and loss[-5:].mean() < loss[:5].mean()
