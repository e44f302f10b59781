"""One line about a capture: its format, images, cameras, bounds and findings, or why it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from nerfjax.errors import UserError
from nerfjax.scenes import READERS, read_scene
from nerfjax.scenes.doctor import examine, inspect_source


class Row(NamedTuple):
    """A capture as it is read.

    Attributes:
      name: of its folder.
      format: of the reader that recognises it, "" where none does.
      images: number of frames; 0 where the capture is refused.
      sizes: {(width, height): number of images}.
      models: camera models.
      near, far: scene units.
      bounded: whether the scene ends at ``far``.
      codes: of the doctor's findings, errors and warnings first.
      refusal: the error's first line, or "".
    """

    name: str
    format: str
    images: int = 0
    sizes: dict[tuple[int, int], int] = {}
    models: tuple[str, ...] = ()
    near: float = 0.0
    far: float = 0.0
    bounded: bool = False
    codes: tuple[str, ...] = ()
    refusal: str = ""


def recognised(source: Path) -> str:
    """The format that auto-detection finds, or ""."""
    return next((name for name, reader in READERS.items() if reader.sniff(str(source))), "")


def describe(source: Path, *, quick: bool = True) -> Row:
    """Reads and examines a capture."""
    format = recognised(source)
    try:
        scene = read_scene(str(source))
    except UserError as error:
        codes = () if quick else tuple(dict.fromkeys(f.code for f in inspect_source(str(source)).findings))
        return Row(source.name, format, codes=codes, refusal=str(error).splitlines()[0])
    sizes: dict[tuple[int, int], int] = {}
    for frame in scene.frames:
        sizes[frame.image.size] = sizes.get(frame.image.size, 0) + 1
    findings = examine(scene, quick=quick)
    return Row(
        source.name, format, len(scene.frames), sizes, scene.cameras.models, float(scene.geometry.near),
        float(scene.geometry.far), bool(scene.geometry.bounded), tuple(dict.fromkeys(f.code for f in findings)),
    )  # fmt: skip


def captures(data: Path) -> list[Path]:
    """All sets below the data folder, those without images last."""
    sets = sorted(path for path in data.iterdir() if path.is_dir() and path.name != "meta_only")
    bare = data / "meta_only"
    return sets + (sorted(path for path in bare.iterdir() if path.is_dir()) if bare.is_dir() else [])
