"""Where the photos are that photogrammetry software names, and the file in which it names them.

The software knows a photo by a label (with or without extension) or by a path on the machine where it ran. A file is
found by the longest end of that path that agrees, each end first with its extension and then without, without regard
to case. Folders of masks, depths and thumbnails, which repeat the photos' names, are passed over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from nerfjax.errors import UserError
from nerfjax.scenes.base import shorten
from nerfjax.scenes.image_files import ImageFiles, normal_path
from nerfjax.scenes.images import EXTENSIONS

# Folders that hold something else under the photos' names.
SIDE_FOLDERS = {"mask", "masks", "depth", "depths", "depth_maps", "normal", "normals", "thumbnails", "undistorted"}


def find_descriptor(source: str, accept: Callable[[Path], bool], *, depth: int = 2) -> list[Path]:
    """Returns the files that ``accept`` among those at or below ``source``, of the shallowest level that has any.

    Args:
      source: a file, or a folder that is searched ``depth`` levels deep.
      accept: whether a file is one.
      depth: number of levels; 1 is the folder itself.
    """
    path = Path(source)
    if path.is_file():
        return [path] if accept(path) else []
    level = [path] if path.is_dir() else []
    for _ in range(depth):
        entries = [entry for folder in level for entry in _visible(folder)]
        found = [entry for entry in entries if entry.is_file() and accept(entry)]
        if found:
            return found
        level = [entry for entry in entries if entry.is_dir()]
    return []


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError:
        return []


def only_descriptor(source: str, accept: Callable[[Path], bool], expected: str) -> tuple[Path, Path]:
    """Returns the one file that describes the capture, and the folder below which its photos are.

    Raises:
      UserError: there is none, or there are several.
    """
    found = find_descriptor(source, accept)
    if len(found) != 1:
        problem = "Several files describe cameras." if found else "There is no file that describes cameras."
        names = shorten([path.name for path in found])
        fix = "give one of the files instead of the folder" if found else None
        raise UserError(problem, file=source, found=names or "none", expected=expected, fix=fix)
    given = Path(source)
    root = given if given.is_dir() else found[0].parent
    # The model may lie in a folder of its own, beside the photos or beside their folder.
    return found[0], root if ImageFiles(root).listing or not root.resolve().name else root.resolve().parent


class Fit(NamedTuple):
    """A file that fits a name, and the number of the parts of its path that agree."""

    file: Path
    parts: int


class FileIndex:
    """Image files below a folder, found by the names that photogrammetry software gives them."""

    def __init__(self, root: Path):
        self.root = root
        self.paths = sorted(path for paths in ImageFiles(root).listing.values() for path in paths)
        self.photos = [path for path in self.paths if not _in_side_folder(path.relative_to(root))] or self.paths
        self._by_end: dict[tuple[str, ...], list[Path]] = defaultdict(list)
        for path in self.photos:
            parts = tuple(part.lower() for part in path.relative_to(root).parts)
            bare = (*parts[:-1], _without_extension(parts[-1]))
            for first in range(len(parts)):
                self._by_end[parts[first:]].append(path)
                self._by_end[("", *bare[first:])].append(path)  # "" marks names without extension

    def find(self, name: str) -> Fit | None:
        """Returns the file that agrees with the longest end of a photo's path, or None.

        Raises:
          UserError: several files fit equally well.
        """
        parts = tuple(part.lower() for part in Path(normal_path(name)).parts if part not in ("..", ".", "/"))
        for first in range(len(parts)):
            end = parts[first:]
            bare = ("", *end[:-1], _without_extension(end[-1]))
            for key in (end, bare, ("", *end)):
                fits = self._by_end.get(key, ())
                if len(fits) > 1:
                    fits = _closest(fits, name, self.root)
                if len(fits) == 1:
                    return Fit(fits[0], len(end))
                if fits:
                    raise UserError(
                        "Several image files fit one camera.",
                        file=self.root,
                        found=shorten([path.relative_to(self.root).as_posix() for path in fits], 3),
                        expected=f"one file named {name}",
                        fix="move the other files away",
                    )
        return None

    def find_any(self, name: str) -> Fit | None:
        """As ``find``, but None where several files fit."""
        try:
            return self.find(name)
        except UserError:
            return None


def _closest(paths: Iterable[Path], name: str, root: Path) -> list[Path]:
    """Of files that share a name, those spelt exactly so, else those in the main folder of images."""
    paths = list(dict.fromkeys(paths))
    exact = [path for path in paths if path.relative_to(root).as_posix().endswith(normal_path(name))]
    if len(exact) == 1:
        return exact
    main = [path for path in paths if path.relative_to(root).parts[:-1] in ((), ("images",))]
    return main if len(main) == 1 else paths


def _in_side_folder(relative: Path) -> bool:
    return any(part.lower() in SIDE_FOLDERS for part in relative.parts[:-1])


def _without_extension(name: str) -> str:
    stem, dot, extension = name.rpartition(".")
    return stem if dot and f".{extension}" in EXTENSIONS else name
