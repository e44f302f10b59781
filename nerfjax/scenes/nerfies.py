"""Reader of the camera JSON of Nerfies and HyperNeRF.

``camera/ID.json``: ``orientation`` [3, 3] is world-to-camera with OpenCV axes, ``position`` the camera's centre (not a
translation), ``principal_point`` in pixels with the top-left pixel's centre at (0.5, 0.5), fy = ``focal_length`` x
``pixel_aspect_ratio``; distortion is OpenCV's, ``radial_distortion`` (k1, k2, k3) and ``tangential_distortion``
(``tangential`` in old files). ``image_size`` (w, h) is that of ``rgb/1x``. ``dataset.json`` lists ``train_ids`` and
``val_ids``; the latter are the format's held-out views and become the test split. ``scene.json`` gives near and far
after x -> (x - center) * scale; ``points.npy`` holds points before it. Scenes move in time; they are taken to stand
still, and ``metadata.json`` (times, appearances) is ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.assemble import assemble, capture_name
from nerfjax.scenes.base import Scene, SceneReader, holdout_splits, shorten
from nerfjax.scenes.capture import Capture
from nerfjax.scenes.folders import (
    Intrinsics,
    by_stem,
    camera_matrix,
    check_intrinsics,
    files_in,
    images_in,
    number_in,
    paired,
    raw_frame,
    size_notes,
    skew_notes,
)
from nerfjax.scenes.json_frames import LARGEST, load_json
from nerfjax.scenes.numbers_in_text import numbers, starts_with

CAMERA_FOLDER = "camera"


def sniff(source: str) -> str | None:
    """Recognises a folder with camera/*.json of this kind, or with dataset.json and rgb/."""
    path = Path(source)
    for folder in (path / CAMERA_FOLDER, path):
        files = files_in(folder, (".json",))[:3]
        if any('"orientation"' in (text := starts_with(f)) and '"focal_length"' in text for f in files):
            return f"holds {'camera/' if folder != path else ''}*.json with orientation and focal_length"
    return "holds dataset.json and rgb/" if (path / "dataset.json").is_file() and (path / "rgb").is_dir() else None


def read(source: str, *, downscale: float | int = 1, holdout: int = 8, axes: str = "opencv") -> Scene:
    """Reads a Nerfies or HyperNeRF folder.

    Args:
      source: the folder.
      downscale: factor by which images become smaller (than those of rgb/1x, or the largest there are).
      holdout: every holdout-th frame is for testing where dataset.json has no val_ids; 0 = none.
      axes: of the cameras, "opencv" (what the format means) or "opengl".
    """
    folder = Path(source)
    cameras = by_stem(files_in(folder / CAMERA_FOLDER, (".json",)))
    if not cameras:
        alone = [file.name for file in files_in(folder, (".json",))]
        raise UserError(
            "The folder holds no cameras.",
            file=folder / CAMERA_FOLDER,
            found=f"{shorten(alone)} beside it" if alone else "no *.json",
            expected="camera/ID.json, rgb/1x/ID.png and dataset.json",
        )
    images, image_folder = _images(folder)
    listed, split_of = _listed(folder)
    keys, notes = paired(cameras, images, file=folder / CAMERA_FOLDER, pose_word="cameras", wanted=listed)
    if listed is not None:
        gone = [key for key in listed if key not in images]
        if gone:
            notes.append(f"{len(gone)} of {len(listed)} listed frames have no image, left out: {shorten(gone)}.")
        unlisted = [key for key in keys if key not in listed]
        if unlisted:
            notes.append(f"{len(unlisted)} images are not listed in dataset.json, left out: {shorten(unlisted)}.")
        keys = [key for key in keys if key in listed]
    if not keys:
        raise UserError("No image is listed in dataset.json.", file=folder / "dataset.json", found=shorten(listed, 2),
                        expected=f"names such as {shorten(list(images), 2)}")  # fmt: skip
    splits = [split_of[key] for key in keys] if split_of else holdout_splits(keys, holdout)
    read_cameras = [_camera(cameras[key]) for key in keys]
    frames = [
        raw_frame(
            f"{image_folder}/{images[key].name}", images[key], intrinsics, pose,
            split=split, file=cameras[key], axes=axes,
        )
        for key, split, (intrinsics, pose) in zip(keys, splits, read_cameras, strict=True)
    ]  # fmt: skip
    lenses = [intrinsics for intrinsics, _ in read_cameras]
    if image_folder == "rgb/1x":
        notes += size_notes(frames, [lens.size for lens in lenses])
    else:
        notes.append(f"Images are those of {image_folder}; the intrinsics were scaled to them.")
    notes += skew_notes([lens.matrix for lens in lenses])
    notes += _moving(folder)
    near_far, scene = _scene(folder)
    provenance = {"images": image_folder, "frames_found": len(frames), "axes": axes, **scene}
    capture = Capture(
        capture_name(folder),
        "nerfies",
        source,
        tuple(frames),
        tuple(notes),
        provenance,
        points=_points(folder),
        is_object=False,
        near_far=near_far,
    )
    return assemble(capture, downscale=downscale)


READER = SceneReader(sniff, read)


def _images(folder: Path) -> tuple[dict[str, Path], str]:
    """Returns the images of the largest size by id, and their folder's relative path."""
    sizes = {p: number_in(p.name) for p in (folder / "rgb").glob("*x") if p.is_dir() and p.name[:-1].isdecimal()}
    for candidate in [*sorted(sizes, key=lambda p: sizes[p]), folder / "rgb", folder / "images"]:
        found = images_in(candidate)
        if found:
            return by_stem(found), candidate.relative_to(folder).as_posix()
    raise UserError("The folder holds no images.", file=folder, expected="rgb/1x/ID.png")


def _listed(folder: Path) -> tuple[list[str] | None, dict[str, str]]:
    """Returns (the ids of dataset.json or None, their splits; {} where it has no held-out views)."""
    path = folder / "dataset.json"
    if not path.is_file():
        return None, {}
    content = load_json(path)
    lists = {}
    for key in ("ids", "train_ids", "val_ids"):
        value = content.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str | int) for item in value):
            raise UserError("A list of ids is none.", file=path, field=key, found=value)
        lists[key] = [str(item) for item in value]
    both = sorted(set(lists["train_ids"]) & set(lists["val_ids"]))
    if both:
        raise UserError("Frames are in two splits.", file=path, field="val_ids", found=shorten(both))
    known = lists["train_ids"] + lists["val_ids"] or lists["ids"]
    if not known:
        return None, {}
    if not (lists["val_ids"] and lists["train_ids"]):
        return known, {}
    return known, dict.fromkeys(lists["train_ids"], "train") | dict.fromkeys(lists["val_ids"], "test")


def _camera(path: Path) -> tuple[Intrinsics, np.ndarray]:
    """Returns intrinsics and the world-to-camera rotation with the centre, as a camera-to-world pose."""
    content = load_json(path)

    def value(key: str, count: int, default: Any = None) -> np.ndarray:
        if content.get(key) is None and default is None:
            raise UserError("The camera is incomplete.", file=path, field=key, found="no such key")
        array = numbers(content.get(key, default), count, path=path, field=key)
        if not (np.abs(array) <= LARGEST).all():
            raise UserError("A number is impossibly large.", file=path, field=key, found=array.tolist())
        return array

    rotation = value("orientation", 9).reshape(3, 3)
    focal, aspect = value("focal_length", 1)[0], value("pixel_aspect_ratio", 1, 1.0)[0]
    center, skew = value("principal_point", 2), value("skew", 1, 0.0)[0]
    matrix = camera_matrix(focal, focal * aspect, *center)
    matrix[0, 1] = skew
    width, height = value("image_size", 2)
    if not (1 <= width <= 1e6 and 1 <= height <= 1e6):
        raise UserError("The image size is impossible.", file=path, field="image_size", found=[width, height])
    radial = value("radial_distortion", 3, [0.0, 0.0, 0.0])
    tangential_key = "tangential" if content.get("tangential_distortion") is None else "tangential_distortion"
    tangential = value(tangential_key, 2, [0.0, 0.0])
    distortion = (*radial, 0.0, *tangential)
    model = "opencv" if np.any(distortion) else "pinhole"
    pose = np.concatenate([rotation.T, value("position", 3)[:, None]], axis=1)
    matrix = check_intrinsics(matrix, file=path, field="focal_length")
    return Intrinsics(matrix, (float(width), float(height)), distortion, model), pose


def _scene(folder: Path) -> tuple[tuple[float, float] | None, dict[str, Any]]:
    """Returns (near and far in the cameras' units or None, what scene.json says)."""
    path = folder / "scene.json"
    if not path.is_file():
        return None, {}
    content = load_json(path)
    said = {
        key: numbers(content[key], count, path=path, field=key).tolist()
        for key, count in (("scale", 1), ("center", 3), ("near", 1), ("far", 1))
        if content.get(key) is not None
    }
    if not {"scale", "near", "far"} <= set(said):
        return None, {"scene": said}
    scale, near, far = (said[key][0] for key in ("scale", "near", "far"))
    if scale <= 0 or not 0 <= near < far:
        raise UserError(
            "Scale, near or far make no sense.", file=path, field="scale, near, far", found=[scale, near, far],
            expected="scale > 0 and 0 <= near < far",
        )  # fmt: skip
    return (near / scale, far / scale), {"scene": said}


def _points(folder: Path) -> np.ndarray | None:
    path = folder / "points.npy"
    if not path.is_file():
        return None
    try:
        with open(path, "rb") as file:
            points = np.load(file, allow_pickle=False).astype(np.float64)
    except (OSError, ValueError, TypeError, EOFError, MemoryError, AttributeError) as error:
        raise UserError("The points cannot be read.", file=path, found=error) from error
    if points.ndim != 2 or points.shape[1] != 3:
        raise UserError("The points have a wrong shape.", file=path, found=points.shape, expected="[P, 3]")
    points = points[np.isfinite(points).all(axis=-1)]
    return points if len(points) else None


def _moving(folder: Path) -> list[str]:
    if not (folder / "metadata.json").is_file():
        return []
    return ["metadata.json gives times or appearances: the scene may move. It is taken to stand still."]
