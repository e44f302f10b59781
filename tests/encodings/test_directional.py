"""Spherical harmonics: orthonormal by exact quadrature, turning in their bands, in closed form; means over lobes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.encodings.directional import integrated_directional_encoding, spherical_harmonics
from nerfjax.errors import UserError


def sphere_quadrature(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Directions [Q, 3] and weights [Q]: Gauss-Legendre in z, the trapezium in azimuth; exact below 2 * order."""
    z, weight = np.polynomial.legendre.leggauss(order)
    azimuth = np.arange(2 * order) * np.pi / order
    level = np.sqrt(1 - z**2)[:, None]
    directions = np.stack([level * np.cos(azimuth), level * np.sin(azimuth), z[:, None] + 0 * azimuth], axis=-1)
    return directions.reshape(-1, 3), np.repeat(weight * np.pi / order, 2 * order)


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5])
def test_orthonormal_over_the_sphere(degree):
    directions, weights = sphere_quadrature(8)
    with jax.numpy_dtype_promotion("strict"):
        values = spherical_harmonics(jnp.asarray(directions, jnp.float32), degree=degree)
    assert values.shape == (len(directions), degree**2)
    values = np.asarray(values, np.float64)
    np.testing.assert_allclose(values.T @ (weights[:, None] * values), np.eye(degree**2), atol=2e-6)


def test_a_rotation_mixes_each_band_within_itself():
    rng = np.random.default_rng(1)
    directions, weights = sphere_quadrature(8)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    plain, turned = (
        np.asarray(spherical_harmonics(jnp.asarray(v, jnp.float32), degree=5), np.float64)
        for v in (directions, directions @ rotation.T)
    )
    mixing = turned.T @ (weights[:, None] * plain)
    band = np.floor(np.sqrt(np.arange(25)))
    np.testing.assert_allclose(np.where(band[:, None] == band, 0, mixing), 0, atol=3e-6)
    np.testing.assert_allclose(mixing @ mixing.T, np.eye(25), atol=5e-6)


def test_first_bands_are_the_textbook_polynomials():
    x, y, z = directions = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
    values = spherical_harmonics(jnp.asarray(directions.T, jnp.float32), degree=3)
    one, two = np.sqrt(3 / (4 * np.pi)), np.sqrt(15 / (4 * np.pi))
    expected = [
        np.full(3, np.sqrt(1 / (4 * np.pi))), one * y, one * z, one * x,
        two * x * y, two * y * z, np.sqrt(5 / (16 * np.pi)) * (3 * z**2 - 1), two * x * z, two / 2 * (x**2 - y**2),
    ]  # fmt: skip
    np.testing.assert_allclose(values, np.stack(expected, axis=-1), atol=1e-6)


def test_gradient_is_finite_at_the_poles():
    poles = jnp.asarray([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])
    jacobian = jax.vmap(jax.jacrev(lambda d: spherical_harmonics(d, degree=5)))(poles)
    assert np.all(np.isfinite(jacobian))


@pytest.mark.parametrize("degree", [0, 6])
def test_other_degrees_are_refused(degree):
    with pytest.raises(UserError, match="1 to 5"):
        spherical_harmonics(jnp.zeros((1, 3)), degree=degree)


def test_bands_of_octaves_are_orthonormal():
    directions, weights = sphere_quadrature(20)
    encode = jax.jit(lambda d: integrated_directional_encoding(d, jnp.zeros(d.shape[:-1])))
    with jax.numpy_dtype_promotion("strict"):
        values = np.asarray(encode(jnp.asarray(directions, jnp.float32)), np.float64)
    assert values.shape[-1] == 67
    np.testing.assert_allclose(values.T @ (weights[:, None] * values), np.eye(67), atol=2e-5)


def lobe(center, concentration, count=200_000):
    """Directions drawn from the von Mises-Fisher distribution (the cosine to its centre has a closed inverse CDF)."""
    rng = np.random.default_rng(4)
    u, azimuth = rng.random(count), 2 * np.pi * rng.random(count)
    z = 1 + np.log(u + (1 - u) * np.exp(-2 * concentration)) / concentration
    frame = np.linalg.qr(np.stack([center, [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], axis=1))[0]
    frame[:, 0] = center
    across = np.sqrt(1 - z**2)
    return np.stack([z, across * np.cos(azimuth), across * np.sin(azimuth)], axis=-1) @ frame.T


@pytest.mark.parametrize("roughness", [0.005, 0.03, 0.1])
def test_the_integrated_encoding_is_the_mean_over_the_lobe(roughness):
    center = np.asarray([0.48, -0.6, 0.64])
    encode = jax.jit(integrated_directional_encoding)
    samples = jnp.asarray(lobe(center, 1 / roughness), jnp.float32)
    expected = np.mean(encode(samples, jnp.zeros(len(samples))), axis=0)
    got = np.asarray(encode(jnp.asarray(center, jnp.float32), jnp.float32(roughness)))
    # Beside the noise, the approximation's own error: A_1 = coth kappa - 1 / kappa is 0.5% off at kappa = 10.
    np.testing.assert_allclose(got, expected, atol=0.004 + 0.1 * roughness)
    faded = np.abs(got / np.asarray(encode(jnp.asarray(center, jnp.float32), jnp.float32(0.0))))
    assert faded[-1] < faded[20] < faded[0]


def test_the_gradient_of_the_integrated_encoding_is_finite_at_the_poles_of_mirrors_and_of_fog():
    poles = jnp.asarray([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])
    total = jax.jit(jax.grad(lambda d, r: jnp.sum(integrated_directional_encoding(d, r)), argnums=(0, 1)))
    for roughness in (0.0, 1e6):
        assert all(np.all(np.isfinite(leaf)) for leaf in total(poles, jnp.full(3, roughness)))


@pytest.mark.parametrize("octaves", [0, 6])
def test_other_numbers_of_octaves_are_refused(octaves):
    with pytest.raises(UserError, match="1 to 5"):
        integrated_directional_encoding(jnp.ones((1, 3)), jnp.ones(1), octaves=octaves)
