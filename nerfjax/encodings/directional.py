"""The directional encoding: real spherical harmonics.

Notation: l is the band, m = -l .. l the order, (x, y, z) a unit direction. With the Legendre derivatives
Q_l^m(z) = P_l^(m)(z) and (x + i y)^m = A_m + i B_m,

  Y_l^m = K_l^m Q_l^m(z) A_m  (m >= 0),   K_l^|m| Q_l^|m|(z) B_|m|  (m < 0),
  K_l^m = sqrt((2 - [m = 0]) (2 l + 1) / (4 pi) (l - m)! / (l + m)!)

without the Condon-Shortley phase; they are polynomials in x, y, z and orthonormal over the sphere.
"""

from __future__ import annotations

import math

import jax.numpy as jnp

from nerfjax.errors import UserError
from nerfjax.types import Array

MAX_DEGREE = 5


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
    x, y, z = directions[..., 0], directions[..., 1], directions[..., 2]
    components = [jnp.zeros_like(z)] * degree**2
    real, imaginary = jnp.ones_like(z), jnp.zeros_like(z)
    for m in range(degree):
        before, legendre = jnp.zeros_like(z), jnp.full_like(z, math.prod(range(1, 2 * m, 2)))
        for band in range(m, degree):
            scale = math.sqrt((2 - (m == 0)) * (2 * band + 1) / (4 * math.pi))
            scale *= math.sqrt(math.factorial(band - m) / math.factorial(band + m))
            components[band * (band + 1) + m] = scale * legendre * real
            if m:
                components[band * (band + 1) - m] = scale * legendre * imaginary
            # (l + 1 - m) Q_{l+1} = (2 l + 1) z Q_l - (l + m) Q_{l-1}
            following = ((2 * band + 1) * z * legendre - (band + m) * before) / (band + 1 - m)
            before, legendre = legendre, following
        real, imaginary = x * real - y * imaginary, x * imaginary + y * real
    return jnp.stack(components, axis=-1)
