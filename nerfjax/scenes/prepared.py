"""Prepared data sets: a scene as ``nerfjax prepare`` writes it, one record per image.

The folder is a TensorFlow Datasets data set (array_record files, features.json, dataset_info.json) named
``nerfjax_views`` with the splits train, val and test. Images are PNG, or zlib-compressed tensors for 16 bits a channel
(PNG as Pillow writes it has 16 bits in grey only). ``metadata.json`` holds what is the scene's: cameras in scene
coordinates (float32; every number round-trips), geometry, the transform from the capture, each frame's place among
the records and the digest of its source, and the digests of the files. ``points.npy`` holds the sparse points.

Nothing is decoded before it is used. The scene equals the one that was prepared, fingerprint included; splits and
downscale are those that it was prepared with.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from nerfjax.errors import UserError
from nerfjax.geometry.cameras import cameras_from
from nerfjax.scenes.base import SPLITS, Frame, Scene, SceneReader
from nerfjax.scenes.depths import DepthReference
from nerfjax.scenes.images import ImageReference
from nerfjax.scenes.records import Records, damaged, parse_record, tensor_of
from nerfjax.types import SceneGeometry

METADATA, INFO, POINTS = "metadata.json", "dataset_info.json", "points.npy"
KIND, FORMAT = "nerfjax_views", 1


def sniff(source: str) -> str | None:
    """Recognises a folder (or its metadata.json) that ``nerfjax prepare`` wrote."""
    folder = _folder(source)
    if not ((folder / METADATA).is_file() and (folder / INFO).is_file()):
        return None
    try:
        kind = json.loads((folder / METADATA).read_text()).get("kind")
    except (OSError, ValueError, AttributeError):
        return None
    return f"{METADATA} of a prepared data set" if kind == KIND else None


def read_prepared(source: str | Path, *, downscale: float | int = 1, holdout: int = 8) -> Scene:
    """Reads a prepared data set; its images stay on disk until they are used.

    Args:
      source: the folder.
      downscale: 1, or the factor that the set was prepared with.
      holdout: without effect; the splits are stored.

    Raises:
      UserError: a file is missing or damaged, or another downscale is asked for.
    """
    del holdout
    folder = _folder(source)
    metadata = read_metadata(folder)
    if downscale not in (1, metadata["downscale"]):
        raise UserError(
            "The data set was prepared with another downscale.", file=folder, field="scene.downscale",
            found=downscale, expected=f"{metadata['downscale']:g} (or 1, as it is)", fix="prepare the capture again",
        )  # fmt: skip
    try:
        return _scene(folder, metadata)
    except (KeyError, TypeError, ValueError, IndexError, OSError) as error:
        raise _bad_metadata(folder, error) from error


def read_metadata(folder: Path) -> dict[str, Any]:
    """Returns the content of metadata.json, after checking that every file is there at its full length.

    Raises:
      UserError: the metadata is no such, or a file is missing or has another length.
    """
    try:
        metadata = json.loads((folder / METADATA).read_text())
        if metadata["format"] != FORMAT:
            raise UserError(
                "The data set was prepared by another version of nerfjax.", file=folder / METADATA, field="format",
                found=metadata["format"], expected=FORMAT, fix="prepare the capture again",
            )  # fmt: skip
        lengths = {folder / name: int(file["bytes"]) for name, file in metadata["files"].items()}
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _bad_metadata(folder, error) from error
    for file, length in lengths.items():
        found = file.stat().st_size if file.is_file() else 0
        if found != length:
            raise damaged(file, ValueError(f"{found} bytes instead of {length}"))
    return metadata


def split_records(folder: Path, metadata: dict[str, Any]) -> dict[str, Records]:
    """Returns the records of each split of a data set."""
    shards: dict[str, list] = {}
    for name, file in sorted(metadata["files"].items()):
        shards.setdefault(file["split"], []).append((folder / name, file["records"]))
    return {split: Records(files) for split, files in shards.items()}


def _scene(folder: Path, metadata: dict[str, Any]) -> Scene:
    records, rows = split_records(folder, metadata), metadata["frames"]
    places: dict[str, int] = dict.fromkeys(SPLITS, 0)
    frames = []
    for row in rows:
        split = row["split"]
        frames.append(_frame(row, _Record(records[split], places[split], metadata["dtype"])))
        places[split] += 1
    names = ("focal", "center", "distortion")
    parameters = {name: np.asarray([row[name] for row in rows], np.float64) for name in names}
    cameras = cameras_from(
        np.asarray([row["pose"] for row in rows], np.float64).reshape(-1, 3, 4),
        size=[row["size"] for row in rows], model=[row["model"] for row in rows], **parameters,
        file=folder, names=[row["name"] for row in rows], allow_outside_center=True,
    )  # fmt: skip
    train = np.array([i for i, frame in enumerate(frames) if frame.split == "train"], np.int64)
    geometry = metadata["geometry"]
    return Scene(
        name=metadata["name"],
        format=metadata["scene_format"],
        source=str(folder),
        frames=tuple(frames),
        cameras=cameras,
        geometry=SceneGeometry(
            box=np.asarray(geometry["box"], np.float32), near=np.float32(geometry["near"]),
            far=np.float32(geometry["far"]), cameras=cameras[train], spacing=geometry["spacing"],
            bounded=geometry["bounded"],
        ),
        background=metadata["background"],
        to_scene=np.asarray(metadata["to_scene"], np.float64),
        camera_digest=metadata["camera_digest"],
        downscale=metadata["downscale"],
        notes=tuple(metadata["notes"]),
        provenance=metadata["provenance"],
        points=np.load(folder / POINTS, allow_pickle=False) if metadata["points"] else None,
        options=metadata.get("options", ""),
    )  # fmt: skip


def _frame(row: dict[str, Any], record: _Record) -> Frame:
    size = tuple(row["size"])
    image = ImageReference(None, size, loader=record.image, identity=row["image"])
    mask = ImageReference(None, size, loader=record.mask, identity=row["mask"]) if row["mask"] else None
    depth = row["depth"]
    if depth is not None:
        depth = DepthReference(None, 1.0, depth["kind"], loader=record.depth, identity=depth["digest"])
    return Frame(row["name"], image, row["split"], mask, depth)


@dataclass(frozen=True)
class _Record:
    """Decodes one image's record."""

    records: Records
    index: int
    dtype: str

    def image(self) -> np.ndarray:
        values = parse_record(self.records[self.index])
        return _decode_png(values["image"]) if self.dtype == "uint8" else tensor_of(values, "image", np.uint16)

    def mask(self) -> np.ndarray:
        grey = _decode_png(parse_record(self.records[self.index])["mask"])
        return np.repeat(grey[..., None], 3, axis=-1)

    def depth(self) -> np.ndarray:
        return tensor_of(parse_record(self.records[self.index]), "depth", np.float32)


def _decode_png(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.array(image)


def _folder(source: str | Path) -> Path:
    path = Path(source)
    return path.parent if path.name == METADATA else path


def _bad_metadata(folder: Path, error: Exception) -> UserError:
    return UserError(
        "The metadata of a prepared data set cannot be read.",
        file=folder / METADATA,
        found=f"{type(error).__name__}: {error}",
        fix="delete the folder and run nerfjax prepare again",
    )


READER = SceneReader(sniff, read_prepared)
