"""Writing a folder of record files so that it is there completely or not at all, and can be gone on with.

A data set grows in a hidden folder beside its place and is renamed when it is done. Each file in it is written under
another name and renamed as well; a note with its SHA-256 stands beside it until the end, so that the next attempt keeps
what is whole and writes the rest again. What is whole is decided by content, never by dates.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from nerfjax.errors import UserError
from nerfjax.scenes.records import array_record_module

KEY, NOTES, INFO = ".key", ".notes", "dataset_info.json"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Staging:
    """A folder under construction.

    Args:
      folder: where it grows.
      key: what it will hold; what another key left there is removed.
    """

    def __init__(self, folder: Path, key: str):
        self.folder, self.key = folder, key
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / KEY).is_file() or (folder / KEY).read_text() != key:
                self.clear()

    def clear(self) -> None:
        """Removes everything that was written."""
        for entry in self.folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        (self.folder / NOTES).mkdir()
        write_atomically(self.folder / KEY, self.key.encode())

    def file(self, name: str, split: str, records: Callable[[], Iterable[bytes]], options: str) -> dict[str, Any]:
        """Writes one file of records unless it is there.

        Args:
          name: of the file.
          split: that it belongs to.
          records: makes the serialized records; not called where the file is whole.
          options: of the array_record writer.

        Returns:
          {"split", "records", "bytes", "sha256"}.

        Raises:
          UserError: the disk is full, or refuses.
        """
        file, note = self.folder / name, self.folder / NOTES / f"{name}.json"
        with disk_errors(file):
            known = json.loads(note.read_text()) if note.is_file() else None
            if known is not None and file.is_file() and sha256_of(file) == known["sha256"]:
                return known
            partial = file.with_name(f"{name}.partial")
            writer, count = array_record_module().ArrayRecordWriter(str(partial), options), 0
            try:
                for record in records():
                    writer.write(record)
                    count += 1
            finally:
                writer.close()
            flush(partial)
            result = dict(split=split, records=count, bytes=partial.stat().st_size, sha256=sha256_of(partial))
            write_atomically(note, json.dumps(result).encode())
            os.replace(partial, file)
            return result

    def finish(self, place: Path) -> None:
        """Removes the notes and puts the folder in its place."""
        with disk_errors(place):
            shutil.rmtree(self.folder / NOTES, ignore_errors=True)
            (self.folder / KEY).unlink(missing_ok=True)
            for leftover in self.folder.glob("*.partial"):
                leftover.unlink()
            os.rename(self.folder, place)


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Holds a folder against other processes, which wait; without effect where the file system has no locks."""
    try:
        import fcntl
    except ImportError:  # not POSIX
        yield
        return
    while True:
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # finished, and renamed, by another process just now
            continue
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(descriptor).st_ino == folder.stat().st_ino:
                    yield
                    return
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def disk_errors(file: Path) -> Iterator[None]:
    """Turns what the disk refuses into an error that says what to do."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        reason = str(error).strip().split("; ")[0]
        full = "No space left" in reason or "quota" in reason.lower() or getattr(error, "errno", None) in DISK_FULL
        refused = isinstance(error, PermissionError) or "Permission denied" in reason or "Read-only" in reason
        if full:
            raise UserError(
                "The disk is full.", file=file, found=f"{_free(file) / 2**20:.0f} MB free",
                fix="make room, or choose another folder, and run the same command again: it goes on where it stopped",
            ) from error  # fmt: skip
        if refused or isinstance(error, OSError):
            raise UserError("The folder cannot be written.", file=file, found=reason) from error
        raise


def write_atomically(file: Path, content: bytes) -> None:
    """Writes a small file under another name, flushes and renames it."""
    partial = file.with_name(f"{file.name}.partial")
    with open(partial, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(partial, file)


def flush(file: Path) -> None:
    """Waits until a file's content is on the disk."""
    with open(file, "rb") as stream:
        os.fsync(stream.fileno())


def remove(folder: Path) -> None:
    """Removes a folder with all that is in it, if it is there."""
    with disk_errors(folder):
        if folder.exists():
            shutil.rmtree(folder)


def sha256_of(file: Path) -> str:
    """Returns the SHA-256 of a file's content."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _free(file: Path) -> int:
    while not file.exists():
        file = file.parent
    return shutil.disk_usage(file).free


def serialize(features: Any, example: dict[str, Any]) -> bytes:
    """Returns a record's bytes, the same in every process (the order of a protocol buffer's map is not by itself)."""
    from tensorflow_datasets.core.example_serializer import ExampleSerializer  # needs no tensorflow

    serializer = ExampleSerializer(features.get_serialized_info())
    return serializer.get_tf_example(features.encode_example(example)).SerializeToString(deterministic=True)


def dataset_info(kind: str, description: str, files: dict[str, dict[str, Any]]) -> bytes:
    """Returns the dataset_info.json of a TensorFlow Datasets data set, from its files in order."""
    splits: dict[str, list] = {}
    for name in sorted(files):
        splits.setdefault(files[name]["split"], []).append(files[name])
    document = {
        "name": kind,
        "version": "1.0.0",
        "description": description,
        "fileFormat": "array_record",
        "splits": [
            {
                "name": split,
                "shardLengths": [str(file["records"]) for file in members],
                "numBytes": str(sum(file["bytes"] for file in members)),
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
            }
            for split, members in splits.items()
        ],
    }
    return json.dumps(document, indent=2).encode()


def shard_name(kind: str, split: str, index: int, count: int) -> str:
    """Returns the name of a shard, as TensorFlow Datasets has it."""
    return f"{kind}-{split}.array_record-{index:05d}-of-{count:05d}"
