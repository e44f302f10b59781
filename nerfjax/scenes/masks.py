"""Masks of both conventions as one: white = valid, black = ignored, [H, W, 3] uint8 of 0 and 255.

Two kinds of mask files are in use: in one, black pixels are ignored (nerfstudio, IDR); in the other, everything that
is not black is ignored (the ``dynamic_mask_*.png`` of instant-ngp). Colour masks count as black where all their
channels are; a mask's own transparency counts as black. Where a mask was compressed with losses, "black" is the lower
half of the range.

What a mask leaves out is ignored (it has no weight in any loss), or is background: empty space, as around an object
that was cut out. Files do not say which of the two is meant; the readers' option ``masks`` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nerfjax.errors import UserError, did_you_mean
from nerfjax.scenes.capture import RawFrame
from nerfjax.scenes.images import ImageReference, decode_image, open_image
from nerfjax.scenes.options import how_to_give

MASKS = ("ignore", "background", "off")
_LOSSY = (".jpg", ".jpeg", ".webp")


@dataclass(frozen=True)
class _MaskFile:
    path: Path
    ignored: str

    def __call__(self) -> np.ndarray:
        image = decode_image(self.path)
        marked = image[..., :3].max(axis=-1)
        if image.shape[-1] == 4:
            marked = np.where(image[..., 3] > 0, marked, 0)
        bright = marked > (np.iinfo(image.dtype).max // 2 if self.path.suffix.lower() in _LOSSY else 0)
        valid = bright if self.ignored == "black" else ~bright
        return np.repeat(np.where(valid, 255, 0).astype(np.uint8)[..., None], 3, axis=-1)


def open_mask(path: Path, size: tuple[int, int], *, ignored: str = "black") -> ImageReference:
    """Refers to a mask as white = valid at the image's size.

    Args:
      path: the file.
      size: (width, height) of the image that it belongs to.
      ignored: "black" or "bright", the pixels that the file marks as not to be used.

    Raises:
      UserError: the mask has another shape than the image (a resize is fine).
    """
    header = open_image(path)
    ratio = header.size[0] * size[1] / (header.size[1] * size[0])
    if abs(ratio - 1) > 0.01:
        raise UserError(
            "A mask has another shape than its image.",
            file=path,
            found=f"{header.size[0]}x{header.size[1]}",
            expected=f"{size[0]}x{size[1]}, or the same shape smaller or larger",
            fix=f"make the masks anew from these images, or give {how_to_give('masks=off')}",
        )
    # The mask's meaning belongs to its identity: the same file means the opposite in the other convention.
    identity = "" if ignored == "black" else f"ignored {ignored}"
    return ImageReference(path, tuple(size), loader=_MaskFile(path, ignored), identity=identity)


def with_masks(frames: Iterable[RawFrame], masks: str) -> tuple[RawFrame, ...]:
    """Returns the frames with their masks as they are meant.

    Args:
      frames: with the masks that the capture has.
      masks: "ignore" (masked pixels have no weight), "background" (masked pixels are empty: they become transparent),
        or "off" (masks have no effect).

    Raises:
      UserError: another word.
    """
    if masks not in MASKS:
        raise UserError("Unknown meaning of masks.", field="scene.options: masks", found=masks,
                        expected=", ".join(MASKS), fix=did_you_mean(masks, MASKS))  # fmt: skip
    if masks == "off":
        return tuple(replace(frame, mask=None) for frame in frames)
    return tuple(_cut_out(frame) if masks == "background" and frame.mask is not None else frame for frame in frames)


@dataclass(frozen=True)
class _CutOut:
    image: ImageReference
    mask: ImageReference

    def __call__(self) -> np.ndarray:
        image = self.image.read()
        limit = np.iinfo(image.dtype).max
        alpha = np.where(self.mask.read(size=self.image.size)[..., 0] > 127, limit, 0).astype(image.dtype)
        alpha = np.minimum(alpha, image[..., 3]) if image.shape[-1] == 4 else alpha
        return np.concatenate([image[..., :3], alpha[..., None]], axis=-1)


def _cut_out(frame: RawFrame) -> RawFrame:
    identity = f"cut out {frame.mask.digest().hex()}"
    image = replace(frame.image, loader=_CutOut(frame.image, frame.mask), identity=identity)
    return replace(frame, image=image, mask=None)


def border_mask(size: tuple[int, int], width: int) -> ImageReference:
    """Refers to a mask that ignores the outermost ``width`` pixels of an image of (width, height) ``size``."""

    def draw() -> np.ndarray:
        mask = np.zeros((size[1], size[0], 3), np.uint8)
        mask[width : size[1] - width, width : size[0] - width] = 255
        return mask

    return ImageReference(None, tuple(size), loader=draw, identity=f"border {width} of {size[0]}x{size[1]}")
