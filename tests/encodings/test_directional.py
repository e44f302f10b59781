"""Spherical harmonics: orthonormal by exact quadrature, turning within their bands, and known in closed form."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.encodings.directional import spherical_harmonics
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
