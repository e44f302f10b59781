"""Writes a scene in formats that other tools read: Blender, transforms.json, COLMAP (.bin and .txt), LLFF.

Everything is written in the capture's own coordinates (``Scene.to_scene`` is undone). Images are written as PNG, at the
scene's size; the intrinsics are those of that size, with the centre of the top-left pixel at (0.5, 0.5). What a format
cannot state (a lens, masks, depths, splits) is refused where rays would change and named in a note otherwise.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image

from nerfjax.errors import UserError, did_you_mean
from nerfjax.geometry.poses import invert_similarity, split_similarity, transform_points, transform_poses
from nerfjax.scenes import llff
from nerfjax.scenes.base import SPLITS, Scene
from nerfjax.scenes.capture import RawFrame
from nerfjax.scenes.colmap_model import ColmapModel
from nerfjax.scenes.colmap_write import camera_from, image_from, write_model
from nerfjax.scenes.image_files import normal_path
from nerfjax.scenes.images import EXTENSIONS
from nerfjax.types import CAMERA_MODELS, DISTORTION

# What a transforms.json calls our models.
_JSON_MODELS = {
    "pinhole": "PINHOLE", "opencv": "OPENCV", "opencv_fisheye": "OPENCV_FISHEYE", "equirectangular": "EQUIRECTANGULAR",
    "orthographic": "ORTHOPHOTO", "full_opencv": "FULL_OPENCV", "thin_prism_fisheye": "THIN_PRISM_FISHEYE",
    "rad_tan_thin_prism_fisheye": "RAD_TAN_THIN_PRISM_FISHEYE",
}  # fmt: skip
_EQUAL = 1e-4  # pixels by which LLFF's one focal length and middle may be wrong, per pixel of the image's side


def write_scene(scene: Scene, folder: Path | str, format: str) -> tuple[str, ...]:
    """Writes a scene as a capture of another format.

    Args:
      scene: any scene.
      folder: is made where it does not exist; must be empty.
      format: a name of ``WRITERS``.

    Returns:
      Notes on what the format could not hold.

    Raises:
      UserError: an unknown format, a folder in use, or cameras that the format cannot state.
    """
    folder = Path(folder)
    if format not in WRITERS:
        raise UserError("Scenes are not written in this format.", found=format, fix=did_you_mean(format, WRITERS))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError("The folder is in use.", file=folder, expected="a new or an empty folder")
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        notes = WRITERS[format](scene, partial)
        if folder.is_dir():
            folder.rmdir()
        partial.rename(folder)
    except OSError as error:
        raise UserError("The scene cannot be written.", file=folder, found=error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    deep = any(frame.depth is not None for frame in scene.frames)
    return (*notes, *(["Depth images were not written."] if deep else []))


def original_frames(scene: Scene) -> list[RawFrame]:
    """Returns the frames with poses and lenses in the capture's own coordinates, for the scene's image sizes."""
    back = invert_similarity(scene.to_scene)
    poses = transform_poses(back, np.asarray(scene.cameras.pose, np.float64))
    frames = []
    for row, frame in enumerate(scene.frames):
        pose = np.eye(4)
        pose[:3] = poses[row]
        focal, center, distortion = (
            np.asarray(getattr(scene.cameras, name)[row], np.float64) for name in ("focal", "center", "distortion")
        )
        model = CAMERA_MODELS[int(scene.cameras.model[row])]
        if model == "orthographic":  # its focal length is pixels per unit of length
            focal = focal / split_similarity(back).scale
        frames.append(
            RawFrame(frame.name, frame.image, frame.split, pose, focal, center, distortion, model, frame.mask)
        )
    return frames


def _original_points(scene: Scene) -> np.ndarray:
    if scene.points is None:
        return np.zeros((0, 3))
    return transform_points(invert_similarity(scene.to_scene), scene.points)


def _file_names(frames: list[RawFrame], *, inside: str = "", flat: bool = False) -> list[str]:
    """Returns a relative path ending in .png for each frame, no two of them alike.

    Args:
      frames: their names are kept as far as they are relative paths.
      inside: folder that is left off, because the images will be put there.
      flat: whether folders become a part of the file's name.
    """
    names: dict[str, str] = {}
    for frame in frames:
        parts = [part.strip().lstrip(".") for part in PurePosixPath(normal_path(frame.name)).parts]
        parts = [part.replace(":", "_") for part in parts if part.strip("/")]
        parts = parts[1:] if len(parts) > 1 and parts[0] == inside else parts
        path = "_".join(parts) if flat else "/".join(parts)
        stem = path.rsplit(".", 1)[0] if path.lower().endswith(EXTENSIONS) else path or "image"
        name, count = f"{stem}.png", 0
        while name.lower() in names:  # a.jpg and a.png, or names that differ by case only
            count += 1
            name = f"{stem}_{count}.png"
        names[name.lower()] = name
    return list(names.values())


def _write_image(path: Path, values: np.ndarray) -> bool:
    """Writes an image; returns whether it lost bits: 16-bit colours have no form that Pillow writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deep = values.dtype == np.uint16
    grey = deep and values.shape[-1] == 3 and (values == values[..., :1]).all()
    if grey:
        Image.fromarray(np.ascontiguousarray(values[..., 0])).save(path, "PNG")
    else:
        values = np.round(values / 257).astype(np.uint8) if deep else values
        Image.fromarray(values).save(path, "PNG")
    return deep and not grey


def _write_images(folder: Path, frames: list[RawFrame], names: list[str]) -> list[str]:
    lost = sum(_write_image(folder / name, frame.image.read()) for frame, name in zip(frames, names, strict=True))
    return [f"{lost} images of 16 bits a channel were written with 8."] if lost else []


def _write_masks(folder: Path, frames: list[RawFrame], names: list[str], ending: str = "") -> dict[str, str]:
    """Writes the masks below ``folder``/masks; returns their paths from ``folder`` by the images' names."""
    written = {}
    for frame, name in zip(frames, names, strict=True):
        if frame.mask is not None:
            written[name] = f"masks/{name}{ending}"
            _write_image(folder / written[name], frame.mask.read(size=frame.image.size)[..., :3])
    return written


def _entry(frame: RawFrame, path: str, mask: str | None) -> dict[str, Any]:
    """Returns a frame of a transforms.json with all its intrinsics."""
    if frame.model not in _JSON_MODELS:
        raise UserError(
            "transforms.json has no such lens.", field="camera_model", found=frame.model,
            expected=", ".join(_JSON_MODELS), fix="write colmap instead",
        )  # fmt: skip
    width, height = frame.image.size
    entry = {"file_path": path, "camera_model": _JSON_MODELS[frame.model], "w": width, "h": height}
    if frame.model != "equirectangular":
        entry |= {"fl_x": float(frame.focal[0]), "fl_y": float(frame.focal[1])}
    entry |= {"cx": float(frame.center[0]), "cy": float(frame.center[1])}
    entry |= {key: float(value) for key, value in zip(DISTORTION, frame.distortion, strict=True) if value}
    entry |= {"mask_path": mask} if mask else {}
    return {**entry, "transform_matrix": frame.pose.tolist()}


def _write_json(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _write_blender(scene: Scene, folder: Path) -> list[str]:
    frames = original_frames(scene)
    notes = ["The sparse points were not written."] if scene.points is not None else []
    white = {"white_transparent": True} if scene.background == "white" else {}
    for split in SPLITS:
        members = [frame for frame in frames if frame.split == split]
        names = [f"{split}/{name}" for name in _file_names(members, inside=split)]
        notes += _write_images(folder, members, names)
        masks = _write_masks(folder, members, names)
        if members:
            entries = [
                _entry(frame, f"./{name.removesuffix('.png')}", masks.get(name))
                for frame, name in zip(members, names, strict=True)
            ]
            _write_json(folder / f"transforms_{split}.json", {**white, "frames": entries})
    return notes


def _write_transforms_json(scene: Scene, folder: Path) -> list[str]:
    frames = original_frames(scene)
    names = _file_names(frames)
    notes = _write_images(folder, frames, names)
    masks = _write_masks(folder, frames, names)
    content: dict[str, Any] = {"white_transparent": True} if scene.background == "white" else {}
    for split in SPLITS:
        content[f"{split}_filenames"] = [n for n, frame in zip(names, frames, strict=True) if frame.split == split]
    if scene.points is not None:
        content["ply_file_path"] = "points.ply"
        _write_ply(folder / "points.ply", _original_points(scene))
    content["frames"] = [_entry(frame, name, masks.get(name)) for frame, name in zip(frames, names, strict=True)]
    _write_json(folder / "transforms.json", content)
    return notes


def _write_ply(path: Path, points: np.ndarray) -> None:
    properties = "".join(f"property double {axis}\n" for axis in "xyz")
    header = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(points)}\n{properties}end_header\n"
    path.write_bytes(header.encode() + np.asarray(points, "<f8").tobytes())


def _write_colmap(scene: Scene, folder: Path, *, text: bool = False) -> list[str]:
    frames = original_frames(scene)
    names = _file_names(frames, inside="images")
    cameras, images, known = {}, {}, {}
    for number, (frame, name) in enumerate(zip(frames, names, strict=True), start=1):
        camera = camera_from(frame.model, frame.image.size, frame.focal, frame.center, frame.distortion)
        key = (camera.model, camera.size, camera.parameters.tobytes())
        cameras.setdefault(known.setdefault(key, len(known) + 1), camera)
        images[number] = image_from(name, known[key], frame.pose)
    notes = _write_images(folder / "images", frames, names)
    _write_masks(folder, frames, names, ending=".png")  # COLMAP's way
    points = _original_points(scene)
    write_model(folder / "sparse/0", ColmapModel(cameras, images, 1 + np.arange(len(points)), points), text=text)
    if any(frame.split != "train" for frame in frames):
        notes.append("The format names no splits: readers take every N-th image, by name, for testing.")
    return notes


def _write_colmap_text(scene: Scene, folder: Path) -> list[str]:
    return _write_colmap(scene, folder, text=True)


def _write_llff(scene: Scene, folder: Path) -> list[str]:
    frames = original_frames(scene)
    names = _file_names(frames, inside="images", flat=True)
    scale = split_similarity(scene.to_scene).scale
    near_far = np.array([scene.geometry.near, scene.geometry.far], np.float64) / scale
    rows = {name: _llff_row(frame, near_far) for frame, name in zip(frames, names, strict=True)}
    notes = _write_images(folder / "images", frames, names)
    np.save(folder / llff.FILE, np.stack([rows[name] for name in sorted(rows)]))
    left = {
        "masks": any(frame.mask is not None for frame in frames),
        "sparse points": scene.points is not None,
        "splits": any(frame.split != "train" for frame in frames),
    }
    return notes + [f"The format has no {what}." for what, there in left.items() if there]


def _llff_row(frame: RawFrame, near_far: np.ndarray) -> np.ndarray:
    """Returns [17]: a 3x5 matrix with the columns (down, right, backward, position, (h, w, f)), near, far."""
    width, height = frame.image.size
    apart = [abs(frame.focal[0] - frame.focal[1]), *np.abs(frame.center - [width / 2, height / 2])]
    if frame.model != "pinhole" or max(apart) > _EQUAL * max(width, height):
        raise UserError(
            "LLFF has no such lens.", field=frame.name,
            found=f"{frame.model}, focal {frame.focal.tolist()}, centre {frame.center.tolist()} of {width}x{height}",
            expected="a pinhole with square pixels and the principal point in the middle",
            fix="write transforms_json or colmap, or undistort the images first",
        )  # fmt: skip
    right, up, back, position = frame.pose[:3].T
    matrix = np.stack([-up, right, back, position, [height, width, frame.focal.mean()]], axis=-1)
    return np.concatenate([matrix.ravel(), near_far])


WRITERS: dict[str, Callable[[Scene, Path], list[str]]] = {
    "blender": _write_blender,
    "transforms_json": _write_transforms_json,
    "colmap": _write_colmap,
    "colmap_text": _write_colmap_text,
    "llff": _write_llff,
}
