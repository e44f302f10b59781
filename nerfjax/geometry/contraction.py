"""The contraction of space applied to what has an extent: its Jacobian, and Gaussians by linearisation.

Notation: f is ``warps.contract`` with the Euclidean norm, r = max(|x|, 1), n = x / r, and

  J(x) = a I + (b - a) n n^T,     a = (2 - 1/r) / r  (across the radius),     b = 1 / r^2  (along it),

which is the identity inside the unit ball. mip-NeRF 360 (Barron et al. 2022), section 3 and Eqs. 8-10.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from nerfjax.geometry.warps import contract
from nerfjax.types import Array, Gaussians


class Stretch(NamedTuple):
    """The Jacobian of the contraction by its parts: ``outward`` n [..., 3], ``across`` a [...], ``along`` b [...]."""

    outward: Array
    across: Array
    along: Array


def contraction_stretch(x: Array) -> Stretch:
    """Returns the eigenvalues of the contraction's Jacobian and their axis.

    Values and gradients are finite from 0 to 1e18. Inside the unit ball both eigenvalues are 1.

    Args:
      x: [..., 3] positions in units of the region of full resolution.
    """
    # The scale cancels, so it needs no gradient; it keeps squares far from overflow (as in ``contract``).
    peak = jax.lax.stop_gradient(jnp.maximum(jnp.max(jnp.abs(x), axis=-1, keepdims=True), 1.0))
    scaled = x / peak
    norm = jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(scaled), axis=-1, keepdims=True), 1.0))
    inverse = (1.0 / (peak * norm))[..., 0]
    return Stretch(outward=scaled / norm, across=(2.0 - inverse) * inverse, along=jnp.square(inverse))


def contraction_jacobian(x: Array) -> Array:
    """Returns the Jacobian of ``contract`` at ``x``, in closed form.

    Args:
      x: [..., 3] positions.

    Returns:
      [..., 3, 3], symmetric.
    """
    outward, across, along = contraction_stretch(x)
    unit = jnp.eye(3, dtype=x.dtype).reshape((1,) * (x.ndim - 1) + (3, 3))
    outer = outward[..., :, None] * outward[..., None, :]
    return across[..., None, None] * unit + (along - across)[..., None, None] * outer


def contraction_scale(x: Array) -> Array:
    """Returns det(J)^(1/3) = (a^2 b)^(1/3): what a small isotropic length is multiplied with (Zip-NeRF, section 2).

    Args:
      x: [..., 3] positions.

    Returns:
      [...] in (0, 1]; 1 inside the unit ball.
    """
    _, across, along = contraction_stretch(x)
    return jnp.cbrt(along) * jnp.cbrt(across) ** 2


def contract_gaussians(gaussians: Gaussians) -> Gaussians:
    """Contracts Gaussians by linearising the contraction at their means: (f(mu), J Sigma J^T).

    J Sigma J^T = a^2 Sigma + a c (n v^T + v n^T) + c^2 (n.v) n n^T with c = b - a, v = Sigma n. Far out, where b << a,
    the variance along the radius is a difference of much larger numbers: it is exact to some 1e-7 of a^2 Sigma, as is
    the covariance that comes in, and may fall below zero by so much.

    Args:
      gaussians: in units of the region of full resolution.

    Returns:
      Gaussians within radius 2.

    Reference: mip-NeRF 360 (Barron et al. 2022), Eq. 9.
    """
    means, covariances = gaussians.means, gaussians.covariances
    outward, across, along = contraction_stretch(means)
    # Products and sums, not matmuls: exact float32 on every device.
    turned = jnp.sum(covariances * outward[..., None, :], axis=-1)
    radial = jnp.sum(outward * turned, axis=-1)
    across, change = across[..., None, None], (along - across)[..., None, None]
    mixed = outward[..., :, None] * turned[..., None, :]
    outer = outward[..., :, None] * outward[..., None, :]
    contracted = jnp.square(across) * covariances + across * change * (mixed + jnp.swapaxes(mixed, -1, -2))
    contracted = contracted + jnp.square(change) * radial[..., None, None] * outer
    return Gaussians(means=contract(means), covariances=contracted)
