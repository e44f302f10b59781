"""What a transforms.json says besides cameras."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from ring_capture import COUNT, FOCAL, check, opengl, write_image, write_json

from nerfjax.errors import UserError
from nerfjax.geometry.poses import look_at, similarity_matrix, transform_points
from nerfjax.scenes import READERS, read_scene


def write(folder, frame=lambda i: {}, **root):
    frames = []
    for i in range(COUNT):
        write_image(folder / f"images/{i}.png", i)
        frames.append({"file_path": f"images/{i}.png", "transform_matrix": opengl(i).tolist(), **frame(i)})
    root = {"fl_x": FOCAL[0], "fl_y": FOCAL[1], "cx": 4.5, "cy": 2.5, "w": 8, "h": 6, **root}
    write_json(folder / "transforms.json", {**root, "frames": frames})
    return str(folder)


def halves(path, left, right, mode="L", size=(8, 6)):
    image = Image.new(mode, size, left)
    image.paste(right, (size[0] // 2, 0, size[0], size[1]))
    image.save(path)


def left_is_valid(frame):
    valid = frame.valid()
    return valid[:, :4].all() and not valid[:, 4:].any()


@pytest.mark.parametrize(
    ("mode", "white", "black"),
    [("L", 255, 0), ("L", 1, 0), ("1", 1, 0), ("RGB", (0, 0, 9), (0, 0, 0)), ("RGBA", (9, 9, 9, 255), (9, 9, 9, 0))],
)
def test_b53_black_is_ignored_whatever_the_channels(tmp_path, mode, white, black):
    source = write(tmp_path, lambda i: {"mask_path": "m.png"})
    halves(tmp_path / "m.png", white, black, mode)
    assert all(map(left_is_valid, read_scene(source).frames))


def test_b53_compressed_masks(tmp_path):
    source = write(tmp_path, lambda i: {"mask_path": "m.jpg"})
    halves(tmp_path / "m.jpg", 250, 5, size=(64, 48))
    assert all(map(left_is_valid, read_scene(source).frames))


def test_dynamic_masks_mark_what_is_ignored(tmp_path):
    source = write(tmp_path)
    halves(tmp_path / "images/dynamic_mask_1.png", (0, 0, 0), (0, 7, 0), "RGB")
    scene = read_scene(source)
    assert [frame.mask is not None for frame in scene.frames] == [False, True, False, False]
    assert left_is_valid(scene.frames[1])
    assert not any("belong to no frame" in note for note in scene.notes)
    fingerprint = scene.fingerprint()
    # The same bytes mean the opposite as a mask_path.
    (tmp_path / "m.png").write_bytes((tmp_path / "images/dynamic_mask_1.png").read_bytes())
    (tmp_path / "images/dynamic_mask_1.png").unlink()
    opposite = read_scene(write(tmp_path, lambda i: {"mask_path": "m.png"} if i == 1 else {}))
    assert not opposite.frames[1].valid()[:, :4].any()
    assert opposite.fingerprint() != fingerprint


def test_b55_masks_on_some_frames(tmp_path):
    source = write(tmp_path, lambda i: {"mask_path": "m.png"} if i < 2 else {})
    halves(tmp_path / "m.png", 255, 0, size=(16, 12))
    scene = read_scene(source)
    assert scene.frames[2].valid() is None and left_is_valid(scene.frames[1])
    assert any("2 of 4 frames have masks" in note for note in scene.notes)


def test_b52_each_frame_keeps_its_own_mask(tmp_path):
    source = write(tmp_path, lambda i: {"mask_path": f"m{i}.png"})
    for i in range(COUNT):
        mask = np.zeros((6, 8), np.uint8)
        mask[i] = 255
        Image.fromarray(mask).save(tmp_path / f"m{i}.png")
    scene = read_scene(source, holdout=2)
    for split in ("train", "test"):
        for frame in scene.subset(split).frames:
            np.testing.assert_array_equal(np.flatnonzero(frame.valid()[:, 0]), [int(frame.name[-5])])


def test_masks_of_another_shape_or_missing(tmp_path):
    source = write(tmp_path, lambda i: {"mask_path": "m.png"})
    with pytest.raises(UserError, match="A file is missing"):
        read_scene(source)
    halves(tmp_path / "m.png", 255, 0, size=(6, 8))
    with pytest.raises(UserError, match=r"another shape") as caught:
        read_scene(source)
    assert "6x8" in str(caught.value) and "8x6" in str(caught.value)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_b57_depth_in_millimetres_follows_the_scale(tmp_path, dtype):
    name = "d.png" if dtype == np.uint16 else "d.tif"
    source = write(tmp_path, lambda i: {"depth_file_path": name if i else "gone.png"}, applied_scale=0.5)
    depth = np.full((6, 8), 2000, dtype)
    depth[0] = 0
    Image.fromarray(depth).save(tmp_path / name)
    scene = read_scene(source)
    # 2 m before applied_scale are 1 unit of the file; the file's poses are 0.5 x the original ones.
    file_to_scene = np.cbrt(np.linalg.det((scene.to_scene @ similarity_matrix(scale=2.0))[:3, :3]))
    read = scene.frames[1].depth.read((8, 6))
    assert (read[0] == 0).all()
    np.testing.assert_allclose(read[1:], 1.0 * file_to_scene, rtol=1e-5)
    assert scene.frames[1].depth.kind == "z" and scene.frames[0].depth is None
    assert any("1 depth images are missing: gone.png" in note for note in scene.notes)


def test_b57_integer_depth_scale_is_the_unit(tmp_path):
    source = write(tmp_path, lambda i: {"depth_path": "d.png"}, integer_depth_scale=0.25)
    Image.fromarray(np.full((6, 8), 8, np.uint16)).save(tmp_path / "d.png")
    scene = read_scene(source)
    scale = np.cbrt(np.linalg.det(scene.to_scene[:3, :3]))
    np.testing.assert_allclose(scene.frames[0].depth.read((8, 6)), 2.0 * scale, rtol=1e-5)
    unscaled = read_scene(write(tmp_path, lambda i: {"depth_path": "d.png"}))
    assert unscaled.frames[0].depth is None and any("no unit" in note for note in unscaled.notes)


def test_exports_undo_what_was_applied(tmp_path):
    applied = np.array([[1.0, 0, 0, 0.5], [0, 0, 1, -2], [0, -1, 0, 3]])
    full = similarity_matrix(scale=2.0) @ np.concatenate([applied, [[0, 0, 0, 1]]])
    original = np.array([0.3, 0.4, 0.5])
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    plain = read_scene(write(tmp_path / "a"))
    scene = read_scene(write(tmp_path / "b", applied_transform=applied.tolist(), applied_scale=2.0))
    np.testing.assert_array_equal(scene.cameras.pose, plain.cameras.pose)
    expected = transform_points(plain.to_scene, transform_points(full, original))
    np.testing.assert_allclose(transform_points(scene.to_scene, original), expected, atol=1e-9)
    mirrored = write(tmp_path / "b", applied_transform=np.diag([1.0, 1, -1, 1])[:3].tolist())
    assert any("applied_transform is not" in note for note in read_scene(mirrored).notes)
    with pytest.raises(UserError, match="applied_transform"):
        read_scene(write(tmp_path / "b", applied_transform=[[1, 2], [3, 4]]))


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian", "binary_big_endian"])
def test_b68_points_move_with_the_cameras(tmp_path, form):
    points = np.array([[0.3, -0.2, 0.5], [1.0, 2.0, 3.0]])
    header = f"ply\nformat {form} 1.0\nelement vertex 2\nproperty uchar red\n"
    header += "".join(f"property float {axis}\n" for axis in "xyz") + "end_header\n"
    if form == "ascii":
        body = "".join(f"7 {x} {y} {z}\n" for x, y, z in points).encode()
    else:
        order = "<" if "little" in form else ">"
        record = np.zeros(2, [("red", "u1")] + [(axis, order + "f4") for axis in "xyz"])
        for k, axis in enumerate("xyz"):
            record[axis] = points[:, k]
        body = record.tobytes()
    source = write(tmp_path, ply_file_path="sparse_pc.ply")
    (tmp_path / "sparse_pc.ply").write_bytes(header.encode() + body)
    scene = read_scene(source)
    np.testing.assert_allclose(scene.points, transform_points(scene.to_scene, points), atol=1e-6)
    (tmp_path / "sparse_pc.ply").write_bytes(header.encode() + body[: len(body) // 3])
    with pytest.raises(UserError, match="point cloud"):
        read_scene(source)


def test_settings_are_recorded_and_have_no_effect(tmp_path):
    said = dict(aabb_scale=16, scale=0.33, offset=[0.5, 0.5, 0.5], n_extra_learnable_dims=16, n_frames=2)
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    scene = read_scene(write(tmp_path / "a", lambda i: {"sharpness": 10.0 + i, "colmap_im_id": i}, **said))
    assert scene.provenance.items() >= said.items()
    assert scene.provenance["sharpness"] == {"lowest": 10.0, "median": 11.5, "highest": 13.0}
    check(scene, names=[f"images/{i}.png" for i in range(COUNT)])
    json.dumps(scene.provenance, allow_nan=False)
    with pytest.raises(UserError, match="not finite"):
        read_scene(write(tmp_path / "b", scale=float("nan")))


def test_times_and_rolling_shutters_are_said(tmp_path):
    ends = {
        "transform_matrix_start": np.concatenate([look_at([2.0, -1.0, 1.0], [0.0, 0, 0]), [[0, 0, 0, 1]]]).tolist(),
        "transform_matrix_end": np.concatenate([look_at([2.0, 1.0, 1.0], [0.0, 0, 0]), [[0, 0, 0, 1]]]).tolist(),
    }
    source = write(tmp_path, lambda i: {"time": i / 3, **(ends if i == 1 else {})}, rolling_shutter=[0, 0, 1, 0])
    content = json.loads((tmp_path / "transforms.json").read_text())
    del content["frames"][1]["transform_matrix"]
    write_json(tmp_path / "transforms.json", content)
    scene = read_scene(source)
    assert any("times are ignored" in note for note in scene.notes)
    assert any("1 frames have a rolling shutter" in note and "images/1.png" in note for note in scene.notes)
    middle = transform_points(np.linalg.inv(scene.to_scene), scene.cameras.pose[1, :, 3].astype(np.float64))
    np.testing.assert_allclose(middle, [2, 0, 1], atol=1e-5)


def test_extra_images_are_counted_and_side_images_skipped(tmp_path):
    source = write(tmp_path)
    for name in ("new.png", "0_depth_0001.png", "0_normal_0001.png", "._0.png"):
        write_image(tmp_path / "images" / name)
    notes = read_scene(source).notes
    assert any("1 images belong to no frame" in note and "images/new.png" in note for note in notes)
    assert any("2 depth, normal" in note for note in notes)


def test_b41_resized_images_are_noted(tmp_path):
    scene = read_scene(write(tmp_path, w=16, h=12))
    assert any("8x6 for 16x12" in note for note in scene.notes)
    with pytest.raises(UserError, match="swapped"):
        read_scene(write(tmp_path, w=6, h=8))


def test_b28_every_intrinsic_key_by_key_at_root_or_frame(tmp_path):
    own = {0: {}, 1: {"fl_x": 20.0, "cy": 1.0}, 2: {"w": 16, "h": 12, "camera_model": "OPENCV"}, 3: {"k1": 0.2}}
    scene = read_scene(write(tmp_path, lambda i: own[i], k1=0.1), holdout=0)
    np.testing.assert_allclose(scene.cameras.focal, [[10, 11], [20, 11], [5, 5.5], [10, 11]])
    np.testing.assert_allclose(scene.cameras.center, [[4.5, 2.5], [4.5, 1.0], [2.25, 1.25], [4.5, 2.5]])
    np.testing.assert_allclose(scene.cameras.distortion[:, 0], [0.1, 0.1, 0.1, 0.2])


@pytest.mark.parametrize(
    ("root", "model", "numbers"),
    [
        (dict(camera_model="OPENCV", k1=0.1, k4=0.2), "opencv", {0: 0.1, 3: 0.2}),
        (dict(camera_model="OPENCV_FISHEYE", k1=0.1, k4=0.02), "opencv_fisheye", {0: 0.1, 3: 0.02}),
        (dict(camera_model="FULL_OPENCV", k1=0.1, k4=0.2, k5=0.01), "full_opencv", {0: 0.1, 3: 0.2, 6: 0.01}),
        (dict(camera_model="OPENCV", distortion_params=[0.1, 0, 0, 0, 0.2, 0.3]), "opencv", {0: 0.1, 4: 0.2, 5: 0.3}),
        (
            dict(camera_model="FISHEYE624", distortion_params=[0.1, 0, 0, 0, 0.05, 0, 0.01, 0, 0.02, 0, 0, 0]),
            "rad_tan_thin_prism_fisheye",
            {0: 0.1, 6: 0.05, 4: 0.01, 8: 0.02},
        ),
        (dict(is_fisheye=1, k2=0.01), "opencv_fisheye", {1: 0.01}),
        (dict(equirectangular=True), "equirectangular", {}),
        (dict(camera_model="ORTHOPHOTO"), "orthographic", {}),
    ],
)
def test_b36_coefficients_mean_what_the_model_says(tmp_path, root, model, numbers):
    scene = read_scene(write(tmp_path, **root))
    assert scene.cameras.models == (model,)
    expected = np.zeros(12)
    expected[list(numbers)] = list(numbers.values())
    np.testing.assert_allclose(scene.cameras.distortion[0], expected, rtol=1e-6)


def test_b36_unsupported_coefficients_are_an_error(tmp_path):
    for root in (dict(camera_model="OPENCV", s1=0.1), dict(ftheta_p0=1.0), dict(distortion_params=[0.1])):
        with pytest.raises(UserError):
            read_scene(write(tmp_path, **root))


def test_b59_the_convention_is_an_option_of_every_reader(tmp_path):
    source = write(tmp_path)
    assert read_scene(source, convention="opencv").provenance["axes"] == "opencv"
    check(read_scene(source, convention="opengl"))
    check(read_scene(source, convention="auto"))
    with pytest.raises(UserError, match="did you mean 'opencv'"):
        read_scene(source, convention="opencvv")
    with pytest.raises(UserError, match="no such option"):
        read_scene(source, focal=3)
    with pytest.raises(UserError, match="one axis convention"):
        read_scene("analytic:spheres?views=4&size=8&test=2", convention="opencv")
    assert READERS["transforms_json"].sniff(str(tmp_path / "transforms.json"))


def test_split_lists_that_are_none(tmp_path):
    for lists in (dict(train_filenames="images/0.png"), dict(train_filenames=[3]), dict(test_filenames=["other.png"])):
        with pytest.raises(UserError, match="list of file names|in no split"):
            read_scene(write(tmp_path, **lists))
