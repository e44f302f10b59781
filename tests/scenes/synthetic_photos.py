"""Cameras on a ring, their images on disk, and the check that a scene projects points where a format's formula does."""

from __future__ import annotations

import numpy as np
from PIL import Image

from nerfjax.geometry.cameras import project
from nerfjax.geometry.poses import look_at, transform_points

FOCUS = np.array([3.0, -2.0, 0.5])
POINTS = FOCUS + 0.3 * np.random.default_rng(0).uniform(-1, 1, (20, 3))


def ring(count=6, radius=2.5):
    """World-to-camera (R, t), OpenCV axes, of cameras that look at FOCUS and are rolled a little."""
    cameras = []
    for i in range(count):
        angle, roll = 2 * np.pi * i / count, 0.1 * i
        position = FOCUS + radius * np.array([np.cos(angle), np.sin(angle), 0.3 + 0.1 * i])
        pose = look_at(position, FOCUS)
        c, s = np.cos(roll), np.sin(roll)
        rotation = (pose[:, :3] @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) * [1, -1, -1]).T
        cameras.append((rotation, -rotation @ position))
    return cameras


def write_images(folder, names, size=(80, 60)):
    for i, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        width, height = size[i] if isinstance(size, list) else size
        Image.new("RGB", (width, height), (10 * i, 100, 200)).save(path, "PNG")


def radial(x, y, *coefficients):
    q = x * x + y * y
    factor = 1 + sum(k * q ** (i + 1) for i, k in enumerate(coefficients))
    return x * factor, y * factor


def check_projection(scene, formula, tolerance=2e-3):
    """``formula(name, X)`` gives the pixel of a world point by the format's documentation; [P, 3] -> [P, 2]."""
    points = transform_points(scene.to_scene, POINTS)
    for i, frame in enumerate(scene.frames):
        found = project(scene.cameras[np.full(len(points), i)], points, xp=np)
        assert found.valid.all(), frame.name
        np.testing.assert_allclose(found.pixels, formula(frame.name, POINTS), atol=tolerance, err_msg=frame.name)
