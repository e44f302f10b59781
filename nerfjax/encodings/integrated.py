"""Integrated encodings: the expectation of the frequency encoding over a Gaussian.

Notation: a Gaussian of mean mu and covariance Sigma; directions P, one a row [B, 3], on which it is projected to the
means m = P mu and the variances v = diag(P Sigma P^T); frequencies 2^k for k in [min_degree, max_degree).
"""

from __future__ import annotations

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from nerfjax.errors import UserError
from nerfjax.types import Array, Gaussians

AXES = np.eye(3)  # mip-NeRF's directions
# 2 pi in three parts, the first two short enough that their products with the number of turns are exact.
_TURN = (201 / 2**5, 507 / 2**18, 2.0 * math.pi - 201 / 2**5 - 507 / 2**18)


def integrated_encoding(means: Array, variances: Array, *, min_degree: int = 0, max_degree: int) -> Array:
    """Expected sines and cosines of doubling frequencies under independent normal distributions.

      E[sin(2^k x)] = sin(2^k m) exp(-4^k v / 2),  E[cos(2^k x)] = cos(2^k m) exp(-4^k v / 2)

    Frequencies at which the Gaussian is wider than a wave fade out: the encoding is prefiltered. Unlike the frequency
    encoding's, the frequencies have no factor pi, as published.

    Args:
      means: [..., D], of order one.
      variances: [..., D]; below zero (by rounding) counts as zero.
      min_degree: exponent of the lowest frequency.
      max_degree: exponent above the highest one.

    Returns:
      [..., 2 D (max_degree - min_degree)], frequency-major: the D sines, then the D cosines of each.

    Raises:
      UserError: max_degree is not above min_degree.

    Reference: mip-NeRF (Barron et al. 2021), Eqs. 9-14.
    """
    if max_degree <= min_degree:
        raise UserError(
            "the integrated encoding has no frequencies", field="max_degree", found=max_degree,
            expected=f"> min_degree = {min_degree}",
        )  # fmt: skip
    degrees = np.arange(min_degree, max_degree, dtype=np.float64)
    frequencies = (2.0**degrees).astype(np.float32).reshape((1,) * (means.ndim - 1) + (-1, 1))
    angles = _without_turns(means[..., None, :] * frequencies)
    fade = jnp.exp(-0.5 * jnp.square(frequencies) * jnp.maximum(variances, 0.0)[..., None, :])
    waves = jnp.concatenate([fade * jnp.sin(angles), fade * jnp.cos(angles)], axis=-1)
    return waves.reshape(*means.shape[:-1], -1)


def project(gaussians: Gaussians, basis: np.ndarray) -> tuple[Array, Array]:
    """Returns the means [..., B] and variances [..., B] of Gaussians along directions.

    Args:
      gaussians: of batch shape [...].
      basis: [B, 3] directions; the unit matrix gives the mean and the diagonal of the covariance.

    Reference: mip-NeRF 360 (Barron et al. 2022), section 4 and supplement C.
    """
    directions = np.asarray(basis, np.float32)
    outer = directions[:, :, None] * directions[:, None, :]
    along = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
    return along("...i,bi->...b", gaussians.means, directions), along("...ij,bij->...b", gaussians.covariances, outer)


@functools.cache
def icosahedron_basis(subdivision: int = 2) -> np.ndarray:
    """Returns the directions [B, 3] to the vertices of a tesselated icosahedron, one of each opposite pair.

    Every triangle's edges are cut into ``subdivision`` parts and its vertices moved to the sphere: 6 directions for
    1, 21 for 2 (mip-NeRF 360, supplement C). They are spread evenly, unlike the three axes, and tell apart Gaussians
    whose covariance is not diagonal.
    """
    golden = (1.0 + math.sqrt(5.0)) / 2.0
    # The even permutations of (0, +-1, +-golden).
    corners = np.asarray([
        np.roll((0.0, one, other * golden), turn)
        for turn, one, other in itertools.product(range(3), (-1.0, 1.0), (-1.0, 1.0))
    ])  # fmt: skip
    joined = np.linalg.norm(corners[:, None] - corners[None], axis=-1) < 2.1  # the edges are 2 long
    faces = [list(face) for face in itertools.combinations(range(12), 3) if np.all(joined[np.ix_(face, face)])]
    shares = [s for s in itertools.product(range(subdivision + 1), repeat=3) if sum(s) == subdivision]
    vertices = np.concatenate([np.asarray(shares, np.float64) @ corners[face] for face in faces])
    vertices /= np.linalg.norm(vertices, axis=-1, keepdims=True)
    kept: list[np.ndarray] = []
    for vertex in vertices:
        if all(abs(vertex @ other) < 1.0 - 1e-9 for other in kept):
            leading = vertex[np.argmax(np.abs(vertex) > 1e-9)]
            kept.append(vertex * math.copysign(1.0, leading) + 0.0)  # no negative zeros
    return np.asarray(kept)


def _without_turns(angles: Array) -> Array:
    """Takes whole turns off, without the error that float32's 2 pi would have: many devices' sines need it."""
    turns = jnp.round(angles * (0.5 / math.pi))
    for part in _TURN:
        angles = angles - turns * part
    return angles
