"""Layout "views": one record per image.

Images are PNG, encoded by Pillow; with more than 8 bits a channel they are zlib-compressed tensors, because Pillow
writes 16 bits in grey only. All have the same depth and number of channels: where they differ, 8 bits widen to 16 and
opaque images get an alpha of one, which changes no pixel's meaning.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from PIL import Image

from nerfjax.data import shards
from nerfjax.data.resident import conform
from nerfjax.scenes.base import SPLITS, Frame, Scene
from nerfjax.scenes.prepared import KIND, METADATA, POINTS

SHARD_BYTES = 64 * 2**20  # of decoded images, so that a shard fits into memory with room to spare
PNG_LEVEL = 1  # level 6 takes four times as long for a sixth less


class _Mixed(Exception):
    """An image has more channels or bits than the records so far."""


def write_views(scene: Scene, document: dict[str, Any], staging: shards.Staging, *, threads, progress) -> None:
    """Writes every image, shard by shard; images of another depth or number of channels make all of them wider."""
    form = staging.folder / shards.NOTES / "form"
    while True:
        channels, dtype = json.loads(form.read_text()) if form.is_file() else guess_form(scene.frames[0])
        try:
            files = _write_shards(scene, document, staging, channels, np.dtype(dtype), threads, progress)
            break
        except _Mixed as mixed:
            staging.clear()
            shards.write_atomically(form, json.dumps(mixed.args[0]).encode())
    metadata = {**document, "channels": channels, "dtype": dtype, "files": files}
    description = f"A capture of {len(document['frames'])} images, fingerprint {document['fingerprint']}."
    with shards.disk_errors(staging.folder):
        view_features(scene, channels, dtype).save_config(staging.folder)
        if scene.points is not None:
            shards.write_atomically(staging.folder / POINTS, points_bytes(scene))
        shards.write_atomically(staging.folder / shards.INFO, shards.dataset_info(KIND, description, files))
        shards.write_atomically(staging.folder / METADATA, json.dumps(metadata, indent=1).encode())


def points_bytes(scene: Scene) -> bytes:
    """Returns the content of the file of the scene's sparse points."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(scene.points, np.float32), allow_pickle=False)
    return buffer.getvalue()


def guess_form(frame: Frame) -> tuple[int, str]:
    """Returns (channels, type) of one image; the others mostly have the same."""
    image = frame.image.read()
    return image.shape[-1], image.dtype.name


def _write_shards(scene, document, staging, channels: int, dtype: np.dtype, threads, progress) -> dict[str, Any]:
    features = view_features(scene, channels, dtype.name)
    task = progress.add_task("decoding images", total=len(scene.frames))
    files = {}
    with ThreadPoolExecutor(threads) as pool:
        for split in SPLITS:
            groups = shard_groups(scene, split)
            for index, rows in enumerate(groups):
                name = shards.shard_name(KIND, split, index, len(groups))

                def records(rows=rows) -> Iterator[bytes]:
                    return pool.map(lambda row: _encode(scene, document, row, features, channels, dtype), rows)

                files[name] = staging.file(name, split, records, "group_size:1,uncompressed")
                progress.advance(task, len(rows))
    progress.remove_task(task)
    return files


def shard_groups(scene: Scene, split: str) -> list[list[int]]:
    """Returns the rows of a split's frames, shard by shard."""
    groups, room = [], 0
    for row in scene.indices(split):
        size = 4 * scene.frames[row].image.size[0] * scene.frames[row].image.size[1]
        if not groups or size > room:
            groups.append([])
            room = SHARD_BYTES
        groups[-1].append(row)
        room -= size
    return groups


def view_features(scene: Scene, channels: int, dtype: str) -> Any:
    """Returns the TensorFlow Datasets features of the records."""
    from tensorflow_datasets import features as kinds  # needs no tensorflow

    def numbers(*shape: int | None, dtype=np.float32) -> Any:
        return kinds.Tensor(shape=shape, dtype=dtype)

    image = kinds.Image(shape=(None, None, channels), dtype=np.uint8, encoding_format="png")
    if dtype != "uint8":
        image = kinds.Tensor(shape=(None, None, channels), dtype=np.dtype(dtype), encoding="zlib")
    members = dict(
        name=kinds.Text(), index=kinds.Scalar(dtype=np.int64), image=image, size=numbers(2, dtype=np.int64),
        pose=numbers(3, 4), focal=numbers(2), center=numbers(2), distortion=numbers(scene.cameras.distortion.shape[-1]),
        model=kinds.Text(),
    )  # fmt: skip
    if any(frame.mask is not None for frame in scene.frames):
        members["mask"] = kinds.Image(shape=(None, None, 1), dtype=np.uint8, encoding_format="png")
    if any(frame.depth is not None for frame in scene.frames):
        members["depth"] = kinds.Tensor(shape=(None, None), dtype=np.float32, encoding="zlib")
        members["depth_kind"] = kinds.Text()
    return kinds.FeaturesDict(members)


def _encode(scene: Scene, document, row: int, features, channels: int, dtype: np.dtype) -> bytes:
    frame, values = scene.frames[row], document["frames"][row]
    image = frame.image.read()
    if image.shape[-1] > channels or image.dtype.itemsize > dtype.itemsize:
        wider = dtype if dtype.itemsize >= image.dtype.itemsize else image.dtype
        raise _Mixed((max(channels, image.shape[-1]), wider.name))
    image = conform(image, dtype, channels)
    camera = {name: np.asarray(values[name], np.float32) for name in ("focal", "center", "distortion")}
    example = dict(
        name=frame.name, index=row, image=png(image) if dtype == np.uint8 else image, model=values["model"],
        size=np.asarray(frame.image.size, np.int64), pose=np.asarray(values["pose"], np.float32).reshape(3, 4),
        **camera,
    )  # fmt: skip
    width, height = frame.image.size
    if "mask" in features:
        valid = frame.valid()
        example["mask"] = png(np.uint8(255) * (np.ones((height, width), np.uint8) if valid is None else valid))
    if "depth" in features:
        known = frame.depth is not None
        example["depth"] = frame.depth.read(frame.image.size) if known else np.zeros((height, width), np.float32)
        example["depth_kind"] = frame.depth.kind if known else "none"
    return shards.serialize(features, example)


def png(image: np.ndarray) -> bytes:
    """Returns an image as PNG bytes."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "png", compress_level=PNG_LEVEL)
    return buffer.getvalue()
