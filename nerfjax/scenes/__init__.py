"""Captures: one reader per format, all returning one ``Scene``."""

from __future__ import annotations

import inspect
from pathlib import Path

from nerfjax.errors import UserError, did_you_mean
from nerfjax.scenes import (
    analytic,
    blender,
    bundler,
    colmap,
    idr,
    llff,
    metashape,
    middlebury,
    nerfies,
    nsvf,
    nvm,
    openmvg,
    opensfm,
    photos,
    phototourism,
    polycam,
    prepared,
    realitycapture,
    record3d,
    scannet,
    transforms_json,
)
from nerfjax.scenes.base import Frame, Scene, SceneReader
from nerfjax.scenes.images import ImageReference
from nerfjax.scenes.json_frames import AXES

__all__ = ["READERS", "Frame", "ImageReference", "Scene", "SceneReader", "read_scene"]

# In the order in which they are asked to recognise a source.
READERS: dict[str, SceneReader] = {
    "analytic": analytic.READER,
    "prepared": prepared.READER,
    "blender": blender.READER,
    "transforms_json": transforms_json.READER,
    "llff": llff.READER,
    "nerfies": nerfies.READER,
    "record3d": record3d.READER,
    "polycam": polycam.READER,
    "phototourism": phototourism.READER,
    "idr": idr.READER,
    "nsvf": nsvf.READER,
    "scannet": scannet.READER,
    "colmap": colmap.READER,
    "metashape": metashape.READER,
    "realitycapture": realitycapture.READER,
    "openmvg": openmvg.READER,
    "opensfm": opensfm.READER,
    "nvm": nvm.READER,
    "bundler": bundler.READER,
    "middlebury": middlebury.READER,
    "photos": photos.READER,
}


def read_scene(
    source: str,
    *,
    format: str = "auto",
    downscale: float | int = 1,
    holdout: int = 8,
    convention: str = "auto",
    **options,
) -> Scene:
    """Reads a capture of any known format.

    Args:
      source: a folder, a file, or ``analytic:NAME?views=60&size=128&test=8``.
      format: a name of ``READERS``, or "auto".
      downscale: factor by which images become smaller (area averaging).
      holdout: every holdout-th sorted frame is for testing where the capture names no splits; 0 = none.
      convention: what the camera axes in the files mean, "opengl" or "opencv" (``--convention``); "auto" is what the
        format says.
      **options: further options of the reader.

    Raises:
      UserError: nothing there, an unknown format or option, or whatever is wrong inside the capture.
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
            expected="the files of a known format at the root: transforms.json, sparse/0, poses_bounds.npy, …",
            fix=f"give --config.scene.format, one of: {', '.join(READERS)}",
        )
    reader = READERS[format]
    if convention != "auto":
        if convention not in AXES:
            fix = did_you_mean(convention, ["auto", *AXES])
            raise UserError("Unknown axis convention.", field="scene.convention", found=convention, fix=fix)
        options["axes"] = convention
    known = inspect.signature(reader.read).parameters
    for name in options:
        if name not in known and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
            field = "scene.convention" if name == "axes" else name
            raise UserError("The format has no such option.", field=field, found=format, fix=did_you_mean(name, known))
    return reader.read(source, downscale=downscale, holdout=holdout, **options)
