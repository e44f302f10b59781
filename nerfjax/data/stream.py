"""Streams batches from a prepared data set: tf.data on the host, double-buffered to the device.

The only module that imports tensorflow, and not before a pipeline is made; tensorflow sees no accelerator. A pipeline
is a range of steps mapped by a pure function (``data.orders``), so it has no state to save: it starts at any step at
once. Each host computes the lanes of the global batch that its devices hold.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from nerfjax.data.orders import RayBlocks, ViewBatches
from nerfjax.data.resident import frame_table
from nerfjax.data.streamed import PixelRecords, StreamedBatches
from nerfjax.errors import UserError
from nerfjax.scenes.base import Scene

AHEAD = 2  # dispatches on the device before they are asked for


@cache
def tensorflow() -> Any:
    """Imports tensorflow, quietly and without accelerators."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # nothing here computes with tensorflow; it would say so
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import tensorflow
    except ImportError as error:
        raise UserError(
            "Streaming needs tensorflow.", field="config.data.source", found=str(error),
            fix="pip install tensorflow-cpu, or give --config.data.source=resident",
        ) from error  # fmt: skip
    for kind in ("GPU", "TPU"):
        tensorflow.config.set_visible_devices([], kind)
    return tensorflow


class StreamFeed:
    """Feeds the training loop: ``feed(step, count)`` is the data of the dispatch that begins at ``step``.

    Args:
      source: gives the batches.
      scene: the capture, for the cameras of its training images.
      mesh: the devices.
      axis: the mesh axis over which a batch is spread.
      total_steps: where the run ends.
      steps_per_dispatch: dispatches end at its multiples, as the loop's do.
      threads: that work on batches; one per core if None.
    """

    def __init__(
        self,
        source: RayBlocks | ViewBatches,
        scene: Scene,
        *,
        mesh: Mesh,
        axis: str,
        total_steps: int,
        steps_per_dispatch: int,
        threads: int | None = None,
    ):
        self.source, self.threads = source, threads or os.cpu_count() or 1
        self._total, self._per_dispatch = total_steps, steps_per_dispatch
        train = scene.subset("train")
        depth_is_z = np.array([f.depth is not None and f.depth.kind == "z" for f in train.frames])
        shared = dict(
            table=frame_table(train.frames), cameras=train.cameras,
            depth_is_z=depth_is_z if "depth" in source.columns else None,
        )  # fmt: skip
        self._shared = jax.device_put(shared, NamedSharding(mesh, PartitionSpec()))
        self._sharding = NamedSharding(mesh, PartitionSpec(None, axis))
        self.lanes = local_lanes(self._sharding, source.size)
        self._worker: ThreadPoolExecutor | None = None
        self._ready: deque[tuple[int, int, Future]] = deque()
        self._error: BaseException | None = None

    def __call__(self, step: int, count: int) -> StreamedBatches:
        """Returns the data of one dispatch; waits for it if need be.

        Raises:
          UserError: a file of the data set cannot be read.
        """
        if not self._ready or self._ready[0][:2] != (step, count):
            self._restart(step, count)
        _, _, future = self._ready.popleft()
        batches = future.result()
        self._fill()
        if not self._ready:
            self.close()
        return batches

    def abstract(self, count: int) -> StreamedBatches:
        """Returns the shapes of the data of a dispatch of ``count`` steps."""
        records = {
            name: jax.ShapeDtypeStruct((count, self.source.size, *column.shape), column.dtype, sharding=self._sharding)
            for name, column in self.source.columns.items()
        }
        return StreamedBatches(records=PixelRecords(**{"valid": None, "depth": None, **records}), **self._shared)

    def close(self) -> None:
        """Lets the worker go; a later call starts again."""
        if self._worker is not None:
            self._worker.shutdown(wait=False, cancel_futures=True)
        self._worker = None
        self._ready.clear()

    def _restart(self, step: int, count: int) -> None:
        self.close()
        self._error = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="stream")
        self._plan = dispatches(step, count, self._total, self._per_dispatch)
        self._batches = self._iterate(step, count)
        self._fill()

    def _fill(self) -> None:
        while self._worker is not None and len(self._ready) < AHEAD:
            planned = next(self._plan, None)
            if planned is None:
                return
            self._ready.append((*planned, self._worker.submit(self._to_device, self._batches)))

    def _to_device(self, batches: Iterator[tuple[np.ndarray, ...]]) -> StreamedBatches:
        columns = next(batches)
        if self._error is not None:
            raise self._error
        records = {name: self._global(column) for name, column in zip(self.source.columns, columns, strict=True)}
        return StreamedBatches(records=PixelRecords(**{"valid": None, "depth": None, **records}), **self._shared)

    def _global(self, local: np.ndarray) -> jax.Array:
        """Puts [K, lanes of this host, ...] on its devices, as a part of [K, N, ...]."""

        def part(index: tuple[slice, ...]) -> np.ndarray:
            first, last, _ = index[1].indices(self.source.size)
            begin = int(np.searchsorted(self.lanes, first))
            return local[:, begin : begin + last - first]

        return jax.make_array_from_callback((len(local), self.source.size, *local.shape[2:]), self._sharding, part)

    def _iterate(self, step: int, count: int) -> Iterator[tuple[np.ndarray, ...]]:
        return iter(pipeline(self, step, count, self._total, self._per_dispatch).as_numpy_iterator())

    def arrays(self, step: int) -> tuple[np.ndarray, ...]:
        """Returns the columns of this host's lanes of one batch."""
        try:
            records = self.source.batch(step, self.lanes)
        except Exception as error:
            # Raised where the batch is asked for: tensorflow would pass on its text only, amid its own.
            self._error = error
            return tuple(np.zeros((len(self.lanes), *c.shape), c.dtype) for c in self.source.columns.values())
        return tuple(getattr(records, name) for name in self.source.columns)


def pipeline(feed: StreamFeed, start: int, first: int, stop: int, per_dispatch: int) -> Any:
    """Returns a tf.data.Dataset of dispatches: tuples of [K, lanes, ...], K = ``first`` and then ``per_dispatch``."""
    tf = tensorflow()
    columns = list(feed.source.columns.values())

    def make(step):
        types = [tf.dtypes.as_dtype(column.dtype) for column in columns]
        values = tf.numpy_function(lambda number: feed.arrays(int(number)), [step], types, stateful=False)
        for value, column in zip(values, columns, strict=True):
            value.set_shape((len(feed.lanes), *column.shape))
        return tuple(values)

    def part(begin: int, end: int, count: int) -> Any:
        steps = tf.data.Dataset.range(begin, end)
        return steps.map(make, num_parallel_calls=feed.threads, deterministic=True).batch(count)

    dataset = part(start, min(start + first, stop), first)
    if start + first < stop:
        dataset = dataset.concatenate(part(start + first, stop, per_dispatch))
    options = tf.data.Options()
    options.threading.private_threadpool_size = feed.threads
    return dataset.prefetch(1).with_options(options)


def dispatches(step: int, count: int, total: int, per_dispatch: int) -> Iterator[tuple[int, int]]:
    """Yields (step, count) of the dispatch at ``step`` and of those after it, as the training loop cuts them."""
    while count > 0:
        yield step, count
        step += count
        count = min(per_dispatch - step % per_dispatch, total - step)


def local_lanes(sharding: NamedSharding, size: int) -> np.ndarray:
    """Returns the lanes of the global batch that this host's devices hold, sorted."""
    parts = sharding.addressable_devices_indices_map((1, size)).values()
    lanes = [np.arange(*index[1].indices(size)) for index in parts]
    return np.unique(np.concatenate(lanes))


def open_source(
    folder: Path,
    *,
    layout: str,
    batch: int,
    seed: int,
    memory_bytes: int,
    depth: bool = False,
    images_per_batch: int = 8,
    patch: int = 1,
    reuse: int = 8,
) -> RayBlocks | ViewBatches:
    """Opens a prepared data set for streaming; see ``data.orders`` for the options."""
    common = dict(batch=batch, seed=seed, memory_bytes=memory_bytes, depth=depth)
    if layout == "rays":
        return RayBlocks(folder, **common)
    return ViewBatches(folder, **common, images_per_batch=images_per_batch, patch=patch, reuse=reuse)
