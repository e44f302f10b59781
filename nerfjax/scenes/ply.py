"""Positions of a PLY point cloud (ascii or binary)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nerfjax.errors import UserError

_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8",
}  # fmt: skip
_ORDER = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}


def read_ply_points(path: Path) -> np.ndarray:
    """Returns the vertex positions [P, 3] float64; points that are not finite are left out.

    Raises:
      UserError: not a PLY file with vertices x, y, z as its first element, or truncated.
    """

    def refuse(found) -> UserError:
        return UserError("The point cloud cannot be read.", file=path, found=found, expected="a PLY file with x, y, z")

    try:
        content = path.read_bytes()
    except OSError as error:
        raise refuse(error) from error
    head, mark, body = content.partition(b"end_header")
    body = body[body.find(b"\n") + 1 :]
    lines = [line.split() for line in head.decode("ascii", "replace").splitlines()]
    elements = [line for line in lines if line[:1] == ["element"]]
    form = next((line[1] for line in lines if line[:1] == ["format"] and len(line) > 1), None)
    if not mark or form not in _ORDER or not elements or len(elements[0]) != 3 or elements[0][1] != "vertex":
        raise refuse("no header with the vertices as its first element")
    begin = lines.index(elements[0]) + 1
    end = lines.index(elements[1]) if len(elements) > 1 else len(lines)
    fields = [(line[-1], line[1]) for line in lines[begin:end] if line[:1] == ["property"] and len(line) == 3]
    names = [name for name, _ in fields]
    if not {"x", "y", "z"} <= set(names) or len(set(names)) < len(names) or any(t not in _TYPES for _, t in fields):
        raise refuse(f"properties {fields}")
    try:
        count = int(elements[0][2])
        if form == "ascii":
            table = np.array(body.split(maxsplit=count * len(fields))[: count * len(fields)], np.float64)
            table = table.reshape(count, len(fields))
            points = table[:, [names.index(axis) for axis in "xyz"]]
        else:
            record = np.dtype([(name, _ORDER[form] + _TYPES[kind]) for name, kind in fields])
            table = np.frombuffer(body, record, count)
            points = np.stack([table[axis].astype(np.float64) for axis in "xyz"], axis=-1)
    except (ValueError, MemoryError, OverflowError) as error:
        raise refuse(error) from error
    return points[np.isfinite(points).all(axis=-1)]
