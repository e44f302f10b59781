"""What the doctor measures on each image: one decoding at reduced size, in parallel, nothing kept but small numbers.

JPEG files are decoded straight at the reduced size; everything else once at its own, one image per thread at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image

from nerfjax.errors import UserError
from nerfjax.scenes.base import Frame, Scene
from nerfjax.scenes.doctor.findings import Finding, finding_from_error
from nerfjax.scenes.doctor.matching import SIDE, Features, features
from nerfjax.scenes.images import ImageReference, decode_image, open_image

WORK_SIDE = 960  # sharpness is measured at this longer side, so that it can be compared
THUMBNAIL_SIDE = 200
TINY_SIDE = 24
LUMINANCE = np.array([0.2126, 0.7152, 0.0722], np.float32)


@dataclass(frozen=True)
class FrameMeasure:
    """What one image shows.

    Attributes:
      error: why it cannot be read; then all else is empty.
      sharpness: variance of the Laplacian, 8-bit units, at ``WORK_SIDE``.
      detail: the same over the variance of the brightness: it does not change with contrast.
      exposure: base-2 logarithm of the mean linear luminance of the opaque pixels (stops).
      deviation: standard deviation of the encoded grey, 0 to 1.
      dark, bright: shares of pixels at the ends of the range.
      opaque: mean alpha.
      mask: share of valid pixels; None without a mask.
      mask_size: (width, height) of the mask's file; None without one.
      mask_error: why the mask cannot be read.
      tiny: [24, 24] grey, 0 to 1: tells nearly equal images.
      thumbnail: [h, w, 3] uint8, at most ``THUMBNAIL_SIDE``.
    """

    error: Finding | None = None
    sharpness: float = float("nan")
    detail: float = float("nan")
    exposure: float = float("nan")
    deviation: float = float("nan")
    dark: float = float("nan")
    bright: float = float("nan")
    opaque: float = 1.0
    mask: float | None = None
    mask_size: tuple[int, int] | None = None
    mask_error: Finding | None = None
    tiny: np.ndarray | None = None
    thumbnail: np.ndarray | None = None


def measure_frames(
    scene: Scene, *, limit: int | None = None, procedural: bool = True, progress: bool = False
) -> dict[int, FrameMeasure]:
    """Measures the images of a scene.

    Args:
      scene: as read.
      limit: how many, evenly spread; None = all.
      procedural: whether images without a file are made for it.
      progress: whether a bar is shown (on a terminal, on standard error).

    Returns:
      Measures by row.
    """
    rows = [i for i, frame in enumerate(scene.frames) if procedural or frame.image.path is not None]
    if limit is not None and len(rows) > limit:
        rows = [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, limit).round().astype(int))]
    frames = [scene.frames[row] for row in rows]
    return dict(zip(rows, in_parallel(measure, frames, label="looking at images", progress=progress), strict=True))


def measure(frame: Frame) -> FrameMeasure:
    """Measures one image and its mask."""
    try:
        image = read_small(frame.image, WORK_SIDE)
    except UserError as error:
        return FrameMeasure(error=finding_from_error(error, code="image-unreadable", frame=frame.name))
    color, alpha = image[..., :3].astype(np.float32) / 255, np.ones(image.shape[:2], np.float32)
    if image.shape[-1] == 4:
        alpha = image[..., 3].astype(np.float32) / 255
    grey = (color * alpha[..., None] + 0.5 * (1 - alpha[..., None])) @ LUMINANCE
    linear = np.square(color) @ LUMINANCE  # a square is near enough to the sRGB curve
    opaque = float(alpha.mean())
    weight = alpha / max(float(alpha.sum()), 1e-6)
    laplacian = (grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:] - 4 * grey[1:-1, 1:-1]) * 255
    sharpness = float(laplacian.var()) if laplacian.size else 0.0
    variance = float(grey.var()) * 255**2
    picture = Image.fromarray((grey * 255 + 0.5).astype(np.uint8))
    tiny = np.asarray(picture.resize((TINY_SIDE, TINY_SIDE), Image.Resampling.BOX), np.float32) / 255
    shown = Image.fromarray(((color * alpha[..., None] + 1 - alpha[..., None]) * 255 + 0.5).astype(np.uint8))
    shown.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    return FrameMeasure(
        sharpness=sharpness,
        detail=sharpness / max(variance, 1e-6),
        exposure=float(np.log2(max(float((linear * weight).sum()), 1e-6))),
        deviation=float(np.sqrt(variance)) / 255,
        dark=float((weight * (color.max(-1) < 4 / 255)).sum()),
        bright=float((weight * (color.min(-1) > 251 / 255)).sum()),
        opaque=opaque,
        tiny=tiny,
        thumbnail=np.asarray(shown),
        **_measure_mask(frame),
    )


def read_small(reference: ImageReference, side: int) -> np.ndarray:
    """Decodes an image to [h, w, 3|4] uint8 with its longer side at most ``side``.

    Raises:
      UserError: the file is missing, truncated or not an image.
    """
    if reference.path is None or reference.loader is not None:
        image = reference.read()
    elif reference.path.suffix.lower() in (".jpg", ".jpeg"):
        image = _read_jpeg(reference, side)
    else:
        image = decode_image(reference.path, upright=reference.upright)
    if image.dtype != np.uint8:
        top = float(np.iinfo(image.dtype).max) if np.issubdtype(image.dtype, np.integer) else 1.0
        image = np.clip(image * (255 / top) + 0.5, 0, 255).astype(np.uint8)
    height, width = image.shape[:2]
    if max(width, height) <= side:
        return image
    picture = Image.fromarray(image)
    size = (max(1, round(width * side / max(width, height))), max(1, round(height * side / max(width, height))))
    return np.asarray(picture.resize(size, Image.Resampling.BOX, reducing_gap=2.0))


def matchable(reference: ImageReference) -> tuple[Features, np.ndarray]:
    """Features of an image, and [2] how many of its pixels make one of theirs."""
    if reference.path is not None:  # an outline that a mask cut out moves over the object from view to view
        reference = replace(reference, loader=None)
    image = read_small(reference, SIDE)
    color = image[..., :3].astype(np.float32) / 255
    if image.shape[-1] == 4:
        alpha = image[..., 3:].astype(np.float32) / 255
        color = color * alpha + 0.5 * (1 - alpha)
    size = np.array(image.shape[1::-1], np.float64)
    return features(color @ LUMINANCE), np.array(reference.size, np.float64) / size


def in_parallel(function: Callable, items: Sequence, *, label: str, progress: bool) -> list[Any]:
    """Maps a function over items in threads, with a bar on a terminal."""
    if not items:
        return []
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        results = pool.map(function, items)
        if not progress:
            return list(results)
        from rich.console import Console
        from rich.progress import track

        console = Console(stderr=True)
        bar = track(
            results, description=label, total=len(items), console=console, transient=True,
            disable=not console.is_terminal,
        )  # fmt: skip
        return list(bar)


def _read_jpeg(reference: ImageReference, side: int) -> np.ndarray:
    try:
        with Image.open(reference.path) as image:
            plain = image.format == "JPEG" and image.mode in ("RGB", "L")
            if plain and not reference.upright:
                share = side / max(*image.size, side)
                image.draft(image.mode, (round(image.width * share), round(image.height * share)))
                return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError):
        pass  # decode_image says what is wrong
    return decode_image(reference.path, upright=reference.upright)


def _measure_mask(frame: Frame) -> dict[str, Any]:
    if frame.mask is None:
        return {}
    try:
        size = frame.mask.size
        if frame.mask.path is not None:
            size = open_image(frame.mask.path).size
        mask = read_small(frame.mask, WORK_SIDE)
    except (UserError, OSError) as error:
        error = error if isinstance(error, UserError) else UserError("A mask cannot be read.", found=error)
        return {"mask_error": finding_from_error(error, code="file-missing", frame=frame.name)}
    return {"mask": float((mask[..., :3].max(axis=-1) > 127).mean()), "mask_size": size}
