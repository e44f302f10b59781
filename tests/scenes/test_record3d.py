from __future__ import annotations

import numpy as np
import pytest
from ring_capture import COUNT, K, check, opengl, write_image, write_json

from nerfjax.errors import UserError
from nerfjax.geometry.poses import quaternion_from_rotation
from nerfjax.scenes import read_scene


def pose(index):
    w, x, y, z = quaternion_from_rotation(opengl(index)[:3, :3]).tolist()
    return [x, y, z, w, *opengl(index)[:3, 3].tolist()]


def write(folder, name="metadata", images=range(COUNT), **change):
    content = {"K": K.T.ravel().tolist(), "w": 8, "h": 6, "dw": 4, "dh": 3, "poses": [pose(i) for i in range(COUNT)]}
    write_json(folder / "EXR_RGBD" / name, {**content, **change})
    for i in images:
        write_image(folder / f"EXR_RGBD/rgb/{i}.jpg", i)
    return str(folder)


@pytest.mark.parametrize("name", ["metadata", "metadata.json"])
def test_b75_column_major_calibration_and_xyzw_quaternions(tmp_path, name):
    source = write(tmp_path, name)
    check(read_scene(source), names=[f"rgb/{i}.jpg" for i in range(COUNT)])
    check(read_scene(f"{source}/EXR_RGBD/{name}"))


def test_b75_frames_are_paired_by_number(tmp_path):
    scene = read_scene(write(tmp_path, images=(0, 2, 3, 17)))
    check(scene, [0, 2, 3])
    assert any("1 of 4 poses have no image: 1" in note for note in scene.notes)
    assert any("1 of 4 images" in note and "17" in note for note in scene.notes)


def test_intrinsics_of_every_frame_and_resized_images(tmp_path):
    rows = [[20.0 + i, 22.0, 9.0, 5.0] for i in range(COUNT)]
    scene = read_scene(write(tmp_path, w=16, h=12, perFrameIntrinsicCoeffs=rows))
    np.testing.assert_allclose(scene.cameras.focal[:, 0], [10, 10.5, 11, 11.5])
    np.testing.assert_allclose(scene.cameras.center[0], [4.5, 2.5])
    assert any("8x6 for 16x12" in note for note in scene.notes)


def test_depth_is_in_metres_along_the_axis(tmp_path):
    source = write(tmp_path)
    (tmp_path / "EXR_RGBD/depth").mkdir()
    np.save(tmp_path / "EXR_RGBD/depth/1.npy", np.full((3, 4), 2.0, np.float32))
    scene = read_scene(source)
    depth = scene.frames[1].depth
    assert depth.kind == "z" and scene.frames[0].depth is None
    scale = np.cbrt(np.linalg.det(scene.to_scene[:3, :3]))
    np.testing.assert_allclose(depth.read((8, 6)), 2.0 * scale, rtol=1e-5)
    assert any("3 of 4 frames have no depth" in note for note in scene.notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(poses=[]), "no poses"),
        (dict(poses=[[0, 0, 0, 0, 1, 2, 3]] * COUNT), "length 1"),
        (dict(poses=[[0, 0, 0, 1]] * COUNT), "not the numbers"),
        (dict(K=[1, 2]), "not the numbers"),
        (dict(K=K.ravel().tolist()), "calibration matrix"),
        (dict(w=6, h=8), "swapped"),
        (dict(h="tall"), "not the numbers"),
    ],
)
def test_bad_metadata(tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        read_scene(write(tmp_path, **change), format="record3d")
