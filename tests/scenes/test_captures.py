"""The readers on real captures."""

from __future__ import annotations

import numpy as np
import pytest

from nerfjax.scenes import read_scene


def test_fox(capture):
    scene = read_scene(str(capture("fox")), downscale=8)
    assert len(scene.frames) == 50 and len(scene.indices("test")) == 7
    assert any("17 of 67 images are missing" in note and "images/0005.jpg" in note for note in scene.notes)
    assert scene.frames[0].image.size == (135, 240) and scene.frames[0].image.read().shape == (240, 135, 3)
    np.testing.assert_allclose(scene.cameras.focal[0], [1375.52 / 8, 1374.49 / 8], rtol=1e-6)
    assert scene.cameras.models == ("opencv",) and not scene.geometry.bounded and scene.background is None
    distance = np.linalg.norm(scene.cameras.pose[:, :, 3], axis=-1)
    assert 0.5 < distance.min() and np.median(distance) == pytest.approx(1, rel=1e-3)
    assert np.abs(scene.cameras.pose[:, :, 3]).max() < scene.geometry.box[1, 0]
    # The phone is held upright, and the fox's head stands where the cameras look.
    assert scene.cameras.pose[:, 2, 1].mean() > 0.9
    assert scene.provenance["normalization"]["inward_facing"]


def test_lego(capture):
    scene = read_scene(str(capture("blender_lego_200")))
    assert [len(scene.indices(split)) for split in ("train", "val", "test")] == [100, 20, 200]
    assert scene.background == "white" and scene.geometry.near == pytest.approx(2, abs=0.1)
    assert scene.geometry.far == pytest.approx(6, abs=0.1) and scene.geometry.box[1, 0] == pytest.approx(1.5, abs=0.05)


def test_same_photos_in_all_splits(capture):
    scene = read_scene(str(capture("blender_pen6")))
    assert any("occur in two splits" in note for note in scene.notes) and scene.cameras.models == ("opencv",)


def test_windows_paths_and_wrong_axes(capture):
    scene = read_scene(str(capture("blender_backslash68")), convention="opencv")
    assert len(scene.frames) == 68 and any("68 images were found by name" in note for note in scene.notes)


@pytest.mark.parametrize(("name", "frames"), [("ingp_fruit", 81), ("ingp_rigcams", 42), ("ingp_fotos6", 3)])
def test_dialects(capture, name, frames):
    scene = read_scene(str(capture(name)))
    assert len(scene.frames) == frames and np.isfinite(scene.cameras.pose).all()
