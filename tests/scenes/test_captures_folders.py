"""The readers of formats with a file per pose, on real captures."""

from __future__ import annotations

import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.geometry.cameras import project
from nerfjax.geometry.poses import invert_similarity, transform_points
from nerfjax.scenes import READERS, read_scene


def found_format(source):
    return next(name for name, reader in READERS.items() if reader.sniff(source))


@pytest.mark.parametrize(
    ("name", "format", "frames", "size"),
    [
        ("idr_scan65_3", "idr", 3, (1600, 1200)),
        ("record3d_door28", "record3d", 28, (1440, 1920)),
        ("sevenscenes_stairs", "scannet", 12, (640, 480)),
        ("mobilebrick3", "scannet", 3, (1920, 1440)),
        ("phototourism_reichstag10", "phototourism", 10, (1048, 628)),
    ],
)
def test_formats_are_recognised(capture, name, format, frames, size):
    if format == "phototourism":
        pytest.importorskip("h5py")
    source = str(capture(name))
    assert found_format(source) == format
    scene = read_scene(source)
    assert len(scene.frames) == frames and scene.frames[0].image.size == size
    assert np.isfinite(scene.cameras.pose).all()


def test_the_skull_lies_in_the_unit_sphere_where_the_masks_are_white(capture):
    scene = read_scene(str(capture("idr_scan65_3")))
    world_center = np.array([-28.0948, -27.9793, 640.4341])  # scale_mat_0
    center = transform_points(scene.to_scene, world_center)
    for row, frame in enumerate(scene.frames):
        valid = frame.valid()
        pixel = project(scene.cameras[row], center, xp=np).pixels
        row_mean, column_mean = np.argwhere(valid).mean(0)
        assert np.hypot(pixel[0] - column_mean, pixel[1] - row_mean) < 0.15 * valid.shape[1]
    radius = np.cbrt(np.linalg.det(invert_similarity(scene.to_scene)[:3, :3]))
    assert 100 < radius < 2000  # millimetres of the world per scene unit


def test_trajectory_needs_a_focal_length(capture):
    source = str(capture("tnt_barn2"))
    with pytest.raises(UserError, match="intrinsics are missing") as caught:
        read_scene(source)
    assert "1344" in caught.value.fix
    scene = read_scene(source, focal=1344.0)
    assert [frame.name for frame in scene.frames] == ["Barn/000001.jpg", "Barn/000002.jpg"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("idr_mismatched_npz", "no images"),
        ("alxfox_idr_npz", "no cameras of this layout"),
        ("cattoy_json", "None of the images exists"),
        ("nerfstudio_transforms", "None of the images exists"),
        ("ingp_trex8_degenerate", "None of the images exists"),
        ("hypernerf_camera", "no cameras"),
    ],
)
def test_metadata_without_images_is_refused(capture, name, message):
    with pytest.raises(UserError, match=message):
        read_scene(str(capture("meta_only") / name))


def test_unregistered_photos_are_counted(capture):
    notes = read_scene(str(capture("ingp_building_rigs")), downscale=8).notes
    assert any("3 images belong to no frame" in note and "0001.jpg" in note for note in notes)
