"""Random fractions of 2^32 as uint32, and exact integers made of them.

A uint32 ``bits`` stands for the number bits / 2^32 in [0, 1). Integer arithmetic keeps it exact where float32 would
round: in draws among many pixels, in strata of large batches, and after any number of steps.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from nerfjax.numerics import divide_wide, multiply_wide, ray_keys
from nerfjax.types import Array


def lane_bits(key: Array, size: int, count: int) -> Array:
    """Draws [count, size] uint32, of which a lane's depend on (key, lane) alone."""
    keys = ray_keys(key, jnp.arange(size, dtype=jnp.int32))
    return jax.vmap(lambda k: jax.random.bits(k, (count,), jnp.uint32), out_axes=1)(keys)


def scale_bits(bits: Array, limit) -> Array:
    """Returns floor(bits / 2^32 * limit) as int32, in [0, limit); uniform up to limit / 2^32.

    Args:
      bits: [...] uint32.
      limit: an int, or [...] int32, positive.
    """
    limit = limit if isinstance(limit, int) else limit.astype(jnp.uint32)
    return multiply_wide(bits, limit)[0].astype(jnp.int32)


def strata(count: int) -> np.ndarray:
    """Returns which of ``count`` strata each lane takes, [count] uint32: a permutation in van der Corput's order.

    Any leading part of the lanes is then spread evenly over the strata, and so is the share of each device: the lower
    rungs of a ladder of batch sizes shoot the first lanes only.
    """
    lane, inverse = np.arange(count), np.zeros(count, np.int64)
    for _ in range(max(count - 1, 1).bit_length()):
        inverse, lane = 2 * inverse + lane % 2, lane // 2
    return np.argsort(np.argsort(inverse)).astype(np.uint32)


def stratify_bits(bits: Array, turn: Array) -> Array:
    """Moves the fraction of lane j of N into its own of N equal strata, turned: (strata[j] + bits / 2^32) / N + turn.

    Args:
      bits: [N] uint32, N < 2^24.
      turn: [] uint32, random: it makes every single lane uniform, so that any part of the lanes is a fair sample.

    Returns:
      [N] uint32.
    """
    lane = jnp.asarray(strata(bits.shape[0]))
    return divide_wide(lane, bits, bits.shape[0])[0] + turn


def unit_float(bits: Array) -> Array:
    """Returns bits / 2^32 as float32 in [0, 1): the upper 24 bits, so that it never rounds up to 1."""
    return (bits >> jnp.uint32(8)).astype(jnp.float32) * jnp.float32(2.0**-24)
