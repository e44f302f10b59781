"""COLMAP reconstructions: poses, points, splits, layouts, names and sizes."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from colmap_samples import (
    FOCUS,
    SIZE,
    cloud,
    has_note,
    original_poses,
    ring_pose,
    sample_model,
    wall_pose,
    write_capture,
    write_images,
)
from PIL import Image

from nerfjax.errors import UserError
from nerfjax.geometry.poses import invert_similarity, transform_points
from nerfjax.scenes import READERS, read_scene
from nerfjax.scenes.colmap import find_models
from nerfjax.scenes.colmap_files import read_model
from nerfjax.scenes.colmap_model import ColmapCamera
from nerfjax.scenes.colmap_write import write_model

# --- poses, points and splits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [True, False])
def test_b61_poses_are_inverted_and_turned_to_opengl(tmp_path, text):
    source, _ = write_capture(tmp_path, text=text)
    scene = read_scene(source)
    assert scene.format == "colmap"
    np.testing.assert_allclose(original_poses(scene), [ring_pose(i)[:3] for i in range(9)], atol=2e-6)
    flipped = read_scene(source, convention="opengl")
    np.testing.assert_allclose(original_poses(flipped)[:, :, 1], -original_poses(scene)[:, :, 1], atol=2e-6)


def test_b68_points_move_with_the_cameras(tmp_path):
    source, model = write_capture(tmp_path)
    scene = read_scene(source)
    np.testing.assert_allclose(
        transform_points(invert_similarity(scene.to_scene), scene.points), model.positions, atol=1e-5
    )
    assert np.linalg.norm(scene.points, axis=-1).max() < 0.5
    assert scene.provenance["reprojection_error_px"] < 1e-6


def test_b23_frames_stand_in_lexicographic_order_and_every_eighth_is_a_test_frame(tmp_path):
    names = [f"{i}.png" for i in range(1, 13)]
    source, _ = write_capture(tmp_path, names=names)
    scene = read_scene(source)
    assert [frame.name for frame in scene.frames] == sorted(names)
    assert scene.split_names()["test"] == ["1.png", "6.png"]
    assert [frame.name for frame in scene.frames][:4] == ["1.png", "10.png", "11.png", "12.png"]
    # Poses go with names, not with positions.
    np.testing.assert_allclose(original_poses(scene)[1], ring_pose(9, 12)[:3], atol=2e-6)


def test_b83_bounds_follow_from_the_points(tmp_path):
    source, _ = write_capture(tmp_path)
    scene = read_scene(source)
    distance = np.linalg.norm(scene.points[:, None] - scene.cameras.pose[None, :, :, 3], axis=-1)
    assert 0.3 * distance.min() < scene.geometry.near < 0.6 * distance.min()
    assert 100 <= scene.geometry.far < 1e5 and not scene.geometry.bounded
    # A few wild points, as they occur, change little.
    wild = np.concatenate([cloud(500), ring_pose(0)[None, :3, 3] * 0.99999, [[1e7, 0, 0]]])
    (tmp_path / "b").mkdir()
    other = read_scene(write_capture(tmp_path / "b", points=wild)[0])
    assert 0.2 < other.geometry.near / scene.geometry.near < 2 and other.geometry.far < 1e5


def test_a_far_scene_before_close_cameras_fills_the_space_around_them(tmp_path):
    source, _ = write_capture(tmp_path, pose=wall_pose, points=cloud(center=[0, -10, 0], size=3))
    scene = read_scene(source)
    assert not scene.provenance["normalization"]["inward_facing"]
    distance = np.linalg.norm(scene.points, axis=-1)
    assert 0.9 < distance.min() < 1.1 and distance.max() < 3
    assert 0.3 < scene.geometry.near < distance.min()
    np.testing.assert_allclose(original_poses(scene), [wall_pose(i)[:3] for i in range(9)], atol=1e-5)


def test_models_without_points_and_with_points_that_are_not_finite(tmp_path):
    source, model = write_capture(tmp_path, text=True)
    points = tmp_path / "sparse/0/points3D.txt"
    points.write_text(points.read_text() + "900 nan 0 0 1 1 1 0\n")
    assert len(read_scene(source).points) == len(model.positions)
    points.write_text("")
    assert read_scene(source).points is None
    points.unlink()
    assert read_scene(source).points is None and len(read_scene(source).frames) == 9


def test_objects_on_nothing_are_brought_to_the_origin(tmp_path):
    names = [f"{i}.png" for i in range(6)]
    source, _ = write_capture(tmp_path, names=names)
    for i in range(6):
        picture = np.zeros((SIZE[1], SIZE[0], 4), np.uint8)
        picture[10:20, 10:20] = 255
        Image.fromarray(picture).save(tmp_path / f"images/{i}.png")
    scene = read_scene(source)
    assert scene.geometry.bounded and scene.background == "white"
    np.testing.assert_allclose(transform_points(scene.to_scene, FOCUS), 0, atol=1e-6)
    assert (np.abs(scene.points) < scene.geometry.box[1]).all()


# --- layouts ---------------------------------------------------------------------------------------------------------

LAYOUTS = [
    ("sparse/0", "images"), ("sparse", "images"), ("colmap/sparse/0", "images"), ("colmap_sparse/0", "fotos"),
    ("reconstruction", "images"), ("colmap_ground_truth", "images"), (".", "images"), (".", "."), ("images", "images"),
    ("my model", "a/b"), ("sparse/0", "input"), ("distorted/sparse/0", "input"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "images"), LAYOUTS)
def test_models_and_images_are_found_in_every_layout(tmp_path, model, images):
    source, _ = write_capture(tmp_path, 4, model=model, images=images, text=True)
    assert READERS["colmap"].sniff(source)
    scene = read_scene(source)
    assert scene.format == "colmap" and len(scene.frames) == 4 and scene.frames[1].image.read().shape == (30, 40, 3)


@pytest.mark.parametrize("inner", ["sparse/0", "sparse", "colmap/sparse/0", "reconstruction"])
def test_the_models_own_folder_may_be_given(tmp_path, inner):
    write_capture(tmp_path, 4, model=inner)
    scene = read_scene(str(tmp_path / inner))
    assert len(scene.frames) == 4 and scene.name == tmp_path.name


def test_b08_of_several_models_the_largest_is_taken_and_another_can_be_asked_for(tmp_path):
    names = [f"{i:02d}.png" for i in range(8)]
    write_images(tmp_path / "images", names)
    for number, members in {0: names[:2], 1: names, 2: names[::-1]}.items():
        write_model(tmp_path / f"sparse/{number}", sample_model(members))
    scene = read_scene(str(tmp_path))
    assert scene.provenance["model"] == "sparse/1" and len(scene.frames) == 8
    assert has_note(scene, "3 COLMAP models", "sparse/1 with 8 images", "sparse/0: 2")
    assert len(read_scene(str(tmp_path), model="sparse/0").frames) == 2
    with pytest.raises(UserError, match="sparse/"):
        read_scene(str(tmp_path), model="sparse/7")
    assert [path.name for path in find_models(tmp_path)] == ["0", "1", "2"]


def test_half_a_text_model_does_not_hide_a_whole_binary_one(tmp_path):
    source, _ = write_capture(tmp_path, 4)
    for folder in ("colmap_text", "sparse/0"):
        write_model(tmp_path / "whole", sample_model(["x.png"]), text=True)
        (tmp_path / folder).mkdir(exist_ok=True)
        shutil.copy(tmp_path / "whole/cameras.txt", tmp_path / folder)
        shutil.rmtree(tmp_path / "whole")
    assert len(read_scene(source).frames) == 4
    (tmp_path / "sparse/0/images.bin").unlink()
    assert "part of a COLMAP model" in READERS["colmap"].sniff(source)
    with pytest.raises(UserError, match="no whole COLMAP model") as caught:
        read_scene(source)
    assert "cameras.bin without images.bin" in str(caught.value)


def test_rigs_and_frames_of_newer_versions_do_no_harm(tmp_path):
    source, _ = write_capture(tmp_path, 4)
    for name in ("rigs.bin", "frames.bin", "project.ini"):
        (tmp_path / "sparse/0" / name).write_bytes(b"\x01\x02\x03")
    assert len(read_scene(source).frames) == 4


def test_rig_models_of_pycolmap_hold_composed_poses(tmp_path):
    pycolmap = pytest.importorskip("pycolmap")
    if not hasattr(pycolmap, "SyntheticDatasetOptions"):
        pytest.skip("this pycolmap makes no rigs")
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_cameras_per_rig, options.num_frames_per_rig, options.num_points3D = 1, 2, 3, 50
    theirs = pycolmap.synthesize_dataset(options)
    theirs.write_binary(str(tmp_path))
    model = read_model(tmp_path)
    assert len(model.images) == 6
    for identity, image in theirs.images.items():
        pose = image.cam_from_world() if callable(image.cam_from_world) else image.cam_from_world
        np.testing.assert_allclose(model.images[identity].translation, pose.translation, atol=1e-9)


def test_a_folder_with_transforms_json_stays_that_unless_colmap_is_forced(tmp_path):
    source, _ = write_capture(tmp_path, 4)
    (tmp_path / "transforms.json").write_text("{}")
    assert next(name for name, reader in READERS.items() if reader.sniff(source)) == "transforms_json"
    assert read_scene(source, format="colmap").format == "colmap"


# --- names and images ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [True, False])
def test_b18_b16_names_may_hold_spaces_and_brackets(tmp_path, text):
    names = ["A (402).png", "B 1 2 3.png", "Süd 7.png", "d.png"]
    source, _ = write_capture(tmp_path, names=names, text=text)
    assert [frame.name for frame in read_scene(source).frames] == sorted(names)


def test_b20_names_are_paths(tmp_path):
    names = ["cam0/0001.png", "cam0/0002.png", "cam1/0001.png", "cam1/0002.png"]
    source, _ = write_capture(tmp_path, names=names)
    scene = read_scene(source)
    assert [frame.name for frame in scene.frames] == names
    assert [frame.image.path.relative_to(tmp_path / "images").as_posix() for frame in scene.frames] == names


def test_b78_missing_unregistered_and_stray_files_are_counted_and_named(tmp_path):
    source, _ = write_capture(tmp_path)
    for i in (2, 5):
        (tmp_path / f"images/{i:03d}.png").unlink()
    write_images(tmp_path / "images", ["extra.png"])
    (tmp_path / "images/._000.png").write_bytes(b"\x00\x05\x16\x07")
    (tmp_path / "images/notes.txt").write_text("x")
    scene = read_scene(source)
    assert has_note(scene, "2 of 9 images are missing", "002.png, 005.png")
    assert has_note(scene, "1 of 8 images were not registered", "extra.png")
    np.testing.assert_allclose(original_poses(scene)[2], ring_pose(3)[:3], atol=2e-6)
    assert scene.split_names()["test"] == ["000.png"]


def test_b07_no_image_at_all_shows_names_and_files(tmp_path):
    source, _ = write_capture(tmp_path, names=["IMG_1.png", "IMG_2.png", "IMG_3.png"])
    for i, path in enumerate(sorted((tmp_path / "images").iterdir())):
        path.rename(path.with_name(f"frame_{i:05d}.png"))
    with pytest.raises(UserError) as caught:
        read_scene(source)
    assert all(word in str(caught.value) for word in ("IMG_1.png", "IMG_2.png", "frame_00000.png", "3 names"))


def test_b12_b15_images_are_found_under_other_suffixes_cases_and_folders(tmp_path):
    names = [f"C:\\photos\\{i}.JPG" for i in range(4)]
    source, model = write_capture(tmp_path, names=[f"{i}.png" for i in range(4)])
    write_model(tmp_path / "sparse/0", sample_model(names))
    scene = read_scene(source)
    assert [frame.image.path.name for frame in scene.frames] == [f"{i}.png" for i in range(4)]
    write_model(tmp_path / "sparse/0", sample_model(["0.png", "1.PNG", "2.jpg", "3.png"]))
    assert len(read_scene(source).frames) == 4


def test_b41_intrinsics_follow_the_size_on_disk(tmp_path):
    source, _ = write_capture(tmp_path, size=(20, 15))
    scene = read_scene(source)
    np.testing.assert_allclose(scene.cameras.focal[0], [18, 19])
    np.testing.assert_allclose(scene.cameras.center[0], [10.5, 7.25])
    assert has_note(scene, "9 images have another size")
    for size in ((30, 40), (20, 16)):
        write_images(tmp_path / "images", [f"{i:03d}.png" for i in range(9)], size)
        with pytest.raises(UserError, match="another shape"):
            read_scene(source)


def test_b31_b29_the_principal_point_and_both_focal_lengths_are_kept(tmp_path):
    source, _ = write_capture(tmp_path)
    cameras = read_scene(source).cameras
    np.testing.assert_allclose(cameras.center[0], [21.0, 14.5])
    np.testing.assert_allclose(cameras.focal[0], [36.0, 38.0])


def test_b79_smaller_copies_serve_when_they_are_complete(tmp_path):
    source, _ = write_capture(tmp_path)
    names = [f"{i:03d}.png" for i in range(9)]
    write_images(tmp_path / "images_2", names, (20, 15), "L")
    scene = read_scene(source, downscale=2)
    assert scene.frames[0].image.path.parent.name == "images_2" and scene.downscale == 2
    assert scene.frames[0].image.size == (20, 15) and has_note(scene, "images_2")
    np.testing.assert_allclose(scene.cameras.focal[0], [18, 19])
    (tmp_path / "images_2/003.png").unlink()
    scene = read_scene(source, downscale=2)
    assert scene.frames[0].image.path.parent.name == "images" and scene.frames[0].image.size == (20, 15)
    assert has_note(scene, "images_2 lacks 1 of 9", "003.png", "out of date")
    np.testing.assert_allclose(scene.cameras.focal[0], [18, 19])
    write_images(tmp_path / "images_2", names, (24, 18))
    assert has_note(read_scene(source, downscale=2), "24x18", "not 1/2")
    assert read_scene(source).frames[0].image.path.parent.name == "images"


def test_b79_b40_smaller_copies_may_be_all_there_is(tmp_path):
    camera = ColmapCamera("PINHOLE", (160, 242), np.array([150.0, 150.0, 80.0, 121.0]))
    source, _ = write_capture(tmp_path, images="images_4", camera=camera, size=(40, 61))  # 242 / 4, rounded up
    scene = read_scene(source, downscale=4)
    assert scene.frames[0].image.size == (40, 61) and has_note(scene, "Only images_4 is there")
    np.testing.assert_allclose(scene.cameras.focal[0], [150 / 4, 150 * 61 / 242], rtol=1e-6)
    assert read_scene(source, downscale=8).frames[0].image.size == (20, 31)
    assert read_scene(source).frames[0].image.size == (40, 61)


def test_masks_beside_the_images_belong_to_their_names(tmp_path):
    source, _ = write_capture(tmp_path, 4)
    write_images(tmp_path / "masks", ["001.png.png", "002.png"], mode="L")
    scene = read_scene(source)
    assert [frame.mask is not None for frame in scene.frames] == [False, True, True, False]
    assert not scene.frames[1].valid().any() and scene.frames[2].valid().all()  # grey 0 and grey 10


# --- real captures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "frames", "model", "error"),
    [
        ("ingp_fotos6", 3, "colmap_sparse/0", 0.6),
        ("ingp_rigcams", 42, "colmap_sparse/0", 0.7),
        ("ingp_building_rigs", 13, "colmap_sparse/0", 1.3),
        ("llff_beer", 71, "sparse/0", 0.7),
        ("colmap_txt_maupertuis", 4, "reconstruction", 0.3),
        ("colmap_txt_lund_door", 12, "colmap_ground_truth", 0.3),
        ("colmap_fisheye_t265", 6, "colmap", None),
    ],
)
def test_real_reconstructions(capture, name, frames, model, error):
    scene = read_scene(str(capture(name)), format="colmap")
    assert len(scene.frames) == frames and scene.provenance["model"] == model
    if error is not None:
        assert scene.provenance["reprojection_error_px"] < error
        assert 0.02 < scene.geometry.near < 0.5
    else:
        assert scene.cameras.models == ("opencv_fisheye",)


def test_real_metadata_without_images_is_refused_helpfully(capture):
    folder = capture("meta_only")
    for name, words in dict(
        gtsfm_unsorted_colmap="aaa.jpg, bbb.jpg", gtsfm_palace="San_Francisco", cattoy_json="without images.bin"
    ).items():
        with pytest.raises(UserError, match=words):
            read_scene(str(folder / name), format="colmap")
