"""Captures: one reader per format, all returning one ``Scene``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
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
    unsupported,
)
from nerfjax.scenes.base import Frame, Scene, SceneReader
from nerfjax.scenes.images import ImageReference
from nerfjax.scenes.json_frames import AXES
from nerfjax.scenes.options import canonical, checked_options, parse_options

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
    options: str = "",
    say: Callable[[str], None] | None = None,
    **more,
) -> Scene:
    """Reads a capture of any known format.

    Args:
      source: a folder, a file, or ``analytic:NAME?views=60&size=128&test=8``.
      format: a name of ``READERS``, or "auto".
      downscale: factor by which images become smaller (area averaging).
      holdout: every holdout-th sorted frame is for testing where the capture names no splits; 0 = none.
      convention: what the camera axes in the files mean, "opengl" or "opencv" (``--convention``); "auto" is what the
        format says.
      options: further options of the reader as one text, "focal=1170,masks=off" (``--options``).
      say: takes lines of progress of formats that take their time (``photos``); standard error by default.
      **more: the further options, one by one.

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
        what, fix = unsupported.advice(source) or (None, f"give the format, one of: {', '.join(READERS)}")
        raise UserError(
            f"The format of the capture is not recognised{f': it seems to be {what}' if what else ''}.",
            file=source,
            found=unsupported.describe(source),
            expected="the files of a known format at the root: transforms.json, sparse/0, poses_bounds.npy, …",
            fix=fix,
        )
    reader = READERS[format]
    if convention != "auto" and convention not in AXES:
        fix = did_you_mean(convention, ["auto", *AXES])
        raise UserError("Unknown axis convention.", field="scene.convention", found=convention, fix=fix)
    given = {**parse_options(options), **more}
    if format == "prepared":
        scene = reader.read(source, downscale=downscale, holdout=holdout)
        _check_prepared(scene, convention, given)
        return scene
    values = checked_options(format, reader.read, given)
    axes = {} if convention == "auto" else {"axes": convention}
    if axes and "axes" not in inspect.signature(reader.read).parameters:
        raise UserError(
            "The format has one axis convention only.", field="scene.convention", found=f"{convention} for {format}",
            fix="leave it out",
        )  # fmt: skip
    progress = {"say": say} if "say" in inspect.signature(reader.read).parameters else {}
    scene = reader.read(source, downscale=downscale, holdout=holdout, **axes, **progress, **values)
    return replace(scene, options=canonical(reader.read, values))


def _check_prepared(scene: Scene, convention: str, given: dict) -> None:
    """A prepared data set has the convention and the options that it was prepared with; none may be asked for anew."""
    axes = scene.provenance.get("axes")
    origin = READERS.get(scene.format)
    asked = canonical(origin.read, checked_options(scene.format, origin.read, given)) if given and origin else ""
    for field, found, has in (
        ("scene.convention", convention, "auto" if convention == "auto" else axes),
        ("scene.options", asked, scene.options if given else asked),
    ):
        if found != has:
            raise UserError(
                "The data set was prepared in another way.", file=scene.source, field=field,
                found=found or "the defaults", expected=has or "the defaults", fix="prepare the capture again",
            )  # fmt: skip
