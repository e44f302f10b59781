"""From the frames that a reader found to a ``Scene``: normalisation, bounds, sizes, digests.

Object captures (transparent images) keep their frame where the object stands around the origin; their bounds follow
from the cameras' distances. Photographs are unbounded: they are turned upright, centred at the point that the cameras
look at, and scaled so that the cameras stand about one unit away from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nerfjax.errors import UserError
from nerfjax.geometry.cameras import cameras_from, full_distortion
from nerfjax.geometry.poses import similarity_matrix, transform_points, transform_poses
from nerfjax.scenes.base import Frame, Scene, duplicate_notes, shorten
from nerfjax.scenes.capture import Capture, RawFrame
from nerfjax.scenes.images import downscaled_size, has_transparency
from nerfjax.scenes.json_frames import LARGEST
from nerfjax.scenes.normalize import normalization, scene_center
from nerfjax.scenes.point_bounds import bounds_from_points, reach_of_points
from nerfjax.types import Cameras, SceneGeometry

NEAR_UNBOUNDED, FAR_UNBOUNDED = 0.05, 1000.0  # where nothing tells them
NEAREST, FARTHEST, LARGEST_BOX = 0.005, 1e6, 4.0
BEFORE_REGION, AROUND_REGION = 0.8, 1.25  # margins around a region that the capture states


def assemble(capture: Capture, *, downscale: float | int = 1) -> Scene:
    """Normalises a capture and builds its scene.

    Args:
      capture: what the reader found.
      downscale: factor by which images become smaller.

    Raises:
      UserError: no training frames, or cameras that do not make a capture.
    """
    capture = _with_sound_points(capture)
    training = [frame for frame in capture.frames if frame.split == "train"]
    if not training:
        raise UserError(
            "The capture has no training image.", file=capture.source, found=f"{len(capture.frames)} frames"
        )
    is_object = has_transparency(training[0].image) if capture.is_object is None else capture.is_object
    poses = np.stack([frame.pose for frame in capture.frames])
    if is_object and _surrounds_origin(poses):
        return scene_in_frame(capture, np.eye(4), is_object=True, downscale=downscale)
    to_scene, provenance, notes = normalization(poses, [frame.name for frame in capture.frames])
    if not provenance["inward_facing"]:
        unit = _distance_of_content(capture, to_scene)
        to_scene = similarity_matrix(scale=1.0 / unit) @ to_scene
        provenance = {**provenance, "scale": provenance["scale"] / unit, "nearest_content": unit}
    capture = replace(
        capture, notes=(*capture.notes, *notes), provenance={**capture.provenance, "normalization": provenance}
    )
    return scene_in_frame(capture, to_scene, is_object=is_object, downscale=downscale)


def _with_sound_points(capture: Capture) -> Capture:
    """Leaves out points that are none: one number beyond all bounds would become infinite in float32."""
    if capture.points is None:
        return capture
    good = (np.abs(capture.points) <= LARGEST).all(axis=-1)
    if good.all():
        return capture
    note = f"{int((~good).sum())} of {len(good)} sparse points are no points and were left out."
    return replace(capture, points=capture.points[good] if good.any() else None, notes=(*capture.notes, note))


def _distance_of_content(capture: Capture, to_scene: np.ndarray) -> float:
    """Returns how far from the cameras' middle the nearest content is, but at least one: the new unit of length.

    Cameras that look one way may stand close together before a far scene: the contraction of space would squeeze all
    of it into a thin shell if the cameras' spread were the unit.
    """
    scale = float(np.cbrt(np.linalg.det(to_scene[:3, :3])))
    if capture.points is not None and len(capture.points):
        distance = np.linalg.norm(transform_points(to_scene, capture.points), axis=-1)
        return max(1.0, float(np.quantile(distance, 0.01)))
    near = scale * float(capture.near_far[0]) if capture.near_far is not None else 0.0
    return max(1.0, near) if np.isfinite(near) else 1.0


def _surrounds_origin(poses: np.ndarray) -> bool:
    """Says whether the cameras look at the origin, or at nothing in common: then an object's frame is kept."""
    center, inward = scene_center(poses)
    distance = np.median(np.linalg.norm(poses[:, :3, 3] - center, axis=-1))
    return not inward or bool(np.linalg.norm(center) < 0.5 * distance)


def scene_in_frame(capture: Capture, to_scene: np.ndarray, *, is_object: bool, downscale: float | int = 1) -> Scene:
    """Builds a scene whose coordinates are given.

    Args:
      capture: what the reader found.
      to_scene: [4, 4] similarity, capture to scene coordinates.
      is_object: whether the images show an object on nothing (bounded, on white) or the world (unbounded).
      downscale: factor by which images become smaller.
    """
    poses = transform_poses(to_scene, np.stack([frame.pose[:3] for frame in capture.frames]))
    length_scale = float(np.cbrt(np.linalg.det(to_scene[:3, :3])))
    frames, cameras = _frames_and_cameras(capture, poses, downscale, length_scale)
    train = np.array([i for i, frame in enumerate(frames) if frame.split == "train"])
    points = None if capture.points is None else transform_points(to_scene, capture.points).astype(np.float32)
    if is_object:
        geometry = object_geometry(cameras[train])
    else:
        stated = None if capture.near_far is None else length_scale * np.array(capture.near_far, np.float64)
        geometry = unbounded_geometry(cameras[train], points, stated, _region(capture, to_scene))
    return Scene(
        name=capture.name,
        format=capture.format,
        source=capture.source,
        frames=frames,
        cameras=cameras,
        geometry=geometry,
        background="white" if is_object else None,
        to_scene=to_scene if capture.applied is None else to_scene @ capture.applied,
        camera_digest=camera_digest(capture.frames),
        downscale=downscale,
        notes=(*capture.notes, *_warnings(capture.frames), *duplicate_notes(frames)),
        provenance=capture.provenance,
        points=points,
    )


def camera_digest(frames: Sequence[RawFrame]) -> str:
    """Returns the SHA-256 of all cameras in float64."""
    digest = hashlib.sha256()
    for frame in frames:
        numbers = np.concatenate([frame.pose[:3].ravel(), frame.focal, frame.center, full_distortion(frame.distortion)])
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


def unbounded_geometry(
    cameras: Cameras,
    points: np.ndarray | None = None,
    near_far: np.ndarray | None = None,
    region: np.ndarray | None = None,
) -> SceneGeometry:
    """Bounds of a normalised photo capture: full resolution around the focus, the cameras inside.

    Args:
      cameras: of the training images.
      points: [P, 3] sparse points; they tell near, a far that lies beyond the usual one, and where the scene is when
        the cameras do not surround it.
      near_far: [2] distances that the capture states; they serve where points do not.
      region: [R, 3] points all over the region that the capture states to hold what is of interest; it serves where
        neither does: near lies before it, and the box of full resolution is little larger.
    """
    reach = np.abs(cameras.pose[:, :, 3]).max(axis=-1)
    half = float(np.clip(1.1 * np.quantile(reach, 0.9), 1.0, 1.5))
    near, far = NEAR_UNBOUNDED, FAR_UNBOUNDED
    seen = None if points is None or not len(points) else bounds_from_points(cameras, points)
    if seen is not None:
        near, far = max(seen.near, NEAREST), min(max(far, seen.far), FARTHEST)
        half = min(max(half, reach_of_points(points)), LARGEST_BOX)
    elif near_far is not None and np.isfinite(near_far).all() and 0 < near_far[0] < near_far[1]:
        near, far = max(0.9 * float(near_far[0]), NEAREST), min(max(far, float(near_far[1])), FARTHEST)
    elif region is not None:
        distance = np.linalg.norm(cameras.pose[:, None, :, 3] - region[None], axis=-1)
        near = max(near, BEFORE_REGION * float(distance.min()))
        half = min(half, AROUND_REGION * float(np.abs(region).max()))
    near = min(near, 0.01 * far)
    return _geometry(cameras, half, near, far, spacing="piecewise", bounded=False)


def _region(capture: Capture, to_scene: np.ndarray) -> np.ndarray | None:
    """Returns points [P, 3] all over the capture's region of interest, scene coordinates, or None."""
    if capture.region is None or not np.isfinite(capture.region).all():
        return None
    share = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, 9)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    choose = np.indices((2, 2, 2)).reshape(3, -1).T
    weights = np.where(choose == 1, share[:, None], 1.0 - share[:, None]).prod(axis=-1)
    return transform_points(to_scene, weights @ capture.region)


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
    capture: Capture, poses: np.ndarray, downscale: float | int, length_scale: float | int
) -> tuple[tuple[Frame, ...], Cameras]:
    frames, scales = [], []
    for frame in capture.frames:
        size = downscaled_size(frame.image.size, downscale)
        scales.append(np.array(size) / np.array(frame.image.size))
        mask = frame.mask.resized(size) if frame.mask is not None else None
        depth = replace(frame.depth, scale=length_scale) if frame.depth is not None else None
        frames.append(Frame(frame.name, frame.image.resized(size), frame.split, mask, depth))
    cameras = cameras_from(
        poses,
        np.stack([frame.focal / _focal_unit(frame, length_scale) for frame in capture.frames]) * scales,
        np.stack([frame.center for frame in capture.frames]) * scales,
        size=[frame.image.size for frame in frames],
        model=[frame.model for frame in capture.frames],
        distortion=np.stack([full_distortion(frame.distortion) for frame in capture.frames]),
        file=capture.source,
        names=[frame.name for frame in frames],
        allow_outside_center=True,
    )
    return tuple(frames), cameras


def _focal_unit(frame: RawFrame, length_scale: float | int) -> float | int:
    """Returns scene units per unit in which the focal length is stated: orthographic ones are pixels per length."""
    return length_scale if frame.model == "orthographic" else 1.0


def _warnings(frames: Sequence[RawFrame]) -> list[str]:
    notes = []
    outside = [f.name for f in frames if ((f.center < 0) | (f.center > np.array(f.image.size))).any()]
    if outside:
        notes.append(f"The principal point lies outside {len(outside)} images ({shorten(outside)}): were they cropped?")
    notes += _odd_lenses(frames)
    masked = sum(f.mask is not None for f in frames)
    if masked:
        notes.append(f"{masked} of {len(frames)} frames have masks; masked pixels are ignored.")
    return notes


def _odd_lenses(frames: Sequence[RawFrame]) -> list[str]:
    """Names frames whose lens is not the one that nearly all others share (for their images' size)."""
    groups: dict[tuple, list[str]] = {}
    for frame in frames:
        side = np.array(frame.image.size, np.float64)
        numbers = np.concatenate([frame.focal / side, frame.center / side, full_distortion(frame.distortion)])
        groups.setdefault((frame.model, *np.round(numbers, 7)), []).append(frame.name)
    most = max(map(len, groups.values()))
    odd = [frame for group in groups.values() if len(group) < most for frame in group]
    if not odd or len(odd) > 0.4 * len(frames):
        return []
    return [f"{len(odd)} of {len(frames)} frames have another lens than the rest: {shorten(odd)}."]


def capture_name(folder: Path) -> str:
    """Returns a short name for the scene in a folder."""
    return folder.resolve().name or "scene"
