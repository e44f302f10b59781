"""What a device supervises in one step, wherever the pixels come from.

Training data is a pytree with two parts of a contract: ``records`` is what ``lax.scan`` hands to each step of a
dispatch (None where the step chooses its own pixels), and ``draw(records, select, axis=…)``, inside ``shard_map``,
returns this device's slice of the global batch. ``ResidentImages`` and ``StreamedBatches`` keep it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from nerfjax.types import Array, PixelBatch


@struct.dataclass
class Targets:
    """Pixels with what the capture knows of them; n of the global batch.

    Attributes:
      pixels: which pixels, [n] each.
      color: [n, C] float32 in [0, 1], encoded (sRGB); C = 3, or 4 with straight alpha.
      valid: [n] bool, or None where no image has a mask.
      depth: [n] float32 scene units, 0 where unknown; None where it is not wanted.
      depth_is_z: [n] bool, whether ``depth`` is along the optical axis (else along the ray).
    """

    pixels: PixelBatch
    color: Any
    valid: Any = None
    depth: Any = None
    depth_is_z: Any = None


class Drawn(NamedTuple):
    """One step's pixels.

    Attributes:
      batch: the global batch, equal on all devices; None where no pixel sampler chose it.
      mine: this device's slice with its targets.
      start: place of the slice in the global batch, [] int32.
    """

    batch: PixelBatch | None
    mine: Targets
    start: Array


def slice_of_device(batch: PixelBatch, axis: str) -> tuple[PixelBatch, Array]:
    """Returns this device's slice of a batch that all devices hold, and where it begins."""
    count = batch.image.shape[0] // jax.lax.axis_size(axis)
    start = jax.lax.axis_index(axis) * count
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, count), batch), start


def mean_one(weight: Array, axis: str) -> Array:
    """Scales weights so that their mean over the global batch is 1; all zero stays all zero.

    Args:
      weight: [n] of this device, not negative.
      axis: the mesh axis over which the batch is spread.
    """
    total = jax.lax.psum(jnp.sum(weight), axis)
    return weight * (weight.shape[0] * jax.lax.axis_size(axis) / jnp.maximum(total, 1e-6))
