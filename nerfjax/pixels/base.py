"""The contract of every pixel sampler: which rays of the capture to shoot.

``select`` runs inside the compiled step and is a function of (key, state, step) alone: the batch is global and
identical on every device, and each device takes its slice. ``key`` is the run's constant pixel key: an epoch's order
depends on it and the epoch alone, and what is fresh at every step comes from ``fold_in(key, step)``.

What is minimised is sum_i weight_i * loss_i / N. A member is *sound* when the expectation of that is the mean loss over
all pixels that may be drawn, whatever the losses: a pixel drawn with q times the probability of a uniform draw then has
the weight 1 / q. The weights average to 1: exactly where they are all 1, else in expectation. Members that minimise
another mean on purpose say so. Every lane (or patch) by itself is sound: low rungs of a ladder of batch sizes
shoot only the first lanes of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from nerfjax.errors import UserError
from nerfjax.numerics import digits_of
from nerfjax.types import Array, ImageTable, PixelBatch


class PixelContent(NamedTuple):
    """What a pixel sampler may know of the images besides their sizes; on the host.

    Attributes:
      cameras: [C] cameras of the images, NumPy leaves.
      maps: {name: [C, h, w] float32} of low resolution, h x w equal cells over each whole image: "valid" (share of the
        cell that no mask ignores), "foreground" (mean opacity), "edges" (mean length of the gradient of luminance).
    """

    cameras: Any
    maps: dict[str, Any]


class PixelSampler(NamedTuple):
    """Pure functions of one pixel sampler.

    Attributes:
      init: ``(images: ImageTable, content: PixelContent | None = None) -> state``.
      select: ``(key, state, images, *, step, size) -> PixelBatch``; ``size`` is static, the weights average to 1.
      observe: ``(state, batch, errors [N]) -> state``; errors are per-ray squared colour errors,
        negative where nothing was measured (the pixel is masked, the ray was cut short).
      wants: names of the maps that ``init`` wants; empty: it needs no content at all.
    """

    init: Callable[..., Any]
    select: Callable[..., PixelBatch]
    observe: Callable[[Any, PixelBatch, Array], Any]
    wants: tuple[str, ...] = ()


def no_state(images: ImageTable, content: PixelContent | None = None) -> dict:
    """``init`` of members without state."""
    del images, content
    return {}


def no_observation(state: Any, batch: PixelBatch, errors: Array) -> Any:
    """``observe`` of members that ignore errors."""
    del batch, errors
    return state


def image_table(widths, heights) -> ImageTable:
    """Lays C images end to end, row-major, in one sequence of pixels.

    Args:
      widths, heights: [C] pixels; any integer array or sequence, on the host.

    Returns:
      The table with leaves on the device; positions are exact whatever the total.

    Raises:
      UserError: there is no image, or a size is not positive.
    """
    width, height = np.asarray(widths, np.int64), np.asarray(heights, np.int64)
    if width.ndim != 1 or width.shape != height.shape or width.size == 0 or min(width.min(), height.min()) < 1:
        raise UserError(
            "images to draw pixels from need a positive width and height each",
            found=f"widths {width.tolist()[:8]}, heights {height.tolist()[:8]}",
            expected="two lists of the same, non-zero length, of numbers above 0",
            fix="check the split: does it hold any image?",
        )
    ends = np.cumsum(width * height)
    total = int(ends[-1])
    high, low = digits_of(ends - width * height, total)
    leaves = (width.astype(np.int32), height.astype(np.int32), high, low)
    width, height, high, low = (jnp.asarray(leaf) for leaf in leaves)
    return ImageTable(width=width, height=height, start_high=high, start_low=low, total=total)
