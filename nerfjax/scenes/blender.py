"""Reader of the Blender (nerf_synthetic) layout: ``transforms_{train,val,test}.json``.

Paths have no extension, images are RGBA with straight alpha, the only intrinsic is usually ``camera_angle_x``; bodies
with the full set of intrinsics are read as well. The splits are the files', frames keep the files' order, and an
absent val or test file is an empty split.
"""

from __future__ import annotations

from pathlib import Path

from nerfjax.errors import UserError
from nerfjax.scenes.assemble import assemble, capture_name
from nerfjax.scenes.base import SPLITS, Scene, SceneReader
from nerfjax.scenes.capture import Capture
from nerfjax.scenes.image_files import ImageFiles
from nerfjax.scenes.json_frames import frames_of, load_json
from nerfjax.scenes.transforms_json import locate, raw_frame


def sniff(source: str) -> str | None:
    """Recognises a folder with transforms_train.json, or that file itself."""
    return "holds transforms_train.json" if (_folder(source) / "transforms_train.json").is_file() else None


def read(source: str, *, downscale: float | int = 1, holdout: int = 8, axes: str = "opengl") -> Scene:
    """Reads a folder in the Blender layout.

    Args:
      source: the folder (or its transforms_train.json).
      downscale: factor by which images become smaller.
      holdout: not used; the files name the splits.
      axes: "opengl" (what the format means) or "opencv", for files that were written wrongly.
    """
    del holdout
    folder = _folder(source)
    if not (folder / "transforms_train.json").is_file():
        raise UserError("This is not the Blender layout.", file=folder, expected="transforms_train.json")
    frames, notes, listed, owned = [], [], {}, set()
    for split in SPLITS:
        path = folder / f"transforms_{split}.json"
        if not path.is_file():
            continue
        content = load_json(path)
        files = ImageFiles(folder)
        entries = frames_of(content, path)
        found, more = locate(entries, files, path, owned)
        owned |= {image for _, image in found}
        listed[split] = len(entries)
        notes += [f"{split}: {note}" for note in [*more, *files.notes]]
        frames += [raw_frame(entry, content, image, split, path, axes=axes) for entry, image in found]
    provenance = {"frames_listed": listed, "frames_found": len(frames), "axes": axes}
    capture = Capture(capture_name(folder), "blender", source, tuple(frames), tuple(notes), provenance)
    return assemble(capture, downscale=downscale)


READER = SceneReader(sniff, read)


def _folder(source: str) -> Path:
    path = Path(source)
    return path.parent if path.name.startswith("transforms_") and path.suffix == ".json" else path
