"""Camera models: inverse to each other, equal to the textbook formulas, honest about where they fail."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.geometry import cameras as lens
from nerfjax.types import CAMERA_MODELS

SIZE = (4096, 3072)
LENSES = {
    "pinhole": dict(model="pinhole", focal=(3000.0, 3100.0), center=(2000.0, 1600.0)),
    "barrel": dict(model="opencv", focal=2500.0, distortion=(-0.3, 0.1, -0.01, 0.001, 1e-3, -5e-4)),
    "pincushion": dict(model="opencv", focal=2500.0, distortion=(0.2, 0.1, 0, 0, -2e-3, 1e-3)),
    "folding": dict(model="opencv", focal=3000.0, distortion=(-0.28, 0, 0, 0, 0, 0)),
    "fisheye": dict(model="opencv_fisheye", focal=1000.0, distortion=(0.05, -0.02, 0.005, -0.0005, 0, 0)),
    "wide_fisheye": dict(model="opencv_fisheye", focal=900.0),
    "rational": dict(
        model="full_opencv",
        focal=3000.0,
        distortion=(0.5, -0.05, 0.01, 0.65, 2e-3, -1e-3, -0.04, 0.02, 1e-3, 0, -2e-3, 1e-3),
    ),
    "prism_fisheye": dict(
        model="thin_prism_fisheye",
        focal=1500.0,
        distortion=(-0.01, 5e-3, 1e-3, -3e-4, 2e-3, -1e-3, 0, 0, 3e-3, 0, -2e-3, 0),
    ),
    "fisheye624": dict(
        model="rad_tan_thin_prism_fisheye",
        focal=610.0,
        size=(1408, 1408),
        distortion=(-0.02, 0.1, -0.07, 0.012, 1e-3, -2e-3, 2e-3, -3e-4, 3e-3, -1e-3, 2e-3, 5e-4),
    ),
    "fov": dict(model="fov", focal=2500.0, distortion=(0.9,)),
    "narrow_fov": dict(model="fov", focal=2500.0, distortion=(1e-4,)),
    "division": dict(model="division", focal=2500.0, distortion=(-0.2,)),
    "eucm": dict(model="eucm", focal=(1500.0, 1510.0), distortion=(0.62, 1.1)),
    "panorama": dict(model="equirectangular", focal=1.0, size=(4096, 2048)),
    "orthographic": dict(model="orthographic", focal=500.0),
}


def build(pose=None, **options):
    return lens.cameras_from(np.eye(4)[None] if pose is None else pose, size=options.pop("size", SIZE), **options)


def repeat(cameras, count):
    return jax.tree.map(lambda leaf: np.repeat(leaf, count, axis=0), cameras)


def pixel_grid(width, height, across=97):
    x, y = np.linspace(0.5, width - 0.5, across), np.linspace(0.5, height - 0.5, across)
    return np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)


def covered(name, pixels, cameras):
    """The share of pixels inside the first fold of the radial polynomial, by brute force."""
    k = cameras.distortion[0, :4].astype(np.float64)
    r = np.linspace(0, math.pi if cameras.models[0] == "opencv_fisheye" else 10.0, 200001)
    value = r * (1 + sum(k[i] * r ** (2 * i + 2) for i in range(4)))
    fold = np.argmax(np.diff(value) <= 0) if np.any(np.diff(value) <= 0) else len(r) - 1
    return np.linalg.norm((pixels - cameras.center[0]) / cameras.focal[0], axis=-1) < value[fold]


def there_and_back(cameras, pixels, *, xp):
    rays = lens.unproject(cameras, pixels, xp=xp)
    return rays, lens.project_camera(cameras, 3 * rays.directions + rays.offsets, xp=xp)


@pytest.mark.parametrize("name", LENSES)
def test_b37_projection_inverts_unprojection(name):
    cameras = build(**LENSES[name])
    pixels = pixel_grid(*cameras.size[0]).astype(np.float32)
    own = repeat(cameras, len(pixels))
    for xp, tolerance in ((jnp, 1e-3), (np, 1e-8)):
        with jax.numpy_dtype_promotion("strict"):
            rays, image = (jax.jit if xp is jnp else lambda f: f)(partial(there_and_back, xp=xp))(own, pixels)
        good = np.asarray(rays.converged)
        error = np.abs(np.asarray(image.pixels, np.float64) - pixels).max(-1)
        assert error[good].max() < tolerance
        assert np.all(np.asarray(image.valid)[good])
        assert np.all(np.isfinite(rays.directions))
        np.testing.assert_allclose(np.linalg.norm(rays.directions, axis=-1), 1, atol=1e-6)
        np.testing.assert_allclose(np.asarray(image.distance)[good], 3, rtol=1e-5)
        if cameras.distortion[0, 4:].any():  # the folds of these lie outside the image
            assert good.all()
        elif cameras.models[0] in ("opencv", "opencv_fisheye"):
            # All of the valid field converges, but for a rim whose breadth is the square root of the precision.
            inside = covered(name, pixels, cameras)
            assert not np.any(good & ~inside)
            assert (inside & ~good).sum() <= 0.005 * len(pixels)
        else:
            assert good.all()


@pytest.mark.parametrize("name", ["barrel", "fisheye", "panorama"])
def test_unprojection_inverts_projection_of_world_points(name):
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    rotation *= np.sign(np.linalg.det(rotation))
    pose = np.concatenate([rotation, [[1.0], [-2.0], [0.5]]], axis=-1)[None]
    cameras = build(pose, **LENSES[name])
    pixels = rng.uniform(0.2, 0.8, (500, 2)) * cameras.size[0]
    own = repeat(cameras, 500)
    rays = lens.unproject(own, pixels, xp=np)
    distance = rng.uniform(0.5, 20, 500)
    pose = cameras.pose[0].astype(np.float64)
    world = (rays.directions * distance[:, None]) @ pose[:, :3].T + pose[:, 3]
    image = lens.project(own, world, xp=np)
    # The float32 pose is orthonormal to 1e-7 only.
    np.testing.assert_allclose(image.pixels, pixels, atol=2e-3)
    np.testing.assert_allclose(image.distance, distance, rtol=1e-6)
    on_device = lens.project(own, world.astype(np.float32))
    np.testing.assert_allclose(on_device.pixels, pixels, atol=1e-2)


def test_projection_follows_the_published_formulas():
    rng = np.random.default_rng(1)
    right, down, depth = rng.uniform(-0.5, 0.5, 50), rng.uniform(-0.5, 0.5, 50), rng.uniform(1, 2, 50)
    points = np.stack([right, -down, -depth], axis=-1)  # OpenGL axes of the point (right, down, depth)
    k1, k2, k3, k4, p1, p2 = 0.11, -0.07, 0.03, 0.01, 0.004, -0.003
    fx, fy, cx, cy = 500.0, 550.0, 310.0, 250.0
    common = dict(focal=(fx, fy), center=(cx, cy), size=(640, 480))

    def pixels(**options):
        return lens.project_camera(repeat(build(**common, **options), 50), points, xp=np).pixels

    x, y = right / depth, down / depth
    np.testing.assert_allclose(pixels(), np.stack([fx * x + cx, fy * y + cy], -1), atol=1e-4)
    r2 = x**2 + y**2
    radial = 1 + k1 * r2 + k2 * r2**2 + k3 * r2**3 + k4 * r2**4
    u = x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x**2)
    v = y * radial + p1 * (r2 + 2 * y**2) + 2 * p2 * x * y
    got = pixels(model="opencv", distortion=(k1, k2, k3, k4, p1, p2))
    np.testing.assert_allclose(got, np.stack([fx * u + cx, fy * v + cy], -1), atol=1e-4)
    r, theta = np.sqrt(r2), np.arctan(np.sqrt(r2))
    ratio = theta * (1 + k1 * theta**2 + k2 * theta**4 + k3 * theta**6 + k4 * theta**8) / r
    got = pixels(model="opencv_fisheye", distortion=(k1, k2, k3, k4, 0, 0))
    np.testing.assert_allclose(got, np.stack([fx * ratio * x + cx, fy * ratio * y + cy], -1), atol=1e-4)
    k5, k6, s1, s2, s3, s4 = -0.04, 0.02, 0.003, -0.002, 0.001, 0.0015
    ratio = (1 + k1 * r2 + k2 * r2**2 + k3 * r2**3) / (1 + k4 * r2 + k5 * r2**2 + k6 * r2**3)
    u = x * ratio + 2 * p1 * x * y + p2 * (r2 + 2 * x**2) + s1 * r2 + s2 * r2**2
    v = y * ratio + p1 * (r2 + 2 * y**2) + 2 * p2 * x * y + s3 * r2 + s4 * r2**2
    every = (k1, k2, k3, k4, p1, p2, k5, k6, s1, s2, s3, s4)
    got = pixels(model="full_opencv", distortion=every)
    np.testing.assert_allclose(got, np.stack([fx * u + cx, fy * v + cy], -1), atol=1e-4)
    a, b = theta / r * x, theta / r * y  # COLMAP's thin-prism fisheye; its sx1 and sy1 are s1 and s3
    t2 = theta**2
    radial = k1 * t2 + k2 * t2**2 + k3 * t2**3 + k4 * t2**4
    u = a + a * radial + 2 * p1 * a * b + p2 * (t2 + 2 * a * a) + s1 * t2
    v = b + b * radial + 2 * p2 * a * b + p1 * (t2 + 2 * b * b) + s3 * t2
    got = pixels(model="thin_prism_fisheye", distortion=(k1, k2, k3, k4, p1, p2, 0, 0, s1, 0, s3, 0))
    np.testing.assert_allclose(got, np.stack([fx * u + cx, fy * v + cy], -1), atol=1e-4)
    radial = 1 + sum(k * t2 ** (i + 1) for i, k in enumerate((k1, k2, k3, k4, k5, k6)))  # Project Aria's Fisheye624
    a, b = a * radial, b * radial
    w2 = a * a + b * b
    u = a + (2 * a * a + w2) * p2 + 2 * a * b * p1 + s1 * w2 + s2 * w2**2
    v = b + (2 * b * b + w2) * p1 + 2 * a * b * p2 + s3 * w2 + s4 * w2**2
    got = pixels(model="rad_tan_thin_prism_fisheye", distortion=every)
    np.testing.assert_allclose(got, np.stack([fx * u + cx, fy * v + cy], -1), atol=1e-4)
    omega = 0.9
    ratio = np.arctan(2 * r * math.tan(omega / 2)) / omega / r
    got = pixels(model="fov", distortion=(omega,))
    np.testing.assert_allclose(got, np.stack([fx * ratio * x + cx, fy * ratio * y + cy], -1), atol=1e-4)
    for factor in (-0.2, 0.2):
        got = pixels(model="division", distortion=(factor,))
        u, v = (got[:, 0] - cx) / fx, (got[:, 1] - cy) / fy
        below = 1 + factor * (u * u + v * v)
        np.testing.assert_allclose(np.stack([u / below, v / below], -1), np.stack([x, y], -1), atol=1e-7)
    alpha, beta = 0.62, 1.1
    below = alpha * np.sqrt(beta * (right**2 + down**2) + depth**2) + (1 - alpha) * depth
    got = pixels(model="eucm", distortion=(alpha, beta))
    np.testing.assert_allclose(got, np.stack([fx * right / below + cx, fy * down / below + cy], -1), atol=1e-4)
    got = pixels(model="orthographic")
    np.testing.assert_allclose(got, np.stack([fx * right + cx, fy * down + cy], -1), atol=1e-4)
    panorama = repeat(build(model="equirectangular", focal=None, size=(640, 320)), 50)
    longitude, latitude = np.arctan2(right, depth), np.arcsin(-down / np.linalg.norm(points, axis=-1))
    expected = np.stack([(longitude / (2 * np.pi) + 0.5) * 640, (0.5 - latitude / np.pi) * 320], -1)
    np.testing.assert_allclose(lens.project_camera(panorama, points, xp=np).pixels, expected, atol=1e-4)


def test_points_that_a_lens_does_not_image_are_said_to_be_invalid():
    behind = np.asarray([[0.1, 0.2, 1.0]])
    for name in ("pinhole", "barrel", "orthographic"):
        assert not lens.project_camera(build(**LENSES[name]), behind, xp=np).valid[0]
    assert lens.project_camera(build(**LENSES["panorama"]), behind, xp=np).valid[0]
    # 1 - 3 * 0.28 r^2 = 0 at r = 1.09: farther out the polynomial folds points back into the image.
    points = np.asarray([[1.05, 0, -1.0], [1.2, 0, -1.0], [1.8, 0, -1.0]])
    image = lens.project_camera(repeat(build(**LENSES["folding"]), 3), points, xp=np)
    assert lens.inside_image(repeat(build(**LENSES["folding"]), 3), image.pixels, xp=np)[2]
    assert image.valid.tolist() == [True, False, False]
    pixel = np.asarray([[3000 * 0.74 + 2048, 1536.0]])  # the fold images at 0.727
    assert not lens.unproject(build(**LENSES["folding"]), pixel, xp=np).converged[0]
    assert not lens.unproject(build(**LENSES["folding"]), pixel.astype(np.float32)).converged[0]


def test_b36_one_name_of_a_coefficient_means_what_the_model_says():
    points = np.asarray([[0.7, -0.3, -1.0]])
    q, factor = 0.7**2 + 0.3**2, 0.05
    expected = {
        "opencv": 1 + factor * q**4,
        "full_opencv": 1 / (1 + factor * q),
        "opencv_fisheye": (math.atan(math.sqrt(q)) * (1 + factor * math.atan(math.sqrt(q)) ** 8)) / math.sqrt(q),
    }
    for model, ratio in expected.items():
        camera = build(model=model, focal=1000.0, distortion=(0, 0, 0, factor))
        pixel = lens.project_camera(camera, points, xp=np).pixels[0] - camera.center[0]
        np.testing.assert_allclose(pixel, 1000 * ratio * np.asarray([0.7, 0.3]), atol=1e-4)


def test_a_lens_does_not_image_what_lies_behind_its_poles_and_edges():
    outside = {
        "division": (dict(distortion=(0.2,)), [0.7, 0, -0.7], [0.9, 0, -0.7]),  # r = 1 / (2 sqrt 0.2) = 1.118
        "full_opencv": (dict(distortion=(0, 0, 0, -0.5)), [0.5, 0, -1], [1.5, 0, -1]),  # a pole at r = 1.414
        "eucm": (dict(distortion=(0.6, 1.0)), [1.0, 0, 0.2], [1.0, 0, 1.0]),
    }
    for model, (options, seen, hidden) in outside.items():
        cameras = repeat(build(model=model, focal=1000.0, **options), 2)
        for xp in (np, jnp):
            points = xp.asarray([seen, hidden], np.float64 if xp is np else np.float32)
            assert lens.project_camera(cameras, points, xp=xp).valid.tolist() == [True, False], model


def test_random_lenses_converge_throughout_their_valid_field():
    rng = np.random.default_rng(2)
    count = 20000
    coefficients = (rng.normal(size=(count, 6)) * (0.3, 0.15, 0.05, 0.02, 0.003, 0.003)).astype(np.float32)
    m = rng.uniform(-1, 1, (count, 2))
    cameras = repeat(build(model="opencv", focal=1500.0), count).replace(distortion=coefficients)
    points = np.concatenate([m * (1, -1), -np.ones((count, 1))], axis=-1)
    image = lens.project_camera(cameras, points, xp=np)
    wider = lens.project_camera(cameras, points * (1.05, 1.05, 1), xp=np)
    usable = image.valid & wider.valid & lens.inside_image(cameras, image.pixels, xp=np)
    assert usable.mean() > 0.5
    for xp, tolerance in ((jnp, 2e-5), (np, 1e-9)):
        rays = lens.unproject(cameras, image.pixels.astype(np.float32) if xp is jnp else image.pixels, xp=xp)
        direction = points / np.linalg.norm(points, axis=-1, keepdims=True)
        error = np.abs(np.asarray(rays.directions) - direction).max(-1)
        good = np.asarray(rays.converged)
        assert good[usable].mean() > 0.999
        assert np.quantile(error[usable & good], 0.999) < tolerance


def test_mixed_models_equal_each_alone():
    rng = np.random.default_rng(3)
    kinds = [
        dict(LENSES[name]) for name in LENSES if name not in ("pincushion", "folding", "wide_fisheye", "narrow_fov")
    ]
    alone = [build(**{**kind, "size": SIZE}) for kind in kinds]
    assert {one.models[0] for one in alone} == set(CAMERA_MODELS)
    mixed = jax.tree.map(lambda *leaves: np.concatenate(leaves), *[one.replace(models=CAMERA_MODELS) for one in alone])
    pixels = (rng.uniform(0.2, 0.8, (80, 2)) * SIZE).astype(np.float32)
    index = rng.integers(0, len(kinds), 80)

    @jax.jit
    def both(cameras, index, pixels):
        own = lens.select_cameras(cameras, index)
        rays = lens.unproject(own, pixels)
        return rays, lens.project_camera(own, rays.offsets + rays.directions)

    together, image = both(mixed, index, pixels)
    for one, kind in enumerate(alone):
        mine = index == one
        expected = lens.unproject(repeat(kind, mine.sum()), pixels[mine], xp=np)
        np.testing.assert_allclose(together.directions[mine], expected.directions, atol=2e-6)
        np.testing.assert_allclose(together.offsets[mine], expected.offsets, atol=2e-6)
        assert np.array_equal(together.converged[mine], expected.converged)
    good = np.asarray(together.converged)
    np.testing.assert_allclose(image.pixels[good], pixels[good], atol=2e-3)


@pytest.mark.parametrize("name", ["barrel", "rational", "fisheye624", "fov", "eucm"])
def test_gradients_through_the_inverse_are_those_of_the_implicit_function(name):
    cameras = jax.tree.map(jnp.asarray, build(**LENSES[name]))
    pixel = jnp.asarray([[0.8, 0.23]]) * cameras.size

    def direction(distortion, focal):
        return lens.unproject(cameras.replace(distortion=distortion, focal=focal), pixel).directions[0]

    exact = jax.jit(jax.jacrev(direction, argnums=(0, 1)))(cameras.distortion, cameras.focal)
    for argument, jacobian in enumerate(exact):
        leaf = ("distortion", "focal")[argument]
        for axis in range(jacobian.shape[-1]):
            step = np.zeros((1, jacobian.shape[-1]))
            step[0, axis] = 1e-5 * (1 if argument == 0 else 1e3)
            ends = [
                lens.unproject(
                    cameras.replace(**{leaf: np.asarray(getattr(cameras, leaf), np.float64) + sign * step}),
                    np.asarray(pixel), xp=np,
                ).directions[0]
                for sign in (1, -1)
            ]  # fmt: skip
            slope = (ends[0] - ends[1]) / (2 * step[0, axis])
            np.testing.assert_allclose(jacobian[:, 0, axis], slope, rtol=1e-3, atol=1e-8 if argument else 1e-6)


@pytest.mark.parametrize("name", LENSES)
def test_directions_are_differentiable_at_the_axis(name):
    cameras = build(**LENSES[name])
    slope = jax.jit(jax.jacfwd(lambda p: lens.unproject(cameras, p).directions))(jnp.asarray(cameras.center))
    assert np.all(np.isfinite(slope))
    if name != "orthographic":
        per_pixel = np.linalg.norm(np.asarray(slope)[0, :, 0, :], axis=0)
        focal = (4096 / (2 * math.pi),) * 2 if name == "panorama" else cameras.focal[0]
        scale = 0.45 / math.tan(0.45) if name == "fov" else 1.0  # omega / (2 tan(omega / 2))
        np.testing.assert_allclose(per_pixel, scale / np.asarray(focal), rtol=1e-2)


def test_pinhole_alone_compiles_no_lens():
    cameras = repeat(build(**LENSES["pinhole"]), 8)
    text = str(jax.make_jaxpr(lambda p: lens.unproject(cameras, p).directions)(np.zeros((8, 2), np.float32)))
    assert not any(f" {name} " in text for name in ("select_n", "sin", "cos", "atan2"))
    assert text.count("mul") < 10


def test_scaling_a_camera_keeps_its_rays():
    cameras = build(**LENSES["barrel"])
    small = lens.scale_cameras(cameras, (1024, 1536))
    pixel = np.asarray([[3000.0, 400.0]])
    np.testing.assert_allclose(
        lens.unproject(small, pixel * (0.25, 0.5), xp=np).directions, lens.unproject(cameras, pixel, xp=np).directions,
        atol=1e-7,
    )  # fmt: skip
    assert small.size.tolist() == [[1024, 1536]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(model="pinole"), "pinhole"),
        (dict(focal=-1.0), "not positive"),
        (dict(focal=np.nan), "not finite"),
        (dict(center=(700.0, 100.0)), "principal point"),
        (dict(distortion=(0.1, 0, 0, 0, 0, 0)), "camera model has not"),
        (dict(model="opencv_fisheye", distortion=(0.1, 0, 0, 0, 0.1, 0)), "camera model has not"),
        (dict(model="opencv", distortion=(0, 0, 0, 0, 0, 0, 0.1)), "camera model has not"),
        (dict(model="fov", distortion=(3.5,)), "out of its range"),
        (dict(model="eucm", distortion=(0.5, -1.0)), "out of its range"),
        (dict(distortion=np.zeros(13)), "broadcastable"),
        (dict(size=(0, 10)), "no pixels"),
        (dict(focal=(1.0, 2.0, 3.0)), "broadcastable"),
        (dict(pose=np.eye(4)), "shape"),
        (dict(pose=np.diag([1.0, 1, -1, 1])[None]), "left-handed"),
        (dict(pose=np.diag([2.0, 2, 2, 1])[None]), "scaled by 2"),
        (dict(pose=np.full((1, 3, 4), np.nan)), "not finite"),
    ],
)
def test_wrong_cameras_are_refused_by_name(options, words):
    options = dict(pose=np.eye(4)[None], focal=500.0, size=(640, 480)) | options
    with pytest.raises(UserError, match=words) as caught:
        lens.cameras_from(**options, file="transforms.json", names=["r_0"])
    assert "transforms.json" in str(caught.value)
