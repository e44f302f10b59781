"""Integrated encodings against Monte Carlo and float64; the basis against the icosahedron's symmetry."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.encodings.integrated import icosahedron_basis, integrated_encoding, project
from nerfjax.errors import UserError
from nerfjax.types import Gaussians

AXES = np.eye(3)


def gaussian():
    square = np.random.default_rng(0).normal(size=(3, 3)) * [0.3, 0.2, 0.1]
    return np.asarray([0.4, -0.7, 0.2]), square @ square.T


def waves(positions, basis, degrees):
    """The frequency encoding without pi, float64, in the layout of the integrated one."""
    along = positions @ basis.T
    return np.concatenate([w for k in range(degrees) for w in (np.sin(2**k * along), np.cos(2**k * along))], axis=-1)


@pytest.mark.parametrize("basis", [AXES, icosahedron_basis()], ids=["axes", "icosahedron"])
def test_the_encoding_is_the_mean_of_the_encodings_of_the_gaussian_s_points(basis):
    mean, covariance = gaussian()
    count = 100_000
    samples = np.random.default_rng(1).multivariate_normal(mean, covariance, size=count)
    expected = np.mean([waves(part, basis, 6).mean(0) for part in np.split(samples, 10)], axis=0)

    @jax.jit
    def encode(gaussians):
        return integrated_encoding(*project(gaussians, basis), max_degree=6)

    with jax.numpy_dtype_promotion("strict"):
        got = encode(Gaussians(jnp.asarray(mean, jnp.float32), jnp.asarray(covariance, jnp.float32)))
    assert got.shape == (2 * len(basis) * 6,)
    np.testing.assert_allclose(got, expected, atol=5 / np.sqrt(count))
    assert np.abs(expected[-2 * len(basis) :]).max() < 0.3 < np.abs(expected[: len(basis)]).max()  # high ones fade


def test_it_is_exact_in_float32_at_every_frequency():
    means = np.random.default_rng(2).uniform(-2, 2, (500, 3)).astype(np.float32)
    got = jax.jit(lambda m: integrated_encoding(m, jnp.zeros_like(m), max_degree=16))(jnp.asarray(means))
    np.testing.assert_allclose(got, waves(means.astype(np.float64), AXES, 16), atol=1e-6)


def test_the_projected_variance_is_that_of_the_covariance():
    mean, covariance = gaussian()
    basis = icosahedron_basis()
    gaussians = Gaussians(jnp.asarray(mean, jnp.float32)[None], jnp.asarray(covariance, jnp.float32)[None])
    means, variances = jax.jit(lambda g: project(g, basis))(gaussians)
    np.testing.assert_allclose(means[0], basis @ mean, atol=1e-6)
    np.testing.assert_allclose(variances[0], np.diag(basis @ covariance @ basis.T), atol=1e-6)


def test_only_the_off_axis_encoding_tells_apart_gaussians_of_equal_diagonal():
    thin = np.asarray([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]]) * 0.1
    pair = jnp.asarray(np.stack([thin, thin * [[1, -1, 1], [-1, 1, 1], [1, 1, 1]]]), jnp.float32)

    def difference(basis):
        encode = jax.jit(lambda g: integrated_encoding(*project(g, basis), max_degree=4))
        encoded = encode(Gaussians(jnp.zeros((2, 3)), pair))
        return float(jnp.max(jnp.abs(encoded[0] - encoded[1])))

    assert difference(AXES) < 1e-6
    assert difference(icosahedron_basis()) > 0.1


def test_the_gradient_is_the_derivative_and_finite_where_the_gaussian_is_anything():
    def total(means, variances):
        return jnp.sum(integrated_encoding(means, variances, max_degree=16) ** 2 / 2)

    means = jnp.asarray([[0.0, 1e-20, 2.0], [1e18, -1e18, 1.0], [0.5, 0.5, 0.5]])
    variances = jnp.asarray([[0.0, 1e-30, 1e12], [1e36, 1.0, 0.0], [-1e-8, 0.0, 1e-3]])
    gradients = jax.jit(jax.grad(total, argnums=(0, 1)))(means, variances)
    assert all(bool(jnp.all(jnp.isfinite(gradient))) for gradient in gradients)
    # d/dm (sin^2 + cos^2) / 2 = 0, d/dv of the same = -sum_k 4^k exp(-4^k v) / 2.
    np.testing.assert_allclose(gradients[0][2, 2], 0.0, atol=1e-2)
    scales = 4.0 ** np.arange(16)
    np.testing.assert_allclose(gradients[1][2, 2], -np.sum(scales * np.exp(-scales * 1e-3)) / 2, rtol=1e-4)


@pytest.mark.parametrize(("subdivision", "count"), [(1, 6), (2, 21), (3, 46)])
def test_the_basis_is_half_a_geodesic_sphere(subdivision, count):
    basis = icosahedron_basis(subdivision)
    assert basis.shape == (count, 3)  # (10 v^2 + 2) / 2
    np.testing.assert_allclose(np.linalg.norm(basis, axis=-1), 1.0, atol=1e-12)
    # Icosahedral symmetry: the second moment is isotropic, and so is the fourth (a spherical 5-design with opposites).
    np.testing.assert_allclose(basis.T @ basis, np.eye(3) * count / 3, atol=1e-12)
    probes = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
    np.testing.assert_allclose(np.sum((basis @ probes) ** 4, axis=0), count / 5, atol=1e-12)
    closeness = np.abs(basis @ basis.T)[~np.eye(count, dtype=bool)]
    assert closeness.max() < np.cos(np.deg2rad(63.0 / subdivision) * 0.8)


def test_no_frequencies_are_refused():
    with pytest.raises(UserError, match="max_degree|frequencies"):
        integrated_encoding(jnp.ones((2, 3)), jnp.ones((2, 3)), min_degree=2, max_degree=2)
