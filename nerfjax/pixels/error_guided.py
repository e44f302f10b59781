"""Pixels where the errors of earlier steps were large."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from nerfjax.errors import UserError
from nerfjax.pixels import importance
from nerfjax.pixels.base import PixelContent, PixelSampler
from nerfjax.pixels.guided import check_share
from nerfjax.types import Array, ImageTable, PixelBatch

_SIDE_MAX = 256
_INTERVAL_MAX = 2**29  # times 3 / 2 still an int32


@struct.dataclass
class ErrorMap:
    """What is known of the errors on the cells of the images.

    Attributes:
      images: the images (``observe`` is not given them).
      cells: the density in use.
      estimate: [C, h, w] mean error of each cell, as of the last refresh.
      total: [C, h, w] sum of the errors since then.
      count: [C, h, w] their number.
      eligible: [C, h, w] bool, whether a cell has a pixel that no mask ignores.
      since: [] int32 steps since the last refresh.
      interval: [] int32 steps from the last refresh to the next.
    """

    images: Any
    cells: Any
    estimate: Any
    total: Any
    count: Any
    eligible: Any
    since: Any
    interval: Any


def error_guided(
    *,
    share: float = 0.5,
    unbiased: bool = True,
    resolution: int = 0,
    interval: int = 128,
    growth: float = 1.5,
    batch_rays: int = 4096,
) -> PixelSampler:
    """Draws a share of the pixels in proportion to the mean error of their cell, and the rest uniformly.

    The density is (1 - share) + share * error / mean(error), over images and cells alike. Errors are gathered inside
    the step; the density is refreshed after ``interval`` steps, then after ``growth`` times as many, and so on. A
    cell's error is the mean over its draws since the last refresh and one more draw of the value that it had before
    (rescaled by how much errors have changed over all): means do not depend on how often a cell was drawn, and a cell
    that was not drawn keeps its rank.

    With weights 1 / density, at most 1 / (1 - share), the expected loss and gradient stay those of uniform draws and
    only their variance changes. instant-ngp, whose scheme this is, leaves the weights out: ``unbiased=False`` does, and
    then the loss itself counts the worst pixels more.

    Args:
      share: of the draws that follow the errors; the rest is uniform over cells with a pixel that no mask ignores.
      unbiased: whether the draws are weighted.
      resolution: cells on a side of every image; 0 means min(3.5 n^(1/4), side of the image), with n the draws of an
        image between refreshes.
      interval: steps before the first refresh.
      growth: of the interval at each refresh.
      batch_rays: rays of a batch; supplied by the builder, for n alone.

    Returns:
      The pixel sampler.

    Mueller et al. 2022, Instant Neural Graphics Primitives (public code and its error map).
    """
    check_share(share, unbiased)
    if resolution < 0 or interval < 1 or growth < 1.0 or batch_rays < 1:
        found = f"resolution {resolution}, interval {interval}, growth {growth}"
        raise UserError("an error map needs a size and a schedule", field="config.pixels.error_guided", found=found)

    def init(images: ImageTable, content: PixelContent | None = None) -> ErrorMap:
        count = images.width.shape[0]
        side = resolution or map_side(interval * batch_rays / count, math.sqrt(images.total / count))
        valid = importance.resample_cells(importance.content_map(images, content, "valid"), side, side)
        eligible, ones, zeros = jnp.asarray(valid > 0), jnp.ones(valid.shape), jnp.zeros(valid.shape)
        return ErrorMap(
            images=images,
            cells=importance.cell_table(images, importance.mixture(images, eligible, ones, share)),
            estimate=ones,
            total=zeros,
            count=zeros,
            eligible=eligible,
            since=jnp.zeros((), jnp.int32),
            interval=jnp.asarray(interval, jnp.int32),
        )

    def select(key: Array, state: ErrorMap, images: ImageTable, *, step, size: int) -> PixelBatch:
        draws = importance.fresh_draws(key, state.cells, images, step=step, size=size)
        weight = importance.weight_of(state.cells, draws) if unbiased else jnp.ones((size,), jnp.float32)
        return PixelBatch(image=draws.image, row=draws.row, column=draws.column, weight=weight)

    def observe(state: ErrorMap, batch: PixelBatch, errors: Array) -> ErrorMap:
        image, (height, width) = batch.image, state.estimate.shape[1:]
        row = importance.cell_of(batch.row, height, state.images.height[image])
        column = importance.cell_of(batch.column, width, state.images.width[image])
        measured = errors >= 0
        state = state.replace(
            total=state.total.at[image, row, column].add(jnp.where(measured, errors, 0.0)),
            count=state.count.at[image, row, column].add(measured.astype(jnp.float32)),
            since=state.since + 1,
        )
        return jax.lax.cond(state.since >= state.interval, refresh, lambda state: state, state)

    def refresh(state: ErrorMap) -> ErrorMap:
        expected = jnp.sum(state.count * state.estimate)
        change = jnp.sum(state.total) / jnp.where(expected > 0, expected, 1.0)
        estimate = (state.total + change * state.estimate) / (state.count + 1.0)
        later = jnp.ceil(state.interval.astype(jnp.float32) * growth)
        return state.replace(
            cells=importance.cell_table(
                state.images, importance.mixture(state.images, state.eligible, estimate, share)
            ),
            estimate=estimate,
            total=jnp.zeros_like(state.total),
            count=jnp.zeros_like(state.count),
            since=jnp.zeros_like(state.since),
            interval=jnp.minimum(later, _INTERVAL_MAX).astype(jnp.int32),
        )

    return PixelSampler(init=init, select=select, observe=observe, wants=("valid",))


def map_side(draws: float, side: float | int) -> int:
    """Returns the cells on a side of an error map: min(3.5 draws^(1/4), side), so that each is drawn a few times.

    Args:
      draws: of an image between refreshes.
      side: of an image, pixels.
    """
    return max(1, min(int(3.5 * draws**0.25), int(side), _SIDE_MAX))
