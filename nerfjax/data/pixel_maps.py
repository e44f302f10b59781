"""Low-resolution maps of the images, made on the host for pixel samplers that want them."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from nerfjax.errors import UserError, did_you_mean
from nerfjax.pixels.base import PixelContent
from nerfjax.pixels.importance import resample_cells
from nerfjax.scenes.base import Frame, Scene

SIDE = 64  # cells on a side of an image
CELLS = 2**22  # of all images: a large capture gets fewer cells an image
LUMINANCE = (0.2126, 0.7152, 0.0722)  # Rec. 709


def pixel_content(
    scene: Scene, wants: tuple[str, ...], *, split: str = "train", decode: bool = True, threads: int | None = None
) -> PixelContent | None:
    """Makes what a pixel sampler wants to know of the images.

    Each image is decoded once, one per thread at a time; for masks alone no image is.

    Args:
      scene: the capture.
      wants: names of maps (``PixelSampler.wants``).
      split: whose images.
      decode: whether the maps' values matter; if not, they are all one and nothing is read.
      threads: decoding threads; one per core if None.

    Returns:
      The content; None where nothing is wanted.

    Raises:
      UserError: there is no such map, or an image cannot be read.
    """
    unknown = next((name for name in wants if name not in MAPS), None)
    if unknown is not None:
        raise UserError("there is no such map of an image", found=unknown, fix=did_you_mean(unknown, MAPS))
    if not wants:
        return None
    subset = scene.subset(split)
    side = map_side(len(subset.frames))
    maps = {name: np.ones((len(subset.frames), side, side), np.float32) for name in wants}

    def fill(index: int) -> None:
        frame = subset.frames[index]
        image = None if set(wants) <= {"valid"} else frame.image.read()
        for name in wants:
            values = MAPS[name](frame, image)
            if values is not None:
                maps[name][index] = resample_cells(values, side, side)

    if decode:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(fill, range(len(subset.frames))))
    return PixelContent(cameras=subset.cameras, maps=maps)


def map_side(count: int) -> int:
    """Returns the cells on a side of each of ``count`` images."""
    return max(4, min(SIDE, math.isqrt(CELLS // max(count, 1))))


def _valid(frame: Frame, image: np.ndarray | None) -> np.ndarray | None:
    return frame.valid()


def _foreground(frame: Frame, image: np.ndarray | None) -> np.ndarray | None:
    """Opacity; None, that is one everywhere, where there is no alpha."""
    assert image is not None
    return image[..., 3] / np.float32(np.iinfo(image.dtype).max) if image.shape[-1] == 4 else None


def _edges(frame: Frame, image: np.ndarray | None) -> np.ndarray:
    """Length of the gradient of the encoded luminance, premultiplied by alpha, per pixel."""
    assert image is not None
    limit = np.float32(np.iinfo(image.dtype).max)
    values = image[..., :3].astype(np.float32) @ np.asarray(LUMINANCE, np.float32) / limit
    if image.shape[-1] == 4:
        values = values * (image[..., 3] / limit)
    # Differences to the next pixel, 0 beyond the last one: an image may be a single pixel wide.
    down, across = np.diff(values, axis=0, append=values[-1:]), np.diff(values, axis=1, append=values[:, -1:])
    return np.hypot(down, across)


MAPS: dict[str, Callable[[Frame, np.ndarray | None], np.ndarray | None]] = {
    "valid": _valid,
    "foreground": _foreground,
    "edges": _edges,
}
