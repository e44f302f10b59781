"""Splits that files beside a reconstruction list by the names of the images.

  train_list.txt, val_list.txt, test_list.txt   one name a line, beside the images
  train.txt, val.txt, test.txt                  the same, there or in the model's folder (3-D Gaussian splatting)
  NAME.tsv                                      a table with the columns filename and split (Phototourism of NeRF-W)

A name stands for the image with that path, base name, or name without extension. Lists of something else (fewer than
half of their lines name images) are passed over. Where there is a list for training, images in no list are left out;
else they are for training.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from nerfjax.errors import UserError
from nerfjax.scenes.base import SPLITS, shorten
from nerfjax.scenes.image_files import normal_path
from nerfjax.scenes.numbers_in_text import read_text

_SPELT = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


class ListedSplits(NamedTuple):
    """The ``split`` of each image by its name; images that are left out are absent. ``notes`` say where it is from."""

    split: dict[str, str]
    notes: list[str]


def listed_splits(folders: Sequence[Path], names: Sequence[str]) -> ListedSplits | None:
    """Returns the splits that files in the folders list, or None where none does.

    Args:
      folders: to look in; the first one with lists counts.
      names: relative paths of the images.

    Raises:
      UserError: an image is in two splits, or no image is left for training.
    """
    known = _by_spelling(names)
    for folder in dict.fromkeys(folders):
        for lists in _candidates(folder):
            found = {file: [known.get(entry) for entry in entries] for file, _, entries in lists}
            lists = [entry for entry in lists if _mostly(found[entry[0]])]
            if not lists:
                continue
            split: dict[str, str] = {}
            for file, kind, entries in lists:
                for name in filter(None, map(known.get, entries)):
                    if split.setdefault(name, kind) != kind:
                        raise UserError("A frame is in two splits.", file=file, found=name)
            if "train" not in {kind for _, kind, _ in lists}:
                split = {name: split.get(name, "train") for name in names}
            if "train" not in split.values():
                raise UserError("The lists leave nothing to train on.", file=folder, found=f"{len(split)} images",
                                code="splits-bad")  # fmt: skip
            files = shorten(sorted({file.name for file, _, _ in lists}))
            left = [name for name in names if name not in split]
            notes = [f"The splits are those of {files}."]
            notes += [f"{len(left)} images are not listed in {files}, left out: {shorten(left)}."] if left else []
            return ListedSplits(split, notes)
    return None


def _mostly(found: list[str | None]) -> bool:
    return bool(found) and sum(name is not None for name in found) >= 0.5 * len(found)


def _by_spelling(names: Sequence[str]) -> dict[str, str]:
    """Returns the images by every spelling that is theirs alone."""
    spelt: dict[str, set[str]] = {}
    for name in names:
        path = PurePosixPath(name)
        for text in (name, path.with_suffix("").as_posix(), path.name, path.stem):
            spelt.setdefault(text, set()).add(name)
    known = {text: next(iter(owners)) for text, owners in spelt.items() if len(owners) == 1}
    return known | {name: name for name in names}


def _candidates(folder: Path) -> list[list[tuple[Path, str, list[str]]]]:
    """Returns groups of (file, split, names), each group a whole statement of the splits."""
    groups = []
    for pattern in ("{}_list.txt", "{}.txt"):
        files = [(folder / pattern.format(split), split) for split in SPLITS]
        groups.append([(file, split, _lines(file)) for file, split in files if file.is_file()])
    for file in sorted(folder.glob("*.tsv")):
        groups.append(_table(file))
    return [group for group in groups if group]


def _lines(file: Path) -> list[str]:
    return [normal_path(line.strip()) for line in read_text(file).splitlines() if line.strip()]


def _table(file: Path) -> list[tuple[Path, str, list[str]]]:
    rows = [row for row in csv.DictReader(read_text(file).splitlines(), delimiter="\t") if row.get("filename")]
    members: dict[str, list[str]] = {}
    for row in rows:
        split = _SPELT.get((row.get("split") or "").strip().lower())
        if split is not None and (row.get("id", "0") or "").strip().lower() not in ("", "nan"):  # nan: not used
            members.setdefault(split, []).append(normal_path(row["filename"].strip()))
    return [(file, split, entries) for split, entries in members.items()]
