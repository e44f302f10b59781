"""Checks of the poses among themselves, and how they cover their subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nerfjax.errors import UserError
from nerfjax.geometry.poses import check_poses
from nerfjax.scenes.base import Scene, shorten
from nerfjax.scenes.doctor.convention import Look, look_of
from nerfjax.scenes.doctor.findings import Finding, finding_from_error
from nerfjax.scenes.doctor.measure import FrameMeasure, measure

OUTLIER = 10.0  # times the median distance
MAX_LOOKS = 50  # groups of equal poses whose images are compared


class Coverage(NamedTuple):
    """How cameras are placed, in scene coordinates.

    Attributes:
      facing: "inward", "outward" or "forward".
      gap: largest azimuth without a camera as seen from the centre, degrees.
      elevation: lowest and highest camera over the horizon of the centre, degrees.
      distance: least, median and greatest distance from the centre, scene units.
    """

    facing: str
    gap: float
    elevation: tuple[float, float]
    distance: tuple[float, float, float]

    def as_json(self) -> dict[str, Any]:
        """Returns a JSON-able dictionary."""
        return {
            "facing": self.facing,
            "azimuth_gap_degrees": round(self.gap, 1),
            "elevation_degrees": [round(value, 1) for value in self.elevation],
            "distance": [round(value, 4) for value in self.distance],
        }


def coverage(scene: Scene) -> Coverage | None:
    """Says how the cameras are placed around what they look at."""
    poses = np.asarray(scene.cameras.pose, np.float64)
    look = look_of(poses)
    if look is None:
        return None
    forward = -poses[:, :, 2]
    parallel = float(np.linalg.norm(forward.mean(axis=0)))
    facing = "forward" if parallel > 0.95 else "inward" if look.ahead > 0.5 and look.converges else "outward"
    center = look.center if facing == "inward" else np.median(poses[:, :, 3], axis=0)
    offset = poses[:, :, 3] - center if facing == "inward" else forward
    azimuth = np.sort(np.degrees(np.arctan2(offset[:, 1], offset[:, 0])) % 360)
    gap = float(np.max(np.diff(np.append(azimuth, azimuth[0] + 360))))
    flat = np.linalg.norm(offset[:, :2], axis=-1)
    elevation = np.degrees(np.arctan2(offset[:, 2], np.maximum(flat, 1e-12)))
    distance = np.linalg.norm(poses[:, :, 3] - look.center, axis=-1)
    return Coverage(
        facing, gap, (float(elevation.min()), float(elevation.max())),
        (float(distance.min()), float(np.median(distance)), float(distance.max())),
    )  # fmt: skip


def check_rotations(scene: Scene) -> list[Finding]:
    """Poses that are none; readers refuse them, a scene made by hand may hold them."""
    findings = []
    for frame, pose in zip(scene.frames, np.asarray(scene.cameras.pose, np.float64), strict=True):
        try:
            check_poses(pose[None], file=scene.source, names=[frame.name])
        except UserError as error:
            findings.append(finding_from_error(error, code="pose-bad", frame=frame.name))
    return findings


def check_placement(scene: Scene, measures: Mapping[int, FrameMeasure]) -> list[Finding]:
    """Outlying, equal and identical poses; single cameras that look away."""
    poses = np.asarray(scene.cameras.pose, np.float64)
    if len(poses) < 2:
        return []
    origins = poses[:, :, 3]
    look = look_of(poses)
    center = look.center if look is not None and look.converges else np.median(origins, axis=0)
    distance = np.linalg.norm(origins - center, axis=-1)
    spread = np.linalg.norm(origins - np.median(origins, axis=0), axis=-1)
    if spread.max() <= 1e-7 * max(1.0, float(np.abs(origins).max())):
        return [
            Finding(
                "poses-identical",
                "error",
                "All cameras stand at one point.",
                file=scene.source,
                found=f"{len(poses)} poses at {np.array2string(origins[0], precision=4)}",
                expected="cameras that moved between the photos",
                fix="check the poses: without parallax there is no geometry",
            )  # fmt: skip
        ]
    findings = []
    typical = max(float(np.median(distance)), 1e-12)
    far = np.flatnonzero(distance > OUTLIER * typical)
    if len(far):
        findings.append(
            _poses_finding(
                scene,
                far,
                "pose-outlier",
                f"{len(far)} of {len(poses)} cameras stand far from the rest.",
                f"{distance[far].max() / typical:.0f} times the usual distance",
                "remove the frames, or reconstruct again",
            )  # fmt: skip
        )
    findings += _check_equal(scene, poses, float(np.median(spread)), measures)
    if look is not None and look.converges and look.ahead > 0.6 and look.miss < 0.2:
        findings += _check_looks(scene, poses, look, {*far.tolist()})
    return findings


def _check_equal(scene: Scene, poses: np.ndarray, spread: float, measures: Mapping[int, FrameMeasure]) -> list[Finding]:
    step = 1e-5 * max(spread, 1e-12)
    keys: dict[tuple, list[int]] = {}
    for row, pose in enumerate(poses):
        key = (scene.frames[row].split, *np.round(pose[:, 3] / step), *np.round(pose[:, :3].ravel() / 1e-5))
        keys.setdefault(key, []).append(row)
    # Equal images have equal poses rightly; copies are a finding of their own.
    equal = [rows for rows in keys.values() if len(rows) > 1][:MAX_LOOKS]
    equal = [rows for rows in equal if _look_different(scene, rows[:4], measures)]
    if not equal:
        return []
    rows = sorted(row for group in equal for row in group)
    names = " = ".join(scene.frames[row].name for row in equal[0][:3])
    return [
        _poses_finding(
            scene,
            np.array(rows),
            "poses-duplicated",
            f"{len(rows)} images share their pose with another one.",
            names,
            "check that every image has its own pose",
        )  # fmt: skip
    ]


def _look_different(scene: Scene, rows: list[int], measures: Mapping[int, FrameMeasure]) -> bool:
    """Whether images of equal poses show different things."""
    looks = [(measures.get(row) or measure(scene.frames[row])).tiny for row in rows]
    known = [tiny for tiny in looks if tiny is not None]
    return any(float(np.abs(tiny - known[0]).mean()) > 0.01 for tiny in known)


def _check_looks(scene: Scene, poses: np.ndarray, look: Look, outliers: set[int]) -> list[Finding]:
    toward = look.center - poses[:, :, 3]
    cosine = np.einsum("ni,ni->n", toward, -poses[:, :, 2]) / np.maximum(np.linalg.norm(toward, axis=-1), 1e-12)
    away = np.array([row for row in np.flatnonzero(cosine < 0) if int(row) not in outliers], np.int64)
    if not len(away):
        return []
    return [
        _poses_finding(
            scene,
            away,
            "cameras-look-away",
            f"{len(away)} of {len(poses)} cameras look away from what the others look at.",
            f"{np.degrees(np.arccos(np.clip(cosine[away].min(), -1, 1))):.0f}° from it",
            "check these poses",
        )  # fmt: skip
    ]


def _poses_finding(scene: Scene, rows: np.ndarray, code: str, problem: str, found: str, fix: str) -> Finding:
    names = [scene.frames[row].name for row in rows]
    return Finding(code, "warning", problem, scene.source, names[0], f"{found} ({shorten(names)})", fix=fix)
