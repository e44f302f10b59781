"""Spoils one thing in a capture: a field, a line, a file, a range of bytes, an image.

``corrupt(folder, choose)`` does it; ``choose(n)`` gives the numbers below n that decide what and where, so that
hypothesis or a seeded generator can drive it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from nerfjax.scenes.images import EXTENSIONS

Choose = Callable[[int], int]
GARBAGE = "\u2603\u202e\ufffd𝔘 ناقص\u0000"
HUGE, TINY = "1e300", "1e-300"


class Corruption(NamedTuple):
    """What was done: to which file, where in it, how."""

    file: str
    where: str
    how: str

    def __str__(self) -> str:
        return f"{self.file} [{self.where}]: {self.how}"


def corrupt(folder: Path, choose: Choose) -> Corruption:
    """Spoils one thing in the capture in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    images = [path for path in files if path.suffix.lower() in EXTENSIONS]
    others = [path for path in files if path not in images]
    group = others if others and choose(5) else images
    path = group[choose(len(group))]
    name = path.relative_to(folder).as_posix()
    if choose(6) == 0:
        return Corruption(name, "file", _spoil_file(path, choose))
    if group is images:
        return Corruption(name, "image", _spoil_image(path, choose))
    return Corruption(name, *_kind_of(path)(path, choose))


def _kind_of(path: Path) -> Callable[[Path, Choose], tuple[str, str]]:
    kinds = {".npy": _spoil_npy, ".npz": _spoil_npz, ".h5": _spoil_h5, ".bin": _spoil_bytes, ".ply": _spoil_bytes,
             ".json": _spoil_json, ".xml": _spoil_xml}  # fmt: skip
    return _spoil_json if path.name == "metadata" else kinds.get(path.suffix.lower(), _spoil_text)


def _spoil_file(path: Path, choose: Choose) -> str:
    data = path.read_bytes()
    how = ("deleted", "emptied", "cut short", "a folder", "garbage", "garbage in front", "nested")[choose(7)]
    if how in ("deleted", "a folder"):
        path.unlink()
        if how == "a folder":
            path.mkdir()
        return how
    cut = choose(max(1, len(data)))
    new = {
        "emptied": b"", "cut short": data[:cut], "garbage": GARBAGE.encode() * 3,
        "garbage in front": GARBAGE.encode() + data, "nested": b"[" * 100_000,
    }[how]  # fmt: skip
    path.write_bytes(new)
    return f"{how} at {cut} of {len(data)}" if how == "cut short" else how


def _spoil_image(path: Path, choose: Choose) -> str:
    with Image.open(path) as image:
        image.load()
        kind, picture = image.format, image.copy()
    how = ("another shape", "half the size", "turned", "grey", "one byte", "of another frame")[choose(6)]
    width, height = picture.size
    if how == "one byte":
        data = bytearray(path.read_bytes())
        place = choose(len(data))
        data[place] ^= 1 + choose(255)
        path.write_bytes(bytes(data))
        return f"byte {place} changed"
    if how == "of another frame":
        others = sorted(other for other in path.parent.iterdir() if other.suffix == path.suffix and other != path)
        if others:
            shutil.copyfile(others[choose(len(others))], path)
        return how
    changed = {
        "another shape": lambda: picture.resize((width, max(1, height // 2))),
        "half the size": lambda: picture.resize((width // 2, height // 2)),
        "turned": lambda: picture.transpose(Image.Transpose.ROTATE_90),
        "grey": lambda: picture.convert("L"),
    }[how]()
    changed.save(path, kind)
    return how


# Words that stand in for a number, by what they are.
_WORDS = {"not a number": "nan", "infinite": "inf", "huge": HUGE, "tiny": TINY, "a word": "x", "garbage": GARBAGE,
          "hexadecimal": "0x10", "other digits": "١٢"}  # fmt: skip


def _spoilt_word(word: str, choose: Choose) -> tuple[str, str]:
    hows = (*_WORDS, "negated", "emptied", "twice", "larger")
    how = hows[choose(len(hows))]
    if how == "negated":
        return how, word[1:] if word.startswith("-") else f"-{word}"
    if how == "larger":
        return how, f"{word}0" if "." not in word else f"1{word.lstrip('-')}"
    return how, {**_WORDS, "emptied": "", "twice": f"{word} {word}"}[how]


def _spoil_text(path: Path, choose: Choose) -> tuple[str, str]:
    lines = path.read_text(encoding="utf-8").split("\n")
    row = choose(max(1, len(lines) - 1))
    words = list(re.finditer(r"[^\s,;()]+", lines[row]))
    if not words or choose(4) == 0:
        how = ("dropped", "twice", "emptied", "swapped with the next", "cut")[choose(5)]
        after = lines[row + 1 : row + 2]
        lines[row : row + 2] = {
            "dropped": after, "twice": [lines[row], lines[row], *after], "emptied": ["", *after],
            "swapped with the next": [*after, lines[row]], "cut": [lines[row][: len(lines[row]) // 2], *after],
        }[how]  # fmt: skip
        where = f"line {row + 1}"
    else:
        k = choose(len(words))
        where, line = f"line {row + 1} word {k + 1}", lines[row]
        if k + 1 < len(words) and choose(6) == 0:
            one, two = words[k], words[k + 1]
            how = f"{one[0]} and {two[0]} swapped"
            lines[row] = line[: one.start()] + two[0] + line[one.end() : two.start()] + one[0] + line[two.end() :]
        else:
            how, word = _spoilt_word(words[k][0], choose)
            how = f"{words[k][0]} {how}"
            lines[row] = line[: words[k].start()] + word + line[words[k].end() :]
    path.write_text("\n".join(lines), encoding="utf-8")
    return where, how


def _nodes(value, path=()):
    """(path, container, key) of everything inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key), value, key
        yield from _nodes(inner, (*path, key))


def _spoil_json(path: Path, choose: Choose) -> tuple[str, str]:
    content = json.loads(path.read_text(encoding="utf-8"))
    nodes = list(_nodes(content))
    if choose(2):  # members of objects are few, numbers of matrices are many
        nodes = [node for node in nodes if isinstance(node[1], dict)]
    where, owner, key = nodes[choose(len(nodes))]
    value = owner[key]
    number = value if isinstance(value, int | float) else 1
    values = {
        "null": None, "not a number": float("nan"), "infinite": float("inf"), "huge": 1e300, "a huge integer": 10**400,
        "tiny": 1e-300, "negated": -number, "larger": 10 * number, "zero": 0, "a word": "x", "garbage": GARBAGE,
        "a surrogate": "\ud800", "no text": "", "a list": [], "a list of it": [value], "an object": {}, "true": True,
        "as text": str(value),
    }  # fmt: skip
    hows = (*values, "dropped", "dropped", "dropped", "swapped with the next", "twice", "with 5000 digits")
    how = hows[choose(len(hows))]
    if how in values:
        owner[key] = values[how]
    elif how == "dropped":
        del owner[key]
    elif how == "twice" and isinstance(owner, list):
        owner.insert(key, value)
    elif how == "swapped with the next":
        keys = list(owner) if isinstance(owner, dict) else list(range(len(owner)))
        other = keys[(keys.index(key) + 1) % len(keys)]
        owner[key], owner[other] = owner[other], owner[key]
    if how == "with 5000 digits":
        owner[key] = "@@"
    text = json.dumps(content).replace('"@@"', "9" * 5000)
    path.write_text(text, encoding="utf-8")
    return ".".join(map(str, where)), how if how != "twice" or isinstance(owner, list) else "nothing"


def _spoil_xml(path: Path, choose: Choose) -> tuple[str, str]:
    tree = ElementTree.parse(path)
    parents = [(parent, child) for parent in tree.iter() for child in parent]
    parent, element = parents[choose(len(parents))]
    where = element.tag + (f" {element.get('id')}" if element.get("id") else "")
    action = choose(4)
    words = (element.text or "").split()
    if action == 0 or (action > 1 and not words and not element.attrib):
        how = ("dropped", "twice", "emptied", "renamed")[choose(4)]
        if how == "dropped":
            parent.remove(element)
        elif how == "twice":
            parent.append(element)
        elif how == "emptied":
            element.clear()
        else:
            element.tag = "other"
    elif action == 1 and element.attrib or not words:
        if not element.attrib:
            return where, "nothing"
        key = sorted(element.attrib)[choose(len(element.attrib))]
        where = f"{where} {key}"
        if choose(4) == 0:
            how = "dropped"
            del element.attrib[key]
        else:
            how, word = _spoilt_word(element.attrib[key], choose)
            element.set(key, word.replace("\0", ""))
    else:
        k = choose(len(words))
        where = f"{where} word {k + 1}"
        how, word = _spoilt_word(words[k], choose)
        how, words[k] = f"{words[k]} {how}", word.replace("\0", "")
        element.text = " ".join(words)
    tree.write(path, encoding="utf-8")
    return where, how


def _spoilt_array(array: np.ndarray, choose: Choose) -> tuple[str, np.ndarray]:
    hows = ("not a number", "infinite", "huge", "negated", "zero", "swapped with the next", "a row dropped",
            "a row twice", "two rows swapped", "as text", "as objects", "complex", "transposed", "emptied", "flat",
            "a scalar", "as integers", "as bits")  # fmt: skip
    how = hows[choose(len(hows))]
    array = np.array(array)
    flat = array.ravel()  # a view
    k = choose(max(1, flat.size))
    values = {"not a number": np.nan, "infinite": np.inf, "huge": 1e300, "zero": 0.0}
    rows = len(array) if array.ndim else 0
    row = choose(max(1, rows))
    with np.errstate(over="ignore"):
        if how in values:
            flat[k] = values[how]
            how = f"number {k} {how}"
        elif how == "negated":
            flat[k] = -flat[k]
            how = f"number {k} negated"
        elif how == "swapped with the next" and flat.size > 1:
            other = (k + 1) % flat.size
            flat[[k, other]] = flat[[other, k]]
            how = f"number {k} swapped with the next"
        elif how == "two rows swapped" and rows > 1:
            array[[row, (row + 1) % rows]] = array[[(row + 1) % rows, row]]
        elif rows and how == "a row dropped":
            array = np.delete(array, row, axis=0)
        elif rows and how == "a row twice":
            array = np.insert(array, row, array[row], axis=0)
        else:
            changes = {
                "as text": lambda: array.astype(str), "as objects": lambda: array.astype(object),
                "complex": lambda: array.astype(np.complex128), "as integers": lambda: array.astype(np.int64),
                "as bits": lambda: array > 0, "transposed": lambda: array.T, "flat": array.ravel,
                "emptied": lambda: array[:0] if rows else array, "a scalar": lambda: np.array(1.0),
            }  # fmt: skip
            array = changes[how]() if how in changes else array
    return how, array


def _spoil_npy(path: Path, choose: Choose) -> tuple[str, str]:
    how, array = _spoilt_array(np.load(path), choose)
    np.save(path, array, allow_pickle=True)
    return "array", how


def _spoil_npz(path: Path, choose: Choose) -> tuple[str, str]:
    with np.load(path) as file:
        arrays = dict(file)
    key = sorted(arrays)[choose(len(arrays))]
    if choose(6) == 0:
        how = ("dropped", "renamed")[choose(2)]
        array = arrays.pop(key)
        if how == "renamed":
            arrays["other"] = array
    else:
        how, arrays[key] = _spoilt_array(arrays[key], choose)
    np.savez(path, **arrays)
    return key, how


def _spoil_h5(path: Path, choose: Choose) -> tuple[str, str]:
    import h5py

    with h5py.File(path, "r") as file:
        arrays = {key: file[key][()] for key in file}
    key = sorted(arrays)[choose(len(arrays))]
    if choose(6) == 0:
        del arrays[key]
        how = "dropped"
    else:
        how, array = _spoilt_array(arrays[key], choose)
        arrays[key] = array.astype("S") if array.dtype.kind in "UO" else array
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return key, how


def _spoil_bytes(path: Path, choose: Choose) -> tuple[str, str]:
    data = bytearray(path.read_bytes())
    place = choose(max(1, len(data) - 8))
    values = {
        "not a number": np.array(np.nan).tobytes(), "infinite": np.array(np.inf).tobytes(),
        "huge": np.array(1e300).tobytes(), "ones": b"\xff" * 8, "zeros": bytes(8), "letters": b"garbage!",
    }  # fmt: skip
    hows = (*values, "dropped", "inserted", "one bit")
    how = hows[choose(len(hows))]
    if how in values:
        data[place : place + 8] = values[how]
    elif how == "one bit":
        data[place] ^= 1 << choose(8)
    elif how == "dropped":
        del data[place : place + 8]
    else:
        data[place:place] = b"\x07" * 8
    path.write_bytes(bytes(data))
    return f"bytes from {place} of {len(data)}", how
