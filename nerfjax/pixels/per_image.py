"""Pixels of a few images per batch, as in methods that compute something per image (exposure, appearance, a pose)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from nerfjax.errors import UserError
from nerfjax.pixels.base import PixelSampler, no_observation, no_state
from nerfjax.pixels.fractions import lane_bits, scale_bits
from nerfjax.pixels.stratified import stratified_positions
from nerfjax.pixels.uniform import locate
from nerfjax.types import Array, ImageTable, PixelBatch


def per_image(*, images_per_batch: int = 1) -> PixelSampler:
    """Draws the pixels of a batch from a few images, uniformly within each.

    The batch is cut into equal groups of neighbouring lanes. A group's image is that of a random pixel, so that images
    of different size get their due; the groups' pixels are stratified over the sequence of all pixels, and an image
    comes twice in a batch only where it holds more than its share. Every pixel has the same chance, but pixels of a
    batch are correlated.

    Args:
      images_per_batch: number of groups; 1 is "one image per batch".

    Returns:
      The pixel sampler; all weights are 1.
    """
    if images_per_batch < 1:
        raise UserError("a batch needs an image", field="images_per_batch", found=images_per_batch, expected=">= 1")

    def select(key: Array, state, images: ImageTable, *, step, size: int) -> PixelBatch:
        del state
        key_image, key_pixel = jax.random.split(jax.random.fold_in(key, step))
        groups = min(images_per_batch, size)
        chosen, _, _ = locate(images, *stratified_positions(key_image, images.total, groups))
        image = chosen[np.arange(size) * groups // size]
        bits = lane_bits(key_pixel, size, 2)
        return PixelBatch(
            image=image,
            row=scale_bits(bits[0], images.height[image]),
            column=scale_bits(bits[1], images.width[image]),
            weight=jnp.ones((size,), jnp.float32),
        )

    return PixelSampler(init=no_state, select=select, observe=no_observation)
