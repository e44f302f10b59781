"""Camera paths through a trained scene, and their videos.

A path is a sequence of pinhole cameras in SCENE coordinates. A path file is written in the CAPTURE's coordinates, like
the capture itself, and goes through the scene's own transform.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterable

import imageio_ffmpeg
import numpy as np
from rich.console import Console
from rich.progress import track

from nerfjax.errors import UserError, did_you_mean
from nerfjax.geometry.cameras import cameras_from
from nerfjax.geometry.paths import interpolate_path, orbit_path, spiral_path
from nerfjax.geometry.poses import check_poses, transform_poses
from nerfjax.renderer import RenderedImage
from nerfjax.scenes.base import Scene
from nerfjax.types import Cameras

FRAMES_PER_KEY = 12
# What is seen of an equirectangular or orthographic capture, which has no field of view of its own.
DEFAULT_FIELD_OF_VIEW = math.radians(60)


def _interpolate(poses: np.ndarray, count: int) -> np.ndarray:
    keys = np.linspace(0, len(poses) - 1, min(len(poses), max(2, count // FRAMES_PER_KEY))).round().astype(int)
    return interpolate_path(poses[keys], count)


PATHS: dict[str, Callable[..., np.ndarray]] = {
    "orbit": orbit_path,
    "spiral": spiral_path,
    "interpolate": _interpolate,
}


def path_cameras(scene: Scene, path: str, *, frames: int = 60, size: tuple[int, int] | None = None) -> Cameras:
    """Returns the cameras of a path.

    Args:
      scene: the capture; its training cameras shape the path and give the lens.
      path: a name of ``PATHS``, or a file in the capture's coordinates: ``{"frames": [{"transform_matrix": 4x4}]}``,
        optionally with ``fl_x`` and ``w``, or ``camera_angle_x``.
      frames: number of cameras; a file has its own.
      size: (width, height), pixels; the training cameras' median by default.

    Returns:
      K cameras, NumPy leaves, scene coordinates.

    Raises:
      UserError: no such path, or a file that is none.
    """
    cameras = scene.subset("train").cameras
    captured, angle = _lens(cameras)
    if path in PATHS:
        poses = PATHS[path](np.asarray(cameras.pose, np.float64), frames)
    elif path.endswith(".json"):
        poses, own_angle = _read_path(pathlib.Path(path))
        poses, angle = transform_poses(scene.to_scene, poses), own_angle or angle
    else:
        fix = did_you_mean(path, [*PATHS, "FILE.json"])
        raise UserError("Unknown camera path.", field="--path", found=path, fix=fix)
    width, height = size or captured
    # A picture of another shape shows a part of what the capture's cameras saw, never more.
    focal = 0.5 * captured[0] / math.tan(0.5 * angle) * max(width / captured[0], height / captured[1])
    return cameras_from(poses, focal, size=(width, height))


def _lens(cameras: Cameras) -> tuple[tuple[int, int], float]:
    """Median size (width, height) and horizontal field of view (radians) of the training cameras."""
    width, height = (int(side) for side in np.median(np.asarray(cameras.size), axis=0))
    if {"equirectangular", "orthographic"} & set(cameras.models):
        return (width, height), DEFAULT_FIELD_OF_VIEW
    half = 0.5 * np.asarray(cameras.size)[:, 0] / np.asarray(cameras.focal, np.float64)[:, 0]
    return (width, height), 2 * math.atan(float(np.median(half)))


def _read_path(path: pathlib.Path) -> tuple[np.ndarray, float | None]:
    """Returns the poses [K, 3, 4] of a path file, capture coordinates, and its field of view where it has one."""
    try:
        document = json.loads(path.read_text())
        poses = np.asarray([frame["transform_matrix"] for frame in document["frames"]], np.float64)
        if poses.ndim != 3 or poses.shape[1:] not in ((3, 4), (4, 4)) or not len(poses):
            raise ValueError(f"transform_matrix of shape {poses.shape[1:]}, {len(poses)} frames")
        angle = document.get("camera_angle_x")
        if angle is None and "fl_x" in document and "w" in document:
            angle = 2 * math.atan(0.5 * float(document["w"]) / float(document["fl_x"]))
    except FileNotFoundError:
        raise UserError("There is no such path file.", field="--path", file=path) from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(
            "The file holds no camera path.",
            file=path,
            found=repr(error),
            expected='{"frames": [{"transform_matrix": 4x4 camera-to-world, OpenGL axes}, …]}',
        ) from error
    check_poses(poses[:, :3], file=path, names=[f"frame {i}" for i in range(len(poses))])
    return poses[:, :3], None if angle is None else float(angle)


def render_path(
    render_view: Callable[[Cameras], RenderedImage], cameras: Cameras, out: str | os.PathLike, *, fps: float | int = 30
) -> pathlib.Path:
    """Renders cameras to an H.264 video that every browser plays.

    Args:
      render_view: camera (one row, NumPy leaves) → ``RenderedImage``.
      cameras: K cameras of one size.
      out: the .mp4 file; it appears when the video is whole.
      fps: frames a second.

    Returns:
      ``out``.
    """
    out = pathlib.Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.stem}.{os.getpid()}.partial.mp4")
    console = Console(stderr=True)
    rows = track(range(len(cameras)), "rendering", console=console, disable=not console.is_terminal)
    try:
        encode_video((_frame(render_view(cameras[np.array([row])])) for row in rows), partial, fps=fps)
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)
    return out


def encode_video(frames: Iterable[np.ndarray], path: pathlib.Path, *, fps: float | int) -> None:
    """Encodes frames [H, W, 3] uint8 of one even size as H.264 (4:2:0), pixel for pixel, by the packaged ffmpeg.

    The encoder is called directly: ``imageio`` starts it through a fork with a hook, which JAX's threads forbid.

    Raises:
      UserError: the encoder refused (a full disk, a frame of another size).
    """
    waiting = iter(frames)
    first = next(waiting)
    height, width = first.shape[:2]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-", "-c:v", "libx264", "-pix_fmt", "yuv420p"]
    command += ["-crf", "18", "-movflags", "+faststart", os.fspath(path)]
    # A session of its own: Ctrl-C reaches us only, and we end the encoder.
    encoder = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        with contextlib.suppress(BrokenPipeError):  # its message comes below
            for frame in itertools.chain([first], waiting):
                encoder.stdin.write(np.ascontiguousarray(frame).data)
    except BaseException:
        encoder.kill()
        raise
    finally:
        message = encoder.communicate()[1].decode(errors="replace").strip()
    if encoder.returncode:
        raise UserError("The video could not be written.", file=path, found=message)


def _frame(rendered: RenderedImage) -> np.ndarray:
    return even_sides(np.rint(np.clip(np.asarray(rendered.color), 0, 1) * 255).astype(np.uint8))


def even_sides(image: np.ndarray) -> np.ndarray:
    """Repeats the last row and column where a side is odd: 4:2:0 chroma covers 2x2 pixels."""
    return np.pad(image, ((0, image.shape[0] % 2), (0, image.shape[1] % 2), (0, 0)), mode="edge")
