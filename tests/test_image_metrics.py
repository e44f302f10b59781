"""Image metrics against their definitions and a slow SSIM of windows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax import image_metrics
from nerfjax.errors import UserError


@pytest.fixture(autouse=True)
def strict_promotion():
    with jax.numpy_dtype_promotion("strict"):
        yield


def images(seed: int = 0, shape=(17, 23, 3), noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: shape[0], : shape[1]] / max(shape)
    target = 0.5 + 0.4 * np.sin(9 * rows + 5 * columns)[..., None] * np.array([1.0, 0.5, -0.8])
    return np.clip(target + noise * rng.normal(size=shape), 0, 1).astype(np.float32), target.astype(np.float32)


def slow_ssim(a: np.ndarray, b: np.ndarray) -> float:
    """Mean over channels and over windows that lie inside the image; moments are taken around the window's mean."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    g = np.exp(-0.5 * ((np.arange(11) - 5) / 1.5) ** 2)
    window = np.outer(g, g) / np.sum(np.outer(g, g))
    values = []
    for channel in range(3):
        for i in range(a.shape[0] - 10):
            for j in range(a.shape[1] - 10):
                x, y = a[i : i + 11, j : j + 11, channel], b[i : i + 11, j : j + 11, channel]
                mx, my = np.sum(window * x), np.sum(window * y)
                vx, vy = np.sum(window * (x - mx) ** 2), np.sum(window * (y - my) ** 2)
                vxy = np.sum(window * (x - mx) * (y - my))
                c1, c2 = 0.01**2, 0.03**2
                values.append((2 * mx * my + c1) * (2 * vxy + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2)))
    return float(np.mean(values))


def test_mse_and_psnr():
    prediction, target = images()
    error = np.mean((prediction.astype(np.float64) - target) ** 2)
    np.testing.assert_allclose(image_metrics.mse(prediction, target), error, rtol=1e-5)
    np.testing.assert_allclose(image_metrics.psnr(prediction, target), -10 * np.log10(error), rtol=1e-5)
    np.testing.assert_allclose(image_metrics.psnr_from_mse(jnp.asarray([1.0, 0.1, 1e-4])), [0, 10, 40], atol=1e-4)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.3])
def test_b91_ssim_against_windows(noise):
    prediction, target = images(noise=noise)
    np.testing.assert_allclose(image_metrics.ssim(prediction, target), slow_ssim(prediction, target), atol=2e-5)


def test_ssim_is_symmetric_and_falls_with_noise():
    values = [float(image_metrics.ssim(*images(noise=noise))) for noise in (0.0, 0.05, 0.1, 0.3)]
    assert values[0] == pytest.approx(1.0, abs=1e-5) and np.all(np.diff(values) < -0.01)
    prediction, target = images()
    assert image_metrics.ssim(prediction, target) == pytest.approx(
        float(image_metrics.ssim(target, prediction)), abs=1e-6
    )


def test_b91_ssim_takes_the_data_range_to_be_one():
    # With an assumed range of 2 the constants would be four times as large and hide much of this difference.
    dark = np.full((12, 12, 3), 0.01, np.float32)
    want = (2 * 0.01 * 0.05 + 1e-4) / (0.01**2 + 0.05**2 + 1e-4)
    np.testing.assert_allclose(image_metrics.ssim(dark, dark * 5), want, rtol=1e-3)


def test_the_smallest_image_and_smaller_ones():
    prediction, target = images(shape=(11, 11, 3))
    np.testing.assert_allclose(image_metrics.ssim(prediction, target), slow_ssim(prediction, target), atol=2e-5)
    prediction, target = images(shape=(10, 40, 3))
    with pytest.raises(UserError, match="40 x 10"):
        image_metrics.ssim(prediction, target)


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("offset", [0.0, 0.1])
def test_b86_gradients_on_flat_images_are_finite(value, offset):
    target = jnp.full((14, 15, 3), value)
    prediction = jnp.abs(target - offset)
    for metric in (image_metrics.ssim, image_metrics.psnr, image_metrics.mse):
        result, gradient = jax.value_and_grad(metric)(prediction, target)
        assert np.isfinite(result) and np.all(np.isfinite(gradient)), metric.__name__


def test_the_gradient_of_ssim_points_to_the_target():
    prediction, target = images()
    gradient = jax.grad(image_metrics.ssim)(jnp.asarray(prediction), jnp.asarray(target))
    assert image_metrics.ssim(prediction + 3.0 * gradient, target) > image_metrics.ssim(prediction, target) + 0.01


def test_quantizing_is_what_an_8bit_file_does():
    image = np.random.default_rng(0).uniform(-0.2, 1.2, (20, 20, 3)).astype(np.float32)
    stored = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    got = np.asarray(image_metrics.quantize_8bit(image))
    np.testing.assert_array_equal(np.rint(got * 255).astype(np.uint8), stored)
    np.testing.assert_allclose(got, stored / 255, atol=1e-7)
    np.testing.assert_array_equal(image_metrics.quantize_8bit(got), got)
    assert got.min() == 0.0 and got.max() == 1.0
