"""Camera paths for videos, in NumPy float64: orbit, spiral and spline, all [K, 3, 4] camera-to-world.

Notation of the orbit: about the focus point, along the up axis, a camera has azimuth phi, distance R and height h;
its distance from the axis is sqrt(R^2 - h^2).
"""

from __future__ import annotations

import numpy as np

from nerfjax.errors import UserError
from nerfjax.geometry.poses import (
    Z_UP,
    focus_point,
    look_at,
    mean_pose,
    quaternion_from_rotation,
    rotation_from_quaternion,
)

_FULL_TURN_GAP = np.deg2rad(100.0)  # cameras with a larger gap in azimuth did not go all the way round


def orbit_path(poses, count: int, *, up=Z_UP, focus=None) -> np.ndarray:
    """A closed path round the focus point at the distance and height of the cameras.

    Cameras that surround the subject give a full turn: a circle for cameras on a sphere or hemisphere, an ellipse
    (distance and height with harmonics of the azimuth up to the second) for a walk round it. Cameras on one side give
    a swing there and back over the arc that they cover. The path is drawn in until it lies in the cameras' convex
    hull (to a hundredth of the distance; at most by half): outside, radiance fields have seen nothing.

    Args:
      poses: [C, 3, 4] cameras that look inwards.
      count: number of poses.
      up: [3] axis of the orbit.
      focus: [3] what to look at; None is ``focus_point(poses)``.

    Returns:
      [count, 3, 4]; the first pose follows the last.

    Raises:
      UserError: most cameras look away from the focus point, so there is nothing to orbit.
    """
    poses = np.asarray(poses, np.float64)
    up = np.asarray(up, np.float64) / np.linalg.norm(up)
    focus = focus_point(poses) if focus is None else np.asarray(focus, np.float64)
    ahead = np.einsum("ni,ni->n", -poses[:, :, 2], focus - poses[:, :, 3]) > 0
    if ahead.mean() < 0.5:
        raise UserError(
            "The cameras do not look at a common point, so there is nothing to orbit.", field="path", found="orbit",
            fix="use the path 'interpolate' (or 'spiral' for a forward-facing capture)",
        )  # fmt: skip
    axes = look_at(np.zeros(3), -up, _across(up))[:, :3]  # columns: two across, then up
    local = (poses[:, :, 3] - focus) @ axes
    distance = np.linalg.norm(local, axis=-1)
    local = local[ahead & (distance < 3 * np.median(distance)) & (distance > 1e-6 * np.median(distance))]
    points = _polar_path(local, count)
    return look_at(_draw_in(points, local) @ axes.T + focus, focus, up)


def _polar_path(local: np.ndarray, count: int) -> np.ndarray:
    """Points [K, 3] at the cameras' distance and height, all the way round or over the arc that they cover."""
    distance, height = np.linalg.norm(local, axis=-1), local[:, 2]
    beside = np.hypot(local[:, 0], local[:, 1]) > 0.2 * distance  # overhead cameras have no azimuth to speak of
    if not beside.any():
        beside = np.ones(len(local), bool)
    azimuth = np.arctan2(local[beside, 1], local[beside, 0])
    turn = 2 * np.pi * np.arange(count) / count
    order = np.sort(azimuth)
    gaps = np.diff(np.append(order, order[0] + 2 * np.pi))
    widest = int(np.argmax(gaps))
    sway = np.zeros(count)
    if gaps[widest] <= _FULL_TURN_GAP:
        phi = azimuth[0] + turn
    else:
        start = order[(widest + 1) % len(order)]
        low, high = np.percentile((azimuth - start) % (2 * np.pi), [5, 95])
        phi = start + 0.5 * (low + high) + 0.5 * (high - low) * np.sin(turn)
        # The way back runs at another height than the way there.
        sway = 0.25 * np.subtract(*np.percentile(height[beside], [75, 25])) * np.sin(2 * turn)
    radius = np.exp(_fit(azimuth, np.log(distance[beside]), phi))
    level = np.clip(_fit(azimuth, height[beside], phi) + sway, -0.95 * radius, 0.95 * radius)
    across = np.sqrt(radius**2 - level**2)
    return np.stack([across * np.cos(phi), across * np.sin(phi), level], axis=-1)


def _fit(azimuth: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """A robust function of azimuth: harmonics up to the second where they explain the values, else their middle."""

    def basis(phi):
        return np.stack([np.ones_like(phi), np.cos(phi), np.sin(phi), np.cos(2 * phi), np.sin(2 * phi)], axis=-1)

    # The middle between the outer tenths: of cameras on two levels the median would be one of them.
    middle = 0.5 * np.sum(np.percentile(values, [10, 90]))
    if len(values) < 8:
        return np.full_like(at, middle)
    matrix, weights = basis(azimuth), np.ones(len(values))
    ridge = 1e-3 * np.diag([0.0, 1.0, 1.0, 1.0, 1.0])  # arcs leave the harmonics undetermined
    for _ in range(20):
        weighted = matrix * (weights / weights.sum())[:, None]
        coefficients = np.linalg.solve(matrix.T @ weighted + ridge, weighted.T @ (values - middle))
        residual = np.abs(values - middle - matrix @ coefficients)
        weights = 1.0 / np.maximum(residual, np.percentile(residual, 75) + 1e-9)
    # On a hemisphere the heights are noise, and harmonics of noise make the path wobble.
    explains = np.percentile(residual, 75) < 0.7 * np.percentile(np.abs(values - middle), 75)
    return middle + (basis(at) @ coefficients if explains else 0.0 * at)


def _draw_in(points: np.ndarray, cameras: np.ndarray) -> np.ndarray:
    """Scales the path about the cameras' mean, by bisection, until it lies in their convex hull."""
    middle = cameras.mean(0)
    slack = 0.01 * np.median(np.linalg.norm(cameras, axis=-1))
    if _outside_hull(points, cameras, slack) <= slack:
        return points
    inside, outside = 0.5, 1.0
    for _ in range(6):
        factor = 0.5 * (inside + outside)
        fits = _outside_hull(middle + factor * (points - middle), cameras, slack) <= slack
        inside, outside = (factor, outside) if fits else (inside, factor)
    return middle + inside * (points - middle)


def _outside_hull(points: np.ndarray, corners: np.ndarray, enough: float) -> float:
    """The largest distance of points [K, 3] from the hull of corners [C, 3]; stops when it is below ``enough``.

    Gilbert's algorithm: the nearest point found so far moves towards the corner that lies farthest in the direction of
    the goal. It nears the distance from above, so what it calls inside is inside.
    """
    nearest = np.repeat(corners.mean(0)[None], len(points), axis=0)
    for _ in range(300):
        gap = points - nearest
        if np.linalg.norm(gap, axis=-1).max() <= enough:
            break
        edge = corners[np.argmax(gap @ corners.T, axis=-1)] - nearest
        length = np.maximum(np.sum(edge * edge, axis=-1), 1e-30)
        nearest = nearest + np.clip(np.sum(gap * edge, axis=-1) / length, 0.0, 1.0)[:, None] * edge
    return float(np.linalg.norm(points - nearest, axis=-1).max())


def spiral_path(poses, count: int, *, focus_distance: float | None = None, turns: float = 2.0) -> np.ndarray:
    """A spiral about the mean pose, for forward-facing captures.

    Args:
      poses: [C, 3, 4] cameras that look in about the same direction.
      count: number of poses.
      focus_distance: distance of the point that all look at, ahead of the mean pose; None takes the distance of
        ``focus_point(poses)``, where that lies ahead, else ten times the spiral's radius.
      turns: number of turns in the image plane, for one swing along the view.

    Returns:
      [count, 3, 4]; the first pose follows the last (for a whole number of turns).

    Reference: Mildenhall et al. 2019 (LLFF), whose videos made this path common.
    """
    poses = np.asarray(poses, np.float64)
    mean = mean_pose(poses)
    offsets = (poses[:, :, 3] - mean[:, 3]) @ mean[:, :3]
    radii = 0.8 * np.percentile(np.abs(offsets), 90, axis=0)
    if focus_distance is None:
        ahead = float((focus_point(poses) - mean[:, 3]) @ -mean[:, 2])
        floor = 2 * float(np.linalg.norm(radii))
        focus_distance = ahead if ahead > floor else max(10 * float(radii.max()), 1e-3)
    turn = 2 * np.pi * np.arange(count) / count
    local = np.stack([np.cos(turns * turn), -np.sin(turns * turn), -np.sin(turn)], axis=-1) * radii
    target = mean[:, 3] - focus_distance * mean[:, 2]
    return look_at(local @ mean[:, :3].T + mean[:, 3], target, mean[:, 1])


def interpolate_path(poses, count: int, *, loop: bool = False) -> np.ndarray:
    """A smooth path through poses at constant speed.

    Positions and quaternions follow a centripetal Catmull-Rom spline; the speed counts a turn by one radian like a
    move by the cameras' median distance from their middle.

    Args:
      poses: [C, 3, 4] in the order of the visit.
      count: number of poses.
      loop: whether to return to the first pose.

    Returns:
      [count, 3, 4]; both ends included, but for loops, whose first pose follows the last.

    Reference: Yuksel et al. 2011, "Parameterization and applications of Catmull-Rom curves".
    """
    poses = np.asarray(poses, np.float64)
    if len(poses) == 1:
        return np.repeat(poses, count, axis=0)
    poses = np.concatenate([poses, poses[:1]]) if loop else poses
    quaternions = quaternion_from_rotation(poses[:, :, :3])
    for i in range(1, len(quaternions)):  # q and -q are one rotation: keep to the shorter way
        quaternions[i] *= 1.0 if quaternions[i] @ quaternions[i - 1] >= 0 else -1.0
    spread = np.median(np.linalg.norm(poses[:, :, 3] - np.median(poses[:, :, 3], axis=0), axis=-1)) or 1.0
    keys = np.concatenate([poses[:, :, 3] / spread, 2 * quaternions], axis=-1)  # |dq| is half the angle
    fine = _catmull_rom(keys, np.linspace(0, len(keys) - 1, 64 * (len(keys) - 1) + 1), loop)
    fine[:, 3:] *= 2 / np.linalg.norm(fine[:, 3:], axis=-1, keepdims=True)
    length = np.append(0.0, np.cumsum(np.linalg.norm(np.diff(fine, axis=0), axis=-1)))
    wanted = np.linspace(0, length[-1], count, endpoint=not loop)
    sampled = np.stack([np.interp(wanted, length, column) for column in fine.T], axis=-1)
    rotation = rotation_from_quaternion(sampled[:, 3:])
    return np.concatenate([rotation, spread * sampled[:, :3, None]], axis=-1)


def _catmull_rom(keys: np.ndarray, at: np.ndarray, loop: bool) -> np.ndarray:
    """The centripetal Catmull-Rom spline through ``keys`` [C, D] at positions ``at`` (key i lies at i)."""
    steps = np.maximum(np.linalg.norm(np.diff(keys, axis=0), axis=-1) ** 0.5, 1e-6)
    before, after = (keys[-2], keys[1]) if loop else (2 * keys[0] - keys[1], 2 * keys[-1] - keys[-2])
    if loop:  # the closing quaternion may be minus the first one
        sign = np.append(np.ones(3), np.full(4, 1.0 if keys[0, 3:] @ keys[-1, 3:] >= 0 else -1.0))
        before, after = keys[-2] * sign, keys[1] * sign
    keys = np.concatenate([before[None], keys, after[None]])
    steps = np.concatenate([steps[-1:] if loop else steps[:1], steps, steps[:1] if loop else steps[-1:]])
    slopes = np.diff(keys, axis=0) / steps[:, None]
    # Slopes at the keys of the parabola through three neighbours.
    tangents = (slopes[:-1] * steps[1:, None] + slopes[1:] * steps[:-1, None]) / (steps[:-1] + steps[1:])[:, None]
    keys, steps = keys[1:-1], steps[1:-1]
    segment = np.clip(np.floor(at).astype(int), 0, len(steps) - 1)
    u, width = (at - segment)[:, None], steps[segment][:, None]
    start, end = keys[segment], keys[segment + 1]
    out, into = tangents[segment] * width, tangents[segment + 1] * width
    return (
        (2 * u**3 - 3 * u**2 + 1) * start + (u**3 - 2 * u**2 + u) * out
        + (3 * u**2 - 2 * u**3) * end + (u**3 - u**2) * into
    )  # fmt: skip


def _across(axis: np.ndarray) -> np.ndarray:
    return np.eye(3)[np.argmin(np.abs(axis))]
