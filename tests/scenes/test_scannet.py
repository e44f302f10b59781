from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from ring_capture import COUNT, K, check, opencv, write_image, write_text

from nerfjax.errors import UserError
from nerfjax.scenes import read_scene

KINECT = dict(focal=(585 / 80, 585 / 80), center=(4, 3))


def write_seven(folder, extension="png", splits=True):
    for i in range(COUNT):
        stem = folder / f"seq-{1 + i // 2:02d}/frame-{i % 2:06d}"
        write_image(stem.with_name(f"{stem.name}.color.{extension}"), i)
        depth = np.full((3, 4), 1500, np.uint16)
        depth[0] = 0, 65535, 1, 2
        Image.fromarray(depth).save(stem.with_name(f"{stem.name}.depth.png"))
        write_text(stem.with_name(f"{stem.name}.pose.txt"), opencv(i))
    if splits:
        (folder / "TrainSplit.txt").write_text("sequence1\n")
        (folder / "TestSplit.txt").write_text("sequence2\n")
    return str(folder)


def write_scannet(folder, images="color", shared=True, names=None):
    for i, name in enumerate(names or [str(i) for i in range(COUNT)]):
        write_image(folder / f"{images}/{name}.jpg", i)
        write_text(folder / f"pose/{name}.txt", opencv(i))
        if not shared:
            write_text(folder / f"intrinsic/{name}.txt", K + np.diag([i, 0, 0]))
    if shared:
        matrix = np.eye(4)
        matrix[:3, :3] = K
        write_text(folder / "intrinsic/intrinsic_color.txt", matrix)
        write_text(folder / "intrinsic/extrinsic_color.txt", np.eye(4))
    return str(folder)


@pytest.mark.parametrize("extension", ["png", "jpg"])
def test_seven_scenes(tmp_path, extension):
    scene = read_scene(write_seven(tmp_path, extension))
    check(scene, **KINECT)
    assert scene.split_names()["test"] == [f"seq-02/frame-{i:06d}.color.{extension}" for i in (0, 1)]
    assert any("customary" in note for note in scene.notes)
    scale = np.cbrt(np.linalg.det(scene.to_scene[:3, :3]))
    np.testing.assert_allclose(scene.frames[2].depth.read((4, 3))[0], np.array([0, 0, 1, 2]) * 1e-3 * scale, rtol=1e-4)


def test_one_sequence_and_a_calibration_beside_it(tmp_path):
    write_text(tmp_path / "intrinsics.txt", K)
    write_seven(tmp_path)
    check(read_scene(str(tmp_path / "seq-01")), [0, 1])


def test_without_split_files_the_holdout_serves(tmp_path):
    scene = read_scene(write_seven(tmp_path, splits=False), holdout=4)
    assert scene.split_names()["test"] == ["seq-01/frame-000000.color.png"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("sequence1\n", "in no split"), ("first\n", "names no sequence"), ("sequence2\n", "two splits")],
)
def test_bad_split_files(tmp_path, text, message):
    source = write_seven(tmp_path)
    (tmp_path / "TrainSplit.txt").write_text("sequence1\n" if message != "two splits" else "sequence1 sequence2\n")
    (tmp_path / "TestSplit.txt").write_text(text)
    if message == "in no split":
        (tmp_path / "TestSplit.txt").unlink()
    with pytest.raises(UserError, match=message):
        read_scene(source)


@pytest.mark.parametrize("images", ["color", "image", "images", "rgb"])
def test_b23_scannet_folder_pairs_by_name_in_natural_order(tmp_path, images):
    scene = read_scene(write_scannet(tmp_path, images, names=["0", "2", "10", "11"]))
    check(scene, names=[f"{images}/{i}.jpg" for i in (0, 2, 10, 11)])
    assert scene.format == "scannet"


def test_intrinsics_of_every_frame(tmp_path):
    scene = read_scene(write_scannet(tmp_path, "image", shared=False))
    np.testing.assert_allclose(scene.cameras.focal[:, 0], [10, 11, 12, 13])


def test_lost_frames_are_left_out_and_named(tmp_path):
    source = write_scannet(tmp_path)
    write_text(tmp_path / "pose/2.txt", np.full((4, 4), -np.inf))
    scene = read_scene(source)
    check(scene, [0, 1, 3])
    assert any("1 of 4 frames lost their track" in note and ": 2." in note for note in scene.notes)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("pose/1.txt", "nan " * 16, "not finite"),
        ("pose/1.txt", "1 2 3", "does not hold"),
        ("intrinsic/intrinsic_color.txt", "-1 0 0 0 1 0 0 0 1", "calibration matrix"),
        ("pose/1.txt", "0 " * 16, "last row"),
    ],
)
def test_bad_files(tmp_path, file, text, message):
    source = write_scannet(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(UserError, match=message):
        read_scene(source)


def test_frames_without_calibration(tmp_path):
    source = write_scannet(tmp_path, shared=False)
    (tmp_path / "intrinsic/2.txt").unlink()
    with pytest.raises(UserError, match="no calibration") as caught:
        read_scene(source)
    assert "2.txt" in str(caught.value)
