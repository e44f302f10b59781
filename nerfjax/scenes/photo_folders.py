"""The folder below which a reconstruction's images are, and folders of smaller copies (``images_4``) beside it.

Names of a reconstruction are relative paths. The folder is the one that has most of them; among equals, the first in
the order of ``_USUAL``. A folder ``images_N`` serves a downscale of N only where it holds every wanted image at the
size that N makes: such folders outlive the images that they were made from.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from nerfjax.errors import UserError
from nerfjax.scenes.base import shorten
from nerfjax.scenes.image_files import ImageFiles
from nerfjax.scenes.images import EXTENSIONS, open_image
from nerfjax.scenes.photo_files import SIDE_FOLDERS, FileIndex

_USUAL = ("images", "image", "input", "rgb", "imgs", "photos", "frames", "", "images_2", "images_4", "images_8")
_DEPTH = 3
_SAMPLE = 200  # names that decide on the folder


def find_photos(root: Path, names: Sequence[str], *, file: Path, deep: bool = True) -> tuple[Path, dict[str, Path]]:
    """Finds the files of named images.

    Args:
      root: the folder to look in.
      names: relative paths with forward slashes.
      file: what names them, for messages.
      deep: whether any folder below may hold them, or the usual ones only.

    Returns:
      (folder below which the images are, file of each name that has one).

    Raises:
      UserError: none of the names has a file.
    """
    folders = list(dict.fromkeys(_folders(root, deep)))
    sample = list(names) if len(names) <= _SAMPLE else [names[i * len(names) // _SAMPLE] for i in range(_SAMPLE)]
    best = max(folders, key=lambda folder: sum((folder / name).is_file() for name in sample))
    found = {name: best / name for name in names if (best / name).is_file()}
    missing = [name for name in names if name not in found]
    if missing and found:  # another case or another suffix, in the same place only
        files = ImageFiles(best)
        owned = set(found.values())
        found |= {name: path for name in missing if (path := files.exact(name)) is not None and path not in owned}
    if not found and deep:
        best, found = root, _by_end(root, names)
    if not found:
        here = [p.relative_to(root).as_posix() for p in FileIndex(root).photos] if deep else []
        raise UserError(
            "None of the images exists.",
            file=file,
            field="image names",
            found=f"{len(names)} names such as {shorten(names, 2)}",
            expected=f"{len(here)} files such as {shorten(here, 2)}" if here else f"image files in {root}",
            fix="put the images that the cameras were computed from beside the model, with the same names",
        )
    return best, {name: found[name] for name in names if name in found}


def _by_end(root: Path, names: Sequence[str]) -> dict[str, Path]:
    """Returns files that agree with the names' ends: other machines' folders, other cases and suffixes."""
    files = FileIndex(root)
    fits = {name: files.find_any(name) for name in names}
    claims = Counter(fit.file for fit in fits.values() if fit is not None)
    # A file that several names claim belongs to none of them.
    return {name: fit.file for name, fit in fits.items() if fit is not None and claims[fit.file] == 1}


def _folders(root: Path, deep: bool) -> list[Path]:
    """Returns visible folders at and below ``root``, the usual ones first, the shallow before the deep."""
    level, below = [root], []
    for _ in range(_DEPTH if deep else 0):
        level = [
            entry for folder in level for entry in sorted(folder.iterdir())
            if entry.is_dir() and not entry.name.startswith(".") and entry.name.lower() not in SIDE_FOLDERS
        ]  # fmt: skip
        below += level
    usual = [root / name for name in _USUAL if (root / name).is_dir()]
    # Folders of smaller copies come last: they repeat the names of the full images.
    return usual + sorted(below, key=lambda folder: _factor_of(folder) is not None)


def main_folder(root: Path) -> Path:
    """Returns the usual folder that holds images: images/ and the like, else smaller copies, else the root itself."""
    usual = [root / name for name in _USUAL if name] + sorted(root.glob("images_*"))
    return next((folder for folder in usual if folder.is_dir() and FileIndex(folder).photos), root)


def extra_photos(folder: Path, used: Iterable[Path]) -> list[str]:
    """Returns the names of images below a folder that are not used."""
    used = set(used)
    return [path.relative_to(folder).as_posix() for path in FileIndex(folder).photos if path not in used]


def _factor_of(folder: Path) -> int | None:
    """Returns N of a folder named ``images_N``, or None."""
    match = re.fullmatch(r"images?_(\d+)", folder.name)
    return int(match[1]) if match and int(match[1]) > 1 else None


def reduced_photos(
    folder: Path, files: dict[str, Path], downscale: float | int
) -> tuple[dict[str, Path], float | int, list[str]]:
    """Takes ready-made smaller copies (``images_N`` beside ``images``) where they fit.

    Args:
      folder: of the images.
      files: of each name, in ``folder``.
      downscale: factor wanted.

    Returns:
      (files to read; the factor that remains; notes).
    """
    already = _factor_of(folder)
    if already is not None:  # there is nothing but the smaller copies
        note = f"Only {folder.name} is there: images are {already} times smaller than the cameras to begin with."
        return files, max(1, downscale / already), [note]
    factor = int(downscale) if downscale == int(downscale) else 0
    small = folder.with_name(f"{folder.name}_{factor}")
    if factor < 2 or not small.is_dir():
        return files, downscale, []
    copies = {name: _copy_of(small, folder, path) for name, path in files.items()}
    absent = [name for name, path in copies.items() if path is None]
    if absent:
        note = (
            f"{small.name} lacks {len(absent)} of {len(files)} images ({shorten(absent, 3)}): "
            f"it is out of date and not used; {folder.name} is made smaller instead."
        )
        return files, downscale, [note]
    for name, path in copies.items():
        full, size = open_image(files[name]).size, open_image(path).size
        if any(abs(a - b / factor) > 1 for a, b in zip(size, full, strict=True)):
            note = (
                f"{small.name} is not used, {folder.name} is made smaller instead: {name} has "
                f"{size[0]}x{size[1]} there, which is not 1/{factor} of {full[0]}x{full[1]}."
            )
            return files, downscale, [note]
    return copies, 1, [f"The images are those of {small.name}."]


def _copy_of(small: Path, folder: Path, path: Path) -> Path | None:
    relative = path.relative_to(folder)
    stem = small / relative.with_suffix("")
    candidates = [small / relative, *(stem.with_name(stem.name + e) for e in EXTENSIONS)]
    return next((candidate for candidate in candidates if candidate.is_file()), None)
