"""The frequency encoding of positions and directions.

Notation: D input dimensions, frequencies 2^k pi for k in [min_degree, max_degree).
"""

from __future__ import annotations

import math

import jax.numpy as jnp

from nerfjax.errors import UserError
from nerfjax.types import Array


def frequency_encoding(x: Array, *, min_degree: int = 0, max_degree: int, include_input: bool = True) -> Array:
    """Sines and cosines of doubling frequencies.

      gamma(x) = (sin(2^k pi x), cos(2^k pi x))  for k = min_degree .. max_degree - 1

    Args:
      x: [..., D], of order one (positions scaled to [-1, 1], unit directions).
      min_degree: exponent of the lowest frequency.
      max_degree: exponent above the highest one.
      include_input: whether x itself comes first.

    Returns:
      [..., 2 D (max_degree - min_degree) + D], frequency-major: the D sines, then the D cosines of each.

    Raises:
      UserError: max_degree is below min_degree.

    Reference: NeRF (Mildenhall et al. 2020), Eq. 4.
    """
    if max_degree < min_degree:
        raise UserError(
            "The degrees of the frequency encoding are in the wrong order.", field="max_degree", found=max_degree,
            expected=f">= min_degree = {min_degree}",
        )  # fmt: skip
    features = [x] if include_input else []
    for degree in range(min_degree, max_degree):
        # Scaling by 2^k and taking off whole turns are exact in float32; 2^k pi x would lose k bits of its phase.
        turns = x * (2.0**degree)
        phase = math.pi * (turns - 2.0 * jnp.round(0.5 * turns))
        features += [jnp.sin(phase), jnp.cos(phase)]
    return jnp.concatenate(features, axis=-1) if features else x[..., :0]
