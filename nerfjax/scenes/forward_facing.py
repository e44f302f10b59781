"""Captures whose cameras all look one way: a frame in which distance is measured in disparity.

Normalised device coordinates (NeRF, Mildenhall et al. 2020, appendix C) make a forward-facing scene finite: equal steps
are equal steps in disparity from the near plane to infinity. Here the same comes from two parts that also hold for
cameras that are turned against each other: rays are sampled in disparity, and space is contracted around the cameras'
middle with the nearest content at distance one, where the contraction 2 - 1/r is disparity in r. Directions stay unit.
"""

from __future__ import annotations

import numpy as np

from nerfjax.geometry.poses import orient_up, similarity_matrix
from nerfjax.types import Cameras, SceneGeometry

_CONE = np.cos(np.radians(35.0))
NEAR, FAR = 0.8, 1000.0  # times the distance of the nearest content


def is_forward_facing(poses: np.ndarray) -> bool:
    """Says whether (nearly) all cameras look into one cone and none of them stands in front of the others' view.

    Args:
      poses: [C, 4, 4] or [C, 3, 4] camera-to-world, OpenGL axes.
    """
    forward, origins = -poses[:, :3, 2], poses[:, :3, 3]
    mean = forward.mean(axis=0)
    size = np.linalg.norm(mean)
    if size < 1e-6:
        return False
    mean /= size
    offsets = origins - np.median(origins, axis=0)
    along, across = np.abs(offsets @ mean), np.linalg.norm(offsets - (offsets @ mean)[:, None] * mean, axis=-1)
    ahead = len(poses) > 1 and np.quantile(along, 0.9) > 2.0 * np.quantile(across, 0.9)  # a walk, not a wall
    return bool(np.quantile(forward @ mean, 0.05) > _CONE and not ahead)


def forward_frame(poses: np.ndarray, near: float | int) -> np.ndarray:
    """Returns the similarity [4, 4] that puts the cameras' middle at the origin, up to +z, and ``near`` at 1."""
    center = np.median(poses[:, :3, 3], axis=0)
    spread = np.quantile(np.linalg.norm(poses[:, :3, 3] - center, axis=-1), 0.9)
    scale = 1.0 / max(float(near), float(spread))
    return similarity_matrix(scale=scale) @ orient_up(poses[:, :3]) @ similarity_matrix(translation=-center)


def forward_geometry(cameras: Cameras, near: float | int) -> SceneGeometry:
    """Returns the bounds of a scene in that frame.

    Args:
      cameras: of the training images.
      near: distance of the nearest content, scene units.
    """
    return SceneGeometry(
        box=np.array([[-1.0] * 3, [1.0] * 3], np.float32),
        near=np.float32(NEAR * near),
        far=np.float32(FAR * max(near, 1.0)),
        cameras=cameras,
        spacing="disparity",
        bounded=False,
    )
