"""A small reconstruction: cameras on a ring around points, exact observations, grey images."""

from __future__ import annotations

import numpy as np
from PIL import Image

from nerfjax.geometry import cameras as lens
from nerfjax.geometry.poses import invert_similarity, look_at, transform_poses
from nerfjax.scenes.colmap_model import ColmapCamera, ColmapImage, ColmapModel
from nerfjax.scenes.colmap_write import image_from, write_model
from nerfjax.types import CAMERA_MODELS, Cameras

FOCUS = np.array([3.0, -2.0, 0.5])
SIZE = (40, 30)
PINHOLE = ColmapCamera("PINHOLE", SIZE, np.array([36.0, 38.0, 21.0, 14.5]))


def ring_pose(index, count=9, radius=2.5):
    """[4, 4] camera-to-world, OpenGL axes."""
    angle = 2 * np.pi * index / count
    position = FOCUS + radius * np.array([np.cos(angle), np.sin(angle), 0.4])
    return np.concatenate([look_at(position, FOCUS), [[0, 0, 0, 1]]])


def wall_pose(index, count=9, spread=1.0):
    """[4, 4]: cameras side by side that look along -y, slightly inwards."""
    x = spread * (index / (count - 1) - 0.5)
    return np.concatenate([look_at([x, 0, 0.1 * (index % 3)], [0.3 * x, -10, 0]), [[0, 0, 0, 1]]])


def original_poses(scene):
    """The poses in the capture's coordinates."""
    return transform_poses(invert_similarity(scene.to_scene), np.asarray(scene.cameras.pose, np.float64))


def has_note(scene, *words):
    return any(all(word in note for word in words) for note in scene.notes)


def cloud(count=60, center=FOCUS, size=0.4, seed=0):
    return center + np.random.default_rng(seed).uniform(-size, size, (count, 3))


def observe(image: ColmapImage, camera: ColmapCamera, pose, points) -> ColmapImage:
    """The same image with the pixels at which it sees the points."""
    calibration, n = camera.calibration(), len(points)
    cameras = Cameras(
        pose=np.repeat(pose[None, :3], n, 0), focal=np.repeat(calibration.focal[None], n, 0),
        center=np.repeat(calibration.center[None], n, 0), distortion=np.repeat(calibration.distortion[None], n, 0),
        size=np.repeat(np.array([camera.size], np.int32), n, 0),
        model=np.full(n, CAMERA_MODELS.index(calibration.model), np.int32), models=(calibration.model,),
    )  # fmt: skip
    pixels = lens.project(cameras, points, xp=np).pixels
    return ColmapImage(image.name, image.camera, image.quaternion, image.translation, pixels, np.arange(n) + 7)


def sample_model(names, *, camera=PINHOLE, pose=ring_pose, cameras=None, points=None, seen=True) -> ColmapModel:
    """A model of one camera, or of one camera per image (``cameras``), whose images are numbered backwards."""
    points = cloud() if points is None else points
    table = {3: camera} if cameras is None else {i + 1: one for i, one in enumerate(cameras)}
    images = {}
    for i, name in enumerate(names):
        owner = 3 if cameras is None else i + 1
        image = image_from(name, owner, pose(i, len(names)))
        images[100 - i] = observe(image, table[owner], pose(i, len(names)), points) if seen else image
    return ColmapModel(table, images, np.arange(len(points)) + 7, points)


def write_images(folder, names, size=SIZE, mode="RGB"):
    for i, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fill = (10 * i, 100, 200, 255)[: len(mode)] if len(mode) > 1 else 10 * i
        Image.new(mode, size, fill).save(path, "PNG")


def write_capture(root, count=9, *, names=None, model="sparse/0", text=False, images="images", size=SIZE, **options):
    """Writes images and their model; returns the source and the model."""
    names = names or [f"{i:03d}.png" for i in range(count)]
    write_images(root / images, names, size)
    made = sample_model(names, **options)
    write_model(root / model, made, text=text)
    return str(root), made
