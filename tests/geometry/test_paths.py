"""Camera paths: they look at the subject, close, move evenly, and stay inside what the cameras have seen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import ConvexHull

from nerfjax.errors import UserError
from nerfjax.geometry.paths import interpolate_path, orbit_path, spiral_path
from nerfjax.geometry.poses import check_poses, look_at, rotation_from_quaternion, similarity_matrix, transform_poses


def hemisphere(count=100, radius=4.0, seed=0):
    v = np.random.default_rng(seed).normal(size=(count, 3))
    v[:, 2] = np.abs(v[:, 2])
    return look_at(radius * v / np.linalg.norm(v, axis=-1, keepdims=True), np.zeros(3))


def walk(count=80, seed=0):
    """A hand-held ellipse round (0, 0, 0.3), higher on one side, with a few stray cameras."""
    rng = np.random.default_rng(seed)
    a = np.sort(rng.uniform(0, 2 * np.pi, count))
    p = np.stack([3 * np.cos(a) + 0.4, 2 * np.sin(a), 1.2 + 0.3 * np.sin(a) + 0.1 * rng.normal(size=count)], -1)
    p += 0.05 * rng.normal(size=p.shape)
    p[:2] *= 30
    return look_at(p, np.asarray([0.0, 0, 0.3]) + 0.1 * rng.normal(size=p.shape))


def arc(count=60, seed=0):
    """A phone moved over a quarter of a turn, near and far, at two heights."""
    rng = np.random.default_rng(seed)
    a, r = rng.uniform(-0.8, 0.8, count), rng.uniform(3.5, 5, count)
    p = np.stack([r * np.cos(a), r * np.sin(a), rng.choice([-0.5, 1.0], count)], -1)
    return look_at(p, 0.1 * rng.normal(size=p.shape))


CAPTURES = {"hemisphere": hemisphere, "walk": walk, "arc": arc}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CAPTURES)
def test_orbit_looks_at_the_subject_from_inside_the_hull(name, seed):
    poses = CAPTURES[name](seed=seed)
    path = orbit_path(poses, 60)
    check_poses(path, tolerance=1e-9)
    centre = np.asarray([0, 0, 0.3 if name == "walk" else 0.0])
    axis = centre - path[:, :, 3]
    distance = np.linalg.norm(axis, axis=-1)
    assert np.all(np.einsum("ni,ni->n", axis, -path[:, :, 2]) > 0.995 * distance)
    assert np.all(path[:, 2, 1] > 0)  # upright
    steps = np.linalg.norm(np.roll(path[:, :, 3], -1, axis=0) - path[:, :, 3], axis=-1)
    assert steps.max() < 0.12 * distance.max()  # closed, no jump
    regular = poses[2:] if name == "walk" else poses
    hull = ConvexHull(regular[:, :, 3])
    outside = (path[:, :, 3] @ hull.equations[:, :3].T + hull.equations[:, 3]).max(-1)
    assert outside.max() < 0.02 * distance.max()
    cameras = np.linalg.norm(regular[:, :, 3] - centre, axis=-1)
    assert distance.min() > 0.8 * cameras.min() and distance.max() < cameras.max()
    azimuth = np.unwrap(np.arctan2(path[:, 1, 3], path[:, 0, 3]))
    turn = azimuth[-1] - azimuth[0]
    if name == "arc":  # there and back, over most of the arc and not beyond it
        assert 1.0 < np.ptp(azimuth) < 1.6 and abs(turn) < 0.3
    else:
        assert abs(abs(turn) - 2 * np.pi * 59 / 60) < 0.1


def test_orbit_of_a_sphere_is_a_circle_at_constant_speed():
    path = orbit_path(hemisphere(), 90)
    steps = np.linalg.norm(np.diff(path[:, :, 3], axis=0), axis=-1)
    np.testing.assert_allclose(steps, steps[0], rtol=1e-4)
    np.testing.assert_allclose(path[:, 2, 3], path[0, 2, 3], atol=1e-4)


def test_orbit_follows_a_moved_turned_and_scaled_capture():
    poses = walk()
    rotation = rotation_from_quaternion((0.9, 0.1, -0.3, 0.2))
    matrix = similarity_matrix(rotation=rotation, scale=7.0, translation=(5, -3, 2))
    moved = orbit_path(transform_poses(matrix, poses), 40, up=rotation[:, 2])
    plain = transform_poses(matrix, orbit_path(poses, 40))
    # The start may differ (it follows an axis of the frame), the ring does not.
    gap = np.linalg.norm(moved[:, None, :, 3] - plain[None, :, :, 3], axis=-1).min(-1)
    assert gap.max() < 7 * 0.25


def test_orbit_refuses_cameras_that_look_outwards():
    poses = hemisphere()
    outward = look_at(poses[:, :, 3], 2 * poses[:, :, 3])
    with pytest.raises(UserError, match="interpolate"):
        orbit_path(outward, 10)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_orbit_of_a_few_cameras_stays_with_them(count):
    poses = arc()[:count]
    path = orbit_path(poses, 12)
    check_poses(path, tolerance=1e-9)
    gap = np.linalg.norm(path[:, None, :, 3] - poses[None, :, :, 3], axis=-1).min(-1)
    assert gap.max() < 3


def test_spiral_stays_among_forward_facing_cameras_and_looks_at_their_focus():
    rng = np.random.default_rng(0)
    positions = np.concatenate([0.1 * rng.normal(size=(40, 1)), rng.uniform(-1, 1, (40, 2))], axis=-1)
    poses = look_at(positions, np.asarray([8.0, 0, 0]))
    path = spiral_path(poses, 80)
    check_poses(path, tolerance=1e-9)
    assert np.all(np.abs(path[:, 1:, 3]) < 1) and np.ptp(path[:, 1, 3]) > 1
    axis = np.asarray([8.0, 0, 0]) - path[:, :, 3]
    assert np.all(np.einsum("ni,ni->n", axis, -path[:, :, 2]) > 0.995 * np.linalg.norm(axis, axis=-1))
    near = spiral_path(poses, 80, focus_distance=2.0)
    crossing = near[:, :, 3] - near[:, :, 2] * ((near[:, 0, 3] - 2) / near[:, 0, 2])[:, None]
    assert np.abs(crossing[:, 1:]).max() < 0.2
    steps = np.linalg.norm(np.roll(path[:, :, 3], -1, axis=0) - path[:, :, 3], axis=-1)
    assert steps.max() < 3 * np.median(steps)


@pytest.mark.parametrize("loop", [False, True])
def test_spline_visits_the_poses_in_order_at_constant_speed(loop):
    poses = orbit_path(walk(), 13)
    if loop:
        poses[:, 2, 3] += 0.2 * np.cos(np.arange(13))
    path = interpolate_path(poses, 2000, loop=loop)
    check_poses(path, tolerance=1e-9)
    gaps = np.linalg.norm(path[:, None] - poses[None], axis=(-1, -2))
    assert gaps.min(0).max() < 0.02
    assert np.all(np.diff(gaps.argmin(0)) > 0)
    if not loop:
        np.testing.assert_allclose(path[[0, -1]], poses[[0, -1]], atol=1e-6)
    ring = np.concatenate([path, path[:1]]) if loop else path
    steps = np.linalg.norm(np.diff(ring[:, :, 3], axis=0), axis=-1)
    assert steps.max() < 2.5 * np.median(steps)  # a turn counts as well, so the speed is not quite even
    bends = np.linalg.norm(np.diff(ring[:, :, 3], n=2, axis=0), axis=-1)
    assert bends.max() < 0.05 * steps.max()  # no corner at a pose


def test_spline_through_repeated_poses_and_one_pose_is_finite():
    pose = hemisphere(3)
    np.testing.assert_allclose(interpolate_path(pose[:1], 4), np.repeat(pose[:1], 4, axis=0))
    check_poses(interpolate_path(pose[[0, 0, 1, 1, 2]], 50), tolerance=1e-9)
