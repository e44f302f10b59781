"""What a rendering is compared and looked at by: error maps and depth maps in perceptually uniform colours."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps

ERROR_RANGE = (1 / 255, 0.5)
ERROR_COLORS = "inferno"


def error_map(prediction: np.ndarray, target: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Colours the root mean square error over channels, black to yellow, on ONE logarithmic scale for all images.

    The scale runs from one 8-bit step (1/255) to 0.5, so that images, steps and runs can be set side by side; ignored
    pixels are grey.
    """
    error = np.sqrt(np.mean(np.square(prediction - target), axis=-1))
    low, high = np.log(ERROR_RANGE)
    scaled = (np.log(np.maximum(error, 1e-6)) - low) / (high - low)
    picture = colormaps[ERROR_COLORS](np.clip(scaled, 0, 1))[..., :3]
    return _as_bytes(np.where(valid[..., None], picture, 0.5))


def depth_map(depth: np.ndarray, accumulation: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Colours the expected depth, near bright and far dark, and fades to grey where the ray meets nothing.

    Returns:
      [H, W, 3] uint8, and the distances (2nd and 98th percentile of what is opaque) that the ends of the logarithmic
      scale stand for, world units.
    """
    depth, accumulation = np.asarray(depth, np.float64), np.clip(np.asarray(accumulation, np.float64), 0, 1)
    opaque = depth[accumulation > 0.5]
    near, far = np.maximum(np.percentile(opaque if opaque.size else depth, (2, 98)), 1e-6)
    scaled = (np.log(np.maximum(depth, 1e-6)) - np.log(near)) / max(np.log(far / near), 1e-6)
    picture = colormaps["viridis"](1 - np.clip(scaled, 0, 1))[..., :3]
    alpha = accumulation[..., None]
    return _as_bytes(picture * alpha + 0.5 * (1 - alpha)), [float(near), float(far)]


def _as_bytes(picture: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(picture, 0, 1) * 255).astype(np.uint8)
