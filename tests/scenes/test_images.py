from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from nerfjax.errors import UserError
from nerfjax.scenes.images import (
    ImageReference,
    decode_image,
    downscaled_size,
    has_transparency,
    open_image,
    resize_area,
)

RNG = np.random.default_rng(0)


def slow_area_mean(image, width, height):
    """Area of every old pixel inside every new one, in plain loops; RGB premultiplied by alpha."""
    old_h, old_w, channels = image.shape
    limit = np.iinfo(image.dtype).max
    values = image.astype(np.float64)
    if channels == 4:
        values[..., :3] *= values[..., 3:] / limit
    result = np.zeros((height, width, channels))
    for i in range(height):
        for j in range(width):
            total = 0.0
            top, bottom, left, right = (
                i * old_h / height,
                (i + 1) * old_h / height,
                j * old_w / width,
                (j + 1) * old_w / width,
            )
            for y in range(old_h):
                for x in range(old_w):
                    area = max(0, min(bottom, y + 1) - max(top, y)) * max(0, min(right, x + 1) - max(left, x))
                    result[i, j] += area * values[y, x]
                    total += area
            result[i, j] /= total
    if channels == 4:
        result[..., :3] *= limit / np.maximum(result[..., 3:], 1e-9)
    return result


@pytest.mark.parametrize("size", [(4, 3), (5, 4), (3, 2), (12, 9), (1, 1), (7, 9)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [3, 4])
def test_resize_is_the_area_mean(size, dtype, channels):
    image = RNG.integers(1, np.iinfo(dtype).max, (9, 12, channels), dtype, endpoint=True)
    expected = slow_area_mean(image, *size)
    result = resize_area(image, size)
    assert result.shape == (size[1], size[0], channels) and result.dtype == dtype
    assert np.abs(result - expected).max() <= 0.501 + 1e-4 * np.iinfo(dtype).max / 255


def test_hidden_color_under_alpha_zero_does_not_bleed():
    image = np.zeros((2, 2, 4), np.uint8)
    image[..., 0], image[0, 0] = 255, (0, 200, 0, 255)
    np.testing.assert_array_equal(resize_area(image, (1, 1))[0, 0], [0, 200, 0, 64])


@pytest.mark.parametrize(
    ("mode", "shape", "channels"),
    [("L", (), 3), ("1", (), 3), ("P", (), 3), ("LA", (2,), 4), ("RGB", (3,), 3), ("RGBA", (4,), 4), ("CMYK", (4,), 3)],
)
def test_b46_every_mode_becomes_rgb(tmp_path, mode, shape, channels):
    values = RNG.integers(0, 256, (4, 5, *shape), np.uint8)
    image = Image.fromarray(values[..., :3] if shape else values).convert(mode) if mode in ("1", "P") else None
    image = image or Image.frombytes(mode, (5, 4), values.tobytes())
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    image.save(path)
    result = decode_image(path)
    assert result.shape == (4, 5, channels) and result.dtype == np.uint8
    if mode == "LA":
        np.testing.assert_array_equal(result[..., 3], values[..., 1])
        np.testing.assert_array_equal(result[..., 1], values[..., 0])


def test_b46_palette_with_transparency_keeps_it(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.putdata([0, 1])
    image.save(tmp_path / "p.png", transparency=0)
    assert decode_image(tmp_path / "p.png")[0].tolist() == [[255, 0, 0, 0], [0, 255, 0, 255]]
    assert has_transparency(open_image(tmp_path / "p.png"))


def test_sixteen_bits_stay(tmp_path):
    grey = RNG.integers(0, 65536, (3, 4), np.uint16)
    Image.fromarray(grey).save(tmp_path / "g.png")
    result = decode_image(tmp_path / "g.png")
    assert result.dtype == np.uint16
    np.testing.assert_array_equal(result, np.repeat(grey[..., None], 3, -1))


@pytest.mark.parametrize(
    ("expected", "size"), [((40, 20), (40, 20)), ((20, 40), (20, 40)), ((10, 20), (20, 40)), (None, (40, 20))]
)
def test_b44_orientation_follows_the_camera(tmp_path, expected, size):
    image = Image.fromarray(RNG.integers(0, 256, (20, 40, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "a.png", exif=exif)
    reference = open_image(tmp_path / "a.png", expected)
    assert reference.size == size
    stored = np.asarray(image)
    np.testing.assert_array_equal(reference.read(), stored if size == (40, 20) else np.rot90(stored, -1))


def test_unreadable_images_are_named(tmp_path):
    whole = tmp_path / "whole.png"
    Image.fromarray(RNG.integers(0, 256, (64, 64, 3), np.uint8)).save(whole)
    broken = tmp_path / "broken.png"
    broken.write_bytes(whole.read_bytes()[:3000])
    text = tmp_path / "text.png"
    text.write_text("no image")
    assert open_image(broken).size == (64, 64)
    for act in (open_image(broken).read, lambda: open_image(text), ImageReference(tmp_path / "no.png", (1, 1)).digest):
        with pytest.raises(UserError, match=r"(broken|text|no)\.png"):
            act()


def test_sizes_round_half_up():
    assert downscaled_size((1080, 1920), 8) == (135, 240)
    assert downscaled_size((5, 3), 2) == (3, 2)
    assert downscaled_size((3, 1), 8) == (1, 1)
    for factor in (0, 0.5, float("nan")):
        with pytest.raises(UserError):
            downscaled_size((10, 10), factor)


@pytest.mark.parametrize("limit", [1.0, 255.0, 65535.0])
def test_grey_floats_keep_their_brightness(tmp_path, limit):
    grey = np.linspace(0, limit, 12, dtype=np.float32).reshape(3, 4)
    Image.fromarray(grey).save(tmp_path / "a.tif")
    image = decode_image(tmp_path / "a.tif")
    assert image.dtype == np.uint16
    np.testing.assert_allclose(image[..., 1] / 65535, grey / limit, atol=1e-5)


def test_grey_floats_that_are_not_numbers_are_refused(tmp_path):
    Image.fromarray(np.full((3, 4), np.nan, np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(UserError, match="12 of 12 pixels are not numbers"):
        decode_image(tmp_path / "a.tif")
