from __future__ import annotations

import numpy as np
import pytest
from ring_capture import COUNT, FOCAL, K, check, opencv, write_image, write_text

from nerfjax.errors import UserError
from nerfjax.scenes import READERS, read_scene

NAMES = ["0_0000", "0_0001", "1_0002", "2_0003"]


def write(folder, names=NAMES, intrinsics=None, bbox="-1 -1 -1 1 1 1 0.1", color=None):
    for i, name in enumerate(names):
        write_text(folder / f"pose/{name}.txt", opencv(i))
        write_image(folder / f"rgb/{name}.png", i if color is None else color)
    matrix = np.eye(4)
    matrix[:3, :3] = K
    write_text(folder / "intrinsics.txt", matrix) if intrinsics is None else (folder / "intrinsics.txt").write_text(
        intrinsics
    )
    if bbox:
        (folder / "bbox.txt").write_text(bbox)
    return str(folder)


def write_log(folder, images=COUNT, first=1, intrinsics="10 4 3 0.\n", poses=COUNT):
    blocks = [f"{i} {i} 0\n" + "\n".join(" ".join(map(repr, r)) for r in opencv(i).tolist()) for i in range(poses)]
    folder.mkdir(exist_ok=True)
    (folder / "Barn_COLMAP_SfM.log").write_text("\n".join(blocks) + "\n")
    for i in range(images):
        write_image(folder / f"Barn/{i + first:06d}.jpg", i)
    if intrinsics:
        (folder / "intrinsics.txt").write_text(intrinsics)
    return str(folder)


def test_folder(tmp_path):
    scene = read_scene(write(tmp_path))
    check(scene, names=[f"rgb/{name}.png" for name in NAMES])
    assert scene.format == "nsvf"
    assert scene.split_names() == {"train": ["rgb/0_0000.png", "rgb/0_0001.png"], "val": ["rgb/1_0002.png"],
                                   "test": ["rgb/2_0003.png"]}  # fmt: skip


def test_without_a_third_prefix_the_second_is_the_test_split(tmp_path):
    scene = read_scene(write(tmp_path, names=["0_a", "0_b", "1_c", "1_d"]))
    assert scene.split_names()["test"] == ["rgb/1_c.png", "rgb/1_d.png"] and not scene.indices("val")


@pytest.mark.parametrize("text", ["10 4 3 0.\n0. 0. 0.\n0.\n1.\n6 8\n", "10 0 4\n0 10 3\n0 0 1\n", "10.0\n"])
def test_intrinsics_variants(tmp_path, text):
    check(read_scene(write(tmp_path, intrinsics=text)), focal=(10, 10), center=(4, 3))


def test_unprefixed_names_use_the_holdout(tmp_path):
    scene = read_scene(write(tmp_path, names=["0", "2", "10", "11"]), holdout=2)
    assert scene.split_names()["test"] == ["rgb/0.png", "rgb/10.png"]


def test_trajectory(tmp_path):
    source = write_log(tmp_path)
    assert "trajectory" in READERS["nsvf"].sniff(source)
    check(read_scene(source), focal=(10, 10), center=(4, 3), names=[f"Barn/{i:06d}.jpg" for i in (1, 2, 3, 4)])
    check(read_scene(str(tmp_path / "Barn_COLMAP_SfM.log")), focal=(10, 10), center=(4, 3))


def test_trajectory_with_images_from_zero_and_extra_poses(tmp_path):
    scene = read_scene(write_log(tmp_path, first=0, images=3))
    check(scene, [0, 1, 2], focal=(10, 10), center=(4, 3))
    assert any("1 of 4 poses have no image" in note for note in scene.notes)


def test_missing_intrinsics_ask_for_a_focal_length(tmp_path):
    source = write_log(tmp_path, intrinsics=None)
    with pytest.raises(UserError, match="intrinsics are missing") as caught:
        read_scene(source)
    assert caught.value.field == "focal" and "intrinsics.txt" in caught.value.fix
    check(read_scene(source, focal=FOCAL[0]), focal=(10, 10), center=(4, 3))
    with pytest.raises(UserError, match="focal length"):
        read_scene(source, focal=-1)


def test_a_trajectory_beside_a_colmap_model_is_not_taken(tmp_path):
    source = write_log(tmp_path)
    (tmp_path / "sparse").mkdir()
    assert READERS["nsvf"].sniff(source) is None


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("pose/0_0001.txt", "1 0 0\n", "does not hold the matrix"),
        ("pose/0_0001.txt", "1 0 0 nan\n0 1 0 0\n0 0 1 0\n0 0 0 1\n", "not finite"),
        ("pose/0_0001.txt", "one two\n", "no number"),
        ("pose/0_0001.txt", "1 0 0 0\n0 1 0 0\n0 0 1 0\n1 2 3 1\n", "last row"),
        ("intrinsics.txt", "0 4 3 0\n", "calibration matrix"),
        ("intrinsics.txt", "", "cannot be read"),
        ("bbox.txt", "1 1 1 0 0 0 0.1", "makes no sense"),
        ("near_and_far.txt", "3 1", "make no sense"),
    ],
)
def test_bad_files(tmp_path, file, text, message):
    source = write(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read_scene(source)
    assert file.split("/")[-1] in str(caught.value)


def test_bad_trajectory(tmp_path):
    source = write_log(tmp_path)
    log = tmp_path / "Barn_COLMAP_SfM.log"
    log.write_text(log.read_text().rsplit("\n", 3)[0] + "\n")
    with pytest.raises(UserError, match="bad entry"):
        read_scene(source)


def test_missing_poses_and_images_are_named(tmp_path):
    source = write(tmp_path)
    (tmp_path / "pose/0_0001.txt").unlink()
    (tmp_path / "rgb/2_0003.png").unlink()
    (tmp_path / "rgb/._2_0003.png").write_bytes(b"AppleDouble")
    scene = read_scene(source)
    check(scene, [0, 2])
    assert any("1 of 3 poses have no image: 2_0003" in n for n in scene.notes)
    assert any("1 of 3 images have none of the poses" in n and "0_0001" in n for n in scene.notes)


def test_b07_nothing_in_common(tmp_path):
    source = write(tmp_path)
    for path in (tmp_path / "pose").iterdir():
        path.rename(path.with_name("other_" + path.name))
    with pytest.raises(UserError, match="No image belongs") as caught:
        read_scene(source)
    assert "other_0_0000, other_0_0001" in str(caught.value) and "0_0000, 0_0001" in str(caught.value)
