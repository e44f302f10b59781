"""A ring of cameras around a point, and what a reader must make of it, for tests of formats with a file per pose."""

from __future__ import annotations

import json

import numpy as np
from PIL import Image

from nerfjax.geometry.cameras import project
from nerfjax.geometry.poses import invert_similarity, look_at, transform_points, transform_poses

COUNT, SIZE, FOCUS = 4, (8, 6), np.array([0.3, -0.2, 0.5])
FOCAL, CENTER = (10.0, 11.0), (4.5, 2.5)
K = np.array([[FOCAL[0], 0, CENTER[0]], [0, FOCAL[1], CENTER[1]], [0, 0, 1]])
FLIP = np.diag([1.0, -1.0, -1.0, 1.0])


def opengl(index, count=COUNT, radius=2.0):
    """[4, 4] camera-to-world, OpenGL axes."""
    angle = 2 * np.pi * index / count + 0.1
    position = FOCUS + radius * np.array([np.cos(angle), np.sin(angle), 0.4 + 0.05 * index])
    return np.concatenate([look_at(position, FOCUS), [[0, 0, 0, 1]]])


def opencv(index, count=COUNT):
    """[4, 4] camera-to-world, OpenCV axes."""
    return opengl(index, count) @ FLIP


def write_image(path, index=0, size=SIZE, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, (10 * index + 5, 100, 200, 255)[: len(mode)]).save(path)


def write_text(path, matrix):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(" ".join(f"{value:.17g}" for value in row) for row in matrix) + "\n")


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def check(scene, indices=range(COUNT), *, focal=FOCAL, center=CENTER, names=None):
    """Rows must be the ring's cameras ``indices``: poses in the original coordinates, intrinsics, names."""
    assert len(scene.frames) == len(indices)
    back = transform_poses(invert_similarity(scene.to_scene), np.asarray(scene.cameras.pose, np.float64))
    np.testing.assert_allclose(back, np.stack([opengl(i)[:3] for i in indices]), atol=2e-6)
    np.testing.assert_allclose(scene.cameras.focal, [focal] * len(indices), rtol=1e-5)
    np.testing.assert_allclose(scene.cameras.center, [center] * len(indices), rtol=1e-5)
    if names is not None:
        assert [frame.name for frame in scene.frames] == names
    if scene.cameras.models == ("pinhole",):
        # A known point is seen in the pixel that K [R | t] says.
        point = FOCUS + [0.1, 0.2, -0.1]
        row, index = 1, list(indices)[1]
        local = np.linalg.inv(opencv(index)) @ [*point, 1]
        pixel = np.array(focal) * local[:2] / local[2] + center
        seen = project(scene.cameras[row], transform_points(scene.to_scene, point), xp=np).pixels
        np.testing.assert_allclose(seen, pixel, atol=1e-4)
