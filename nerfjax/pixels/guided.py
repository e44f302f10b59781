"""Pixels that maps of the images prefer: valid ones, those of the foreground, those at edges."""

from __future__ import annotations

import jax.numpy as jnp

from nerfjax.errors import UserError
from nerfjax.pixels import importance
from nerfjax.pixels.base import PixelContent, PixelSampler, no_observation
from nerfjax.types import Array, ImageTable, PixelBatch


def masked() -> PixelSampler:
    """Draws uniformly from the cells that hold a valid pixel: rays are not spent where a mask ignores everything.

    A cell at the border of a mask is drawn as a whole; its masked pixels have no weight in the training step, as ever.

    Returns:
      The pixel sampler; weights average to 1, over pixels of cells that may be drawn.
    """
    return _guided(None, 0.0, True)


def foreground(*, share: float = 0.5, unbiased: bool = True) -> PixelSampler:
    """Prefers opaque pixels where images are transparent, and never draws where masks ignore everything.

    The density is (1 - share) + share * opacity / mean(opacity).

    Args:
      share: of the draws that follow the opacity.
      unbiased: whether weights 1 / density keep the expected loss that of uniform draws; if not, the loss itself counts
        opaque pixels more.

    Returns:
      The pixel sampler.
    """
    return _guided("foreground", share, unbiased)


def edges(*, share: float = 0.5, unbiased: bool = True) -> PixelSampler:
    """Prefers cells with strong gradients of luminance (borders of opacity included), where there is detail to learn.

    The density is (1 - share) + share * gradient / mean(gradient).

    Args:
      share: of the draws that follow the gradient.
      unbiased: whether weights 1 / density keep the expected loss that of uniform draws; if not, the loss itself counts
        edges more.

    Returns:
      The pixel sampler.
    """
    return _guided("edges", share, unbiased)


def check_share(share: float, unbiased: bool) -> None:
    """Refuses a share that no density, or no sound weight, exists for."""
    if not 0.0 <= share <= 1.0 or (unbiased and share == 1.0):
        raise UserError(
            "not a share of the draws", field="share", found=share, expected="from 0 to less than 1",
            fix="give unbiased=False, if no pixel at all shall be drawn uniformly" if share == 1.0 else None,
        )  # fmt: skip


def _guided(name: str | None, share: float, unbiased: bool) -> PixelSampler:
    check_share(share, unbiased)

    def init(images: ImageTable, content: PixelContent | None = None) -> importance.CellTable:
        valid = importance.content_map(images, content, "valid")
        guide = importance.content_map(images, content, name) if name else valid
        height, width = (max(valid.shape[axis], guide.shape[axis]) for axis in (1, 2))
        valid, guide = (jnp.asarray(importance.resample_cells(m, height, width)) for m in (valid, guide))
        return importance.cell_table(images, importance.mixture(images, valid > 0, guide, share))

    def select(key: Array, state, images: ImageTable, *, step, size: int) -> PixelBatch:
        draws = importance.fresh_draws(key, state, images, step=step, size=size)
        weight = importance.weight_of(state, draws) if unbiased else jnp.ones((size,), jnp.float32)
        return PixelBatch(image=draws.image, row=draws.row, column=draws.column, weight=weight)

    wants = ("valid",) if name is None else ("valid", name)
    return PixelSampler(init=init, select=select, observe=no_observation, wants=wants)
