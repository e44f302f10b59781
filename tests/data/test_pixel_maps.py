"""Maps of images for pixel samplers, against plain averages over pixels."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from nerfjax.data.pixel_maps import SIDE, map_side, pixel_content
from nerfjax.errors import UserError
from nerfjax.pixels import PIXELS
from nerfjax.scenes import ImageReference, read_scene


def scene_of(images, masks):
    """A scene whose training images are replaced."""
    scene = read_scene(f"analytic:spheres?views={len(images)}&size=16&val=0&test=0")
    frames = []
    for frame, image, mask in zip(scene.frames, images, masks, strict=True):
        size = image.shape[1], image.shape[0]
        changes = dict(image=ImageReference(None, size, lambda a=image: a, identity="i"))
        if mask is not None:
            shown = np.repeat(np.where(mask, 255, 0).astype(np.uint8)[..., None], 3, axis=-1)
            changes["mask"] = ImageReference(None, size, lambda a=shown: a, identity="m")
        frames.append(dataclasses.replace(frame, **changes))
    return dataclasses.replace(scene, frames=tuple(frames))


def test_maps_are_means_over_cells():
    rng = np.random.default_rng(0)
    first = rng.integers(0, 256, (2 * SIDE, 3 * SIDE, 4), np.uint8)
    second = rng.integers(0, 2**16, (SIDE, SIDE, 3), np.uint16)
    mask = rng.uniform(0, 1, first.shape[:2]) > 0.5
    content = pixel_content(scene_of([first, second], [mask, None]), ("valid", "foreground", "edges"))
    cells = lambda values: values.reshape(SIDE, 2, SIDE, 3).mean(axis=(1, 3))  # noqa: E731
    np.testing.assert_allclose(content.maps["valid"][0], cells(mask), rtol=1e-5)
    np.testing.assert_allclose(content.maps["foreground"][0], cells(first[..., 3] / 255), rtol=1e-5)
    assert np.all(content.maps["valid"][1] == 1) and np.all(content.maps["foreground"][1] == 1)
    assert len(content.cameras) == 2


def test_edges_are_where_brightness_or_opacity_changes():
    image = np.full((SIDE, SIDE, 4), 255, np.uint8)
    image[:, SIDE // 2 :, :3] = 55
    image[: SIDE // 4, :, 3] = 0
    edges = pixel_content(scene_of([image], [None]), ("edges",)).maps["edges"][0]
    expected = np.zeros((SIDE, SIDE))
    expected[SIDE // 4 :, SIDE // 2 - 1] = 200 / 255
    expected[SIDE // 4 - 1] = np.where(np.arange(SIDE) < SIDE // 2, 1.0, 55 / 255)
    np.testing.assert_allclose(edges, expected, atol=1e-6)


def test_images_are_read_only_where_they_matter():
    def refuse():
        raise AssertionError("an image was decoded")

    image = ImageReference(None, (8, 6), refuse, identity="i")
    scene = scene_of([np.zeros((6, 8, 3), np.uint8)], [np.ones((6, 8), bool)])
    scene = dataclasses.replace(scene, frames=(dataclasses.replace(scene.frames[0], image=image),))
    assert pixel_content(scene, ()) is None
    assert np.all(pixel_content(scene, ("valid",)).maps["valid"] == 1)
    shapes = pixel_content(scene, ("valid", "edges"), decode=False).maps
    assert {values.shape for values in shapes.values()} == {(1, SIDE, SIDE)}
    with pytest.raises(AssertionError, match="decoded"):
        pixel_content(scene, ("edges",))


def test_large_captures_get_smaller_maps():
    assert map_side(1) == map_side(1000) == SIDE
    assert map_side(10_000) ** 2 * 10_000 <= 2**22 and map_side(10**7) == 4


def test_every_member_wants_maps_that_exist():
    scene = read_scene("analytic:spheres?views=2&size=16&val=0&test=0")
    for make in PIXELS.values():
        wants = make().wants
        content = pixel_content(scene, wants)
        assert (content is None) == (not wants) and (not wants or set(content.maps) == set(wants))
    with pytest.raises(UserError, match="no such map"):
        pixel_content(scene, ("edge",))
