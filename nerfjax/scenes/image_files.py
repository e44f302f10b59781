"""Where the file behind a ``file_path`` is, on this machine.

Paths are tried as given relative to the JSON file's folder (backslashes are separators on every system), then with
the known extensions, then without regard to case. A path into a folder that does not exist here (another machine's)
is looked up by its base name, where that is unique and no other frame owns the file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import Path, PureWindowsPath

from nerfjax.errors import UserError
from nerfjax.scenes.images import EXTENSIONS, only_photos


class ImageFiles:
    """Finds images below one folder; ``notes`` collects what a user should know."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.notes: list[str] = []

    @cached_property
    def listing(self) -> dict[str, list[Path]]:
        """Visible image files below the folder, by lower-case relative path."""
        files = defaultdict(list)
        for path in only_photos(sorted(self._visible())):
            files[path.relative_to(self.folder).as_posix().lower()].append(path)
        return files

    def _visible(self) -> Iterator[Path]:
        for path in self.folder.rglob("*"):
            hidden = any(part.startswith(".") for part in path.relative_to(self.folder).parts)
            if not hidden and path.suffix.lower() in EXTENSIONS and path.is_file():
                yield path

    def exact(self, file_path: str) -> Path | None:
        """Returns the file that the path names, or None."""
        relative = normal_path(file_path)
        given = self.folder / relative
        if given.is_file():
            return given
        matches = [p for e in EXTENSIONS for p in (_append(given, e), _append(given, e.upper())) if p.is_file()]
        if not matches:
            # The disk may know the file by another case, or by another spelling of its extension.
            key = _append(Path(relative), "").as_posix().lower()
            stem = key.rsplit(".", 1)[0] if key.endswith(EXTENSIONS) else key
            for name in (key, *(stem + extension for extension in EXTENSIONS)):
                matches += self.listing.get(name, [])
            if len(set(matches)) != 1:
                return None
        elif len(matches) > 1:
            self.notes.append(f"{file_path} fits {', '.join(p.name for p in matches)}: took {matches[0].name}.")
        return matches[0]

    def elsewhere(self, file_path: str, taken: Collection[Path]) -> Path | None:
        """Returns the only file of that base name that no other frame owns, or None.

        Raises:
          UserError: several files have the base name.
        """
        relative = normal_path(file_path)
        if (self.folder / relative).parent.is_dir():
            return None
        base = Path(relative).name.lower()
        names = {base} if base.endswith(EXTENSIONS) else {base + extension for extension in EXTENSIONS}
        matches = [p for paths in self.listing.values() for p in paths if p.name.lower() in names and p not in taken]
        if len(matches) > 1:
            raise UserError(
                "An image is not where the file says, and several files have its name.",
                file=self.folder,
                field="file_path",
                found=f"{file_path}: {', '.join(p.relative_to(self.folder).as_posix() for p in matches[:3])}",
                fix="write the right relative path",
            )
        return matches[0] if matches else None


def normal_path(file_path: str) -> str:
    """Returns the path with forward slashes, without a leading './'."""
    return PureWindowsPath(file_path).as_posix() if "\\" in file_path else Path(file_path).as_posix()


def _append(path: Path, text: str) -> Path:
    return path.with_name(path.name + text) if path.name else path
