"""Distances between images, in the variants that the radiance-field literature reports.

Images are sRGB with values in [0, 1] (data range 1), NumPy or JAX arrays. Gradients are finite also where an image is
flat or equals its target.
"""

from __future__ import annotations

import dm_pix
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nerfjax.errors import UserError
from nerfjax.types import Array

MSE_MIN = 1e-12  # caps PSNR at 120 dB: the logarithm of 0 is no number to average
SSIM_WINDOW = 11

Values = Float[Array, " *shape"] | Float[np.ndarray, " *shape"]
Image = Float[Array, "height width 3"] | Float[np.ndarray, "height width 3"]


def mse(prediction: Values, target: Values) -> Float[Array, ""]:
    """Mean squared error over pixels and channels.

    Args:
      prediction: any shape.
      target: the same shape.

    Returns:
      [] scalar.
    """
    return jnp.mean(jnp.square(jnp.asarray(prediction, jnp.float32) - jnp.asarray(target, jnp.float32)))


def psnr_from_mse(mse: Float[Array, " *shape"]) -> Float[Array, " *shape"]:
    """Peak signal-to-noise ratio, ``-10 log10(mse)`` for data range 1.

    Args:
      mse: [...] mean squared errors.

    Returns:
      [...] dB, at most 120.
    """
    return -10.0 * jnp.log10(jnp.maximum(mse, MSE_MIN))


def psnr(prediction: Values, target: Values) -> Float[Array, ""]:
    """Peak signal-to-noise ratio of one image; the mean over images is the mean of these.

    Args:
      prediction: any shape, in [0, 1].
      target: the same shape.

    Returns:
      [] dB, at most 120.
    """
    return psnr_from_mse(mse(prediction, target))


_ssim = jax.jit(lambda a, b: dm_pix.ssim(a, b, max_val=1.0, filter_size=SSIM_WINDOW, filter_sigma=1.5))


def ssim(prediction: Image, target: Image) -> Float[Array, ""]:
    """Structural similarity: Gaussian window of 11 x 11 with sigma 1.5, valid region, data range 1, mean of channels.

    Args:
      prediction: [H, W, 3] in [0, 1].
      target: [H, W, 3] in [0, 1].

    Returns:
      [] scalar, 1 for equal images.

    Raises:
      UserError: if the image is smaller than the window.

    Wang et al. 2004, Image Quality Assessment: From Error Visibility to Structural Similarity.
    """
    height, width = prediction.shape[:2]
    if min(height, width) < SSIM_WINDOW:
        raise UserError(
            "An image is too small for SSIM.",
            found=f"{width} x {height} pixels",
            expected=f"at least {SSIM_WINDOW} x {SSIM_WINDOW}",
            fix="scale the images down less",
        )
    # dm-pix relies on the implicit promotions that we forbid ourselves.
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        return _ssim(jnp.asarray(prediction, jnp.float32), jnp.asarray(target, jnp.float32))


def quantize_8bit(image: Values) -> Float[Array, " *shape"]:
    """Clips to [0, 1] and rounds to the nearest of 256 levels, as an 8-bit file does.

    Args:
      image: any shape.

    Returns:
      The same shape, float32 multiples of 1 / 255.
    """
    return jnp.round(jnp.clip(jnp.asarray(image, jnp.float32), 0.0, 1.0) * 255.0) / 255.0
