"""Products at a named precision: bfloat16 operands, float32 accumulation and parameters, forward and backward."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.fields.mlp import MLP
from nerfjax.precision import PRECISIONS, matmul
from nerfjax.train.build import build_experiment
from nerfjax.train.configuration import load_config
from nerfjax.train.step import make_gradient


def rounded(x):
    return np.asarray(jnp.asarray(x).astype(jnp.bfloat16).astype(jnp.float32), np.float64)


def operands():
    key_x, key_kernel, key_cotangent = jax.random.split(jax.random.key(0), 3)
    x, kernel = jax.random.normal(key_x, (3, 5, 300)), jax.random.normal(key_kernel, (300, 4))
    return x, kernel, jax.random.normal(key_cotangent, (3, 5, 4))


def test_bfloat16_rounds_the_operands_and_nothing_else():
    """Forward and backward equal float64 products of rounded operands to float32's precision."""
    x, kernel, cotangent = operands()
    product, pullback = jax.vjp(lambda x, kernel: matmul(x, kernel, precision="bfloat16"), x, kernel)
    x_bar, kernel_bar = pullback(cotangent)
    a, b, c = rounded(x), rounded(kernel), rounded(cotangent)
    np.testing.assert_allclose(product, a @ b, atol=1e-4)
    np.testing.assert_allclose(x_bar, c @ b.T, atol=1e-5)
    np.testing.assert_allclose(kernel_bar, a.reshape(-1, 300).T @ c.reshape(-1, 4), atol=1e-4)
    assert abs(np.asarray(product) - np.asarray(x, np.float64) @ np.asarray(kernel, np.float64)).max() > 1e-3
    assert product.dtype == x_bar.dtype == kernel_bar.dtype == jnp.float32


@pytest.mark.parametrize("precision", PRECISIONS)
def test_parameters_and_outputs_of_an_mlp_are_float32(precision):
    module = MLP((8, 8), 3, precision=precision)
    x = jax.random.normal(jax.random.key(1), (6, 5))
    params = module.init(jax.random.key(2), x)
    gradient = jax.jit(jax.grad(lambda params: jnp.sum(module.apply(params, x) ** 2)))(params)
    leaves = jax.tree.leaves((params, module.apply(params, x), gradient))
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype(jnp.float32)}
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)


BFLOAT16_PRODUCT = re.compile(r": \(tensor<\S*bf16>, tensor<\S*bf16>\) -> tensor<\S*f32>")


@pytest.mark.parametrize("config", ["tpu", "mipnerf360"])
def test_networks_multiply_in_bfloat16_and_geometry_at_the_highest_precision(config):
    """Every product of the lowered step is one of bfloat16 operands into float32, or at HIGHEST."""
    overrides = {"precision": "bfloat16", "scene.source": "analytic:toys?views=4&size=8", "train.batch_rays": 16}
    experiment = build_experiment(load_config(config, overrides))
    program = make_gradient(experiment.parts, experiment.mesh).lower(experiment.abstract_state, experiment.data)
    products = [line for line in program.as_text().splitlines() if "stablehlo.dot_general" in line]
    others = [line for line in products if not BFLOAT16_PRODUCT.search(line)]
    assert len(products) - len(others) > 20
    assert all("precision = [HIGHEST, HIGHEST]" in line for line in others), others
    assert bool(others) == (config == "mipnerf360")  # the Gaussians' projections


def test_an_unknown_precision_is_the_user_s_error():
    with pytest.raises(UserError, match="precision"):
        build_experiment(load_config("demo", {"precision": "bfloat"}))
