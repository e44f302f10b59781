"""``prepare``: a capture becomes a fingerprinted TensorFlow Datasets data set on disk.

Decoding happens once, here, by Pillow. The data set (see ``scenes/prepared.py``) is addressed by its content: its key
is a hash of the scene's fingerprint and of what was made of it, so that the same capture with the same options is
found again, wherever it lies. Layout "views" is one record per image; layout "rays" adds, in the sub-folder ``rays``,
all valid training pixels shuffled into blocks (``data/shuffled.py``). tensorflow is not needed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nerfjax.cache import cache_folder
from nerfjax.data import shards, shuffled
from nerfjax.data.views import points_bytes, write_views
from nerfjax.errors import UserError, did_you_mean
from nerfjax.scenes import read_scene
from nerfjax.scenes.base import SPLITS, Frame, Scene
from nerfjax.scenes.prepared import FORMAT, KIND, METADATA, read_metadata, read_prepared
from nerfjax.types import CAMERA_MODELS

__all__ = ["LAYOUTS", "prepare", "prepare_cached", "read_prepared"]

LAYOUTS = ("views", "rays")
Say = Callable[[str], None]


def prepare(
    scene: Scene | str | Path,
    out: str | Path | None = None,
    *,
    layout: str = "views",
    depth: bool = True,
    block: int = shuffled.BLOCK,
    threads: int | None = None,
    overwrite: bool = False,
    say: Say | None = None,
    **options,
) -> Path:
    """Writes a capture as a data set, or finds it written.

    An interrupted call leaves nothing at ``out``; the next one goes on where it stopped.

    Args:
      scene: a scene, or a source that ``read_scene`` takes.
      out: the folder; by default one in the cache, named by content.
      layout: "views", or "rays" for views and shuffled blocks of pixels.
      depth: whether depths are kept, where the capture has them.
      block: pixels of a block.
      threads: decoding threads; one per core if None.
      overwrite: whether another data set at ``out`` is replaced.
      say: takes one line that says what was done.
      **options: of ``read_scene``, where ``scene`` is a source.

    Returns:
      The folder.

    Raises:
      UserError: the capture is wrong, ``out`` holds something else, the disk is full.
    """
    if layout not in LAYOUTS:
        raise UserError("Unknown layout.", field="layout", found=layout, fix=did_you_mean(layout, LAYOUTS))
    if not isinstance(scene, Scene):
        scene = read_scene(str(scene), **options)
    if not depth:
        scene = replace(scene, frames=tuple(replace(frame, depth=None) for frame in scene.frames))
    say = say or (lambda text: None)
    document = describe(scene)
    out = cache_folder() / "prepared" / document["key"][:32] if out is None else Path(out)
    out = out.absolute()
    if find(out, document["key"], layout, block):
        say(f"already prepared: {out} holds {summary(document)}")
        return out
    if not find(out, document["key"], "views", block):
        _refuse_other(out, overwrite)
    growing = out.with_name(f".{out.name}.partial")
    with shards.exclusive(growing):
        if find(out, document["key"], layout, block):  # by another process, while this one waited
            _remove_empty(growing)
            say(f"already prepared: {out} holds {summary(document)}")
            return out
        with _progress() as progress:
            if find(out, document["key"], "views", block):
                _remove_empty(growing)
                shuffled.add_rays(out, block=block, threads=threads, progress=progress)
            else:
                _refuse_other(out, overwrite)
                staging = shards.Staging(growing, document["key"])
                write_views(scene, document, staging, threads=threads, progress=progress)
                if layout == "rays":
                    shuffled.add_rays(staging.folder, block=block, threads=threads, progress=progress)
                _replace(staging, out)
    say(f"prepared {summary(document)}: {out}")
    return out


def prepare_cached(scene: Scene, *, layout: str, depth: bool = True, say: Say | None = None) -> Path:
    """Returns a data set of the scene: the folder that it was read from, if that will do, or one in the cache."""
    folder = Path(scene.source)
    if (folder / METADATA).is_file() and find(folder, describe(scene)["key"], layout, shuffled.BLOCK):
        return folder
    return prepare(scene, layout=layout, depth=depth, say=say)


def find(out: Path, key: str, layout: str, block: int) -> bool:
    """Says whether a folder holds the data set of a key, every file at its full length."""
    if not (out / METADATA).is_file():
        return False
    try:
        metadata = read_metadata(out)
        return metadata.get("key") == key and (layout == "views" or shuffled.has_rays(out, metadata, block))
    except UserError:
        return False


def describe(scene: Scene) -> dict[str, Any]:
    """Returns the metadata of a scene's data set, its ``key`` included, before anything is decoded."""
    with ThreadPoolExecutor() as pool:
        frames = tuple(pool.map(_by_digest, scene.frames))
    cameras, geometry = scene.cameras, scene.geometry
    rows = []
    for i, frame in enumerate(frames):
        depth = None if frame.depth is None else dict(kind=frame.depth.kind, digest=frame.depth.identity)
        rows.append(
            dict(
                name=frame.name, split=frame.split, size=list(frame.image.size), image=frame.image.identity,
                mask=frame.mask.identity if frame.mask is not None else "", depth=depth,
                pose=np.asarray(cameras.pose[i], np.float64).ravel().tolist(),
                focal=np.asarray(cameras.focal[i], np.float64).tolist(),
                center=np.asarray(cameras.center[i], np.float64).tolist(),
                distortion=np.asarray(cameras.distortion[i], np.float64).tolist(),
                model=CAMERA_MODELS[int(cameras.model[i])],
            )
        )  # fmt: skip
    content = dict(
        kind=KIND, format=FORMAT, fingerprint=replace(scene, frames=frames).fingerprint(), frames=rows,
        geometry=dict(
            box=np.asarray(geometry.box, np.float64).tolist(), near=float(geometry.near), far=float(geometry.far),
            spacing=geometry.spacing, bounded=geometry.bounded,
        ),
        to_scene=np.asarray(scene.to_scene, np.float64).tolist(), camera_digest=scene.camera_digest,
        background=scene.background, downscale=float(scene.downscale),
        points="" if scene.points is None else hashlib.sha256(points_bytes(scene)).hexdigest(),
    )  # fmt: skip
    key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    labels = dict(
        name=scene.name, scene_format=scene.format, notes=list(scene.notes), provenance=scene.provenance,
        options=scene.options,
    )  # fmt: skip
    return {**content, **labels, "key": key}


def _by_digest(frame: Frame) -> Frame:
    def named(reference):
        if reference is None:
            return None
        return replace(reference, path=None, identity=f"sha256:{reference.digest().hex()}")

    return replace(frame, image=named(frame.image), mask=named(frame.mask), depth=named(frame.depth))


def summary(document: dict[str, Any]) -> str:
    """Returns one line about a data set."""
    counts = {split: sum(row["split"] == split for row in document["frames"]) for split in SPLITS}
    shown = ", ".join(f"{count} {split}" for split, count in counts.items() if count)
    return f"{len(document['frames'])} images ({shown}), fingerprint {document['fingerprint'][:16]}"


def _refuse_other(out: Path, overwrite: bool) -> None:
    """Stops where ``out`` holds something that is not to be lost."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    prepared = (out / METADATA).is_file()
    if prepared and overwrite:
        return
    raise UserError(
        "The folder holds another data set." if prepared else "The folder holds something else.",
        file=out,
        fix="choose another --out" + (", or give --overwrite" if prepared else ""),
    )


def _replace(staging: shards.Staging, out: Path) -> None:
    if not out.exists():
        staging.finish(out)
        return
    aside = out.with_name(f".{out.name}.old")
    shards.remove(aside)
    os.rename(out, aside)
    staging.finish(out)
    shards.remove(aside)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
