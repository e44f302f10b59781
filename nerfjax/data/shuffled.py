"""Layout "rays": all valid training pixels, shuffled once, in blocks of one size; the last block may be shorter.

Pixel q of all valid pixels (image by image, row by row) stands at place ``permute_index(q)``, a permutation keyed by
the fingerprint. A capture may be larger than memory, so this is a sort on disk: images are decoded once, chunk by
chunk, and each chunk's pixels are written in the order of their places; then each file of blocks merges its slice of
every chunk. Chunks and files are complete or absent, so that an interrupted call goes on where it stopped.

The folder is a TensorFlow Datasets data set named ``nerfjax_rays`` whose records are blocks: ``image`` and ``offset``
(row * width + column) int32, ``color`` [B, C], and ``depth`` where the capture has it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from nerfjax.data import shards
from nerfjax.errors import UserError
from nerfjax.numerics import digits_of, permutation_keys, permutation_radix, permute_index
from nerfjax.scenes.base import Frame
from nerfjax.scenes.prepared import FORMAT, METADATA, read_metadata, read_prepared

KIND, FOLDER = "nerfjax_rays", "rays"
BLOCK = 2**16  # pixels; with colour and place about 0.7 MB, a good size for one read
FILE_PIXELS = 2**23  # of a file of blocks, so that it is merged in memory
CHUNK_PIXELS = 2**23  # of a chunk of decoded images
_WRITER = "group_size:1,zstd:1"


def has_rays(folder: Path, views: dict[str, Any], block: int) -> bool:
    """Says whether the blocks are there, for these views and of this size."""
    if not (folder / FOLDER / METADATA).is_file():
        return False
    return read_metadata(folder / FOLDER).get("key") == _key(views, block)


def _key(views: dict[str, Any], block: int) -> str:
    return hashlib.sha256(f"{KIND} {FORMAT} {views['key']} {block}".encode()).hexdigest()


def add_rays(folder: Path, *, block: int, threads: int | None, progress) -> None:
    """Adds the blocks to a folder of views.

    Raises:
      UserError: no training pixel is valid, or the disk is full.
    """
    if block < 1:
        raise UserError("A block must have at least one pixel.", field="block", found=block)
    views = read_metadata(folder)
    staging = shards.Staging(folder / f".{FOLDER}.partial", _key(views, block))
    frames = read_prepared(folder).subset("train").frames
    with ThreadPoolExecutor(threads) as pool:
        counts = np.array(list(pool.map(_valid_count, frames)), np.int64)
        total = int(counts.sum())
        if not total:
            raise UserError("The masks leave no training pixel.", file=folder)
        shuffle = _Shuffle(frames, counts, int(views["fingerprint"][:8], 16), views["channels"], views["dtype"])
        groups = _image_groups(counts)
        task = progress.add_task("shuffling pixels", total=2 * len(groups))
        chunks = []
        for index, rows in enumerate(groups):
            chunks.append(_write_chunk(staging.folder / shards.NOTES / f"chunk-{index:05d}", shuffle, rows, pool))
            progress.advance(task)
    features = block_features(shuffle)
    per_file = max(1, FILE_PIXELS // block) * block
    count, files = -(-total // per_file), {}
    for index in range(count):
        name = shards.shard_name(KIND, "train", index, count)
        first, last = index * per_file, min((index + 1) * per_file, total)

        def records(first=first, last=last) -> Iterator[bytes]:
            return _blocks(chunks, features, first, last, block)

        files[name] = staging.file(name, "train", records, _WRITER)
        progress.advance(task, len(groups) / count)
    metadata = dict(
        kind=KIND, format=FORMAT, key=staging.key, fingerprint=views["fingerprint"], total=total, block=block,
        channels=views["channels"], dtype=views["dtype"], depth=shuffle.depth, files=files,
    )  # fmt: skip
    description = f"All {total} valid training pixels in blocks of {block}, fingerprint {views['fingerprint']}."
    with shards.disk_errors(staging.folder):
        features.save_config(staging.folder)
        shards.write_atomically(staging.folder / shards.INFO, shards.dataset_info(KIND, description, files))
        shards.write_atomically(staging.folder / METADATA, json.dumps(metadata, indent=1).encode())
    shards.remove(folder / FOLDER)
    staging.finish(folder / FOLDER)
    progress.remove_task(task)


def _valid_count(frame: Frame) -> int:
    valid = frame.valid()
    return frame.image.size[0] * frame.image.size[1] if valid is None else int(valid.sum())


def _image_groups(counts: np.ndarray) -> list[list[int]]:
    groups, room = [], 0
    for row, count in enumerate(counts):
        if not groups or count > room:
            groups.append([])
            room = CHUNK_PIXELS
        groups[-1].append(row)
        room -= int(count)
    return groups


class _Shuffle:
    """Where each valid pixel of the training images goes."""

    def __init__(self, frames: tuple[Frame, ...], counts: np.ndarray, seed: int, channels: int, dtype: str):
        self.frames, self.channels, self.dtype = frames, channels, np.dtype(dtype)
        self.total = int(counts.sum())
        self.starts = np.cumsum(counts) - counts
        self.depth = any(frame.depth is not None for frame in frames)
        self._keys = permutation_keys(seed, 0, xp=np)

    def pixels(self, row: int) -> dict[str, np.ndarray]:
        """Returns the valid pixels of one image: place, image, offset, color and depth."""
        frame = self.frames[row]
        color = frame.image.read().reshape(-1, self.channels)
        valid = frame.valid()
        offset = np.arange(len(color)) if valid is None else np.flatnonzero(valid)
        high, low = digits_of(self.starts[row] + np.arange(len(offset), dtype=np.int64), self.total)
        high, low = permute_index(high, low, total=self.total, keys=self._keys, xp=np)
        columns = dict(
            place=high.astype(np.int64) * permutation_radix(self.total) + low,
            image=np.full(len(offset), row, np.int32),
            offset=offset.astype(np.int32),
            color=color[offset],
        )
        if self.depth:
            known = frame.depth is not None
            columns["depth"] = (
                frame.depth.read(frame.image.size).ravel()[offset] if known else np.zeros(len(offset), np.float32)
            )
        return columns


def _write_chunk(folder: Path, shuffle: _Shuffle, rows: list[int], pool: ThreadPoolExecutor) -> Path:
    """Writes the pixels of some images in the order of their places, a file per column."""
    with shards.disk_errors(folder):
        if folder.is_dir():
            return folder
        partial = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        parts = list(pool.map(shuffle.pixels, rows))
        order = np.argsort(np.concatenate([part["place"] for part in parts]))
        for name in list(parts[0]):
            column = np.concatenate([part.pop(name) for part in parts])[order]
            np.save(partial / f"{name}.npy", column)
            shards.flush(partial / f"{name}.npy")
        os.rename(partial, folder)
    return folder


def _blocks(chunks: list[Path], features: Any, first: int, last: int, block: int) -> Iterator[bytes]:
    """Yields the records of the blocks that hold the places from ``first`` to ``last``."""
    parts: dict[str, list[np.ndarray]] = {}
    for chunk in chunks:
        place = np.load(chunk / "place.npy", mmap_mode="r")
        begin, end = np.searchsorted(place, [first, last])
        for name in ("place", *features.keys()):
            parts.setdefault(name, []).append(np.array(np.load(chunk / f"{name}.npy", mmap_mode="r")[begin:end]))
    order = np.argsort(np.concatenate(parts.pop("place")))
    if len(order) != last - first:
        raise UserError(
            "The unfinished data set is damaged.", file=chunks[0].parent.parent, found=f"{len(order)} pixels",
            expected=last - first, fix="delete this folder and run the same command again",
        )  # fmt: skip
    columns = {name: np.concatenate(values)[order] for name, values in parts.items()}
    for start in range(0, last - first, block):
        yield shards.serialize(features, {name: column[start : start + block] for name, column in columns.items()})


def block_features(shuffle: _Shuffle) -> Any:
    """Returns the TensorFlow Datasets features of the blocks."""
    from tensorflow_datasets import features as kinds  # needs no tensorflow

    def column(dtype, *shape: int) -> Any:
        return kinds.Tensor(shape=(None, *shape), dtype=dtype, encoding="bytes")

    members = dict(image=column(np.int32), offset=column(np.int32), color=column(shuffle.dtype, shuffle.channels))
    return kinds.FeaturesDict({**members, "depth": column(np.float32)} if shuffle.depth else members)
