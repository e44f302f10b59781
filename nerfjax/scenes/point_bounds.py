"""Near and far distances, and the region of interest, from the sparse points that the cameras see."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nerfjax.geometry.cameras import inside_image, project
from nerfjax.types import Cameras

_CAMERAS, _POINTS = 40, 2000  # looked at
_FEWEST = 8  # points that a camera must see to have a say
_NEAR_SHARE, _FAR_SHARE = 0.01, 0.99  # of a camera's points: strays are passed over
_MARGIN = 2.0  # surfaces without texture have no points


class PointBounds(NamedTuple):
    """Distances ``near`` and ``far`` between which points are seen, with a margin; how many ``cameras`` told."""

    near: float
    far: float
    cameras: int


def seen_distances(cameras: Cameras, points: np.ndarray) -> list[np.ndarray]:
    """Returns, per camera (of an even selection), the distances of the points that lie in its image."""
    rows = np.unique(np.linspace(0, len(cameras) - 1, min(len(cameras), _CAMERAS)).round().astype(int))
    picked = np.unique(np.linspace(0, len(points) - 1, min(len(points), _POINTS)).round().astype(int))
    points = np.asarray(points, np.float64)[picked]
    distances = []
    for row in rows:
        camera = cameras[np.full(len(points), row)]
        image = project(camera, points, xp=np)
        distances.append(image.distance[image.valid & inside_image(camera, image.pixels, xp=np)])
    return distances


def bounds_from_points(cameras: Cameras, points: np.ndarray) -> PointBounds | None:
    """Returns the distances from the cameras between which nearly everything lies, or None where too little is seen.

    Near is half the distance of the nearest hundredth of a camera's points, at the nearest tenth of the cameras; far
    is twice that of the farthest hundredth.

    Args:
      cameras: of the training images.
      points: [P, 3] in the cameras' coordinates.
    """
    seen = [distance for distance in seen_distances(cameras, points) if len(distance) >= _FEWEST]
    if not seen:
        return None
    near = np.quantile([np.quantile(distance, _NEAR_SHARE) for distance in seen], 0.1)
    far = np.quantile([np.quantile(distance, _FAR_SHARE) for distance in seen], 0.9)
    return PointBounds(float(near / _MARGIN), float(far * _MARGIN), len(seen))


def reach_of_points(points: np.ndarray, share: float = 0.5) -> float:
    """Returns the half side of the cube around the origin that holds a share of the points."""
    return float(np.quantile(np.abs(points).max(axis=-1), share))
