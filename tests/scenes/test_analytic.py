from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from PIL import Image

from nerfjax.errors import UserError
from nerfjax.scenes import analytic, read_scene
from nerfjax.scenes.analytic_scenes import SCENES, UNBOUNDED

SMALL = "views=4&size=24&test=2&val=1&antialias=1"


def test_scene_on_disk_is_the_scene_in_memory(tmp_path):
    folder = analytic.write_blender_capture("toys", tmp_path / "toys", 4, 24, test=2, val=1, antialias=1)
    on_disk, in_memory = read_scene(str(folder)), read_scene(f"analytic:toys?{SMALL}")
    assert on_disk.format == "blender" and in_memory.format == "analytic"
    assert on_disk.split_names() == in_memory.split_names()
    assert on_disk.background == in_memory.background == "white"
    for a, b in zip(on_disk.frames, in_memory.frames, strict=True):
        np.testing.assert_array_equal(a.image.read(), b.image.read())
    for leaf in ("pose", "focal", "center", "size"):
        np.testing.assert_allclose(getattr(on_disk.cameras, leaf), getattr(in_memory.cameras, leaf), rtol=1e-6)
    np.testing.assert_allclose(on_disk.geometry.box, in_memory.geometry.box, rtol=1e-6)
    assert not (tmp_path / "toys.partial").exists()
    with pytest.raises(UserError, match="not empty"):
        analytic.write_blender_capture("toys", folder, 1, 8)


@pytest.mark.parametrize("name", SCENES)
def test_every_scene_is_a_capture(name):
    scene = read_scene(f"analytic:{name}?{SMALL}")
    assert {split: len(scene.indices(split)) for split in ("train", "val", "test")} == {"train": 4, "val": 1, "test": 2}
    assert len(scene.geometry.cameras) == 4
    assert scene.geometry.bounded == (name not in UNBOUNDED)
    alpha = np.stack([frame.image.read()[..., 3] for frame in scene.frames])
    if name in UNBOUNDED:
        assert (alpha == 255).all()
        assert np.abs(scene.cameras.pose[:, :, 3]).max() <= scene.geometry.box[1, 0] + 0.3
    else:
        # The object is in the picture, and does not touch the upper corners.
        assert (alpha > 127).mean() > 0.1 and not alpha[:, 0, [0, -1]].any()


def test_images_are_lazy_and_deterministic(monkeypatch):
    source = f"analytic:spheres?{SMALL}&views=5"
    monkeypatch.setattr(analytic, "render_view", lambda *_: pytest.fail("rendered before it was read"))
    scene = read_scene(source)
    scene.fingerprint()
    monkeypatch.undo()
    first = scene.frames[0].image.read().copy()
    analytic._rendered.cache_clear()
    np.testing.assert_array_equal(read_scene(source).frames[0].image.read(), first)


def test_downscaled_image_is_the_mean_of_the_full_one():
    full, half = (read_scene("analytic:boxes?views=1&test=0&val=0&size=24", downscale=d) for d in (1, 2))
    a, b = full.frames[0].image.read().astype(float), half.frames[0].image.read().astype(float)
    mean = a[..., 3].reshape(12, 2, 12, 2).mean((1, 3))
    assert b.shape == (12, 12, 4) and np.abs(mean - b[..., 3]).max() <= 0.5
    np.testing.assert_allclose(half.cameras.focal, full.cameras.focal / 2, rtol=1e-6)


def test_fingerprint_follows_the_options_and_the_definition():
    prints = {
        read_scene(f"analytic:{tail}").fingerprint()
        for tail in (
            "toys?size=24",
            "toys?size=25",
            "toys?size=24&views=59",
            "boxes?size=24",
            "toys?size=24&antialias=1",
        )
    }
    assert len(prints) == 5
    assert read_scene("analytic:toys?size=24").fingerprint() in prints


def test_fingerprint_changes_with_the_split():
    scene = read_scene(f"analytic:toys?{SMALL}")
    moved = dataclasses.replace(scene.frames[0], split="test")
    other = dataclasses.replace(scene, frames=(moved, *scene.frames[1:]))
    assert other.fingerprint() != scene.fingerprint()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("analytic:sphere", "did you mean 'spheres'"),
        ("analytic:toys?view=3", "did you mean 'views'"),
        ("analytic:toys?size=big", "whole number"),
        ("analytic:toys?size=0", "at least 1"),
        ("analytic:toys?views=-1", "whole number"),
    ],
)
def test_wrong_source(source, message):
    with pytest.raises(UserError, match=message):
        read_scene(source)


def test_landscape_on_disk_is_an_unbounded_capture(tmp_path):
    folder = analytic.write_blender_capture("landscape", tmp_path / "l", 6, 16, test=1, val=0, antialias=1)
    scene = read_scene(str(folder))
    assert not scene.geometry.bounded and scene.background is None
    assert np.median(np.linalg.norm(scene.cameras.pose[:, :, 3], axis=-1)) == pytest.approx(1, rel=0.1)
    with Image.open(folder / "train" / "r_0.png") as image:
        assert image.mode == "RGBA"
