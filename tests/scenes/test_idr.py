from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from ring_capture import COUNT, FOCUS, K, check, opencv, write_image

from nerfjax.errors import UserError
from nerfjax.geometry.poses import similarity_matrix, transform_points
from nerfjax.scenes import read_scene

SCALE = similarity_matrix(scale=3.0, translation=FOCUS)


def world_mat(index, sign=1.0):
    matrix = np.eye(4)
    matrix[:3] = sign * 7.0 * K @ np.linalg.inv(opencv(index))[:3]
    return matrix


def write(folder, name="cameras_sphere.npz", cameras=COUNT, images=COUNT, first=0, keys="world_mat_{}", **change):
    arrays = {}
    for i in range(cameras):
        arrays[keys.format(i)] = world_mat(i % COUNT, sign=(-1.0) ** i).astype(np.float64)
        arrays[f"scale_mat_{i}"] = SCALE
        arrays[f"camera_mat_{i}"] = np.diag([2 / 8, 2 / 6, 1, 1])
    arrays = {**arrays, **change}
    np.savez(folder / name, **{key: value for key, value in arrays.items() if value is not None})
    for i in range(images):
        write_image(folder / f"image/{i + first:06d}.png", i)
    return str(folder)


def test_projections_are_decomposed(tmp_path):
    scene = read_scene(write(tmp_path))
    check(scene, names=[f"image/{i:06d}.png" for i in range(COUNT)])
    assert scene.format == "idr" and scene.provenance["file"] == "cameras_sphere.npz"
    np.testing.assert_allclose(transform_points(scene.to_scene, FOCUS), 0, atol=1e-5)


def test_rotation_with_a_separate_calibration(tmp_path):
    poses = {f"world_mat_{i}": np.linalg.inv(opencv(i)) for i in range(COUNT)}
    ndc = np.array([[2 / 8, 0, -1], [0, 2 / 6, -1], [0, 0, 1]]) @ K
    check(read_scene(write(tmp_path, **poses, **{f"camera_mat_{i}": ndc for i in range(COUNT)})))


def test_b52_masks_of_other_digits_are_paired_by_number(tmp_path):
    source = write(tmp_path)
    for i in range(COUNT):
        mask = np.zeros((6, 8, 3), np.uint8)
        mask[i, :] = 255
        (tmp_path / "mask").mkdir(exist_ok=True)
        Image.fromarray(mask).save(tmp_path / f"mask/{i:03d}.png")
    scene = read_scene(source)
    for i, frame in enumerate(scene.frames):
        np.testing.assert_array_equal(np.flatnonzero(frame.valid().all(axis=1)), [i])
    assert all(frame.mask is None for frame in read_scene(source, masks="off").frames)


def test_more_cameras_than_images(tmp_path):
    scene = read_scene(write(tmp_path, cameras=9, images=COUNT))
    check(scene)
    assert any("5 of 9 cameras have no image" in note for note in scene.notes)


def test_images_numbered_from_one_are_paired_in_order_with_a_note(tmp_path):
    scene = read_scene(write(tmp_path, first=1))
    check(scene)
    assert any("paired in order" in note for note in scene.notes)


def test_the_choice_of_the_file_is_said(tmp_path):
    write(tmp_path, "cameras_large.npz")
    source = write(tmp_path)
    assert any("cameras_sphere.npz; cameras_large.npz" in note for note in read_scene(source).notes)
    chosen = read_scene(str(tmp_path / "cameras_large.npz"))
    assert chosen.provenance["file"] == "cameras_large.npz" and chosen.format == "idr"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(world_mat_1=np.zeros((4, 4))), "singular"),
        (dict(world_mat_1=np.full((4, 4), np.nan)), "not finite"),
        (dict(world_mat_1=np.eye(3)), "wrong shape"),
        (dict(scale_mat_0=np.diag([1.0, 2.0, 1.0, 1.0])), "scale matrix"),
        (dict(world_mat_1=np.array([["a"] * 4] * 4)), "cannot be read"),
    ],
)
def test_bad_matrices(tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        read_scene(write(tmp_path, **change))


def test_other_keys_and_broken_files(tmp_path):
    with pytest.raises(UserError, match="no cameras of this layout") as caught:
        read_scene(write(tmp_path, keys="R_{}"))
    assert "R_0" in str(caught.value)
    (tmp_path / "cameras_sphere.npz").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(UserError, match="cannot be read"):
        read_scene(str(tmp_path))


def test_nothing_is_unpickled(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_scene(write(tmp_path, world_mat_0=np.array([object()])))


def test_images_that_cannot_be_paired(tmp_path):
    source = write(tmp_path, images=0)
    with pytest.raises(UserError, match="no images"):
        read_scene(source)
    for name in ("a", "b"):
        write_image(tmp_path / f"image/{name}.png")
    with pytest.raises(UserError, match="cannot be paired") as caught:
        read_scene(source)
    assert "a.png" in str(caught.value) and "world_mat_0" in str(caught.value)
