"""Camera poses on the host, in NumPy float64: checks, aims, averages, similarities and interpolation.

Notation: a pose [3, 4] is camera-to-world (R | o) with OpenGL camera axes: the columns of R are right, up and
backward, so the camera looks along d = -R e_z. A similarity is a 4x4 matrix x -> s Q x + b that moves a capture into
its scene: poses keep unit rotations, R -> Q R, o -> s Q o + b. Quaternions are (w, x, y, z).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nerfjax.errors import UserError

Z_UP = (0.0, 0.0, 1.0)


class Similarity(NamedTuple):
    """The parts of a similarity: ``rotation`` [3, 3], ``scale``, ``translation`` [3]."""

    rotation: np.ndarray
    scale: float
    translation: np.ndarray


def check_poses(poses, *, file=None, names=None, tolerance: float = 1e-3) -> None:
    """Refuses poses that are none.

    Args:
      poses: [C, 3, 4] camera-to-world.
      file: the file, for messages.
      names: [C] names of the frames, for messages.
      tolerance: largest entry of R^T R - 1.

    Raises:
      UserError: naming the first bad frame: not finite, scaled, not orthonormal, or left-handed.
    """
    poses = np.asarray(poses, np.float64)
    for i, pose in enumerate(poses):
        label = names[i] if names is not None else f"camera {i}"

        def refuse(code, problem, found, expected, fix, label=label):
            where = dict(file=file, field="pose")
            raise UserError(f"{problem} ({label}).", found=found, expected=expected, fix=fix, code=code, **where)

        if not np.all(np.isfinite(pose)):
            problem = "A pose holds a number that is not finite"
            refuse("pose-not-finite", problem, pose.tolist(), "finite numbers", "remove the frame")
        rotation = pose[:, :3]
        gram, sizes = rotation.T @ rotation, np.linalg.norm(rotation, axis=0)
        fix = "divide the rotation by its scale, or orthonormalise it (nerfjax.geometry.poses.orthonormalize)"
        if np.abs(gram - np.eye(3)).max() > tolerance:
            scaled = sizes.max() > 0 and np.abs(gram / sizes.mean() ** 2 - np.eye(3)).max() <= tolerance
            what = f"is scaled by {sizes.mean():.6g}" if scaled else "is not orthonormal"
            code = "pose-scaled" if scaled else "pose-not-orthonormal"
            refuse(code, f"A camera's rotation {what}", rotation.tolist(), "R^T R = 1", fix)
        if np.linalg.det(rotation) < 0:
            problem, fix = "A camera's rotation is left-handed", "swap or negate one axis"
            refuse("pose-left-handed", problem, rotation.tolist(), "det R = +1", fix)


def orthonormalize(poses) -> np.ndarray:
    """The nearest poses [..., 3, 4] whose rotations are right-handed and orthonormal (by singular values)."""
    poses = np.asarray(poses, np.float64)
    left, _, right = np.linalg.svd(poses[..., :3])
    left[..., :, 2] *= np.sign(np.linalg.det(left @ right))[..., None]
    return np.concatenate([left @ right, poses[..., 3:]], axis=-1)


def look_at(position, target, up=Z_UP) -> np.ndarray:
    """Poses [..., 3, 4] at ``position`` [..., 3] that look at ``target`` [..., 3] with ``up`` [..., 3] upwards.

    A camera that looks straight along ``up`` takes some right angle to it.
    """
    position, target, up = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (position, target, up)))
    back = _unit(position - target, fallback=(0.0, 0.0, 1.0))
    right = np.cross(up, back)
    fallback = np.cross(np.eye(3)[np.argmin(np.abs(back), axis=-1)], back)
    along = np.linalg.norm(right, axis=-1, keepdims=True) < 1e-8 * np.linalg.norm(up, axis=-1, keepdims=True)
    right = _unit(np.where(along, fallback, right))
    return np.stack([right, np.cross(back, right), back, position], axis=-1)


def focus_point(poses) -> np.ndarray:
    """The point [3] nearest to all optical axes.

      argmin_x sum_i |(1 - d_i d_i^T)(x - o_i)|

    (a sum of distances, not of squares, by reweighting: a few stray cameras don't move it). Axes that are nearly
    parallel hold the point along the view only weakly; it then stays near one camera spread ahead of the cameras.
    """
    poses = np.asarray(poses, np.float64)
    origins, directions = poses[:, :, 3], -poses[:, :, 2]
    spread = max(np.median(np.linalg.norm(origins - np.median(origins, axis=0), axis=-1)), 1e-9)
    prior = np.median(origins, axis=0) + spread * directions.mean(0)
    across = np.eye(3) - directions[:, :, None] * directions[:, None, :]
    weights = np.ones(len(poses))
    ridge = 1e-6 * np.eye(3)
    for _ in range(30):
        weights = weights / weights.sum()
        normal = np.einsum("n,nij->ij", weights, across) + ridge
        point = np.linalg.solve(normal, np.einsum("n,nij,nj->i", weights, across, origins) + ridge @ prior)
        distance = np.linalg.norm(np.einsum("nij,nj->ni", across, point - origins), axis=-1)
        weights = 1.0 / np.maximum(distance, 1e-3 * spread)
    return point


def mean_pose(poses) -> np.ndarray:
    """The mean position with the chordal mean of the rotations, [3, 4]."""
    return orthonormalize(np.asarray(poses, np.float64).mean(0))


def up_direction(poses) -> np.ndarray:
    """The world's up [3] that level cameras agree on.

    Cameras that are held level have right axes perpendicular to up, whatever their tilt: up is the direction that
    these span least. Where they are all alike (one viewing direction), the mean of the cameras' up axes serves.
    """
    poses = np.asarray(poses, np.float64)
    mean_up = _unit(poses[:, :, 1].mean(0), fallback=Z_UP)
    _, spans, axes = np.linalg.svd(poses[:, :, 0], full_matrices=True)
    spans = np.pad(spans, (0, 3 - len(spans)))
    agree = spans[1] > 0.2 * spans[0] and spans[2] < 0.5 * spans[1] and abs(axes[2] @ mean_up) > 0.5
    return axes[2] * np.sign(axes[2] @ mean_up) if agree else mean_up


def orient_up(poses) -> np.ndarray:
    """The 4x4 rotation, about the origin, that brings the cameras' up to +z by the shortest turn."""
    up, z = up_direction(poses), np.asarray(Z_UP)
    axis, cosine = np.cross(up, z), float(up @ z)
    if cosine < -1 + 1e-9:
        return np.diag([1.0, -1.0, -1.0, 1.0])
    skew = np.asarray([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return similarity_matrix(rotation=np.eye(3) + skew + skew @ skew / (1 + cosine))


def similarity_matrix(*, rotation=None, scale: float = 1.0, translation=(0.0, 0.0, 0.0)) -> np.ndarray:
    """The 4x4 matrix of x -> scale * rotation @ x + translation."""
    matrix = np.eye(4)
    matrix[:3, :3] = scale * (np.eye(3) if rotation is None else np.asarray(rotation, np.float64))
    matrix[:3, 3] = translation
    return matrix


def split_similarity(matrix) -> Similarity:
    """The parts of a 4x4 similarity.

    Raises:
      UserError: the matrix is no similarity (it mirrors, shears or projects).
    """
    matrix = np.asarray(matrix, np.float64)
    linear = matrix[:3, :3]
    scale = np.cbrt(np.linalg.det(linear)) if np.all(np.isfinite(matrix)) else -1.0
    if scale <= 0 or np.abs(linear.T @ linear / scale**2 - np.eye(3)).max() > 1e-6 or np.any(matrix[3] != (0, 0, 0, 1)):
        raise UserError("A transform is not a similarity.", found=matrix.tolist(), expected="scale * rotation, shift")
    return Similarity(linear / scale, float(scale), matrix[:3, 3])


def invert_similarity(matrix) -> np.ndarray:
    """The inverse of a 4x4 similarity."""
    rotation, scale, translation = split_similarity(matrix)
    return similarity_matrix(rotation=rotation.T, scale=1 / scale, translation=-rotation.T @ translation / scale)


def transform_points(matrix, points) -> np.ndarray:
    """Points [..., 3] moved by a 4x4 similarity."""
    matrix = np.asarray(matrix, np.float64)
    return np.asarray(points, np.float64) @ matrix[:3, :3].T + matrix[:3, 3]


def transform_poses(matrix, poses) -> np.ndarray:
    """Poses [..., 3, 4] moved by a 4x4 similarity; their rotations stay of unit scale."""
    poses = np.asarray(poses, np.float64)
    rotation = split_similarity(matrix).rotation @ poses[..., :3]
    return np.concatenate([rotation, transform_points(matrix, poses[..., 3])[..., None]], axis=-1)


def rotation_from_quaternion(quaternion) -> np.ndarray:
    """Rotations [..., 3, 3] of quaternions [..., 4] (w, x, y, z), of any length but zero."""
    w, x, y, z = np.moveaxis(_unit(np.asarray(quaternion, np.float64)), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def quaternion_from_rotation(rotation) -> np.ndarray:
    """Unit quaternions [..., 4] (w, x, y, z) of rotations [..., 3, 3], with w >= 0."""
    rotation = np.asarray(rotation, np.float64)
    r = np.moveaxis(rotation, (-2, -1), (0, 1))
    # q q^T is linear in R; its column of the largest diagonal entry is q without cancellation.
    outer = np.stack([
        np.stack([1 + r[0, 0] + r[1, 1] + r[2, 2], r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]], -1),
        np.stack([r[2, 1] - r[1, 2], 1 + r[0, 0] - r[1, 1] - r[2, 2], r[0, 1] + r[1, 0], r[0, 2] + r[2, 0]], -1),
        np.stack([r[0, 2] - r[2, 0], r[0, 1] + r[1, 0], 1 - r[0, 0] + r[1, 1] - r[2, 2], r[1, 2] + r[2, 1]], -1),
        np.stack([r[1, 0] - r[0, 1], r[0, 2] + r[2, 0], r[1, 2] + r[2, 1], 1 - r[0, 0] - r[1, 1] + r[2, 2]], -1),
    ], -2)  # fmt: skip
    best = np.argmax(np.diagonal(outer, axis1=-2, axis2=-1), axis=-1)
    quaternion = _unit(np.take_along_axis(outer, best[..., None, None], axis=-2)[..., 0, :])
    return quaternion * np.where(quaternion[..., :1] < 0, -1.0, 1.0)


def interpolate_poses(first, second, fraction) -> np.ndarray:
    """Poses [..., 3, 4] between two: positions on the straight line, rotations on the shortest arc (slerp).

    Args:
      first: [3, 4] at fraction 0.
      second: [3, 4] at fraction 1.
      fraction: [...].

    Returns:
      [..., 3, 4].

    Reference: Shoemake 1985, "Animating rotation with quaternion curves".
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    fraction = np.asarray(fraction, np.float64)[..., None]
    a, b = quaternion_from_rotation(first[:, :3]), quaternion_from_rotation(second[:, :3])
    b = b if a @ b >= 0 else -b
    angle = np.arctan2(np.linalg.norm(a - b), np.linalg.norm(a + b)) * 2
    if angle < 1e-8:
        quaternion = (1 - fraction) * a + fraction * b
    else:
        quaternion = (np.sin((1 - fraction) * angle) * a + np.sin(fraction * angle) * b) / np.sin(angle)
    position = (1 - fraction) * first[:, 3] + fraction * second[:, 3]
    return np.concatenate([rotation_from_quaternion(quaternion), position[..., None]], axis=-1)


def _unit(vector: np.ndarray, fallback=None) -> np.ndarray:
    size = np.linalg.norm(vector, axis=-1, keepdims=True)
    if fallback is not None:
        vector, size = np.where(size > 1e-12, vector, fallback), np.where(size > 1e-12, size, 1.0)
    return vector / size
