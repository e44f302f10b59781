"""The SHA-256 list of a checkpoint's files: Orbax restores bit-flipped files silently, so they are checked first."""

from __future__ import annotations

import hashlib

from etils import epath

HASH_LIST = "SHA256SUMS"
_CHUNK = 1 << 20


def write_hash_list(folder: epath.Path) -> None:
    """Lists the SHA-256 of every file of a committed checkpoint, in the format of ``sha256sum``."""
    lines = [f"{_sha256(folder / name)}  {name}\n" for name in _files(folder)]
    partial = folder / f".{HASH_LIST}.partial"
    partial.write_text("".join(lines))
    partial.replace(folder / HASH_LIST)


def checkpoint_fault(folder: epath.Path) -> str | None:
    """Returns what is wrong with a checkpoint's files, or None where all match the list of hashes."""
    try:
        if not (folder / HASH_LIST).exists():
            return f"it has no {HASH_LIST} (the run was killed while it was written)"
        rows = [line.split("  ", 1) for line in (folder / HASH_LIST).read_text().splitlines()]
        if not rows or any(len(row) != 2 for row in rows):
            return f"its {HASH_LIST} is damaged"
        listed, present = {name: digest for digest, name in rows}, _files(folder)
        for name in listed.keys() - set(present):
            return f"{name} is missing"
        for name in present:
            if name not in listed:
                return f"{name} is not in {HASH_LIST}"
            if _sha256(folder / name) != listed[name]:
                return f"{name} differs from its SHA-256"
    except (OSError, UnicodeDecodeError) as error:
        return f"it cannot be read ({error})"
    return None


def _files(folder: epath.Path, prefix: str = "") -> list[str]:
    names = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            names += _files(path, f"{prefix}{path.name}/")
        elif path.name != HASH_LIST and not path.name.startswith("."):
            names.append(prefix + path.name)
    return names


def _sha256(path: epath.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
