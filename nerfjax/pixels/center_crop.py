"""Pixels of the images' centres first, of whole images later."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from nerfjax.errors import UserError
from nerfjax.pixels.base import PixelSampler
from nerfjax.pixels.fractions import lane_bits, scale_bits
from nerfjax.pixels.uniform import uniform
from nerfjax.types import Array, ImageTable, PixelBatch


def center_crop(*, fraction: float = 0.5, steps: int = 500) -> PixelSampler:
    """Draws from the middle of the images for the first steps, then as ``uniform`` does.

    The crop keeps a field from the bad minimum "all is background". While it lasts, the loss is the mean over the crop
    on purpose; afterwards the batch of a step is exactly that of ``uniform`` at that step.

    Args:
      fraction: side of the crop as a share of the image's side.
      steps: how many steps it lasts (original NeRF: 500 at 0.5, on the Blender scenes).

    Returns:
      The pixel sampler; all weights are 1.
    """
    if not 0.0 < fraction <= 1.0:
        raise UserError("a crop keeps a part of the image", field="fraction", found=fraction, expected="in (0, 1]")
    later = uniform()

    def select(key: Array, state, images: ImageTable, *, step, size: int) -> PixelBatch:
        batch = later.select(key, state, images, step=step, size=size)
        bits = lane_bits(jax.random.fold_in(key, step), size, 2)

        def inner(bits: Array, length: Array) -> Array:
            # Less a thousandth: 0.7 * 10 is a little more than 7 in float32.
            side = jnp.ceil(fraction * length.astype(jnp.float32) - 1e-3).astype(jnp.int32)
            side = jnp.clip(side, 1, length)
            return (length - side) // 2 + scale_bits(bits, side)

        early = step < steps
        row = inner(bits[0], images.height[batch.image])
        column = inner(bits[1], images.width[batch.image])
        return batch.replace(row=jnp.where(early, row, batch.row), column=jnp.where(early, column, batch.column))

    return later._replace(select=select)
