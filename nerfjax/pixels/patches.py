"""Square patches of pixels, for losses that look at neighbours (robust masks, smoothness, perceptual losses)."""

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


def patches(*, size: int = 16, dilation: int = 1) -> PixelSampler:
    """Draws square patches, each inside its image; every pixel keeps the same weighted chance.

    A patch that must lie inside its image meets pixels near the border less often. So the place a is drawn uniformly
    among all that touch the image, a in [1 - E, W - 1] on each axis with E = (size - 1) * dilation + 1, which gives
    every pixel the chance size / (W + E - 1); then the patch is shifted inward, by multiples of ``dilation``, until it
    lies inside. Pixels that the shift brings in have the weight 0, the others (W + E - 1) / W (times the same in y).
    (Weights 1 / chance of patches that are drawn inside only are sound too, but corner pixels then weigh size^2.)
    In an image too small for a patch, what reaches beyond its border repeats border pixels with weight 0.

    Lane j holds pixel (j mod size^2), row by row, of patch floor(j / size^2); patches are stratified over the images.
    What is left of the batch after the last whole patch holds single pixels. A patch is sound as a whole, not lane by
    lane: make the rays of a batch, and of its lowest rung, a multiple of size^2.

    Args:
      size: side of a patch, in pixels that are drawn (16: RobustNeRF; 32: patch losses).
      dilation: distance of neighbours in a patch, pixels.

    Returns:
      The pixel sampler; weights average to 1 in expectation.

    Sabour et al. 2023, RobustNeRF; Niemeyer et al. 2022, RegNeRF.
    """
    if size < 1 or dilation < 1:
        found = f"size {size}, dilation {dilation}"
        raise UserError("a patch needs a positive size and dilation", field="pixels.patches", found=found)
    side = size

    def axis(bits: Array, length: Array, extent: Array, place: Array) -> tuple[Array, Array]:
        """Returns the coordinates of lanes on one axis, and their weights."""
        drawn = scale_bits(bits, length + extent - 1) - (extent - 1)
        lowest = drawn % dilation
        highest = lowest + jnp.maximum(length - extent - lowest, 0) // dilation * dilation
        coordinate = jnp.where(extent == 1, drawn, jnp.clip(drawn, lowest, highest) + dilation * place)
        own = (coordinate >= drawn) & (coordinate < drawn + extent) & (coordinate < length)
        weight = (length + extent - 1).astype(jnp.float32) / length.astype(jnp.float32)
        return jnp.minimum(coordinate, length - 1), jnp.where(own, weight, 0.0)

    def select(key: Array, state, images: ImageTable, *, step, size: int) -> PixelBatch:
        del state
        key_image, key_place = jax.random.split(jax.random.fold_in(key, step))
        whole, rest = divmod(size, side**2)
        group = np.concatenate([np.repeat(np.arange(whole), side**2), whole + np.arange(rest)])
        in_patch = np.arange(size) < whole * side**2
        place = np.where(in_patch, np.arange(size) % side**2, 0)
        extent = jnp.asarray(np.where(in_patch, (side - 1) * dilation + 1, 1), jnp.int32)

        chosen, _, _ = locate(images, *stratified_positions(key_image, images.total, whole + rest))
        image, bits = chosen[group], lane_bits(key_place, whole + rest, 2)[:, group]
        down, across = (jnp.asarray(digit, jnp.int32) for digit in divmod(place, side))
        row, weight_y = axis(bits[0], images.height[image], extent, down)
        column, weight_x = axis(bits[1], images.width[image], extent, across)
        return PixelBatch(image=image, row=row, column=column, weight=weight_y * weight_x)

    return PixelSampler(init=no_state, select=select, observe=no_observation)
