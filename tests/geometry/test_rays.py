"""Rays of pixels: they meet the points that project there, their cones have the pixels' size, boxes clip them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.geometry.cameras import cameras_from, project, unproject
from nerfjax.geometry.poses import look_at
from nerfjax.geometry.rays import cast_points, positions, rays_from_pixels, rays_in_box
from nerfjax.types import Intervals, PackedIntervals

MODELS = {
    "pinhole": {},
    "opencv": dict(distortion=(-0.2, 0.05, 0, 0, 1e-3, 1e-3)),
    "opencv_fisheye": dict(distortion=(0.05, -0.01, 0, 0, 0, 0)),
    "equirectangular": {},
    "orthographic": {},
}


def two_cameras(model):
    pose = look_at([[4.0, 0, 1], [0, -3, 2]], [[0, 0, 0], [0.2, 0, 0]])
    return cameras_from(pose, (200.0, 220.0), size=(320, 240), model=model, **MODELS[model])


def all_rays(cameras, image=1, stride=16):
    row, column = (grid.ravel() for grid in np.mgrid[0:240:stride, 0:320:stride])
    ids = np.arange(len(row))
    rays = jax.jit(
        lambda image, row, column: rays_from_pixels(cameras, image, row, column, near=0.5, far=6.0, index=ids)
    )
    return row, column, rays(ids * 0 + image, row, column)


@pytest.mark.parametrize("model", MODELS)
def test_points_of_a_ray_project_to_its_pixel_centre(model):
    cameras = two_cameras(model)
    with jax.numpy_dtype_promotion("strict"):
        row, column, rays = all_rays(cameras)
        own = jax.tree.map(lambda leaf: np.repeat(leaf[1:2], len(row), 0), cameras)
        image = jax.jit(lambda rays: project(own, positions(rays, jnp.full((len(row), 1), 2.5))[:, 0]))(rays)
    np.testing.assert_allclose(image.pixels, np.stack([column + 0.5, row + 0.5], -1), atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(rays.directions, axis=-1), 1, atol=1e-6)
    assert rays.camera_index.tolist() == [1] * len(row) and rays.index.tolist() == list(range(len(row)))
    np.testing.assert_allclose(image.distance, 2.5, rtol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_footprint_is_the_disc_of_the_pixels_spread(model):
    """Against directions (or origins) half a pixel away, in float64."""
    cameras = two_cameras(model)
    row, column, rays = all_rays(cameras)
    own = jax.tree.map(lambda leaf: np.repeat(leaf[1:2], len(row), 0), cameras)
    spacing = 0
    for axis in ((0.5, 0), (0, 0.5)):
        ends = [unproject(own, np.stack([column, row], -1) + 0.5 + sign * np.asarray(axis), xp=np) for sign in (-1, 1)]
        for leaf in ("directions", "offsets"):
            spacing = spacing + 0.5 * np.linalg.norm(getattr(ends[1], leaf) - getattr(ends[0], leaf), axis=-1)
    np.testing.assert_allclose(rays.footprint, 2 / np.sqrt(12) * spacing, rtol=1e-4)


def test_gradients_of_rays_in_the_poses_are_finite_and_right():
    cameras = jax.tree.map(jnp.asarray, two_cameras("opencv_fisheye"))
    row, column = jnp.asarray([120, 0]), jnp.asarray([160, 7])

    def rays(pose, focal):
        own = cameras.replace(pose=pose, focal=focal)
        result = rays_from_pixels(own, row * 0, row, column, near=0.5, far=6.0, index=row)
        return result.origins, result.directions, result.footprint

    slopes = jax.jit(jax.jacrev(rays, argnums=(0, 1)))(cameras.pose, cameras.focal)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))
    (origins_by_pose, directions_by_pose, _), (_, _, footprint_by_focal) = (
        tuple(leaf[which] for leaf in slopes) for which in (0, 1)
    )
    np.testing.assert_allclose(origins_by_pose[:, :, 0, :, 3], np.broadcast_to(np.eye(3), (2, 3, 3)), atol=1e-6)
    # The ray on the axis: d = -R e_z, kept at unit length.
    back = np.asarray(cameras.pose[0, :, 2])
    np.testing.assert_allclose(directions_by_pose[0, :, 0, :, 2], -(np.eye(3) - back[:, None] * back), atol=5e-3)
    assert np.all(np.asarray(footprint_by_focal)[0, 0] < 0)  # a longer lens has narrower cones


def test_box_clips_rays_like_the_slab_oracle():
    rng = np.random.default_rng(0)
    _, _, rays = all_rays(two_cameras("pinhole"), image=0)
    count = len(rays.near)
    directions = rng.normal(size=(count, 3))
    directions[:8] = np.eye(3)[rng.integers(0, 3, 8)] * rng.choice([-1, 1], (8, 1))  # zeros in the direction
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    origins = rng.uniform(-2, 2, (count, 3))
    origins[:4, 1] = 0.5  # on a face
    rays = rays.replace(
        origins=jnp.asarray(origins, jnp.float32), directions=jnp.asarray(directions, jnp.float32),
        near=jnp.full((count,), 0.05), far=jnp.full((count,), 3.0),
    )  # fmt: skip
    box = np.asarray([[-1.0, -0.5, -0.8], [1.0, 0.5, 0.7]], np.float32)
    clipped = jax.jit(rays_in_box)(rays, box)
    assert np.all(np.isfinite(clipped.near)) and np.all(clipped.far > clipped.near)
    t = np.linspace(0.05, 3.0, 20001)
    for i in range(4, count):
        inside = np.all((x := origins[i] + t[:, None] * directions[i]) >= box[0], 1) & np.all(x <= box[1], 1)
        if inside.sum() > 3:
            assert abs(float(clipped.near[i]) - t[inside][0]) < 4e-4
            assert abs(float(clipped.far[i]) - t[inside][-1]) < 4e-4
        elif not inside.any():
            assert clipped.far[i] - clipped.near[i] < 5e-4
    slope = jax.jit(jax.grad(lambda o: rays_in_box(rays.replace(origins=o), box).near.sum()))(rays.origins)
    assert np.all(np.isfinite(slope))


def test_dense_and_packed_points_agree_and_padding_is_harmless():
    _, _, rays = all_rays(two_cameras("pinhole"), stride=80)
    count = len(rays.near)
    t = jnp.sort(jax.random.uniform(jax.random.key(0), (count, 4), minval=1.0, maxval=3.0), axis=-1)
    dense = cast_points(rays, Intervals(t=t, s=t))
    ray = jnp.concatenate([jnp.repeat(jnp.arange(count), 3), jnp.full((5,), count)])
    pad = jnp.zeros((5,))
    packed = PackedIntervals(
        t0=jnp.concatenate([t[:, :-1].ravel(), pad]), t1=jnp.concatenate([t[:, 1:].ravel(), pad]), ray=ray,
        start=3 * jnp.arange(count), count=jnp.full((count,), 3), overflow=jnp.zeros((), jnp.int32),
    )  # fmt: skip
    points = cast_points(rays, packed)
    np.testing.assert_allclose(points.positions[:-5], dense.positions.reshape(-1, 3), rtol=1e-6)
    np.testing.assert_allclose(points.radius[:-5], dense.radius.ravel(), rtol=1e-6)
    assert np.all(np.isfinite(points.positions)) and np.all(points.radius[-5:] == 0)
    np.testing.assert_allclose(dense.radius / (0.5 * (t[:, 1:] + t[:, :-1])), rays.footprint[:, None] + 0 * t[:, 1:])
