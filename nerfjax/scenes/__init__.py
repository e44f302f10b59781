"""Captures: one reader per format, all returning one ``Scene``."""

from __future__ import annotations

from pathlib import Path

from nerfjax.errors import UserError, did_you_mean
from nerfjax.scenes import analytic, blender, transforms_json
from nerfjax.scenes.base import Frame, Scene, SceneReader
from nerfjax.scenes.images import ImageReference

__all__ = ["READERS", "Frame", "ImageReference", "Scene", "SceneReader", "read_scene"]

# In the order in which they are asked to recognise a source.
READERS: dict[str, SceneReader] = {
    "analytic": analytic.READER,
    "blender": blender.READER,
    "transforms_json": transforms_json.READER,
}


def read_scene(source: str, *, format: str = "auto", downscale: float | int = 1, holdout: int = 8, **options) -> Scene:
    """Reads a capture of any known format.

    Args:
      source: a folder, a file, or ``analytic:NAME?views=60&size=128&test=8``.
      format: a name of ``READERS``, or "auto".
      downscale: factor by which images become smaller (area averaging).
      holdout: every holdout-th sorted frame is for testing where the capture names no splits; 0 = none.
      **options: further options of the reader.

    Raises:
      UserError: nothing there, an unknown format, or whatever is wrong inside the capture.
    """
    source = str(source)
    if format != "auto" and format not in READERS:
        fix = did_you_mean(format, ["auto", *READERS])
        raise UserError("Unknown scene format.", field="scene.format", found=format, fix=fix)
    if not source.startswith(analytic.PREFIX) and not Path(source).exists():
        raise UserError(
            "There is no such scene.",
            file=source,
            field="scene.source",
            expected=f"a folder, a file, or {analytic.PREFIX}NAME ({', '.join(analytic.SCENES)})",
        )
    if format == "auto":
        format = next((name for name, reader in READERS.items() if reader.sniff(source)), "")
    if not format:
        raise UserError(
            "The format of the capture is not recognised.",
            file=source,
            field="scene.source",
            expected="transforms.json or transforms_train.json inside",
            fix=f"give --config.scene.format, one of: {', '.join(READERS)}",
        )
    return READERS[format].read(source, downscale=downscale, holdout=holdout, **options)
