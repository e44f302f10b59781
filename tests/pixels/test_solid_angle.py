"""Solid angles of cells and pixels against closed forms: panoramas, fisheyes, flat images."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.geometry.cameras import cameras_from
from nerfjax.pixels import PixelContent, image_table, solid_angle
from nerfjax.pixels.solid_angle import cell_angles, pixel_angles

POSE = np.eye(4)[None, :3]


def draw(cameras, *, size=8192, maps=None, steps=16, **options):
    """(image, row, column, weight) of many draws, on the host."""
    images = image_table(*np.asarray(cameras.size).T)
    sampler = solid_angle(**options)

    def batches(steps):
        state = sampler.init(images, PixelContent(cameras, maps or {}))
        return jax.lax.map(lambda s: sampler.select(jax.random.key(0), state, images, step=s, size=size), steps)

    batch = jax.jit(batches)(jnp.arange(steps, dtype=jnp.int32))
    return [np.asarray(leaf).ravel() for leaf in (batch.image, batch.row, batch.column, batch.weight)]


def panorama(width=128, height=64):
    return cameras_from(POSE, None, size=(width, height), model="equirectangular")


def fisheye(side=300, radians=1.2):
    """An equidistant fisheye whose inscribed circle is at ``radians``; pi is all that there is to see."""
    return cameras_from(POSE, side / 2 / radians, size=(side, side), model="opencv_fisheye")


@pytest.mark.parametrize(
    ("cameras", "expected"),
    [
        (panorama(), 4 * np.pi),
        # A square of half-width a at distance 1 is seen under 4 asin(a^2 / (1 + a^2)).
        (cameras_from(POSE, 50.0, size=(100, 100)), 4 * np.arcsin(0.5)),
        (cameras_from(POSE, 200.0, size=(100, 100)), 4 * np.arcsin(0.25**2 / (1 + 0.25**2))),
        (cameras_from(POSE, 3.0, size=(10, 20), model="orthographic"), 1.0),
    ],
)
def test_an_image_sees_its_closed_form(cameras, expected):
    angle, imaged = cell_angles(cameras)
    assert np.mean(angle) == pytest.approx(expected, rel=2e-3)
    assert np.all(imaged == 1.0)


def test_cells_and_pixels_agree():
    cameras = cameras_from(
        np.tile(POSE, (3, 1, 1)), [[40.0, 30.0], [60.0, 60.0], [1.0, 1.0]], size=[[64, 32], [64, 64], [96, 64]],
        model=["opencv", "opencv_fisheye", "equirectangular"], distortion=[[-0.05], [0.02], [0.0]],
    )  # fmt: skip
    angle, _ = cell_angles(cameras)
    for image, (width, height) in enumerate(cameras.size):
        row, column = (grid.ravel() for grid in np.mgrid[:height, :width])
        pixels, imaged = pixel_angles(cameras, jnp.full(len(row), image), jnp.asarray(row), jnp.asarray(column))
        assert np.all(imaged)
        assert float(jnp.sum(pixels)) == pytest.approx(float(np.mean(angle[image])), rel=3e-3)


def test_rows_of_a_panorama_are_drawn_by_the_sine_of_their_latitude():
    _, row, column, weight = draw(panorama())
    latitude = np.pi / 2 - np.pi * np.arange(65) / 64
    expected = -np.diff(np.sin(latitude)) / 2
    counts = np.bincount(row, weight, 64)
    z = (counts / len(row) - expected) / np.sqrt(np.mean(weight**2) * expected / len(row))
    assert np.max(np.abs(z)) < 5
    # The draws alone follow in steps of a cell, here of two rows; the steps are large at the poles only.
    middle = np.bincount(row, minlength=64)[8:56] / len(row)
    np.testing.assert_allclose(middle, expected[8:56], rtol=0.1)
    assert np.mean(weight) == pytest.approx(1.0, abs=0.01) and 0.9 < np.quantile(weight, 0.02)
    columns = np.bincount(column, minlength=128)
    assert np.max(np.abs(columns - len(row) / 128) / np.sqrt(len(row) / 128)) < 5


def test_directions_of_a_fisheye_are_uniform_on_the_sphere():
    """The whole disk of a 360-degree fisheye: cos(theta) is uniform in [-1, 1], and nothing outside has weight."""
    cameras = fisheye(radians=np.pi)
    _, row, column, weight = draw(cameras)
    theta = np.hypot(row - 149.5, column - 149.5) * np.pi / 150
    assert np.all(weight[theta > np.pi + 0.01] == 0)
    counts, _ = np.histogram(np.cos(np.minimum(theta, np.pi)), np.linspace(-1, 1, 11), weights=weight)
    np.testing.assert_allclose(counts / len(row), 0.1, rtol=0.04)
    # A square holds pi / 4 of disk, and draws of nothing but its rim's cells are wasted.
    assert np.mean(weight == 0) < 0.05
    assert np.mean(weight) == pytest.approx(1.0, abs=0.02)


def test_the_unbiased_draws_of_a_fisheye_are_uniform_on_the_disk():
    _, row, column, weight = draw(fisheye(radians=np.pi), unbiased=True)
    radius = np.hypot(row - 149.5, column - 149.5) / 150
    counts, _ = np.histogram(radius**2, np.linspace(0, 1, 9), weights=weight)
    np.testing.assert_allclose(counts / len(row), 0.125, rtol=0.04)


def test_cameras_share_the_draws_by_what_they_see():
    sizes = [[64, 64], [32, 32], [64, 32]]
    cameras = cameras_from(
        np.tile(POSE, (3, 1, 1)), [[32.0, 32.0], [32.0, 32.0], [1.0, 1.0]], size=sizes,
        model=["pinhole", "pinhole", "equirectangular"],
    )  # fmt: skip
    image, _, _, weight = draw(cameras)
    seen = np.array([4 * np.arcsin(0.5), 4 * np.arcsin(0.2), 4 * np.pi])
    share = np.bincount(image, weight, 3) / np.sum(weight)
    np.testing.assert_allclose(share, seen / seen.sum(), rtol=0.02)


def test_masked_cells_are_not_drawn():
    valid = np.ones((1, 16, 16), np.float32)
    valid[:, :8] = 0
    _, row, _, weight = draw(panorama(), maps={"valid": valid})
    assert np.min(row) >= 32
    assert np.mean(weight) == pytest.approx(1.0, abs=0.01)


def test_cameras_are_needed():
    with pytest.raises(UserError, match="cameras"):
        solid_angle().init(image_table([4], [4]))
