"""Reader of the Blender (nerf_synthetic) layout: ``transforms_{train,val,test}.json``.

Paths have no extension, images are RGBA with straight alpha, the only intrinsic is usually ``camera_angle_x``; bodies
with the full set of intrinsics are read as well. The splits are the files', frames keep the files' order, and an
absent val or test file is an empty split. The times of D-NeRF's frames are ignored, and so are renderings of depth and
normals beside the images (``r_0_depth_0001.png``).
"""

from __future__ import annotations

from pathlib import Path

from nerfjax.errors import UserError
from nerfjax.scenes.assemble import assemble, capture_name
from nerfjax.scenes.base import SPLITS, Scene, SceneReader
from nerfjax.scenes.capture import Capture, corners_of
from nerfjax.scenes.folders import size_notes
from nerfjax.scenes.image_files import ImageFiles
from nerfjax.scenes.json_frames import frames_of, load_json, with_camera_model
from nerfjax.scenes.json_sides import (
    SideFiles,
    applied_similarity,
    box_of,
    leftover_notes,
    recorded,
    setting_notes,
)
from nerfjax.scenes.masks import with_masks
from nerfjax.scenes.transforms_json import camera_size_of, locate, raw_frame


def sniff(source: str) -> str | None:
    """Recognises a folder with transforms_train.json, or that file itself."""
    return "holds transforms_train.json" if (_folder(source) / "transforms_train.json").is_file() else None


def read(
    source: str, *, downscale: float | int = 1, holdout: int = 8, axes: str = "opengl", masks: str = "ignore",
    camera_model: str | None = None,
) -> Scene:  # fmt: skip
    """Reads a folder in the Blender layout.

    Args:
      source: the folder (or its transforms_train.json).
      downscale: factor by which images become smaller.
      holdout: not used; the files name the splits.
      axes: "opengl" (what the format means) or "opencv", for files that were written wrongly.
      masks: what masked pixels are: see ``with_masks``.
      camera_model: the lens model of all frames, where the files name none or a wrong one.
    """
    del holdout
    folder = _folder(source)
    if not (folder / "transforms_train.json").is_file():
        raise UserError("This is not the Blender layout.", file=folder, expected="transforms_train.json")
    files = ImageFiles(folder)
    contents = {split: folder / f"transforms_{split}.json" for split in SPLITS}
    contents = {split: (path, with_camera_model(load_json(path), camera_model)) for split, path in contents.items()
                if path.is_file()}  # fmt: skip
    frames, notes, listed, owned, used_beside = [], [], {}, set(), set()
    all_entries, sizes = [], []
    for split, (path, content) in contents.items():
        files.notes.clear()
        entries = frames_of(content, path)
        sides = SideFiles(content, files, path, masks=masks != "off")
        found, more = locate(entries, files, path, owned)
        own = [raw_frame(entry, content, image, split, path, axes=axes, sides=sides) for entry, image in found]
        owned |= {image for _, image in found}
        used_beside |= sides.used
        listed[split] = len(entries)
        notes += [f"{split}: {note}" for note in [*more, *files.notes, *sides.notes()]]
        sizes += [camera_size_of(entry, content, path) for entry, _ in found]
        frames += own
        all_entries += entries
    path, content = contents["train"]
    applied, applied_notes = applied_similarity(content, path)
    notes += [
        *size_notes(frames, sizes),
        *setting_notes(content, all_entries),
        *leftover_notes(files, owned, used_beside),
        *applied_notes,
    ]
    provenance = {
        "frames_listed": listed,
        "frames_found": len(frames),
        "axes": axes,
        **recorded(content, all_entries, path),
    }
    capture = Capture(
        capture_name(folder),
        "blender",
        source,
        with_masks(frames, masks),
        tuple(notes),
        provenance,
        is_object=True if content.get("white_transparent") else None,
        region=corners_of(box_of(content, path)),
        applied=applied,
    )
    return assemble(capture, downscale=downscale)


READER = SceneReader(sniff, read)


def _folder(source: str) -> Path:
    path = Path(source)
    return path.parent if path.name.startswith("transforms_") and path.suffix == ".json" else path
