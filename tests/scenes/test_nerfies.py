from __future__ import annotations

import numpy as np
import pytest
from ring_capture import CENTER, COUNT, FOCAL, check, opencv, write_image, write_json

from nerfjax.errors import UserError
from nerfjax.scenes import READERS, read_scene


def camera(index, **change):
    pose = opencv(index)
    return {
        "orientation": pose[:3, :3].T.tolist(),
        "position": pose[:3, 3].tolist(),
        "focal_length": FOCAL[0],
        "principal_point": list(CENTER),
        "skew": 0.0,
        "pixel_aspect_ratio": FOCAL[1] / FOCAL[0],
        "radial_distortion": [0.0, 0.0, 0.0],
        "tangential_distortion": [0.0, 0.0],
        "image_size": [8, 6],
        **change,
    }


def write(folder, size=(8, 6), scale="1x", dataset=True, **change):
    for i in range(COUNT):
        write_json(folder / f"camera/{i:03d}.json", {k: v for k, v in camera(i, **change).items() if v is not None})
        write_image(folder / f"rgb/{scale}/{i:03d}.png", i, size)
    if dataset:
        write_json(folder / "dataset.json", {"train_ids": ["000", "001", "003"], "val_ids": ["002"]})
    write_json(folder / "scene.json", {"scale": 0.5, "center": [1, 2, 3], "near": 0.25, "far": 3.0})
    return str(folder)


def test_b62_orientation_is_world_to_camera_and_position_the_centre(tmp_path):
    source = write(tmp_path)
    assert READERS["nerfies"].sniff(source)
    scene = read_scene(source)
    check(scene, names=[f"rgb/1x/{i:03d}.png" for i in range(COUNT)])
    assert scene.format == "nerfies" and scene.cameras.models == ("pinhole",)
    assert scene.split_names()["test"] == ["rgb/1x/002.png"]


def test_b29_pixel_aspect_ratio_is_fy_over_fx(tmp_path):
    scene = read_scene(write(tmp_path, focal_length=600.0, pixel_aspect_ratio=1.1))
    np.testing.assert_allclose(scene.cameras.focal[0], [600, 660], rtol=1e-6)


@pytest.mark.parametrize("key", ["tangential", "tangential_distortion"])
def test_b62_both_keys_of_the_tangential_distortion(tmp_path, key):
    change = {"tangential_distortion": None, key: [0.01, -0.02], "radial_distortion": [0.1, 0.02, 0.003]}
    scene = read_scene(write(tmp_path, **change))
    assert scene.cameras.models == ("opencv",)
    np.testing.assert_allclose(scene.cameras.distortion[0, :6], [0.1, 0.02, 0.003, 0, 0.01, -0.02], rtol=1e-6)


def test_smaller_images_scale_the_intrinsics(tmp_path):
    scene = read_scene(write(tmp_path, size=(4, 3), scale="2x"))
    np.testing.assert_allclose(scene.cameras.focal[0], np.array(FOCAL) / 2, rtol=1e-6)
    assert any("rgb/2x" in note for note in scene.notes)


def test_listed_frames_only(tmp_path):
    source = write(tmp_path)
    write_json(tmp_path / "dataset.json", {"train_ids": ["000", "001", "gone"], "val_ids": ["003"]})
    scene = read_scene(source)
    check(scene, [0, 1, 3])
    assert any("1 of 4 listed frames have no image" in n and "gone" in n for n in scene.notes)
    assert any("1 images are not listed" in n and "002" in n for n in scene.notes)


def test_without_lists_every_holdout_th_is_for_testing(tmp_path):
    assert read_scene(write(tmp_path, dataset=False), holdout=2).split_names()["test"] == [
        "rgb/1x/000.png",
        "rgb/1x/002.png",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(orientation=None), "incomplete"),
        (dict(orientation=[[2, 0, 0], [0, 2, 0], [0, 0, 2]]), "scaled"),
        (dict(position=[0, 0, float("nan")]), "not the numbers"),
        (dict(focal_length=-1.0), "calibration matrix"),
        (dict(image_size=[6, 8]), "swapped"),
        (dict(radial_distortion=[0.1]), "not the numbers"),
    ],
)
def test_bad_cameras(tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        read_scene(write(tmp_path, **change))


def test_one_camera_and_no_images(tmp_path):
    write_json(tmp_path / "camera.json", camera(0))
    with pytest.raises(UserError, match="no cameras") as caught:
        read_scene(str(tmp_path))
    assert "camera.json" in str(caught.value) and "rgb/1x" in str(caught.value)
