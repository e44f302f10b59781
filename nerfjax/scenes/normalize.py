"""The similarity that brings a photo capture into scene coordinates: upright, centred, cameras at unit distance.

All in float64 and from medians, so that one stray pose changes nothing but the warning that names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nerfjax.errors import UserError
from nerfjax.geometry.poses import focus_point, orient_up, similarity_matrix
from nerfjax.scenes.base import shorten

OUTLIER = 10.0  # times the median distance


class Normalization(NamedTuple):
    """``to_scene`` [4, 4] float64, what it does in words and numbers, and warnings."""

    to_scene: np.ndarray
    provenance: dict[str, Any]
    notes: list[str]


def normalization(poses: np.ndarray, names: Sequence[str]) -> Normalization:
    """Finds the similarity from capture to scene coordinates.

    Up is the direction that level cameras agree on, the origin is the point that most cameras look at (their median
    position where they look apart or in parallel), and the median camera distance becomes 1.

    Args:
      poses: [C, 4, 4] float64 camera-to-world, OpenGL axes.
      names: of the frames, for warnings.

    Raises:
      UserError: all cameras stand at one point.
    """
    origins = poses[:, :3, 3]
    notes = []
    center, inward = scene_center(poses)
    distance = np.linalg.norm(origins - center, axis=-1)
    spread = np.linalg.norm(origins - np.median(origins, axis=0), axis=-1)
    radius = float(np.median(distance) if inward else np.quantile(distance, 0.9))
    if len(poses) > 1 and spread.max() <= 1e-9 * max(1.0, np.abs(origins).max()):
        raise UserError(
            "All cameras stand at one point.",
            found=f"{len(poses)} poses at {np.array2string(origins[0], precision=4)}",
            expected="cameras that moved between the photos",
            fix="check the poses: without parallax there is no geometry",
            code="poses-identical",
        )
    outliers = [names[i] for i in np.flatnonzero(distance > OUTLIER * np.median(distance))]
    if outliers and inward:
        notes.append(
            f"{len(outliers)} cameras stand more than {OUTLIER:g} times the usual distance away: "
            f"{shorten(outliers)}. They take no part in the scaling; check their poses."
        )
    scale = 1.0 / radius if radius > 0 else 1.0
    upright = orient_up(poses[:, :3])
    to_scene = similarity_matrix(scale=scale) @ upright @ similarity_matrix(translation=-center)
    provenance = {
        "method": "up, centre and scale from the cameras",
        "center": center.tolist(),
        "scale": scale,
        "rotation": upright[:3, :3].tolist(),
        "inward_facing": bool(inward),
    }
    return Normalization(to_scene, provenance, notes)


def scene_center(poses: np.ndarray) -> tuple[np.ndarray, bool]:
    """Returns the point that the cameras look at, and whether there is one.

    There is none where the optical axes are nearly parallel or most cameras look away from it: then it is the median
    camera position.
    """
    origins, forward = poses[:, :3, 3], -poses[:, :3, 2]
    across = np.eye(3) - forward[:, :, None] * forward[:, None, :]
    parallel = np.linalg.eigvalsh(across.mean(0))[0] < 1e-3
    point = focus_point(poses[:, :3])
    ahead = np.einsum("ni,ni->n", point - origins, forward) > 0
    found = not parallel and bool(ahead.mean() > 0.5)
    return (point if found else np.median(origins, axis=0)), found
