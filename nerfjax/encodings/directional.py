"""Directional encodings: real spherical harmonics, and their means over lobes of directions.

Notation: l is the band, m = -l .. l the order, (x, y, z) a unit direction. With the Legendre derivatives
Q_l^m(z) = P_l^(m)(z) and (x + i y)^m = A_m + i B_m,

  Y_l^m = K_l^m Q_l^m(z) A_m  (m >= 0),   K_l^|m| Q_l^|m|(z) B_|m|  (m < 0),
  K_l^m = sqrt((2 - [m = 0]) (2 l + 1) / (4 pi) (l - m)! / (l + m)!)

without the Condon-Shortley phase; they are polynomials in x, y, z and orthonormal over the sphere.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from nerfjax.errors import UserError
from nerfjax.types import Array

MAX_DEGREE = 5
MAX_OCTAVES = 5  # band 32 needs 63!!, which float32 does not hold


def spherical_harmonics(directions: Array, *, degree: int) -> Array:
    """Real spherical harmonics of the bands l < ``degree``.

    Args:
      directions: [..., 3] of unit length.
      degree: number of bands, 1 to 5 (4 gives 16 components).

    Returns:
      [..., degree^2] with Y_l^m at l^2 + l + m, orthonormal over the unit sphere.

    Raises:
      UserError: degree outside 1 to 5.

    Reference: Müller et al. 2022 (Instant-NGP), Sec. 5.4, encodes directions so; the recurrences are those of the
    associated Legendre functions (DLMF 14.10.3).
    """
    if not 1 <= degree <= MAX_DEGREE:
        raise UserError(
            "The degree of the spherical harmonics is out of range.", field="degree", found=degree,
            expected=f"1 to {MAX_DEGREE}",
        )  # fmt: skip
    return _harmonics(directions, tuple(range(degree)))


def integrated_directional_encoding(directions: Array, roughness: Array, *, octaves: int = 5) -> Array:
    """Means of spherical harmonics over a von Mises-Fisher lobe of directions, in the bands l = 1, 2, 4, ...

      E[Y_l^m] = A_l(kappa) Y_l^m(direction),   A_l(kappa) ~ exp(-l (l + 1) / (2 kappa)),   kappa = 1 / roughness

    A wide lobe (a rough surface) sees the low bands only. The approximation is that of small roughness.

    Args:
      directions: [..., 3] centre of the lobe, unit length.
      roughness: [...] inverse concentration of the lobe, at least 0; 0 is a single direction.
      octaves: number of bands, the last one 2^(octaves - 1); at most 5.

    Returns:
      [..., 2^(octaves + 1) + octaves - 2]: 67 for 5 octaves; band by band, m = -l .. l.

    Raises:
      UserError: octaves outside 1 to 5.

    Reference: Ref-NeRF (Verbin et al. 2022), Eqs. 6-8, with real harmonics in place of the parts of complex ones.
    """
    if not 1 <= octaves <= MAX_OCTAVES:
        raise UserError(
            "The number of octaves of the directional encoding is out of range.", field="octaves", found=octaves,
            expected=f"1 to {MAX_OCTAVES}",
        )  # fmt: skip
    bands = tuple(2**octave for octave in range(octaves))
    rates = np.asarray([-0.5 * band * (band + 1) for band in bands for _ in range(2 * band + 1)], np.float32)
    fade = jnp.exp(rates.reshape((1,) * roughness.ndim + (-1,)) * roughness[..., None])
    return fade * _harmonics(directions, bands)


def _harmonics(directions: Array, bands: tuple[int, ...]) -> Array:
    """Returns Y_l^m [..., sum of 2 l + 1] of rising bands l, m = -l .. l."""
    x, y, z = directions[..., 0], directions[..., 1], directions[..., 2]
    components: dict[tuple[int, int], Array] = {}
    real, imaginary = jnp.ones_like(z), jnp.zeros_like(z)
    for m in range(bands[-1] + 1):
        before, legendre = jnp.zeros_like(z), jnp.full_like(z, math.prod(range(1, 2 * m, 2)))
        for band in range(m, bands[-1] + 1):
            if band in bands:
                scale = math.sqrt((2 - (m == 0)) * (2 * band + 1) / (4 * math.pi))
                scale *= math.sqrt(math.factorial(band - m) / math.factorial(band + m))
                components[band, m] = scale * legendre * real
                if m:
                    components[band, -m] = scale * legendre * imaginary
            # (l + 1 - m) Q_{l+1} = (2 l + 1) z Q_l - (l + m) Q_{l-1}
            following = ((2 * band + 1) * z * legendre - (band + m) * before) / (band + 1 - m)
            before, legendre = legendre, following
        real, imaginary = x * real - y * imaginary, x * imaginary + y * real
    return jnp.stack([components[band, m] for band in bands for m in range(-band, band + 1)], axis=-1)
