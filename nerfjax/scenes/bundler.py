"""Reader of Bundler's ``bundle.out`` (v0.3), as written by Bundler, VisualSFM, COLMAP and others.

A camera is ``f k1 k2``, the rotation R and the translation t of x_camera = R x_world + t. Cameras have OpenGL axes (x
right, y up, looking along -z); with p = (X, Y) / -Z, pixels are f (1 + k1 |p|^2 + k2 |p|^4) p, with the origin in the
middle of the image and y up. The principal point so is the middle, (w/2, h/2) where pixel centres are at +0.5. The
file holds no sizes and no names: names come from a list (``list.txt`` or the like: one image a line, in the cameras'
order), or, without one, camera i is the i-th image in the order of names, which must then be as many as cameras.
A focal length of 0 marks a photo that was not registered. Points are read; their colours and tracks are not.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.base import shorten
from nerfjax.scenes.images import EXTENSIONS
from nerfjax.scenes.numbers_in_text import Tokens, read_text, starts_with
from nerfjax.scenes.photo_files import FileIndex
from nerfjax.scenes.registered_photos import Photo, Registration, lens_of, photo_reader, world_from_camera
from nerfjax.scenes.transforms_json import natural_key

_HEADER = re.compile(r"\s*#\s*Bundle file v(\S+)")
_CAMERA = 15  # numbers


def registration(path: Path, root: Path) -> Registration:
    """Parses a Bundler file; photos are looked for below ``root``."""
    text = read_text(path)
    header = _HEADER.match(text)
    if header is None:
        raise UserError("This is no Bundler file.", file=path, found=text[:40], expected="# Bundle file v0.3")
    if header[1] != "0.3":
        raise UserError("Unknown version of the Bundler format.", file=path, found=header[1], expected="0.3")
    words = Tokens(text[header.end() :].split(), path)
    count, points = words.count("number of cameras"), words.count("number of points")
    cameras = words.floats(count * _CAMERA, "cameras").reshape(count, _CAMERA)
    names, notes, order = _names(path, root, count)
    photos, unregistered = [], []
    for name, camera in zip(names, cameras, strict=True):
        if camera[0] == 0 and np.isfinite(camera).all():
            unregistered.append(name)
        else:
            photos.append(_photo(name, camera))
    return Registration(
        "bundler",
        path,
        root,
        photos,
        unregistered,
        points=_points(words, points),
        notes=notes,
        provenance={"version": header[1], "names_from": order},
    )


def _photo(name: str, camera: np.ndarray) -> Photo:
    focal, k1, k2 = camera[:3]
    pose = world_from_camera(camera[3:12].reshape(3, 3), camera[12:])
    return Photo(
        name,
        pose,
        lambda size: lens_of("opencv", (focal, focal), (0.5 * size[0], 0.5 * size[1]), k1=k1, k2=k2),
    )


def _points(words: Tokens, count: int) -> np.ndarray | None:
    points = []
    for index in range(count):
        points.append(words.floats(6, f"point {index}")[:3])
        words.floats(4 * words.count(f"views of point {index}"), f"views of point {index}")
    return np.array(points) if points else None


def _names(path: Path, root: Path, count: int) -> tuple[list[str], list[str], str]:
    """Returns the cameras' names, notes, and where the names come from."""
    for file in _lists(path, root):
        names = [_listed_name(line) for line in read_text(file).splitlines() if line.strip()]
        if len(names) == count:
            return names, [], file.name
    files = FileIndex(root)
    if len(files.photos) != count:
        lengths = [f"{file.name} of {len(read_text(file).splitlines())} lines" for file in _lists(path, root)]
        raise UserError(
            "The cameras of a Bundler file have no names.",
            file=path,
            found=f"{count} cameras, {len(files.photos)} images, {shorten(lengths) or 'no list'}",
            expected=f"a list.txt beside it with {count} image names, one a line, in the cameras' order",
        )
    names = sorted((file.relative_to(root).as_posix() for file in files.photos), key=natural_key)
    note = f"There is no list of images beside {path.name}: camera i was taken to be the i-th image by name."
    return names, [note], "the order of the image files' names"


def _lists(path: Path, root: Path) -> list[Path]:
    """Text files near the bundle that list images, those named after it first."""
    folders = dict.fromkeys([path.parent, root])
    files = [file for folder in folders for file in sorted(folder.glob("*.txt")) if _is_list(file)]
    own = [file for file in files if file.name.startswith(path.stem)]
    return list(dict.fromkeys([*own, *files]))


def _is_list(file: Path) -> bool:
    lines = [line for line in starts_with(file).splitlines()[:3] if line.strip()]
    return bool(lines) and all(_listed_name(line).lower().endswith(EXTENSIONS) for line in lines)


def _listed_name(line: str) -> str:
    """The name in a line of a list, which may end with '0 FOCAL' (an initial focal length)."""
    line = line.strip()
    match = re.fullmatch(r"(.*\S)\s+0(\.0*)?(\s+[-+.\deE]+)?", line)
    return match[1] if match and match[1].lower().endswith(EXTENSIONS) else line


def _is_bundle(path: Path) -> bool:
    return path.suffix.lower() in (".out", ".txt") and _HEADER.match(starts_with(path, 64)) is not None


READER = photo_reader(
    registration,
    accept=_is_bundle,
    says="is a Bundler file",
    expected="a bundle.out that begins with '# Bundle file v0.3'",
    axes="opengl",
)
