from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from nerfjax.errors import UserError
from nerfjax.geometry.poses import look_at
from nerfjax.scenes import read_scene


def write_blender(folder, radius=4.0, counts=(4, 1, 2), alpha=True):
    for split, count in zip(("train", "val", "test"), counts, strict=True):
        frames = []
        for i in range(count):
            angle = 2 * np.pi * i / count + 0.1 * len(split)
            pose = np.eye(4)
            pose[:3] = look_at(radius * np.array([np.cos(angle), np.sin(angle), 0.0]), np.zeros(3))
            frames.append({"file_path": f"./{split}/r_{i}", "rotation": 0.1, "transform_matrix": pose.tolist()})
            image = np.full((10, 10, 4), (200, 10 * i, len(split), 255), np.uint8)
            if alpha:
                image[:5] = (255, 0, 0, 0)
            (folder / split).mkdir(exist_ok=True)
            Image.fromarray(image).save(folder / split / f"r_{i}.png")
        if count:
            content = {"camera_angle_x": 0.6911112070083618, "frames": frames}
            (folder / f"transforms_{split}.json").write_text(json.dumps(content))
    return str(folder)


@pytest.mark.parametrize("radius", [0.4, 4.0311, 40.0])
def test_bounds_follow_from_the_camera_distances(tmp_path, radius):
    geometry = read_scene(write_blender(tmp_path, radius)).geometry
    assert geometry.near == pytest.approx(radius / 2, rel=1e-5) and geometry.far == pytest.approx(
        1.5 * radius, rel=1e-5
    )
    np.testing.assert_allclose(geometry.box, np.array([[-1.0] * 3, [1.0] * 3]) * 0.375 * radius, rtol=1e-5)
    assert geometry.bounded and geometry.spacing == "linear"


def test_object_capture(tmp_path):
    scene = read_scene(write_blender(tmp_path))
    assert scene.format == "blender" and scene.background == "white"
    assert scene.split_names()["test"] == ["test/r_0", "test/r_1"]
    np.testing.assert_array_equal(scene.to_scene, np.eye(4))
    assert scene.frames[0].image.read().shape == (10, 10, 4)
    np.testing.assert_allclose(scene.cameras.focal, 5 / np.tan(0.3455556), rtol=1e-5)
    frames, cameras = scene.subset("test")
    assert len(frames) == len(cameras) == 2
    assert read_scene(str(tmp_path / "transforms_train.json")).fingerprint() == scene.fingerprint()


def test_absent_splits_are_empty(tmp_path):
    scene = read_scene(write_blender(tmp_path, counts=(3, 0, 0)))
    assert scene.indices("val") == scene.indices("test") == ()
    assert len(scene.subset("test").cameras) == 0


def test_opaque_photos_are_unbounded(tmp_path):
    scene = read_scene(write_blender(tmp_path, alpha=False))
    assert scene.background is None and not scene.geometry.bounded


def test_the_same_photo_in_two_splits_is_noted(tmp_path):
    source = write_blender(tmp_path)
    (tmp_path / "test/r_1.png").write_bytes((tmp_path / "train/r_2.png").read_bytes())
    notes = read_scene(source).notes
    assert any("1 images occur in two splits (train/r_2 = test/r_1)" in note for note in notes)


def test_a_missing_test_folder_is_not_replaced_by_training_images(tmp_path):
    source = write_blender(tmp_path)
    for path in (tmp_path / "test").iterdir():
        path.unlink()
    (tmp_path / "test").rmdir()
    with pytest.raises(UserError, match="None of the images exists"):
        read_scene(source)
