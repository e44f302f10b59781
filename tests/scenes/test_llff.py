"""LLFF captures: rows and names, a COLMAP model beside them, smaller copies, NDC."""

from __future__ import annotations

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
    write_images,
)

from nerfjax.errors import UserError
from nerfjax.geometry.poses import transform_points
from nerfjax.scenes import read_scene
from nerfjax.scenes.colmap_model import ColmapCamera
from nerfjax.scenes.colmap_write import write_model
from nerfjax.scenes.forward_facing import is_forward_facing
from nerfjax.scenes.llff import rows_from_poses

COUNT, FOCAL = 9, 36.0


def write_llff(root, count=COUNT, *, names=None, pose=ring_pose, bounds=(1.5, 4.0), size=SIZE, images="images"):
    names = names or [f"{i:03d}.png" for i in range(count)]
    write_images(root / images, names, size)
    poses = np.stack([pose(i, count) for i in range(count)])
    np.save(root / "poses_bounds.npy", rows_from_poses(poses, SIZE, FOCAL, bounds))
    return str(root)


def test_columns_are_down_right_backward():
    row = rows_from_poses(ring_pose(0)[None], (40, 30), 36.0, (1, 2))[0]
    matrix = row[:15].reshape(3, 5)
    np.testing.assert_allclose(matrix[:, 0], -ring_pose(0)[:3, 1])  # down
    np.testing.assert_allclose(matrix[:, 1], ring_pose(0)[:3, 0])  # right
    np.testing.assert_allclose(matrix[:, 2], ring_pose(0)[:3, 2])  # backward
    assert matrix[:, 4].tolist() == [30, 40, 36] and row[15:].tolist() == [1, 2]


def test_b61_poses_focal_and_middle(tmp_path):
    scene = read_scene(write_llff(tmp_path))
    assert scene.format == "llff" and scene.cameras.models == ("pinhole",)
    np.testing.assert_allclose(original_poses(scene), [ring_pose(i)[:3] for i in range(9)], atol=2e-6)
    np.testing.assert_allclose(scene.cameras.focal, FOCAL)
    np.testing.assert_allclose(scene.cameras.center[0], [20, 15])
    assert scene.split_names()["test"] == ["000.png", "008.png"]
    assert has_note(scene, "focal length of the first camera")
    np.testing.assert_allclose(transform_points(scene.to_scene, FOCUS), 0, atol=1e-6)
    distance = 2.5 * np.hypot(1, 0.4)  # the stated near, with a margin
    assert scene.geometry.near == pytest.approx(0.9 * 1.5 / distance, rel=1e-4)


def test_b23_rows_belong_to_the_names_in_lexicographic_order(tmp_path):
    names = [f"img{i}.png" for i in range(1, 13)]
    scene = read_scene(write_llff(tmp_path, 12, names=names))
    assert [frame.name for frame in scene.frames] == sorted(names)
    np.testing.assert_allclose(original_poses(scene)[1], ring_pose(1, 12)[:3], atol=2e-6)
    assert scene.frames[1].name == "img10.png"


def test_b01_b02_litter_is_no_image_and_other_numbers_stop(tmp_path):
    source = write_llff(tmp_path, 3)
    (tmp_path / "images/._a.png").write_bytes(b"\x00\x05\x16\x07")
    (tmp_path / "images/.DS_Store").write_bytes(b"x")
    (tmp_path / "images/notes.txt").write_text("x")
    assert len(read_scene(source).frames) == 3
    write_images(tmp_path / "images", ["y.png", "z.png"])
    with pytest.raises(UserError) as caught:
        read_scene(source)
    assert all(word in str(caught.value) for word in ("3 rows", "5 images", "did not register"))


def test_b01_b35_a_colmap_model_names_the_rows_and_is_preferred(tmp_path):
    names = [f"{i:03d}.png" for i in range(9)]
    kept = [names[i] for i in (0, 2, 3, 5, 8)]
    source = write_llff(tmp_path, 5, names=kept)
    write_images(tmp_path / "images", names)
    cameras = [ColmapCamera("SIMPLE_RADIAL", SIZE, np.array([36.0 + i, 20, 15, 0.05])) for i in range(5)]
    write_model(tmp_path / "sparse/0", sample_model(kept, cameras=cameras))
    scene = read_scene(source)
    assert scene.format == "llff" and [frame.name for frame in scene.frames] == kept
    np.testing.assert_allclose(scene.cameras.focal[:, 0], [36, 37, 38, 39, 40])
    np.testing.assert_allclose(scene.cameras.distortion[:, 0], 0.05, rtol=1e-6)
    assert scene.points is not None and has_note(scene, "COLMAP model", "one focal length")
    assert has_note(scene, "4 of 9 images were not registered")
    rows = read_scene(source, prefer="llff")
    assert [frame.name for frame in rows.frames] == kept and set(rows.cameras.focal.ravel()) == {FOCAL}
    np.testing.assert_allclose(original_poses(rows), original_poses(scene), atol=3e-6)


def test_a_model_that_the_rows_do_not_belong_to_is_noted(tmp_path):
    source = write_llff(tmp_path, 9, pose=wall_pose)
    write_model(tmp_path / "sparse/0", sample_model([f"{i:03d}.png" for i in range(9)]))
    assert has_note(read_scene(source), "other poses than the COLMAP model")
    write_model(tmp_path / "sparse/0", sample_model([f"{i:03d}.png" for i in range(8)]))
    assert has_note(read_scene(source), "9 rows and the COLMAP model 8 images")
    with pytest.raises(UserError, match="not as many cameras"):
        read_scene(source, prefer="llff")


def test_a_listing_names_the_rows(tmp_path):
    source = write_llff(tmp_path, 4)
    write_images(tmp_path / "images", ["extra.png"])
    (tmp_path / "view_imgs.txt").write_text("003.png\n000.png\n001.png\n002.png\n\n")
    (tmp_path / "images/001.png").unlink()
    scene = read_scene(source)
    assert [frame.name for frame in scene.frames] == ["000.png", "002.png", "003.png"]
    assert has_note(scene, "1 of 4 images are missing", "001.png")
    np.testing.assert_allclose(original_poses(scene)[1], ring_pose(2, 4)[:3], atol=2e-6)


def test_b79_stale_smaller_copies_are_not_used(tmp_path):
    source = write_llff(tmp_path)
    names = [f"{i:03d}.png" for i in range(9)]
    write_images(tmp_path / "images_2", names, (20, 15))
    assert read_scene(source, downscale=2).frames[4].image.path.parent.name == "images_2"
    (tmp_path / "images_2/004.png").unlink()
    scene = read_scene(source, downscale=2)
    assert has_note(scene, "images_2 lacks 1 of 9") and scene.frames[4].image.path.parent.name == "images"
    np.testing.assert_allclose(scene.cameras.focal[0], FOCAL / 2)


def test_smaller_copies_alone_scale_the_focal_length(tmp_path):
    scene = read_scene(write_llff(tmp_path, images="images_2", size=(20, 15)), downscale=2)
    assert scene.frames[0].image.size == (20, 15)
    np.testing.assert_allclose(scene.cameras.focal[0], FOCAL / 2)
    (tmp_path / "b").mkdir()
    with pytest.raises(UserError, match="another shape"):
        read_scene(write_llff(tmp_path / "b", size=(30, 30)))


def test_forward_facing_captures_are_sampled_in_disparity_from_the_nearest_content(tmp_path):
    source = write_llff(tmp_path, pose=wall_pose, bounds=(4.0, 60.0))
    scene = read_scene(source)
    assert scene.geometry.spacing == "disparity" and not scene.geometry.bounded
    assert scene.provenance["normalization"]["ndc"]
    # The nearest content, 4 away, is at distance one of the cameras' middle; the cameras stand well inside.
    np.testing.assert_allclose(np.cbrt(np.linalg.det(scene.to_scene[:3, :3])), 0.25, rtol=1e-9)
    assert np.abs(scene.cameras.pose[:, :, 3]).max() < 0.2 and 0.7 < scene.geometry.near < 1
    np.testing.assert_allclose(original_poses(scene), [wall_pose(i)[:3] for i in range(9)], atol=2e-6)
    assert scene.cameras.pose[:, 2, 1].min() > 0.99
    metric = read_scene(source, ndc=False)
    assert metric.geometry.spacing == "piecewise" and "ndc" not in metric.provenance["normalization"]


def test_b80_inward_facing_rigs_stay_metric_and_say_so(tmp_path):
    source = write_llff(tmp_path)
    scene = read_scene(source, ndc=True)
    assert has_note(scene, "NDC was asked for", "stays metric") and scene.geometry.spacing == "piecewise"
    assert not any("NDC" in note for note in read_scene(source).notes)


def test_what_faces_forward():
    assert is_forward_facing(np.stack([wall_pose(i) for i in range(9)]))
    assert not is_forward_facing(np.stack([ring_pose(i) for i in range(9)]))
    walk = np.tile(wall_pose(4), (9, 1, 1))
    walk[:, 1, 3] = -np.arange(9)  # along the line of sight
    assert not is_forward_facing(walk)


def test_bounds_that_are_none_are_left_out(tmp_path):
    scene = read_scene(write_llff(tmp_path, pose=wall_pose, bounds=(4.0, 2.0)), ndc=True)
    assert has_note(scene, "states no distances") and scene.geometry.spacing == "piecewise"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.zeros((0, 17)), "lists no cameras"),
        (np.zeros((9, 15)), "another shape"),
        (np.array([{"a": 1}], object), "cannot be read"),
        (np.zeros((9, 17), complex), "another shape"),
        (np.full((9, 17), np.nan), "not finite"),
        (np.ones((9, 17)), "orthonormal"),
        (np.zeros((9, 17)), "image size and focal"),
    ],
)
def test_broken_files_are_refused(tmp_path, rows, words):
    source = write_llff(tmp_path)
    np.save(tmp_path / "poses_bounds.npy", rows, allow_pickle=True)
    with pytest.raises(UserError, match=words) as caught:
        read_scene(source)
    assert "poses_bounds.npy" in str(caught.value)
    (tmp_path / "poses_bounds.npy").write_bytes(b"no array")
    with pytest.raises(UserError, match="cannot be read"):
        read_scene(str(tmp_path / "poses_bounds.npy"))


def test_transposed_size_is_told(tmp_path):
    source = write_llff(tmp_path)
    rows = np.load(tmp_path / "poses_bounds.npy")
    rows[:, [4, 9]] = rows[:, [9, 4]]
    np.save(tmp_path / "poses_bounds.npy", rows)
    with pytest.raises(UserError, match="swapped"):
        read_scene(source)


def test_transposed_matrices_are_told(tmp_path):
    folder = write_llff(tmp_path)
    rows = np.load(tmp_path / "poses_bounds.npy")
    rows[:, :15] = rows[:, :15].reshape(-1, 3, 5).swapaxes(1, 2).reshape(-1, 15)
    np.save(tmp_path / "poses_bounds.npy", rows)
    with pytest.raises(UserError, match="transposed"):
        read_scene(str(folder or tmp_path))


@pytest.mark.parametrize("options", [dict(prefer="colmpa"), dict(ndc="maybe")])
def test_options_are_checked(tmp_path, options):
    with pytest.raises(UserError):
        read_scene(write_llff(tmp_path), **options)


def test_real_capture_with_stale_copies_and_many_cameras(capture):
    folder = str(capture("llff_beer"))
    scene = read_scene(folder, downscale=8)
    assert scene.format == "llff" and len(scene.frames) == 71 and scene.frames[0].image.size == (90, 160)
    assert has_note(scene, "images_8 lacks 42 of 71") and has_note(scene, "one focal length and no distortion")
    assert len(set(scene.cameras.focal[:, 0].tolist())) == 71 and (scene.cameras.distortion[:, 0] != 0).all()
    rows = read_scene(folder, prefer="llff")
    np.testing.assert_allclose(rows.cameras.pose, scene.cameras.pose, atol=1e-6)
    assert len(set(rows.cameras.focal[:, 0].tolist())) == 1


def test_points_of_the_model_give_the_bounds(tmp_path):
    source = write_llff(tmp_path)
    write_model(tmp_path / "sparse/0", sample_model([f"{i:03d}.png" for i in range(9)], points=cloud(100)))
    assert 0.3 < read_scene(source).geometry.near < 0.5
