"""Records of a TensorFlow Datasets data set on disk, read one at a time and without tensorflow.

A split is a row of array_record files (shards); a record is a serialized tf.Example. Readers are opened when they are
needed, no more than ``OPEN_FILES`` at once, and read one record without reading ahead, so that memory stays flat
whatever the size of the data set.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nerfjax.errors import UserError

OPEN_FILES = 64
_OPTIONS = "readahead_buffer_size:0,max_parallelism:1"


class Records:
    """The records of one split, by number; safe to share between threads.

    Args:
      shards: (file, number of records) of each shard, in order.
    """

    def __init__(self, shards: Sequence[tuple[Path, int]]):
        self._files = [Path(file) for file, _ in shards]
        self._ends = np.cumsum([count for _, count in shards], dtype=np.int64)
        self._readers: OrderedDict[int, Any] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> bytes:
        """Returns a serialized record.

        Raises:
          UserError: the file is missing or damaged.
        """
        if not 0 <= index < len(self):
            raise IndexError(index)
        shard = int(np.searchsorted(self._ends, index, side="right"))
        first = int(self._ends[shard - 1]) if shard else 0
        with self._lock:
            reader = self._readers.pop(shard, None) or open_reader(self._files[shard])
            self._readers[shard] = reader
            if len(self._readers) > OPEN_FILES:
                self._readers.popitem(last=False)[1].close()
            try:
                (record,) = reader.read([int(index) - first])
            except (RuntimeError, ValueError, IndexError) as error:
                raise damaged(self._files[shard], error) from error
        return record


def array_record_module() -> Any:
    """Returns the reader's and writer's module.

    Raises:
      UserError: it is not installed.
    """
    try:
        from array_record.python import array_record_module as module
    except ImportError as error:
        raise UserError(
            "Prepared data sets need a package that is not installed.", found=str(error), fix="pip install array_record"
        ) from error
    return module


def open_reader(file: Path) -> Any:
    """Opens one shard.

    Raises:
      UserError: the file is missing or damaged.
    """
    try:
        file.stat()  # a missing file opens, and then has no records
        reader = array_record_module().ArrayRecordReader(str(file), _OPTIONS)
        if not reader.ok():
            reader.read([0])  # says what is wrong
        return reader
    except (OSError, RuntimeError, ValueError) as error:
        raise damaged(file, error) from error


def parse_record(record: bytes) -> dict[str, Any]:
    """Returns {feature: bytes, or a NumPy array of numbers} of a serialized tf.Example."""
    from tensorflow_datasets.proto import tf_example_pb2  # needs no tensorflow

    values = {}
    for name, feature in tf_example_pb2.Example.FromString(record).features.feature.items():
        kind = feature.WhichOneof("kind")
        if kind == "bytes_list":
            values[name] = feature.bytes_list.value[0]
        else:
            values[name] = np.asarray(getattr(feature, kind).value if kind else ())
    return values


def tensor_of(values: dict[str, Any], name: str, dtype) -> np.ndarray:
    """Returns a tensor of two unknown dimensions or more, which is stored zlib-compressed beside its shape."""
    shape = tuple(int(side) for side in values[f"{name}/shape"])
    return np.frombuffer(zlib.decompress(values[f"{name}/value"]), dtype).reshape(shape)


def damaged(file: Path, error: Exception) -> UserError:
    """Returns the error of a shard that cannot be read."""
    return UserError(
        "A file of a prepared data set cannot be read.",
        file=file,
        found=f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}",
        fix="delete the folder and run nerfjax prepare again",
    )
