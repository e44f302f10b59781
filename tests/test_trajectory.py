"""Camera paths and their videos."""

from __future__ import annotations

import json
import subprocess

import imageio_ffmpeg
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.geometry.cameras import cameras_from
from nerfjax.geometry.poses import look_at, similarity_matrix
from nerfjax.renderer import RenderedImage
from nerfjax.scenes.base import Frame, Scene
from nerfjax.scenes.images import ImageReference
from nerfjax.trajectory import encode_video, even_sides, path_cameras, render_path
from nerfjax.types import SceneGeometry

SIZE = (40, 30)


@pytest.fixture
def scene() -> Scene:
    turn = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    positions = np.stack([3 * np.cos(turn), 3 * np.sin(turn), np.ones(12)], axis=-1)
    cameras = cameras_from(look_at(positions, np.zeros(3)), 50.0, size=SIZE)
    image = ImageReference(None, SIZE, loader=lambda: np.zeros((SIZE[1], SIZE[0], 3), np.uint8))
    return Scene(
        name="ring",
        format="test",
        source="ring",
        frames=tuple(Frame(f"{i}.png", image, "train") for i in range(12)),
        cameras=cameras,
        geometry=SceneGeometry(
            box=np.array([[-1, -1, -1], [1, 1, 1]], np.float32),
            near=np.float32(1),
            far=np.float32(5),
            cameras=cameras,
        ),
        background=None,
        to_scene=similarity_matrix(scale=0.5, translation=(1.0, 2.0, 3.0)),
        camera_digest="",
    )


@pytest.mark.parametrize("path", ["orbit", "spiral", "interpolate"])
def test_named_paths_have_the_captures_lens(scene, path):
    cameras = path_cameras(scene, path, frames=7)
    assert len(cameras) == 7
    np.testing.assert_allclose(cameras.focal, 50.0, rtol=1e-6)
    assert np.all(cameras.size == SIZE)
    assert len(np.unique(cameras.pose.round(6), axis=0)) == 7


@pytest.mark.parametrize("size", [(80, 60), (80, 30), (20, 60)])
def test_another_size_shows_no_more_than_the_capture_saw(scene, size):
    cameras = path_cameras(scene, "orbit", frames=2, size=size)
    shown, seen = np.array(size) / cameras.focal[0], np.array(SIZE) / 50.0
    assert np.all(shown <= seen * (1 + 1e-6))
    assert np.isclose(shown / seen, 1).any()


def test_a_file_is_in_the_captures_coordinates(scene, tmp_path):
    pose = np.eye(4)
    pose[:3] = look_at([4.0, 0.0, 0.0], [0.0, 0.0, 0.0])
    file = tmp_path / "path.json"
    file.write_text(json.dumps({"camera_angle_x": 1.0, "frames": [{"transform_matrix": pose.tolist()}] * 3}))
    cameras = path_cameras(scene, str(file))
    assert len(cameras) == 3
    np.testing.assert_allclose(cameras.pose[0, :, 3], [3.0, 2.0, 3.0], atol=1e-6)
    np.testing.assert_allclose(cameras.pose[0, :, :3], pose[:3, :3], atol=1e-6)
    np.testing.assert_allclose(cameras.focal[0], 0.5 * SIZE[0] / np.tan(0.5), rtol=1e-6)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"frames": []}', '{"frames": [{"transform_matrix": [1]}]}'])
def test_a_file_that_is_no_path(scene, tmp_path, text):
    file = tmp_path / "path.json"
    file.write_text(text)
    with pytest.raises(UserError, match="no camera path"):
        path_cameras(scene, str(file))


def test_wrong_names_are_met_with_a_hint(scene):
    with pytest.raises(UserError, match="orbit"):
        path_cameras(scene, "orbitt")
    with pytest.raises(UserError, match="no such path file"):
        path_cameras(scene, "nowhere.json")


def view_of_column(camera) -> RenderedImage:
    """A picture whose grey level says which camera it is of."""
    (width, height), level = camera.size[0], np.float32(camera.pose[0, 0, 3])
    color = np.full((height, width, 3), level, np.float32)
    color[: height // 2] = 1 - level
    return RenderedImage(color, np.ones((height, width)), np.ones((height, width)))


def decode(path) -> np.ndarray:
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    return np.frombuffer(subprocess.run(command, capture_output=True, check=True).stdout, np.uint8)


@pytest.mark.parametrize("size", [(32, 24), (33, 27)])
def test_the_video_shows_the_frames(tmp_path, size):
    levels = np.array([0.1, 0.5, 0.9])
    poses = np.tile(np.eye(4)[:3], (3, 1, 1))
    poses[:, 0, 3] = levels
    cameras = cameras_from(poses, 30.0, size=size)
    out = render_path(view_of_column, cameras, tmp_path / "deep" / "path.mp4", fps=10)
    width, height = size[0] + size[0] % 2, size[1] + size[1] % 2
    frames = decode(out).reshape(-1, height, width, 3)
    assert len(frames) == 3
    assert [path.name for path in out.parent.iterdir()] == ["path.mp4"]
    np.testing.assert_allclose(frames[:, -6:].mean(axis=(1, 2, 3)) / 255, levels, atol=0.03)
    np.testing.assert_allclose(frames[:, :6].mean(axis=(1, 2, 3)) / 255, 1 - levels, atol=0.03)


def test_a_render_that_fails_leaves_nothing(tmp_path):
    def fail(camera):
        raise ValueError("no")

    cameras = cameras_from(np.eye(4)[None], 30.0, size=(8, 8))
    with pytest.raises(ValueError, match="no"):
        render_path(fail, cameras, tmp_path / "path.mp4")
    assert list(tmp_path.iterdir()) == []


def test_even_sides_repeat_the_edge():
    image = np.arange(15, dtype=np.uint8).reshape(5, 3, 1).repeat(3, axis=2)
    padded = even_sides(image)
    assert padded.shape == (6, 4, 3)
    assert np.array_equal(padded[:5, :3], image)
    assert np.array_equal(padded[5, :3], image[4]) and np.array_equal(padded[:5, 3], image[:, 2])


def test_an_encoder_that_refuses_is_one_message(tmp_path):
    frames = (np.zeros((16, 16, 3), np.uint8) for _ in range(3))
    with pytest.raises(UserError, match="could not be written"):
        encode_video(frames, tmp_path / "missing" / "path.mp4", fps=10)
