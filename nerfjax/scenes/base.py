"""What every reader returns: one record per frame, cameras, geometry, and how it was normalised.

Row i of ``Scene.cameras`` belongs to ``Scene.frames[i]``; splits, masks and sizes are part of the record, so nothing
can get out of step when frames are left out. Scene coordinates are the capture's after ``to_scene``.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.depths import DepthReference
from nerfjax.scenes.images import ImageReference
from nerfjax.types import Cameras, SceneGeometry

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Frame:
    """One image of a capture.

    Attributes:
      name: identity inside the capture: the relative path with forward slashes.
      image: the image.
      split: "train", "val" or "test".
      mask: black = ignored pixel; None = all valid.
      depth: lengths behind the pixels, where the capture has them.
    """

    name: str
    image: ImageReference
    split: str
    mask: ImageReference | None = None
    depth: DepthReference | None = None

    def valid(self) -> np.ndarray | None:
        """Returns which pixels count, [H, W] bool, or None where all do."""
        if self.mask is None:
            return None
        mask = self.mask.read(size=self.image.size)
        return mask[..., :3].max(axis=-1) > np.iinfo(mask.dtype).max // 2


@dataclass(frozen=True)
class Scene:
    """A capture in scene coordinates.

    Attributes:
      name: short name (of the folder).
      format: name of the reader.
      source: what the user gave.
      frames: all frames, in the reader's documented order.
      cameras: NumPy leaves, row i for frame i, scene coordinates.
      geometry: NumPy leaves; its cameras are the training cameras.
      background: "white" or "black" behind transparent images; None for opaque photos.
      to_scene: [4, 4] float64 similarity, capture to scene coordinates; from before what an earlier tool applied,
        where the capture says so (``applied_transform``).
      camera_digest: SHA-256 of the capture's cameras in float64, before any normalisation.
      downscale: factor by which images were made smaller.
      notes: warnings to print once.
      provenance: what was read and how it was normalised, JSON-able.
      points: [P, 3] float32 sparse points, scene coordinates; None where the capture has none.
      options: the reader's options that are not the defaults, "focal=1170,ndc=False".
    """

    name: str
    format: str
    source: str
    frames: tuple[Frame, ...]
    cameras: Cameras
    geometry: SceneGeometry
    background: str | None
    to_scene: np.ndarray
    camera_digest: str
    downscale: float | int = 1
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    points: np.ndarray | None = None
    options: str = ""

    def indices(self, split: str) -> tuple[int, ...]:
        """Returns the rows of the frames of one split."""
        _check_split(split)
        return tuple(i for i, frame in enumerate(self.frames) if frame.split == split)

    def subset(self, split: str) -> Subset:
        """Returns the frames and cameras of one split."""
        rows = self.indices(split)
        return Subset(tuple(self.frames[i] for i in rows), self.cameras[np.array(rows, np.int64)])

    def split_names(self) -> dict[str, list[str]]:
        """Returns the names of the frames of each split."""
        return {split: [frame.name for frame in self.frames if frame.split == split] for split in SPLITS}

    def fingerprint(self) -> str:
        """Returns a SHA-256 over image bytes, cameras, splits, downscale and options; paths do not enter."""
        references: list[ImageReference | DepthReference] = [frame.image for frame in self.frames]
        references += [frame.mask for frame in self.frames if frame.mask is not None]
        references += [frame.depth for frame in self.frames if frame.depth is not None]
        with ThreadPoolExecutor() as pool:
            digests = list(pool.map(lambda reference: reference.digest(), references))
        total = hashlib.sha256()
        header = [self.camera_digest, repr(float(self.downscale)), str(self.background), len(self.frames)]
        header += [self.options] if self.options else []
        total.update("\n".join(map(str, header)).encode())
        for frame, digest in zip(self.frames, digests, strict=False):
            kind = frame.depth.kind if frame.depth is not None else ""
            total.update(f"{frame.split} {frame.image.size} {frame.mask is not None}{kind}".encode())
            total.update(digest)
        for digest in digests[len(self.frames) :]:
            total.update(digest)
        return total.hexdigest()


class Subset(NamedTuple):
    """Frames of one split and their cameras."""

    frames: tuple[Frame, ...]
    cameras: Cameras


class SceneReader(NamedTuple):
    """A reader of one capture format.

    Attributes:
      sniff: ``(source: str) -> str | None``; why the source looks like this format, or None.
      read: ``(source: str, *, downscale, holdout) -> Scene``.
    """

    sniff: Callable[[str], str | None]
    read: Callable[..., Scene]


def holdout_splits(names: Sequence[str], holdout: int) -> list[str]:
    """Returns the split of each of the SORTED names: every ``holdout``-th is a test frame (index % holdout == 0).

    With ``holdout`` 0, or fewer than two names, all are for training.
    """
    if holdout < 0 or holdout == 1:
        raise UserError(
            "scene.holdout leaves nothing to train on.",
            field="scene.holdout",
            found=holdout,
            expected="0 (no test frames) or at least 2",
        )
    if holdout == 0 or len(names) < 2:
        return ["train"] * len(names)
    return ["test" if i % holdout == 0 else "train" for i in range(len(names))]


def duplicate_notes(frames: Sequence[Frame]) -> list[str]:
    """Returns a warning when the same image file (byte for byte) occurs in two splits."""
    by_length = defaultdict(list)
    for frame in frames:
        if frame.image.path is not None:
            by_length[frame.image.path.stat().st_size].append(frame)
    pairs = []
    for group in by_length.values():
        if len({frame.split for frame in group}) < 2:
            continue
        seen: dict[bytes, Frame] = {}
        for frame in group:
            other = seen.setdefault(frame.image.digest(), frame)
            if other.split != frame.split:
                pairs.append(f"{other.name} = {frame.name}")
    if not pairs:
        return []
    return [f"{len(pairs)} images occur in two splits ({shorten(pairs)}): test scores will flatter."]


def shorten(names: Sequence[str], limit: int = 5) -> str:
    """Joins names by commas, the first few, then an ellipsis."""
    return ", ".join(names[:limit]) + (", …" if len(names) > limit else "")


def _check_split(split: str) -> None:
    if split not in SPLITS:
        raise UserError("Unknown split.", found=split, expected=", ".join(SPLITS))
