"""Where an object can be at all: the hull that the silhouettes of transparent images leave (Laurentini 1994)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nerfjax.geometry.cameras import inside_image, project
from nerfjax.scenes.base import Scene
from nerfjax.scenes.images import has_transparency

CELLS, VIEWS = 32, 16  # cells a side of the box; views looked at
_SOLID = 8 / 255  # alpha above which a pixel shows something


class Silhouettes(NamedTuple):
    """What silhouettes tell: ``points`` [Q, 3] of the hull's cells, ``share`` of the box, ``pixels`` that show it."""

    points: np.ndarray
    share: float
    pixels: float


def visual_hull(scene: Scene) -> Silhouettes | None:
    """Carves the scene's box by training images; None where they are opaque or leave nothing.

    A cell stays while some solid pixel lies within its image, in every view that shows it.
    """
    frames, cameras = scene.subset("train")
    if not frames or not has_transparency(frames[0].image):
        return None
    lower, upper = np.asarray(scene.geometry.box, np.float64)
    axis = (np.arange(CELLS) + 0.5) / CELLS
    points = lower + np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3) * (upper - lower)
    radius = np.linalg.norm(upper - lower) / CELLS / 2
    kept, shares = np.ones(len(points), bool), []
    for row in np.unique(np.linspace(0, len(frames) - 1, min(len(frames), VIEWS)).round().astype(int)):
        image = frames[row].image.read()
        if image.shape[-1] < 4:
            continue
        solid = image[..., 3] > _SOLID * np.iinfo(image.dtype).max
        shares.append(solid.mean())
        own = cameras[np.full(len(points), row)]
        seen = project(own, points, xp=np)
        shown = seen.valid & inside_image(own, seen.pixels, xp=np)
        # A perspective cell's radius in pixels; orthographic ones differ from it by far less than matters here.
        pixels = np.asarray(own.focal, np.float64).max(axis=-1) * radius / np.maximum(seen.distance, 1e-9)
        kept[shown] &= _any_within(solid, seen.pixels[shown], pixels[shown])
    if not shares or not kept.any():
        return None
    return Silhouettes(points[kept].astype(np.float32), float(kept.mean()), float(np.mean(shares)))


def _any_within(solid: np.ndarray, pixels: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """Says whether a window of half side ``radius`` [K] around ``pixels`` [K, 2] holds a True of ``solid`` [H, W]."""
    height, width = solid.shape
    sums = np.pad(solid.astype(np.int64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    low = np.floor(pixels - radius[:, None]).astype(int)
    high = np.ceil(pixels + radius[:, None]).astype(int)
    x0, x1 = (np.clip(side[:, 0], 0, width) for side in (low, high))
    y0, y1 = (np.clip(side[:, 1], 0, height) for side in (low, high))
    return sums[y1, x1] - sums[y0, x1] - sums[y1, x0] + sums[y0, x0] > 0
