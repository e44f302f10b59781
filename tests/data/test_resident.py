from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.data import resident
from nerfjax.errors import UserError
from nerfjax.numerics import permutation_radix
from nerfjax.pixels import image_table
from nerfjax.scenes import ImageReference, read_scene

RNG = np.random.default_rng(0)


def scene_of(arrays, splits=None):
    """A scene whose images are the given arrays."""
    base = read_scene(f"analytic:boxes?views={len(arrays)}&size=8&test=0&val=0")
    frames = tuple(
        dataclasses.replace(frame, image=ImageReference(None, array.shape[1::-1], lambda a=array: a), split=split)
        for frame, array, split in zip(base.frames, arrays, splits or ["train"] * len(arrays), strict=True)
    )
    return dataclasses.replace(base, frames=frames)


def image(height, width, channels=3, dtype=np.uint8):
    return RNG.integers(0, np.iinfo(dtype).max, (height, width, channels), dtype, endpoint=True)


def all_pixels(arrays):
    for i, array in enumerate(arrays):
        row, column = np.divmod(np.arange(array.shape[0] * array.shape[1]), array.shape[1])
        yield array, jnp.full(row.shape, i, jnp.int32), jnp.asarray(row, jnp.int32), jnp.asarray(column, jnp.int32)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [3, 4])
def test_every_pixel_of_mixed_sizes(monkeypatch, dtype, channels):
    monkeypatch.setattr(resident, "PAGE", 16)
    arrays = [image(h, w, channels, dtype) for h, w in ((5, 7), (1, 1), (4, 4), (16, 3), (2, 9))]
    images = resident.load_resident(scene_of(arrays))
    assert images.pages.dtype == dtype and images.channels == channels
    with jax.numpy_dtype_promotion("strict"):
        for array, i, row, column in all_pixels(arrays):
            expected = array.reshape(-1, channels) / np.float32(np.iinfo(dtype).max)
            values = jax.jit(resident.lookup)(images, i, row, column)
            assert values.dtype == jnp.float32
            np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_mixed_depths_and_channels_keep_their_values():
    arrays = [image(5, 5), image(4, 6, 4), image(3, 3, 3, np.uint16)]
    images = resident.load_resident(scene_of(arrays))
    assert images.pages.dtype == jnp.uint16 and images.channels == 4
    for array, i, row, column in all_pixels(arrays):
        values = np.asarray(resident.lookup(images, i, row, column))
        expected = array.reshape(-1, array.shape[-1]) / np.iinfo(array.dtype).max
        np.testing.assert_allclose(values[:, : array.shape[-1]], expected, atol=1e-6)
        if array.shape[-1] == 3:
            np.testing.assert_array_equal(values[:, 3], 1)


def test_only_the_split_with_its_cameras_and_table():
    arrays = [image(4, 5), image(3, 3), image(2, 6)]
    scene = scene_of(arrays, ["train", "test", "train"])
    images = resident.load_resident(scene)
    assert len(images.cameras) == 2 and images.table.total == 20 + 12
    np.testing.assert_array_equal(images.cameras.pose, scene.cameras.pose[[0, 2]])
    np.testing.assert_array_equal(images.table.width, [5, 6])
    radix = permutation_radix(32)
    np.testing.assert_array_equal(
        images.table.start_high.astype(int) * radix + images.table.start_low.astype(int), [0, 20]
    )
    with pytest.raises(UserError, match="no images"):
        resident.load_resident(scene, "val")


def test_layout_of_sets_beyond_32_bit_positions():
    width, height = np.full(3000, 2000, np.int32), np.full(3000, 1500, np.int32)  # 9·10^9 pixels
    table = image_table(width, height)
    assert table.total == 9_000_000_000
    table = jax.device_get(table)
    starts = table.start_high.astype(np.int64) * permutation_radix(table.total) + table.start_low
    np.testing.assert_array_equal(starts, np.arange(3000, dtype=np.int64) * 3_000_000)
    first, count = resident.page_layout(width, height)
    assert first.dtype == np.int32 and count == 3000 * 733 and (np.diff(first) == 733).all()


def test_arrays_are_on_the_device_and_lookup_makes_no_host_copy():
    images = resident.load_resident(scene_of([image(4, 4)]))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(images))
    index = jnp.zeros(3, jnp.int32)
    lookup = jax.jit(resident.lookup)
    lookup(images, index, index, index)
    compiled = lookup._cache_size()
    with jax.transfer_guard("disallow"):
        lookup(images, index, index, index)
        lookup(images, index, index, index)
    assert lookup._cache_size() == compiled


def test_b88_memory_need_is_known_beforehand():
    scene = scene_of([image(64, 65, 4), image(3, 3, 4)])
    assert resident.resident_bytes(scene) == resident.load_resident(scene).pages.nbytes


def test_a_broken_image_is_an_error_not_a_hole(tmp_path):
    scene = scene_of([image(4, 4), image(4, 4)])
    (tmp_path / "bad.png").write_bytes(b"nothing")
    bad = dataclasses.replace(scene.frames[1], image=ImageReference(tmp_path / "bad.png", (4, 4)))
    with pytest.raises(UserError, match=r"bad\.png"):
        resident.load_resident(dataclasses.replace(scene, frames=(scene.frames[0], bad)))
