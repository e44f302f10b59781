"""Small captures written by hand: every dialect and every fault that the reader promises to handle."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from PIL import Image

from nerfjax.errors import UserError
from nerfjax.geometry.cameras import project
from nerfjax.geometry.poses import invert_similarity, look_at, transform_points
from nerfjax.scenes import read_scene
from nerfjax.scenes.base import holdout_splits
from nerfjax.scenes.transforms_json import natural_key

FOCUS = np.array([3.0, -2.0, 0.5])


def ring_pose(index, count=9, radius=2.5):
    angle = 2 * np.pi * index / count
    position = FOCUS + radius * np.array([np.cos(angle), np.sin(angle), 0.4])
    return np.concatenate([look_at(position, FOCUS), [[0, 0, 0, 1]]])


def write_capture(folder, count=9, *, size=(8, 6), frame=None, names=None, files=None, **root):
    """Writes images and a transforms.json; ``frame(i)`` gives more keys of frame i."""
    names = names or [f"images/{i:03d}.png" for i in range(count)]
    for i, file in enumerate(files or names):
        if file is not None:
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", size, (10 * i, 100, 200)).save(path, "PNG")
    frames = [
        {"file_path": name, "transform_matrix": ring_pose(i, count).tolist(), **(frame(i) if frame else {})}
        for i, name in enumerate(names)
    ]
    root = {"camera_angle_x": 0.8, **root}
    content = {**{k: v for k, v in root.items() if v is not None}, "frames": frames}
    (folder / "transforms.json").write_text(json.dumps(content))
    return str(folder)


def test_b04_missing_images_are_counted_named_and_left_out(tmp_path):
    source = write_capture(tmp_path, frame=lambda i: {"fl_x": 10.0 + i})
    for i in (1, 2):
        (tmp_path / f"images/{i:03d}.png").unlink()
    scene = read_scene(source, holdout=3)
    assert len(scene.frames) == 7 and any("2 of 9" in n and "images/001.png, images/002.png" in n for n in scene.notes)
    # Cameras stay with their images.
    np.testing.assert_allclose(scene.cameras.focal[:, 0], [10, 13, 14, 15, 16, 17, 18])
    assert scene.split_names()["test"] == ["images/000.png", "images/005.png", "images/008.png"]


def test_normalization_is_upright_centred_of_unit_radius_and_invertible(tmp_path):
    scene = read_scene(write_capture(tmp_path))
    distance = np.linalg.norm(scene.cameras.pose[:, :, 3], axis=-1)
    np.testing.assert_allclose(distance, 1, rtol=1e-5)
    np.testing.assert_allclose(transform_points(scene.to_scene, FOCUS), 0, atol=1e-6)
    assert (scene.cameras.pose[:, 2, 1] > 0.8).all()
    # A point of the capture, moved to the scene, is seen in the same pixel.
    point = FOCUS + [0.3, 0.2, 0.1]
    pose = ring_pose(2)
    local = pose[:3, :3].T @ (point - pose[:3, 3])
    focal = 4 / math.tan(0.4)
    pixel = np.array([4 + focal * local[0] / -local[2], 3 - focal * local[1] / -local[2]])
    seen = project(scene.cameras[2], transform_points(scene.to_scene, point), xp=np).pixels
    np.testing.assert_allclose(seen, pixel, atol=1e-4)
    back = transform_points(invert_similarity(scene.to_scene), scene.cameras.pose[:, :, 3])
    np.testing.assert_allclose(back[2], pose[:3, 3], atol=1e-5)


def test_one_stray_pose_changes_nothing_but_a_note(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    plain = read_scene(write_capture(tmp_path / "a", 20))
    source = write_capture(tmp_path / "b", 20)
    content = json.loads((tmp_path / "b/transforms.json").read_text())
    content["frames"][7]["transform_matrix"][0][3] = 1e4
    (tmp_path / "b/transforms.json").write_text(json.dumps(content))
    stray = read_scene(source)
    np.testing.assert_allclose(stray.to_scene, plain.to_scene, atol=0.02)
    assert any("images/007.png" in note for note in stray.notes)
    assert stray.geometry.box[1, 0] <= 1.5


def test_extreme_coordinates_lose_nothing(tmp_path):
    source = write_capture(tmp_path)
    content = json.loads((tmp_path / "transforms.json").read_text())
    for frame in content["frames"]:
        matrix = np.array(frame["transform_matrix"])
        matrix[:3, 3] += [5e5, 5e6, 0]
        frame["transform_matrix"] = matrix.tolist()
    (tmp_path / "transforms.json").write_text(json.dumps(content))
    distance = np.linalg.norm(read_scene(source).cameras.pose[:, :, 3], axis=-1)
    np.testing.assert_allclose(distance, 1, rtol=1e-5)


def test_b25_b26_only_the_horizontal_angle(tmp_path):
    scene = read_scene(write_capture(tmp_path, 2))
    focal = 4 / math.tan(0.4)
    np.testing.assert_allclose(scene.cameras.focal, [[focal, focal]] * 2, rtol=1e-6)
    np.testing.assert_allclose(scene.cameras.center, [[4, 3]] * 2)
    assert scene.cameras.models == ("pinhole",)


@pytest.mark.parametrize(
    ("root", "focal"),
    [
        (dict(fl_x=9.0, fl_y=11.0), (9, 11)),
        (dict(fl_x=9.0, camera_angle_x=0.1), (9, 9)),
        (dict(camera_angle_x=None, x_fov=90.0), (4, 4)),
        (dict(camera_angle_x=None, x_fov=90.0, y_fov=90.0), (4, 3)),
        (dict(camera_angle_x=None, fl_y=7.0), (7, 7)),
    ],
)
def test_focal_length(tmp_path, root, focal):
    np.testing.assert_allclose(read_scene(write_capture(tmp_path, 2, **root)).cameras.focal[0], focal, rtol=1e-6)


def test_b28_frame_values_go_before_root_values_key_by_key(tmp_path):
    more = {0: {"fl_x": 20.0, "k1": 0.1, "p2": 0.01}, 1: {"camera_model": "OPENCV_FISHEYE", "cx": 1.5}}
    scene = read_scene(write_capture(tmp_path, 3, frame=lambda i: more.get(i, {}), fl_x=10.0, k1=0.2), holdout=0)
    np.testing.assert_allclose(scene.cameras.focal[:, 0], [20, 10, 10])
    np.testing.assert_allclose(scene.cameras.distortion[:, 0], [0.1, 0.2, 0.2])
    np.testing.assert_allclose(scene.cameras.distortion[0, 5], 0.01)
    np.testing.assert_allclose(scene.cameras.center[1], [1.5, 3])


def test_fisheye_flag(tmp_path):
    assert read_scene(write_capture(tmp_path, 2, is_fisheye=True, k1=0.1)).cameras.models == ("opencv_fisheye",)


def test_images_smaller_than_their_camera_scale_the_intrinsics_per_axis(tmp_path):
    scene = read_scene(write_capture(tmp_path, 2, w=16.0, h=12.0, fl_x=20.0, fl_y=30.0, cx=7.0, cy=5.0))
    np.testing.assert_allclose(scene.cameras.focal[0], [10, 15])
    np.testing.assert_allclose(scene.cameras.center[0], [3.5, 2.5])


def test_downscale_scales_per_axis(tmp_path):
    scene = read_scene(write_capture(tmp_path, 2, size=(9, 5), fl_x=9.0, fl_y=5.0), downscale=2)
    assert scene.frames[0].image.size == (5, 3) and scene.frames[0].image.read().shape == (3, 5, 3)
    np.testing.assert_allclose(scene.cameras.focal[0], [5, 3])
    np.testing.assert_allclose(scene.cameras.center[0], [2.5, 1.5])


def test_opencv_axes_on_request(tmp_path):
    source = write_capture(tmp_path, 9)
    flipped = read_scene(source, convention="opencv")
    assert flipped.provenance["axes"] == "opencv"
    # Cameras that looked inwards now look outwards.
    assert not flipped.provenance["normalization"]["inward_facing"]
    assert read_scene(source).provenance["normalization"]["inward_facing"]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("images\\a.png", "images/a.png"),
        ("./images/a", "images/a.png"),
        ("images/a", "images/a.JPG"),
        ("images/r.0", "images/r.0.png"),
        ("images/a.jpg", "images/A.JPG"),
        ("images/a.jpg", "images/a.JPEG"),
        ("C:\\u\\x.png", "images/x.png"),
        ("/home/someone/x.png", "photos/x.png"),
        ("../slike\\x.png", "images/x.png"),
        ("images/My photo (1).png", "images/My photo (1).png"),
    ],
)
def test_b11_b12_b15_b16_the_file_is_found(tmp_path, name, file):
    folder = tmp_path / "set"
    folder.mkdir()
    source = write_capture(folder, names=["images/other.png", name], files=["images/other.png", file])
    scene = read_scene(source, holdout=0)
    assert {str(frame.image.path.relative_to(folder)) for frame in scene.frames} == {"images/other.png", file}
    assert all("\\" not in frame.name for frame in scene.frames)


def test_hidden_files_are_not_photos(tmp_path):
    source = write_capture(
        tmp_path, names=["images/a.png", "elsewhere/b.png"], files=["images/a.png", "images/._b.png"]
    )
    assert len(read_scene(source, holdout=0).frames) == 1


def test_b12_an_ambiguous_name_is_an_error(tmp_path):
    source = write_capture(tmp_path, names=["gone/b.png"] * 2, files=["x/b.png", "y/b.png"])
    with pytest.raises(UserError, match="several files"):
        read_scene(source)


def test_a_missing_frame_never_takes_another_frames_file(tmp_path):
    source = write_capture(tmp_path, names=["train/b.png", "test/b.png"], files=["train/b.png", None])
    assert [frame.name for frame in read_scene(source, holdout=0).frames] == ["train/b.png"]


def test_b13_of_two_extensions_one_is_taken_and_said(tmp_path):
    write_capture(tmp_path, 2, names=["images/a", "images/b"], files=["images/a.png", "images/b.png"])
    Image.new("RGB", (8, 6)).save(tmp_path / "images/a.jpg")
    scene = read_scene(str(tmp_path / "transforms.json"), holdout=0)
    assert scene.frames[0].image.path.name == "a.png" and any("took a.png" in note for note in scene.notes)


def test_b22_file_and_folder_are_the_same_scene(tmp_path):
    source = write_capture(tmp_path, 3)
    assert read_scene(source).fingerprint() == read_scene(source + "/transforms.json").fingerprint()


def test_names_sort_naturally_and_the_holdout_counts_existing_frames(tmp_path):
    names = [f"images/{i}.png" for i in (10, 2, 1, 11, 9)]
    scene = read_scene(write_capture(tmp_path, names=names), holdout=2)
    assert [frame.name for frame in scene.frames] == [f"images/{i}.png" for i in (1, 2, 9, 10, 11)]
    assert scene.split_names()["test"] == ["images/1.png", "images/9.png", "images/11.png"]
    assert natural_key("a2") < natural_key("a10") < natural_key("b1")


def test_holdout():
    assert holdout_splits(list("abcdefghij"), 8).count("test") == 2
    assert holdout_splits(list("abc"), 0) == ["train"] * 3
    assert holdout_splits(["a"], 8) == ["train"]
    for bad in (1, -2):
        with pytest.raises(UserError):
            holdout_splits(list("abc"), bad)


def test_b95_the_files_own_split_wins(tmp_path):
    names = [f"images/{i}.png" for i in range(4)]
    lists = dict(train_filenames=names[:2], val_filenames=[names[2]], test_filenames=[names[3]])
    scene = read_scene(write_capture(tmp_path, names=names, **lists))
    assert scene.split_names() == {"train": names[:2], "val": [names[2]], "test": [names[3]]}
    (tmp_path / "b").mkdir()
    with pytest.raises(UserError, match="two splits"):
        read_scene(write_capture(tmp_path / "b", names=names, train_filenames=names, test_filenames=names[:1]))


def test_mask_on_some_frames(tmp_path):
    Image.new("L", (16, 12)).save(tmp_path / "m.png")
    scene = read_scene(write_capture(tmp_path, 3, frame=lambda i: {"mask_path": "m.png"} if i == 1 else {}))
    assert [frame.mask is not None for frame in scene.frames] == [False, True, False]
    assert scene.frames[1].mask.read().shape == (6, 8, 3)
    assert any("1 of 3 frames have masks" in note for note in scene.notes)


def test_b43_principal_point_outside_the_image_is_noted(tmp_path):
    assert any("principal point" in note for note in read_scene(write_capture(tmp_path, 2, cx=40.0)).notes)


def broken_pose(change):
    def more(i):
        pose = ring_pose(i)
        if i == 2:
            pose = change(pose)
        return {"transform_matrix": pose.tolist()}

    return more


def with_entry(value):
    def change(pose):
        pose[1, 3] = value
        return pose

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_entry(math.nan), "not finite"),
        (with_entry(math.inf), "not finite"),
        (lambda pose: pose @ np.diag([2, 2, 2, 1]), "scaled"),
        (lambda pose: pose @ np.diag([1, 1.2, 1, 1]), "not orthonormal"),
        (lambda pose: pose @ np.diag([1, 1, -1, 1]), "left-handed"),
        (lambda pose: pose[:2], "shape"),
        (lambda pose: np.array([["a"]]), "not a matrix"),
    ],
)
def test_bad_poses_name_the_frame(tmp_path, change, message):
    source = write_capture(tmp_path, frame=broken_pose(change))
    with pytest.raises(UserError, match=message) as caught:
        read_scene(source)
    assert "images/002.png" in str(caught.value) and "transforms.json" in str(caught.value)


@pytest.mark.parametrize(
    ("root", "message"),
    [
        (dict(camera_angle_x=None), "no focal length"),
        (dict(fl_x="wide"), "bad intrinsic"),
        (dict(fl_x=0.0), "a positive number"),
        (dict(k1=math.nan), "a finite number"),
        (dict(w=8, h=8), "another shape"),
        (dict(camera_model="OPENCV_FISHEY"), "did you mean 'OPENCV_FISHEYE'"),
        (dict(k5=0.1), "not supported"),
    ],
)
def test_bad_intrinsics(tmp_path, root, message):
    with pytest.raises(UserError, match=message):
        read_scene(write_capture(tmp_path, 3, **root))


def test_all_cameras_at_one_point(tmp_path):
    with pytest.raises(UserError, match="one point"):
        read_scene(write_capture(tmp_path, 3, frame=lambda i: {"transform_matrix": ring_pose(0).tolist()}))


def test_files_that_are_no_capture(tmp_path):
    file = tmp_path / "transforms.json"
    for text, message in [
        ('{"frames": [\n{"file_path": }]}', "line 2"),
        ("[]", "no JSON object"),
        ('{"camera_angle_x": 1}', "no frames"),
        ('{"frames": []}', "no frames"),
        ('{"frames": [{"file_path": "a.png"}]}', r"frames\[0\].transform_matrix"),
        ('{"frames": [3]}', "incomplete"),
    ]:
        file.write_text(text)
        with pytest.raises(UserError, match=message):
            read_scene(str(tmp_path))
    file.unlink()
    with pytest.raises(UserError, match="not recognised"):
        read_scene(str(tmp_path))
    with pytest.raises(UserError, match="no such scene"):
        read_scene(str(tmp_path / "none"))
    with pytest.raises(UserError, match="did you mean 'blender'"):
        read_scene(str(tmp_path), format="blendr")


def test_no_image_at_all(tmp_path):
    source = write_capture(tmp_path, 3)
    for path in (tmp_path / "images").iterdir():
        path.rename(path.with_name("other_" + path.name))
    with pytest.raises(UserError, match=r"None of the images exists") as caught:
        read_scene(source)
    assert "images/000.png" in str(caught.value) and "other_000.png" in str(caught.value)


def test_unreadable_image_is_named(tmp_path):
    source = write_capture(tmp_path, 3)
    (tmp_path / "images/001.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"001\.png"):
        read_scene(source)


def test_fingerprint(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    first, second = (write_capture(tmp_path / name, 4) for name in "ab")
    prints = [read_scene(first).fingerprint()]
    assert read_scene(second).fingerprint() == prints[0]
    prints += [read_scene(first, holdout=2).fingerprint(), read_scene(first, downscale=2).fingerprint()]
    content = json.loads((tmp_path / "b/transforms.json").read_text())
    number = content["frames"][1]["transform_matrix"][0][3]
    content["frames"][1]["transform_matrix"][0][3] = np.nextafter(number, 10)  # the last digit of a float64
    (tmp_path / "b/transforms.json").write_text(json.dumps(content))
    prints.append(read_scene(second).fingerprint())
    image = Image.open(tmp_path / "a/images/003.png")
    image.putpixel((3, 3), (1, 2, 3))
    image.save(tmp_path / "a/images/003.png")
    prints.append(read_scene(first).fingerprint())
    assert len(set(prints)) == len(prints)
