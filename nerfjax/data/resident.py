"""Images that live on the device, in their original bit depth, as pages of pixels.

An image's pixels, row by row, fill whole pages of ``PAGE`` pixels; pixel ``offset = row * width + column`` of image i
is ``pages[first_page[i] + offset // PAGE, offset % PAGE]``. Neither index nears 2^31 for any set of images that fits
a device, whereas a flat index over all pixels would. Masks are pages of bits beside them, depths pages of float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.typing import ArrayLike

from nerfjax.data.targets import Drawn, Targets, slice_of_device
from nerfjax.errors import UserError
from nerfjax.pixels.base import image_table
from nerfjax.scenes.base import Frame, Scene
from nerfjax.types import Array, Cameras, ImageTable, PixelBatch

PAGE = 4096


@struct.dataclass
class ResidentImages:
    """Images of one split on the device.

    Attributes:
      pages: [B, PAGE, C] uint8 or uint16; C = 3 (RGB) or 4 (RGB with straight alpha), encoded (sRGB) values.
      first_page: [I] int32 page of each image's first pixel.
      table: sizes and positions of the images.
      cameras: [I] cameras of the images, scene coordinates.
      valid_pages: [B, PAGE / 8] uint8, a bit per pixel, lowest bit first; None where no image has a mask.
      depth_pages: [B, PAGE] float32, scene units, 0 where unknown; None where depth is not wanted.
      depth_is_z: [I] bool, whether an image's depth is along the optical axis; None as above.
    """

    pages: Any
    first_page: Any
    table: ImageTable
    cameras: Cameras
    valid_pages: Any = None
    depth_pages: Any = None
    depth_is_z: Any = None

    @property
    def channels(self) -> int:
        """3 (RGB) or 4 (RGB with straight alpha)."""
        return self.pages.shape[-1]

    @property
    def records(self) -> None:
        """Nothing: each step chooses its pixels itself."""
        return None

    def draw(self, records: None, select: Callable[[ImageTable], PixelBatch], *, axis: str) -> Drawn:
        """Chooses the step's global batch and looks this device's slice up; see ``data.targets``."""
        del records
        batch = select(self.table)
        mine, start = slice_of_device(batch, axis)
        return Drawn(batch, targets_of(self, mine), start)


def targets_of(images: ResidentImages, pixels: PixelBatch) -> Targets:
    """Returns what is known of some pixels."""
    image, offset = pixels.image, pixels.row * images.table.width[pixels.image] + pixels.column
    page, place = images.first_page[image] + offset // PAGE, offset % PAGE
    valid = depth = depth_is_z = None
    if images.valid_pages is not None:
        byte = images.valid_pages[page, place // 8].astype(jnp.int32)
        valid = (byte >> (place % 8)) % 2 == 1
    if images.depth_pages is not None:
        depth, depth_is_z = images.depth_pages[page, place], images.depth_is_z[image]
    color = lookup(images, image, pixels.row, pixels.column)
    return Targets(pixels=pixels, color=color, valid=valid, depth=depth, depth_is_z=depth_is_z)


def lookup(images: ResidentImages, image: ArrayLike, row: ArrayLike, column: ArrayLike) -> Array:
    """Returns pixel values, inside or outside compiled code.

    Args:
      images: the images.
      image: [...] int32.
      row: [...] int32.
      column: [...] int32.

    Returns:
      [..., C] float32 in [0, 1].
    """
    offset = row * images.table.width[image] + column
    texel = images.pages[images.first_page[image] + offset // PAGE, offset % PAGE]
    return texel.astype(jnp.float32) * jnp.float32(1.0 / jnp.iinfo(images.pages.dtype).max)


def load_resident(
    scene: Scene, split: str = "train", *, sharding=None, threads: int | None = None, depth: bool = False
) -> ResidentImages:
    """Decodes the images of one split in parallel and puts them on the device.

    Images of one depth and number of channels stay as they are; in a mixed set, 8-bit values widen to 16 bits and
    opaque images get an alpha of one.

    Args:
      scene: the capture.
      split: "train", "val" or "test".
      sharding: where the arrays go; the default device if None.
      threads: decoding threads; one per core if None.
      depth: whether depths are wanted, too.

    Raises:
      UserError: the split is empty, or an image cannot be read.
    """
    subset = scene.subset(split)
    if not subset.frames:
        raise UserError("The split has no images.", file=scene.source, field=split, found=0)
    table = frame_table(subset.frames)
    first_page, num_pages = page_layout(np.asarray(table.width), np.asarray(table.height))
    pages = _decode_pages(subset.frames, first_page, num_pages, threads)
    images = ResidentImages(
        pages=pages,
        first_page=first_page,
        table=table,
        cameras=subset.cameras,
        valid_pages=_valid_pages(subset.frames, first_page, num_pages, threads),
        depth_pages=_depth_pages(subset.frames, first_page, num_pages, threads) if depth else None,
        depth_is_z=np.array([f.depth is not None and f.depth.kind == "z" for f in subset.frames]) if depth else None,
    )
    return jax.device_put(images, sharding)


def frame_table(frames: Sequence[Frame]) -> ImageTable:
    """Returns the table of the frames' images."""
    return image_table(*zip(*(frame.image.size for frame in frames), strict=True))


def page_layout(width: np.ndarray, height: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns ([I] int32 first page of each image, number of pages)."""
    counts = -(-width.astype(np.int64) * height // PAGE)
    ends = np.cumsum(counts)
    return (ends - counts).astype(np.int32), int(ends[-1])


def resident_bytes(scene: Scene, split: str = "train", *, channels: int = 4) -> int:
    """Returns an upper bound of the device memory that 8-bit images of a split take."""
    sizes = np.array([frame.image.size for frame in scene.subset(split).frames], np.int64).reshape(-1, 2)
    return int(np.sum(-(-sizes[:, 0] * sizes[:, 1] // PAGE)) * PAGE * channels) if len(sizes) else 0


def _decode_pages(frames: Sequence[Frame], first_page: np.ndarray, num_pages: int, threads: int | None) -> np.ndarray:
    """Decodes straight into the pages, so that no second copy of the set ever exists on the host."""
    first = frames[0].image.read()
    depth, channels = first.dtype, first.shape[-1]
    pages = np.zeros((num_pages, PAGE, channels), depth)
    odd: list[int] = []

    def store(index: int) -> None:
        image = frames[index].image.read()
        if image.dtype != depth or image.shape[-1] != channels:
            odd.append(index)
        else:
            _write(pages, int(first_page[index]), image)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(store, range(len(frames))))
    if not odd:
        return pages
    # A mixed set: widen what is there, then read the rest again into the common form.
    others = [frames[index].image.read() for index in odd]
    depth = np.result_type(depth, *(image.dtype for image in others))
    channels = max(channels, *(image.shape[-1] for image in others))
    pages = conform(pages, depth, channels)
    for index, image in zip(odd, others, strict=True):
        _write(pages, int(first_page[index]), conform(image, depth, channels))
    return pages


def _valid_pages(frames: Sequence[Frame], first_page: np.ndarray, num_pages: int, threads: int | None):
    if all(frame.mask is None for frame in frames):
        return None
    pages = np.full((num_pages, PAGE // 8), 255, np.uint8)

    def store(index: int) -> None:
        valid = frames[index].valid()
        if valid is not None:
            bits = np.packbits(valid.ravel(), bitorder="little")
            pages[first_page[index] :].reshape(-1)[: len(bits)] = bits

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(store, range(len(frames))))
    return pages


def _depth_pages(frames: Sequence[Frame], first_page: np.ndarray, num_pages: int, threads: int | None) -> np.ndarray:
    pages = np.zeros((num_pages, PAGE), np.float32)

    def store(index: int) -> None:
        frame = frames[index]
        if frame.depth is not None:
            values = frame.depth.read(frame.image.size).ravel()
            pages[first_page[index] :].reshape(-1)[: len(values)] = values

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(store, range(len(frames))))
    return pages


def _write(pages: np.ndarray, first: int, image: np.ndarray) -> None:
    pixels = image.reshape(-1, image.shape[-1])
    pages[first:].reshape(-1, image.shape[-1])[: len(pixels)] = pixels


def conform(image: np.ndarray, depth: np.dtype, channels: int) -> np.ndarray:
    """Returns an image with more bits and channels: 8 bits widen to 16, and an opaque image gets an alpha of one."""
    if image.dtype != depth:
        image = image.astype(np.uint16) * 257
    if image.shape[-1] < channels:
        alpha = np.full((*image.shape[:-1], 1), np.iinfo(depth).max, depth)
        image = np.concatenate([image, alpha], axis=-1)
    return image
