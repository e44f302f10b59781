"""Reader of RealityCapture's (RealityScan's) "Internal/External camera parameters" CSV.

A header line ``#name,x,y,alt,heading,pitch,roll,f,px,py,k1,k2,k3,k4,t1,t2`` (in any order; px … t2 may lack) and a
line a photo. x (east), y (north), alt (up) is the camera's position. With heading h, pitch p and roll r in degrees,

  camera-to-world rotation = Rz(-h) Rx(p) Ry(r),   OpenGL axes

so that (0, 0, 0) looks straight down with the image's upper side to the north. Focal lengths are 35 mm equivalents, of
the longer side: f max(w, h) / 36 pixels. px and py are the principal point from the middle of the image in units of
max(w, h). k1 … k4 and t1, t2 are Brown's radial and tangential terms, in OpenCV's order.

The software exports other tables of cameras, without lenses or with other angles; they are recognised and refused with
the name of the export that is needed.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.base import shorten
from nerfjax.scenes.images import EXTENSIONS
from nerfjax.scenes.numbers_in_text import numbers, read_text, starts_with
from nerfjax.scenes.registered_photos import Lens, Photo, Registration, lens_of, photo_reader

REQUIRED = ("name", "x", "y", "alt", "heading", "pitch", "roll", "f")
OPTIONAL = ("px", "py", "k1", "k2", "k3", "k4", "t1", "t2")
COEFFICIENTS = {"k1": "k1", "k2": "k2", "k3": "k3", "k4": "k4", "p1": "t1", "p2": "t2"}
EXPORT = "Alignment > Export > Registration > Internal/External camera parameters"
FULL_FRAME = 36.0  # mm


def registration(path: Path, root: Path) -> Registration:
    """Parses a RealityCapture CSV; photos are looked for below ``root``."""
    lines = [line for line in read_text(path).splitlines() if line.strip()]
    while lines and lines[0].lower().startswith("#cameras"):
        lines.pop(0)
    header = _header(lines[0]) if lines else []
    lacking = [column for column in REQUIRED if column not in header]
    if lacking:
        raise UserError(
            "This table of cameras lacks what is needed.",
            file=path,
            field=f"header: {', '.join(lacking)}",
            found=lines[0][:120] if lines else "an empty file",
            expected="#" + ",".join((*REQUIRED, *OPTIONAL)),
            fix=f"in RealityCapture: {EXPORT}",
        )
    photos = []
    for number, row in enumerate(csv.reader(io.StringIO("\n".join(lines[1:])), delimiter=_delimiter(lines[0])), 2):
        # A trailing delimiter is no column.
        row = [word.strip() for word in row]
        if len(row) < len(header):
            raise UserError(
                "A line has fewer columns than the header.",
                file=path,
                field=f"line {number}",
                found=len(row),
                expected=len(header),
            )
        photos.append(_photo(dict(zip(header, row, strict=False)), path, number))
    columns = [column for column in (*REQUIRED, *OPTIONAL) if column in header]
    notes = []
    absent = [column for column in OPTIONAL if column not in header]
    if absent:
        notes.append(f"The table has no {', '.join(absent)}: they are taken as 0.")
    unknown = [column for column in header if column and column not in columns]
    if unknown:
        notes.append(f"Columns that are not known have no effect: {shorten(unknown)}.")
    return Registration("realitycapture", path, root, photos, notes=notes, provenance={"columns": columns})


def rotation_from_angles(heading: float, pitch: float, roll: float) -> np.ndarray:
    """Returns the camera-to-world rotation [3, 3], OpenGL axes, of angles in degrees."""
    (sh, sp, sr), (ch, cp, cr) = (f(np.radians([-heading, pitch, roll])) for f in (np.sin, np.cos))
    about_z = np.array([[ch, -sh, 0], [sh, ch, 0], [0, 0, 1]])
    about_x = np.array([[1, 0, 0], [0, cp, -sp], [0, sp, cp]])
    about_y = np.array([[cr, 0, sr], [0, 1, 0], [-sr, 0, cr]])
    return about_z @ about_x @ about_y


def _photo(row: dict[str, str], path: Path, number: int) -> Photo:
    name = row.pop("name")
    if not name:
        raise UserError("A camera has no name.", file=path, field=f"line {number}")
    value = {
        column: float(numbers([word], 1, path=path, field=f"line {number}, {column}")[0])
        for column, word in row.items()
        if column in REQUIRED or column in OPTIONAL
    }
    if value["f"] <= 0:
        raise UserError("A focal length is not positive.", file=path, field=f"line {number}, f", found=value["f"])
    pose = np.eye(4)
    pose[:3, :3] = rotation_from_angles(value["heading"], value["pitch"], value["roll"])
    pose[:3, 3] = value["x"], value["y"], value["alt"]

    def lens(size: tuple[int, int]) -> Lens:
        unit = max(size)
        focal = value["f"] * unit / FULL_FRAME
        center = [0.5 * side + unit * value.get(key, 0.0) for side, key in zip(size, ("px", "py"), strict=True)]
        terms = {ours: value.get(theirs, 0.0) for ours, theirs in COEFFICIENTS.items()}
        return lens_of("opencv", (focal, focal), center, **terms)

    return Photo(name, pose, lens)


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def _header(line: str) -> list[str]:
    return [word.strip().lstrip("#").strip().strip('"').lower() for word in line.split(_delimiter(line))]


def _is_table(path: Path) -> bool:
    """Says whether a CSV is one of RealityCapture's tables of cameras, whole or not."""
    if path.suffix.lower() not in (".csv", ".txt"):
        return False
    lines = [line for line in starts_with(path).splitlines() if line.strip()]
    if not lines:
        return False
    first = lines[0].strip().lower()
    if first.startswith(("#cameras", "#name")):
        return True
    if path.suffix.lower() != ".csv":
        return False
    header = _header(first)
    # A table without its header: an image and its coordinates.
    return {"name", "x", "y"} <= set(header) or (len(header) >= 4 and header[0].endswith(EXTENSIONS))


READER = photo_reader(
    registration,
    accept=_is_table,
    says="is a RealityCapture table of cameras",
    expected=f"the CSV of {EXPORT}",
    axes="opengl",
)
