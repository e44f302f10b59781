"""From the frames that a reader found to a ``Scene``: normalisation, bounds, sizes, digests.

Object captures (transparent images) keep their frame: the object stands around the origin, and bounds follow from the
cameras' distances. Photographs are unbounded: they are turned upright, centred at the point that the cameras look at,
and scaled so that the cameras stand about one unit away from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nerfjax.errors import UserError
from nerfjax.geometry.cameras import cameras_from
from nerfjax.geometry.poses import transform_poses
from nerfjax.scenes.base import Frame, Scene, duplicate_notes, shorten
from nerfjax.scenes.capture import Capture, RawFrame
from nerfjax.scenes.images import downscaled_size, has_transparency
from nerfjax.scenes.normalize import normalization
from nerfjax.types import Cameras, SceneGeometry

NEAR_UNBOUNDED, FAR_UNBOUNDED = 0.05, 1000.0


def assemble(capture: Capture, *, downscale: float | int = 1) -> Scene:
    """Normalises a capture and builds its scene.

    Args:
      capture: what the reader found.
      downscale: factor by which images become smaller.

    Raises:
      UserError: no training frames, or cameras that do not make a capture.
    """
    training = [frame for frame in capture.frames if frame.split == "train"]
    if not training:
        raise UserError(
            "The capture has no training image.", file=capture.source, found=f"{len(capture.frames)} frames"
        )
    is_object = has_transparency(training[0].image) if capture.is_object is None else capture.is_object
    if is_object:
        return scene_in_frame(capture, np.eye(4), is_object=True, downscale=downscale)
    poses = np.stack([frame.pose for frame in capture.frames])
    to_scene, provenance, notes = normalization(poses, [frame.name for frame in capture.frames])
    capture = replace(
        capture, notes=(*capture.notes, *notes), provenance={**capture.provenance, "normalization": provenance}
    )
    return scene_in_frame(capture, to_scene, is_object=False, downscale=downscale)


def scene_in_frame(capture: Capture, to_scene: np.ndarray, *, is_object: bool, downscale: float | int = 1) -> Scene:
    """Builds a scene whose coordinates are given.

    Args:
      capture: what the reader found.
      to_scene: [4, 4] similarity, capture to scene coordinates.
      is_object: whether the images show an object on nothing (bounded, on white) or the world (unbounded).
      downscale: factor by which images become smaller.
    """
    poses = transform_poses(to_scene, np.stack([frame.pose[:3] for frame in capture.frames]))
    frames, cameras = _frames_and_cameras(capture, poses, downscale)
    train = np.array([i for i, frame in enumerate(frames) if frame.split == "train"])
    bounds = object_geometry if is_object else unbounded_geometry
    return Scene(
        name=capture.name,
        format=capture.format,
        source=capture.source,
        frames=frames,
        cameras=cameras,
        geometry=bounds(cameras[train]),
        background="white" if is_object else None,
        to_scene=to_scene,
        camera_digest=camera_digest(capture.frames),
        downscale=downscale,
        notes=(*capture.notes, *_warnings(capture.frames), *duplicate_notes(frames)),
        provenance=capture.provenance,
    )


def camera_digest(frames: Sequence[RawFrame]) -> str:
    """Returns the SHA-256 of all cameras in float64."""
    digest = hashlib.sha256()
    for frame in frames:
        numbers = np.concatenate([frame.pose[:3].ravel(), frame.focal, frame.center, frame.distortion])
        digest.update(numbers.astype("<f8").tobytes() + frame.model.encode())
    return digest.hexdigest()


def object_geometry(cameras: Cameras) -> SceneGeometry:
    """Bounds of an object at the origin: with cameras at distance r, the box is 3/8 r wide to each side.

    Cameras of the synthetic Blender scenes stand 4.03 away: near 2, far 6, box 1.5.
    """
    distance = np.linalg.norm(cameras.pose[:, :, 3].astype(np.float64), axis=-1)
    typical = float(np.median(distance))
    half = 0.375 * typical
    near = max(0.05 * typical, float(distance.min()) - 0.5 * typical)
    return _geometry(cameras, half, near, float(distance.max()) + 0.5 * typical, spacing="linear", bounded=True)


def unbounded_geometry(cameras: Cameras) -> SceneGeometry:
    """Bounds of a normalised photo capture: full resolution around the focus, the cameras inside."""
    reach = np.abs(cameras.pose[:, :, 3]).max(axis=-1)
    half = float(np.clip(1.1 * np.quantile(reach, 0.9), 1.0, 1.5))
    return _geometry(cameras, half, NEAR_UNBOUNDED, FAR_UNBOUNDED, spacing="piecewise", bounded=False)


def _geometry(
    cameras: Cameras, half: float | int, near: float | int, far: float | int, *, spacing: str, bounded: bool
) -> SceneGeometry:
    return SceneGeometry(
        box=np.array([[-half] * 3, [half] * 3], np.float32),
        near=np.float32(near),
        far=np.float32(far),
        cameras=cameras,
        spacing=spacing,
        bounded=bounded,
    )


def _frames_and_cameras(
    capture: Capture, poses: np.ndarray, downscale: float | int
) -> tuple[tuple[Frame, ...], Cameras]:
    frames, scales = [], []
    for frame in capture.frames:
        size = downscaled_size(frame.image.size, downscale)
        scales.append(np.array(size) / np.array(frame.image.size))
        mask = frame.mask.resized(size) if frame.mask is not None else None
        frames.append(Frame(frame.name, frame.image.resized(size), frame.split, mask))
    cameras = cameras_from(
        poses,
        np.stack([frame.focal for frame in capture.frames]) * scales,
        np.stack([frame.center for frame in capture.frames]) * scales,
        size=[frame.image.size for frame in frames],
        model=[frame.model for frame in capture.frames],
        distortion=np.stack([frame.distortion for frame in capture.frames]),
        file=capture.source,
        names=[frame.name for frame in frames],
        allow_outside_center=True,
    )
    return tuple(frames), cameras


def _warnings(frames: Sequence[RawFrame]) -> list[str]:
    notes = []
    outside = [f.name for f in frames if ((f.center < 0) | (f.center > np.array(f.image.size))).any()]
    if outside:
        notes.append(f"The principal point lies outside {len(outside)} images ({shorten(outside)}): were they cropped?")
    masked = sum(f.mask is not None for f in frames)
    if masked:
        notes.append(f"{masked} of {len(frames)} frames have masks; training does not use masks yet.")
    return notes


def capture_name(folder: Path) -> str:
    """Returns a short name for the scene in a folder."""
    return folder.resolve().name or "scene"
