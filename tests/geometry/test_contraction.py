"""The contraction of extents: its Jacobian against automatic differentiation, Gaussians against Monte Carlo."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.geometry.contraction import contract_gaussians, contraction_jacobian, contraction_scale
from nerfjax.geometry.warps import contract
from nerfjax.types import Gaussians


def places(reach):
    x = np.random.default_rng(0).normal(size=(40, 3))
    return jnp.asarray(reach * x / np.linalg.norm(x, axis=-1, keepdims=True), jnp.float32)


@pytest.mark.parametrize("reach", [0.0, 0.3, 0.99, 1.01, 3.0, 1e3, 1e6])
def test_the_jacobian_is_that_of_automatic_differentiation(reach):
    x = places(reach)
    with jax.numpy_dtype_promotion("strict"):
        jacobian, scale = jax.jit(contraction_jacobian)(x), jax.jit(contraction_scale)(x)
    expected = jax.jit(jax.vmap(jax.jacfwd(contract)))(x)
    size = np.abs(expected).max(axis=(-2, -1), keepdims=True)
    np.testing.assert_allclose(jacobian / size, expected / size, atol=2e-6)
    if reach < 1e3:
        determinant = np.linalg.det(np.asarray(expected, np.float64))
        np.testing.assert_allclose(scale, determinant ** (1 / 3), rtol=1e-4)
    else:  # the determinant of a float32 matrix of this condition is noise; the eigenvalues are known
        across, along = (2 - 1 / reach) / reach, 1 / reach**2
        np.testing.assert_allclose(scale, (across**2 * along) ** (1 / 3), rtol=1e-5)


def covariance(seed=1, size=0.02):
    square = np.random.default_rng(seed).normal(size=(3, 3)) * size
    return square @ square.T


@pytest.mark.parametrize("reach", [0.4, 1.5, 4.0])
def test_a_small_gaussian_contracts_to_the_moments_of_its_contracted_samples(reach):
    mean, spread = np.asarray(places(reach)[0], np.float64), covariance()
    samples = np.random.default_rng(2).multivariate_normal(mean, spread, size=50_000)
    contracted = np.asarray(jax.jit(contract)(jnp.asarray(samples, jnp.float32)), np.float64)
    got = jax.jit(contract_gaussians)(Gaussians(jnp.asarray(mean, jnp.float32), jnp.asarray(spread, jnp.float32)))
    scale = np.trace(spread) * np.max(np.asarray(jax.jit(contraction_jacobian)(places(reach)[0])) ** 2)
    np.testing.assert_allclose(got.means, contracted.mean(0), atol=2e-3)
    np.testing.assert_allclose(got.covariances, np.cov(contracted.T), atol=0.03 * scale)


@pytest.mark.parametrize("reach", [0.5, 2.0, 50.0])
def test_covariances_are_the_jacobian_s_congruence(reach):
    x, spread = places(reach), jnp.asarray(covariance(size=0.1 * reach), jnp.float32)
    got = jax.jit(contract_gaussians)(Gaussians(x, jnp.broadcast_to(spread, (40, 3, 3)))).covariances
    jacobian = np.asarray(jax.jit(jax.vmap(jax.jacfwd(contract)))(x), np.float64)
    expected = jacobian @ np.asarray(spread, np.float64) @ np.swapaxes(jacobian, -1, -2)
    np.testing.assert_allclose(got, expected, atol=1e-6 * np.abs(expected).max())


def test_it_is_finite_to_the_end_of_the_world():
    def total(means, covariances):
        contracted = contract_gaussians(Gaussians(means, covariances))
        return jnp.sum(contracted.means) + jnp.sum(contracted.covariances), contracted

    means = jnp.asarray([[0.0, 0.0, 0.0], [1e-20, 0.0, 0.0], [1.0, 0.0, 0.0], [7e5, -7e5, 0.0], [1e18, 1e18, -1e18]])
    wide = jnp.asarray([0.0, 1.0, 1.0, 1e12, 1e36])[:, None, None] * jnp.eye(3)[None]
    gradients, contracted = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))(means, wide)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves((gradients, contracted)))
    assert bool(jnp.all(jnp.linalg.norm(contracted.means, axis=-1) <= 2.0 + 1e-6))
