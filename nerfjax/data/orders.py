"""Batch k as a pure function of (fingerprint, seed, k): which pixels of a prepared data set, and their records.

Nothing is remembered from batch to batch but decoded data, up to a budget; any batch can be asked for, by any thread,
in any order. ``lanes`` are places in the global batch: a host asks for its own, and gets what every other host's
calculation of the same global batch gives there.

``RayBlocks`` reads layout "rays". An epoch permutes the blocks, and the pixels within each block; batch after batch
takes the next pixels of that sequence, so that every pixel comes once an epoch (the epoch's last batch wraps to its
beginning to be full). ``ViewBatches`` reads layout "views". Images are taken in the order of an epoch's permutation,
``images_per_batch`` at a time, and kept for ``reuse`` batches, because decoding one costs as much as many batches;
each image's pixels (or patches' corners) follow a permutation of their own, which goes on at each of its visits.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nerfjax.data.shuffled import FOLDER
from nerfjax.data.streamed import PixelRecords
from nerfjax.data.views import guess_form
from nerfjax.errors import UserError
from nerfjax.numerics import digits_of, permutation_keys, permutation_radix, permute_index
from nerfjax.scenes.base import Frame
from nerfjax.scenes.prepared import read_metadata, read_prepared, split_records
from nerfjax.scenes.records import parse_record


class Column(NamedTuple):
    """Type and trailing shape of one field of the records."""

    dtype: np.dtype
    shape: tuple[int, ...]


class BoundedCache:
    """Keeps what was made last, up to a number of bytes; a value that two threads want is made once.

    Args:
      budget: bytes; one value is kept even if it is larger.
    """

    def __init__(self, budget: int):
        self.budget, self.bytes = budget, 0
        self._values: OrderedDict[Hashable, tuple[Future, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Any], size_of: Callable[[Any], int]) -> Any:
        """Returns the value of a key."""
        with self._lock:
            known = self._values.get(key)
            if known is not None:
                self._values.move_to_end(key)
            else:
                future: Future = Future()
                self._values[key] = (future, 0)
        if known is not None:
            return known[0].result()
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                self._values.pop(key, None)
            future.set_exception(error)
            raise
        future.set_result(value)
        with self._lock:
            if key in self._values:
                self._values[key] = (future, size_of(value))
                self.bytes += self._values[key][1]
            for old in list(self._values):  # the least recently used first
                if self.bytes > self.budget and old != key and self._values[old][0].done():
                    self.bytes -= self._values.pop(old)[1]
        return value


def stream_seed(fingerprint: str, seed: int, purpose: str) -> int:
    """Returns 32 bits that name a family of permutations."""
    return int.from_bytes(hashlib.sha256(f"{fingerprint} {seed} {purpose}".encode()).digest()[:4], "little")


def permuted(position: np.ndarray, total: int, seed: int, epoch: int) -> np.ndarray:
    """Returns where positions of [0, total) stand in an epoch, int64."""
    keys = permutation_keys(seed & 0xFFFFFFFF, epoch & 0xFFFFFFFF, xp=np)
    high, low = permute_index(*digits_of(position, total), total=total, keys=keys, xp=np)
    return high.astype(np.int64) * permutation_radix(total) + low


def _nbytes(columns: dict[str, np.ndarray]) -> int:
    return sum(column.nbytes for column in columns.values() if column is not None)


class RayBlocks:
    """Batches over shuffled blocks of pixels.

    Args:
      folder: a data set prepared with layout "rays".
      batch: pixels of the global batch.
      seed: of the run.
      memory_bytes: budget of decoded blocks.
      depth: whether depths are wanted.
    """

    def __init__(self, folder: Path, *, batch: int, seed: int, memory_bytes: int, depth: bool = False):
        metadata = read_metadata(folder / FOLDER)
        self.total, self.block, self.size = int(metadata["total"]), int(metadata["block"]), batch
        self.columns = {
            "image": Column(np.dtype(np.int32), ()),
            "offset": Column(np.dtype(np.int32), ()),
            "color": Column(np.dtype(metadata["dtype"]), (int(metadata["channels"]),)),
        }
        if depth and metadata["depth"]:
            self.columns["depth"] = Column(np.dtype(np.float32), ())
        self._records = split_records(folder / FOLDER, metadata)["train"]
        self._blocks_seed = stream_seed(metadata["fingerprint"], seed, "blocks")
        self._pixels_seed = stream_seed(metadata["fingerprint"], seed, "pixels")
        self._blocks, self._epochs = BoundedCache(memory_bytes), BoundedCache(2**24)

    def batch(self, step: int, lanes: np.ndarray) -> PixelRecords:
        """Returns the records of some lanes of one batch."""
        epoch, within = divmod(int(step), -(-self.total // self.size))
        position = (within * self.size + lanes.astype(np.int64)) % self.total
        order, starts = self._epochs.get(epoch, lambda: self._epoch(epoch), lambda value: 2 * value[0].nbytes)
        slots = np.searchsorted(starts, position, side="right") - 1
        columns = {name: np.empty((len(lanes), *column.shape), column.dtype) for name, column in self.columns.items()}
        for slot in np.unique(slots):
            here = np.flatnonzero(slots == slot)
            index, number = position[here] - starts[slot], int(order[slot])
            block = self._blocks.get((epoch, number), lambda b=number: self._permuted_block(epoch, b), _nbytes)
            for name, column in columns.items():
                column[here] = block[name][index]
        return PixelRecords(**columns)

    def _epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the epoch's order of blocks, and where each of them begins; one block may be shorter."""
        count = -(-self.total // self.block)
        order = permuted(np.arange(count), count, self._blocks_seed, epoch)
        sizes = np.where(order == count - 1, self.total - (count - 1) * self.block, self.block)
        return order, np.cumsum(sizes) - sizes

    def _permuted_block(self, epoch: int, number: int) -> dict[str, np.ndarray]:
        values = parse_record(self._records[number])
        columns = {
            name: np.frombuffer(values[name], column.dtype).reshape(-1, *column.shape)
            for name, column in self.columns.items()
        }
        count = len(columns["image"])
        order = permuted(np.arange(count), count, self._pixels_seed + 0x9E3779B1 * number, epoch)
        return {name: column[order] for name, column in columns.items()}


class ViewBatches:
    """Batches from a few images at a time.

    Args:
      folder: a prepared data set.
      batch: pixels of the global batch.
      seed: of the run.
      memory_bytes: budget of decoded images.
      images_per_batch: images of one batch, with equal shares.
      patch: side of square patches of pixels, which lie in the batch row by row; 1 for single pixels.
      reuse: batches that the same images serve in a row.
      depth: whether depths are wanted.

    Raises:
      UserError: the batch does not divide into such shares, or an image is smaller than a patch.
    """

    def __init__(
        self,
        folder: Path,
        *,
        batch: int,
        seed: int,
        memory_bytes: int,
        images_per_batch: int = 8,
        patch: int = 1,
        reuse: int = 8,
        depth: bool = False,
    ):
        options = dict(images_per_batch=images_per_batch, patch=patch, reuse=reuse)
        for name, value in options.items():
            if value < 1:
                raise UserError(f"config.data.{name} must be positive.", field=f"config.data.{name}", found=value)
        if batch % (images_per_batch * patch**2):
            raise UserError(
                "The global batch does not divide into images and patches.", field="config.train.batch_rays",
                found=batch, expected=f"a multiple of images_per_batch * patch^2 = {images_per_batch * patch**2}",
            )  # fmt: skip
        metadata = read_metadata(folder)
        self._frames = read_prepared(folder).subset("train").frames
        smallest = min(min(frame.image.size) for frame in self._frames)
        if patch > smallest:
            raise UserError(
                "An image is smaller than a patch.", field="config.data.patch", found=patch,
                expected=f"at most {smallest}",
            )  # fmt: skip
        self.size, self.images, self.patch, self.reuse = batch, images_per_batch, patch, reuse
        channels, dtype = metadata.get("channels"), metadata.get("dtype")
        channels, dtype = (channels, dtype) if dtype else guess_form(self._frames[0])
        self.columns = {
            "image": Column(np.dtype(np.int32), ()),
            "offset": Column(np.dtype(np.int32), ()),
            "color": Column(np.dtype(dtype), (channels,)),
        }
        if any(frame.mask is not None for frame in self._frames):
            self.columns["valid"] = Column(np.dtype(bool), ())
        if depth and any(frame.depth is not None for frame in self._frames):
            self.columns["depth"] = Column(np.dtype(np.float32), ())
        self._images_seed = stream_seed(metadata["fingerprint"], seed, "images")
        self._pixels_seed = stream_seed(metadata["fingerprint"], seed, "view pixels")
        self._cache = BoundedCache(memory_bytes)

    def batch(self, step: int, lanes: np.ndarray) -> PixelRecords:
        """Returns the records of some lanes of one batch."""
        group, repeat = divmod(int(step), self.reuse)
        share = self.size // self.images
        columns = {name: np.empty((len(lanes), *column.shape), column.dtype) for name, column in self.columns.items()}
        for slot in np.unique(lanes // share):
            here = np.flatnonzero(lanes // share == slot)
            epoch, place = divmod(group * self.images + int(slot), len(self._frames))
            number = int(permuted(np.array([place]), len(self._frames), self._images_seed, epoch)[0])
            image = self._cache.get(number, lambda row=number: self._decode(self._frames[row]), _nbytes)
            offset = self._offsets(number, image, epoch * self.reuse + repeat, lanes[here] % share)
            columns["image"][here], columns["offset"][here] = number, offset
            for name in columns.keys() - {"image", "offset"}:
                known = image.get(name)
                columns[name][here] = (name == "valid") if known is None else known[offset]
        return PixelRecords(**columns)

    def _offsets(self, number: int, image: dict[str, np.ndarray], visit: int, within: np.ndarray) -> np.ndarray:
        """Returns the pixels at some lanes of an image's share, at its ``visit``-th turn."""
        (width, height), side = self._frames[number].image.size, self.patch
        lane, cell = np.divmod(within, side**2)
        choices = image.get("choices")
        total = (width - side + 1) * (height - side + 1) if choices is None else len(choices)
        if not total:  # nothing of the image is valid
            return np.zeros(len(within), np.int64)
        position = visit * (self.size // self.images // side**2) + lane.astype(np.int64)
        round_, place = np.divmod(position, total)
        seed = self._pixels_seed + 0x9E3779B1 * number
        for epoch in np.unique(round_):
            place[round_ == epoch] = permuted(place[round_ == epoch], total, seed, int(epoch))
        if choices is not None:
            return choices[place]
        row, column = np.divmod(place, width - side + 1)
        return (row + cell // side) * width + column + cell % side

    def _decode(self, frame: Frame) -> dict[str, np.ndarray]:
        image: dict[str, np.ndarray] = {"color": frame.image.read().reshape(-1, *self.columns["color"].shape)}
        valid = frame.valid() if "valid" in self.columns else None
        if valid is not None:
            image["valid"] = valid.ravel()
            if self.patch == 1:
                image["choices"] = np.flatnonzero(valid)
        if "depth" in self.columns:
            known = frame.depth is not None
            image["depth"] = (
                frame.depth.read(frame.image.size).ravel() if known else np.zeros(len(image["color"]), np.float32)
            )
        return image
