"""What a reader finds, as the capture states it: before normalisation, in the capture's own coordinates, float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nerfjax.scenes.depths import DepthReference
from nerfjax.scenes.images import ImageReference

__all__ = ["Capture", "DepthReference", "RawFrame"]


@dataclass(frozen=True)
class RawFrame:
    """A frame as the capture states it.

    Attributes:
      name: relative path with forward slashes.
      image: the image at the size on disk.
      split: "train", "val" or "test".
      pose: [4, 4] float64 camera-to-world, OpenGL axes, capture coordinates.
      focal, center: [2] float64, pixels of the size on disk.
      distortion: [12] float64 in the order of ``types.DISTORTION``, or its first columns.
      model: a name of ``types.CAMERA_MODELS``.
      mask: black = ignored pixel.
      depth: z-depth or ray length behind the pixels, where the capture has it.
    """

    name: str
    image: ImageReference
    split: str
    pose: np.ndarray
    focal: np.ndarray
    center: np.ndarray
    distortion: np.ndarray
    model: str
    mask: ImageReference | None = None
    depth: DepthReference | None = None


@dataclass(frozen=True)
class Capture:
    """What a reader found.

    Attributes:
      name, format, source: of the scene.
      frames: in the scene's order.
      notes: warnings so far.
      provenance: what was read, JSON-able.
      points: [P, 3] float64 sparse points, capture coordinates; None where the capture has none.
      is_object: whether the images show an object on nothing; None = decided by their transparency.
      region: [8, 3] float64 corners of a box around what is of interest, capture coordinates; None = unknown.
      near_far: [2] distances along rays, capture units; None = unknown.
      applied: [4, 4] similarity that an earlier tool applied, from the coordinates that it started from to the
        capture's; exports undo it as well. None = nothing.
    """

    name: str
    format: str
    source: str
    frames: tuple[RawFrame, ...]
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    points: np.ndarray | None = None
    is_object: bool | None = None
    region: np.ndarray | None = None
    near_far: tuple[float, float] | None = None
    applied: np.ndarray | None = None


def corners_of(box: np.ndarray | None) -> np.ndarray | None:
    """Returns the corners [8, 3] of a box [2, 3] along the axes; None for None."""
    if box is None:
        return None
    choose = np.indices((2, 2, 2)).reshape(3, -1).T
    return np.asarray(box, np.float64)[choose, np.arange(3)]
