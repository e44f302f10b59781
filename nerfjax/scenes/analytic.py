"""Procedural scenes as captures: rendered exactly, in memory (``analytic:NAME?views=60&size=128``) or to disk.

Object scenes are seen from a sphere of radius 4 through the synthetic Blender scenes' lens, the unbounded one from
a ring among its objects. Images are exact line integrals (8 bit, straight alpha), a mean over ``antialias``² rays a
pixel. Everything is a function of the source string.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from nerfjax.errors import UserError, did_you_mean
from nerfjax.geometry.poses import look_at
from nerfjax.scenes.analytic_scenes import SCENES, UNBOUNDED, primitives
from nerfjax.scenes.assemble import scene_in_frame
from nerfjax.scenes.base import SPLITS, Scene, SceneReader
from nerfjax.scenes.capture import Capture, RawFrame
from nerfjax.scenes.images import ImageReference
from nerfjax.scenes.primitives import render_rays

PREFIX = "analytic:"
OBJECT_RADIUS, OBJECT_ANGLE = 4.0, 0.6911112  # of the synthetic Blender scenes
AIM = np.array([0.0, 0.0, -0.1])  # the objects stand on boards below the origin
RING_RADIUS, RING_ANGLE = 1.0, 1.0
_FAR = 400.0


class CaptureOptions(NamedTuple):
    """How a scene is captured.

    Attributes:
      name: of the scene.
      views, val, test: number of views of each split.
      size: width and height of the images, pixels.
      antialias: rays per pixel and axis.
    """

    name: str
    views: int = 60
    val: int = 2
    test: int = 8
    size: int = 128
    antialias: int = 2

    @property
    def camera_angle(self) -> float:
        """Horizontal field of view, radians."""
        return RING_ANGLE if self.name in UNBOUNDED else OBJECT_ANGLE

    @property
    def focal(self) -> float:
        """Focal length, pixels."""
        return 0.5 * self.size / np.tan(0.5 * self.camera_angle)


def parse_source(source: str) -> CaptureOptions:
    """Parses ``analytic:NAME?views=60&size=128&test=8``.

    Raises:
      UserError: an unknown scene or option, or a value that is not a positive whole number.
    """
    name, _, query = source.removeprefix(PREFIX).partition("?")
    if name not in SCENES:
        raise UserError(
            "There is no such analytic scene.", field="scene.source", found=name, fix=did_you_mean(name, SCENES)
        )
    options = {}
    for part in filter(None, query.split("&")):
        key, _, value = part.partition("=")
        if key not in CaptureOptions._fields[1:]:
            fix = did_you_mean(key, CaptureOptions._fields[1:])
            raise UserError("Unknown option of an analytic scene.", field="scene.source", found=key, fix=fix)
        least = 0 if key in ("val", "test") else 1
        if not value.isdecimal() or int(value) < least:
            expected = f"a whole number of at least {least}"
            raise UserError("Bad option of an analytic scene.", field=key, found=value, expected=expected)
        options[key] = int(value)
    return CaptureOptions(name, **options)


def sniff(source: str) -> str | None:
    """Recognises ``analytic:…``."""
    return "names a procedural scene" if source.startswith(PREFIX) else None


def read(source: str, *, downscale: float | int = 1, holdout: int = 8) -> Scene:
    """Makes the capture in memory; images are rendered when they are first read.

    Args:
      source: ``analytic:NAME?OPTIONS``.
      downscale: factor by which images become smaller.
      holdout: not used; the number of test views is an option of the source.
    """
    del holdout
    options = parse_source(source)
    frames = tuple(
        _frame(options, split, index, pose) for split in SPLITS for index, pose in enumerate(view_poses(options, split))
    )
    provenance = {"normalization": "none (procedural scene)", **options._asdict()}
    capture = Capture(options.name, "analytic", source, frames, (), provenance)
    return scene_in_frame(capture, np.eye(4), is_object=options.name not in UNBOUNDED, downscale=downscale)


READER = SceneReader(sniff, read)


def _frame(options: CaptureOptions, split: str, index: int, pose: np.ndarray) -> RawFrame:
    identity = hashlib.sha256(scene_digest(options.name).encode() + pose.tobytes())
    identity.update(repr((options.size, options.antialias)).encode())
    size = (options.size, options.size)
    return RawFrame(
        name=f"{split}/r_{index}",
        image=ImageReference(None, size, partial(_rendered, options, split, index), identity.hexdigest()),
        split=split,
        pose=pose,
        focal=np.full(2, options.focal),
        center=np.full(2, options.size / 2),
        distortion=np.zeros(6),
        model="pinhole",
    )


@lru_cache(maxsize=512)
def _rendered(options: CaptureOptions, split: str, index: int) -> np.ndarray:
    image = render_view(options, view_poses(options, split)[index])
    image.setflags(write=False)
    return image


@lru_cache
def scene_digest(name: str) -> str:
    """Returns the SHA-256 of a scene's definition."""
    digest = hashlib.sha256()
    for array in vars(primitives(name)).values():
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def view_poses(options: CaptureOptions, split: str) -> np.ndarray:
    """Returns the [V, 4, 4] camera-to-world poses of one split.

    Training views spread evenly (golden-angle spiral); test views circle the scene, between the training views.
    """
    count = {"train": options.views, "val": options.val, "test": options.test}[split]
    turn = (np.arange(count) + 0.5) / max(count, 1)
    if split == "train":
        azimuth, level = np.pi * (3 - np.sqrt(5)) * np.arange(count), turn
    else:
        azimuth = 2 * np.pi * (turn + (0.3 if split == "val" else 0.0))
        level = 0.45 + 0.25 * np.sin(2 * azimuth + (1.0 if split == "val" else 0.0))
    if options.name in UNBOUNDED:
        distance = RING_RADIUS * (1.0 + 0.15 * np.sin(3 * azimuth))
        height = 0.05 + 0.5 * level
        origins = np.stack([distance * np.cos(azimuth), distance * np.sin(azimuth), height], axis=-1)
        aim = 0.12 * np.stack([np.sin(2 * azimuth), np.cos(3 * azimuth), np.sin(5 * azimuth)], axis=-1)
    else:
        sine = np.sin(np.radians(-8)) + level * (np.sin(np.radians(78)) - np.sin(np.radians(-8)))
        flat = np.sqrt(1 - sine**2)
        origins = OBJECT_RADIUS * np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), sine], axis=-1)
        aim = np.zeros_like(origins) + AIM
    poses = np.tile(np.eye(4), (count, 1, 1))
    poses[:, :3] = look_at(origins, aim)
    return poses


def render_view(options: CaptureOptions, pose: np.ndarray) -> np.ndarray:
    """Renders one view.

    Args:
      options: of the capture.
      pose: [4, 4] camera-to-world.

    Returns:
      [size, size, 4] uint8, straight alpha.
    """
    size, samples = options.size, options.antialias
    along = (np.arange(size * samples) + 0.5) / samples
    x, y = np.meshgrid((along - size / 2) / options.focal, (size / 2 - along) / options.focal)
    directions = np.stack([x, y, -np.ones_like(x)], axis=-1).reshape(-1, 3) @ pose[:3, :3].T
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    rays = render_rays(primitives(options.name), np.broadcast_to(pose[:3, 3], directions.shape), directions, 0.0, _FAR)
    pixels = np.concatenate([rays.color, rays.accumulation[:, None]], axis=-1)
    pixels = pixels.reshape(size, samples, size, samples, 4).mean(axis=(1, 3))
    pixels[..., :3] /= np.maximum(pixels[..., 3:], 1e-9)
    return (np.clip(pixels, 0.0, 1.0) * 255 + 0.5).astype(np.uint8)


def write_blender_capture(
    name: str, out_dir, views: int = 60, size: int = 128, *, test: int = 8, val: int = 2, antialias: int = 2
) -> Path:
    """Renders a scene to a folder in the Blender layout, which appears only when it is complete.

    Args:
      name: of the scene.
      out_dir: the folder; must not exist, or be empty.
      views: number of training views.
      size: width and height, pixels.
      test: number of test views.
      val: number of validation views.
      antialias: rays per pixel and axis.

    Returns:
      The folder.
    """
    options = parse_source(f"{PREFIX}{name}?{views=}&{val=}&{test=}&{size=}&{antialias=}")
    out = Path(out_dir)
    if out.exists() and any(out.iterdir()):
        raise UserError("The folder is not empty.", file=out, fix="give a new folder")
    partial_folder = out.with_name(out.name + ".partial")
    shutil.rmtree(partial_folder, ignore_errors=True)
    for split in SPLITS:
        (partial_folder / split).mkdir(parents=True)
        poses = view_poses(options, split)
        with ThreadPoolExecutor() as pool:
            images = list(pool.map(partial(_rendered, options, split), range(len(poses))))
        frames = []
        for index, pose in enumerate(poses):
            Image.fromarray(images[index]).save(partial_folder / split / f"r_{index}.png")
            frames.append({"file_path": f"./{split}/r_{index}", "transform_matrix": pose.tolist()})
        if frames:
            content = {"camera_angle_x": options.camera_angle, "frames": frames}
            (partial_folder / f"transforms_{split}.json").write_text(json.dumps(content, indent=1))
    if out.exists():
        out.rmdir()
    os.replace(partial_folder, out)
    return out
