"""Poses: known centres and aims, rotations that stay rotations, similarities that invert."""

from __future__ import annotations

import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.geometry import poses as P


def random_rotations(count, seed=0):
    return P.rotation_from_quaternion(np.random.default_rng(seed).normal(size=(count, 4)))


def random_poses(count, seed=0):
    positions = np.random.default_rng(seed + 1).normal(size=(count, 3, 1))
    return np.concatenate([random_rotations(count, seed), positions], axis=-1)


def test_look_at_aims_and_keeps_upright():
    pose = P.look_at((3.0, -2.0, 1.0), (0.0, 1.0, 0.5))
    P.check_poses(pose[None], tolerance=1e-12)
    aim = np.asarray([-3.0, 3.0, -0.5])
    np.testing.assert_allclose(-pose[:, 2], aim / np.linalg.norm(aim), atol=1e-12)
    assert pose[2, 1] > 0.9 and abs(pose[2, 0]) < 1e-12  # up is up, right is level
    down = P.look_at((0.0, 0.0, 5.0), (0.0, 0.0, 0.0))
    P.check_poses(down[None], tolerance=1e-12)
    np.testing.assert_allclose(-down[:, 2], [0, 0, -1], atol=1e-12)


def test_focus_point_is_found_among_stray_cameras():
    rng = np.random.default_rng(2)
    target = np.asarray([0.3, -0.2, 1.0])
    poses = P.look_at(target + 3 * rng.normal(size=(60, 3)), target)
    np.testing.assert_allclose(P.focus_point(poses), target, atol=1e-4)
    poses[:12] = random_poses(12)
    assert np.linalg.norm(P.focus_point(poses) - target) < 0.02
    parallel = np.repeat(P.look_at((0, 0, 0), (1, 0, 0))[None], 5, axis=0)
    parallel[:, 1, 3] = np.arange(5)
    assert np.all(np.isfinite(P.focus_point(parallel)))
    assert P.focus_point(parallel)[0] > 0  # ahead


def test_quaternions_and_rotations_are_one_to_one():
    rotations = np.concatenate([random_rotations(50), [np.diag([1.0, -1, -1]), np.diag([-1.0, -1, 1]), np.eye(3)]])
    np.testing.assert_allclose(
        rotations @ np.swapaxes(rotations, 1, 2), np.broadcast_to(np.eye(3), (53, 3, 3)), atol=1e-12
    )
    np.testing.assert_allclose(np.linalg.det(rotations), 1)
    np.testing.assert_allclose(P.rotation_from_quaternion(P.quaternion_from_rotation(rotations)), rotations, atol=1e-12)
    half = np.sqrt(0.5)
    quarter_turn_about_z = P.rotation_from_quaternion((half, 0, 0, half))
    np.testing.assert_allclose(quarter_turn_about_z @ [1, 0, 0], [0, 1, 0], atol=1e-12)


def test_orthonormalize_returns_the_nearest_rotation():
    poses = random_poses(20)
    noisy = poses + 1e-3 * np.random.default_rng(3).normal(size=poses.shape)
    fixed = P.orthonormalize(noisy)
    P.check_poses(fixed, tolerance=1e-12)
    assert np.abs(fixed - poses).max() < 6e-3
    np.testing.assert_array_equal(fixed[..., 3], noisy[..., 3])
    P.check_poses(P.orthonormalize(np.diag([1.0, 1, -1, 1])[:3])[None])  # right-handed again


def test_interpolation_turns_at_constant_speed_and_meets_both_ends():
    first, second = random_poses(2, seed=5)
    between = P.interpolate_poses(first, second, np.linspace(0, 1, 9))
    np.testing.assert_allclose(between[[0, -1]], [first, second], atol=1e-9)
    P.check_poses(between, tolerance=1e-9)
    steps = np.einsum("nij,nik->njk", between[:-1, :, :3], between[1:, :, :3])
    angles = np.arccos((np.trace(steps, axis1=1, axis2=2) - 1) / 2)
    whole = np.arccos((np.trace(first[:, :3].T @ second[:, :3]) - 1) / 2)
    np.testing.assert_allclose(angles, whole / 8, rtol=1e-6)
    np.testing.assert_allclose(P.interpolate_poses(first, first, 0.3), first, atol=1e-12)


def test_similarity_splits_inverts_and_moves_poses_with_points():
    rotation = random_rotations(1, seed=7)[0]
    matrix = P.similarity_matrix(rotation=rotation, scale=2.5, translation=(1e3, -2, 3))
    parts = P.split_similarity(matrix)
    np.testing.assert_allclose(parts.rotation, rotation, atol=1e-12)
    assert abs(parts.scale - 2.5) < 1e-12
    np.testing.assert_allclose(P.invert_similarity(matrix) @ matrix, np.eye(4), atol=1e-10)
    poses, points = random_poses(10), np.random.default_rng(8).normal(size=(10, 3))
    moved, moved_points = P.transform_poses(matrix, poses), P.transform_points(matrix, points)
    P.check_poses(moved, tolerance=1e-9)
    # What a camera sees: the same directions, all distances longer by the scale.
    seen = np.einsum("nij,ni->nj", poses[:, :, :3], points - poses[:, :, 3])
    seen_moved = np.einsum("nij,ni->nj", moved[:, :, :3], moved_points - moved[:, :, 3])
    np.testing.assert_allclose(seen_moved, 2.5 * seen, atol=1e-9)
    for bad in (np.diag([1.0, 1, -1, 1]), np.diag([1.0, 2, 1, 1]), np.full((4, 4), np.nan)):
        with pytest.raises(UserError, match="similarity"):
            P.split_similarity(bad)


def test_up_is_found_for_tilted_cameras_on_one_side():
    """All look steeply down from one side: the mean of their up axes is far off, what is level tells the truth."""
    rng = np.random.default_rng(9)
    azimuth = rng.uniform(-0.9, 0.9, 40)
    poses = P.look_at(np.stack([3 * np.cos(azimuth), 3 * np.sin(azimuth), np.full(40, 3.0)], -1), np.zeros(3))
    np.testing.assert_allclose(P.up_direction(poses), [0, 0, 1], atol=1e-6)
    tilt = P.similarity_matrix(rotation=random_rotations(1, seed=4)[0])
    turned = P.transform_poses(tilt, poses)
    upright = P.transform_poses(P.orient_up(turned), turned)
    np.testing.assert_allclose(upright[:, 2, 3], 3, atol=1e-6)
    alike = np.repeat(poses[:1], 5, axis=0)
    np.testing.assert_allclose(P.up_direction(alike), poses[0, :, 1], atol=1e-9)
    upside_down = P.transform_poses(P.similarity_matrix(rotation=np.diag([1.0, -1, -1])), poses)
    np.testing.assert_allclose(P.transform_poses(P.orient_up(upside_down), upside_down)[:, 2, 3], 3, atol=1e-6)


def test_mean_pose_is_the_middle():
    poses = P.interpolate_poses(*random_poses(2, seed=11), np.asarray([0.0, 0.5, 1.0]))
    np.testing.assert_allclose(P.mean_pose(poses[[0, 2]]), poses[1], atol=1e-9)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda pose: pose * np.nan, "not finite"),
        (lambda pose: pose * 1.5, "scaled by 1.5"),
        (lambda pose: pose + np.eye(3, 4), "not orthonormal"),
        (lambda pose: pose * [-1, 1, 1, 1], "left-handed"),
        (lambda pose: pose * 0, "not orthonormal"),
    ],
)
def test_bad_poses_are_refused_by_name(spoil, words):
    poses = random_poses(3, seed=12)
    poses[1] = spoil(poses[1])
    with pytest.raises(UserError, match=words) as caught:
        P.check_poses(poses, names=["a", "b", "c"], file="f.json")
    assert "(b)" in str(caught.value) and "f.json" in str(caught.value)
