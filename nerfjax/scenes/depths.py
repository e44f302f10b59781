"""Depth images of a capture: decoded lazily to lengths in scene units.

A depth image stores, per pixel, the distance along the optical axis (kind "z") or the distance from the camera (kind
"ray"), as a number times ``unit``; 0, negative and non-finite numbers mean unknown. Its size may differ from the
photo's: it is resized by nearest neighbours, because the mean of a near and a far depth is a depth that nothing has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from nerfjax.errors import UserError
from nerfjax.scenes.exr import decode_exr_depth

KINDS = ("z", "ray")


@dataclass(frozen=True)
class DepthReference:
    """A depth image that is decoded when it is read.

    Attributes:
      path: the file (PNG, TIFF, EXR or NPY); None for one that ``loader`` makes.
      unit: length of one stored unit in the capture's units (0.001 for millimetres in a metric capture).
      kind: "z" (along the optical axis) or "ray" (distance from the camera).
      scale: scene units per unit of the capture.
      loader: makes the array [H, W] where there is no file.
      identity: what stands for the bytes of an array without a file in the scene's fingerprint; beside a file, what
        ``loader`` makes of it.
    """

    path: Path | None
    unit: float | int
    kind: str = "z"
    scale: float | int = 1.0
    loader: Callable[[], np.ndarray] | None = None
    identity: str = ""

    def read(self, size: tuple[int, int]) -> np.ndarray:
        """Decodes the depth.

        Args:
          size: (width, height) wanted, pixels.

        Returns:
          [H, W] float32, scene units; 0 where unknown.

        Raises:
          UserError: the file is missing, truncated or no depth image.
        """
        stored = self.loader() if self.loader is not None else decode_depth(self.path)
        length = resize_nearest(stored, size).astype(np.float64) * (float(self.unit) * float(self.scale))
        return np.where(np.isfinite(length) & (length > 0), length, 0.0).astype(np.float32)

    def digest(self) -> bytes:
        """Returns the SHA-256 of the file's bytes, of ``identity``, of unit and kind; no path enters."""
        if self.path is None and self.identity.startswith("sha256:"):
            return bytes.fromhex(self.identity.removeprefix("sha256:"))
        total = hashlib.sha256(f"{float(self.unit)!r} {self.kind}".encode())
        try:
            total.update(b"" if self.path is None else self.path.read_bytes())
            total.update(self.identity.encode())
        except OSError as error:
            raise _unreadable(self.path, error) from error
        return total.digest()


def decode_depth(path: Path) -> np.ndarray:
    """Decodes a one-channel depth file to [H, W] in its stored numbers."""
    try:
        suffix = path.suffix.lower()
        if suffix == ".npy":
            depth = np.load(path, allow_pickle=False)
        elif suffix == ".exr":
            depth = decode_exr_depth(path)
        else:
            with Image.open(path) as image:
                depth = np.array(image)
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise _unreadable(path, error) from error
    if depth.ndim == 3 and depth.shape[-1] == 1:
        depth = depth[..., 0]
    if depth.ndim != 2 or depth.dtype.kind not in "uif":
        raise UserError(
            "A depth image must have one channel.", file=path, found=f"shape {depth.shape}, {depth.dtype}",
            expected="[height, width] of numbers",
        )  # fmt: skip
    return depth


def resize_nearest(values: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns [H, W] values at another size: each new pixel takes the old one under its centre."""
    height, width = values.shape
    if (width, height) == tuple(size):
        return values
    row = ((np.arange(size[1]) + 0.5) * (height / size[1])).astype(np.int64)
    column = ((np.arange(size[0]) + 0.5) * (width / size[0])).astype(np.int64)
    return values[np.minimum(row, height - 1)[:, None], np.minimum(column, width - 1)]


def _unreadable(path: Path, error: Exception) -> UserError:
    return UserError("A depth image cannot be read.", file=path, found=f"{type(error).__name__}: {error}")
