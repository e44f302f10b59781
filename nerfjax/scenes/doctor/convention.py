"""Which axis convention the poses follow: where cameras look, where points stand, and what the images say.

The matrix of a frame may be meant as camera-to-world or world-to-camera, with OpenGL (x right, y up, z back) or OpenCV
(x right, y down, z ahead) camera axes: four readings of the same numbers. The format names one; the doctor asks

  look      the optical axes of a capture meet ahead of the cameras. (Both axes conventions share the lines.)
  points    sparse points project into the images
  epipolar  matched points of two views lie on each other's epipolar planes: residuals in pixels for each reading
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from nerfjax.geometry.cameras import inside_image, project, unproject
from nerfjax.geometry.poses import focus_point, invert_similarity, transform_poses
from nerfjax.scenes.base import Scene, shorten
from nerfjax.scenes.doctor.findings import Finding
from nerfjax.scenes.doctor.matching import Features, consistent, epipolar_angle, match

FLIP = np.diag([1.0, -1.0, -1.0])
READINGS = ("as read", "other axes", "inverse", "inverse, other axes")
OTHER_AXES = {"opengl": "opencv", "opencv": "opengl"}
MAX_TURN = 35.0  # degrees between the two views of a pair
SURE = 40  # matches that are no accident
WELL, BADLY = 0.004, 0.012  # residual by which poses fit or do not, as a share of the image's longer side


class Look(NamedTuple):
    """Where cameras look.

    Attributes:
      center: [3] the point nearest to all optical axes.
      ahead: share of the cameras that have it ahead.
      miss: median distance of the axes from it, as a share of the median camera distance.
      radius: median camera distance from it.
    """

    center: np.ndarray
    ahead: float
    miss: float
    radius: float

    @property
    def converges(self) -> bool:
        """Whether the axes meet well enough to say anything."""
        return self.miss < 0.35


@dataclass(frozen=True)
class Convention:
    """What speaks for which reading.

    Attributes:
      axes: the axes that the poses were read with, "opengl" or "opencv".
      look: where cameras look, as read.
      points: share of the (point, camera) pairs that are imaged, per reading ("as read" and "other axes").
      residuals: median residual in pixels per reading; empty where no images were matched.
      pairs: (first, second, matches, residual as read) of each pair of frames.
      side: typical longer side of the images, pixels.
    """

    axes: str
    look: Look | None = None
    points: dict[str, float] = field(default_factory=dict)
    residuals: dict[str, float] = field(default_factory=dict)
    pairs: tuple[tuple[int, int, int, float], ...] = ()
    side: int = 0

    def best(self) -> str | None:
        """The reading that the images fit, if one does and the others do clearly less."""
        if not self.residuals:
            return None
        name = min(self.residuals, key=self.residuals.__getitem__)
        worse = self.residuals["as read"] > max(3 * self.residuals[name], WELL * self.side)
        return name if self.residuals[name] < WELL * self.side and (name == "as read" or worse) else None

    def as_json(self) -> dict[str, Any]:
        """Returns a JSON-able dictionary."""
        return {
            "axes": self.axes,
            "look": None if self.look is None else {
                "ahead": round(self.look.ahead, 4), "miss": round(self.look.miss, 4), "converges": self.look.converges,
            },
            "points": {name: round(share, 4) for name, share in self.points.items()},
            "residuals_px": {name: round(value, 3) for name, value in self.residuals.items()},
            "pairs": len(self.pairs),
            "fits": self.best(),
        }  # fmt: skip


def look_of(poses: np.ndarray) -> Look | None:
    """Says where cameras [C, 3, 4] look; None for fewer than three."""
    if len(poses) < 3:
        return None
    center = focus_point(poses)
    offset, forward = center - poses[:, :, 3], -poses[:, :, 2]
    depth = np.einsum("ni,ni->n", offset, forward)
    miss = np.linalg.norm(offset - depth[:, None] * forward, axis=-1)
    radius = max(float(np.median(np.linalg.norm(offset, axis=-1))), 1e-12)
    return Look(center, float(np.mean(depth > 0)), float(np.median(miss) / radius), radius)


def capture_poses(scene: Scene) -> np.ndarray:
    """[C, 3, 4] float64 camera-to-world in the capture's own coordinates, OpenGL axes."""
    return transform_poses(invert_similarity(scene.to_scene), np.asarray(scene.cameras.pose, np.float64))


def readings(poses: np.ndarray, axes: str) -> dict[str, np.ndarray]:
    """The four readings of the matrices that were read as ``poses`` [C, 3, 4]: camera-to-world, OpenGL axes."""

    def flipped(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values[..., :3] @ FLIP, values[..., 3:]], axis=-1)

    stored = flipped(poses) if axes == "opencv" else poses
    rotation = np.swapaxes(stored[..., :3], -1, -2)
    inverse = np.concatenate([rotation, -rotation @ stored[..., 3:]], axis=-1)
    inverse = {"opengl": inverse, "opencv": flipped(inverse)}
    return dict(zip(READINGS, (poses, flipped(poses), inverse[axes], inverse[OTHER_AXES[axes]]), strict=True))


def choose_pairs(poses: np.ndarray, count: int, first=None, second=None) -> list[tuple[int, int]]:
    """Pairs of neighbouring views with some parallax: small turns, small steps, spread over the capture.

    Args:
      poses: [C, 3, 4].
      count: of pairs, at most.
      first, second: rows to pair (by default any with any).
    """
    first = np.arange(len(poses)) if first is None else np.asarray(first)
    second = np.arange(len(poses)) if second is None else np.asarray(second)
    origins = poses[:, :, 3]
    spread = max(float(np.median(np.linalg.norm(origins - np.median(origins, axis=0), axis=-1))), 1e-12)
    pairs: dict[tuple[int, int], None] = {}
    for i in first[np.unique(np.linspace(0, len(first) - 1, 2 * count).round().astype(int))]:
        cosine = (np.einsum("ij,nij->n", poses[i, :, :3], poses[second, :, :3]) - 1) / 2
        turn = np.degrees(np.arccos(np.clip(cosine, -1, 1)))
        step = np.linalg.norm(origins[second] - origins[i], axis=-1) / spread
        cost = np.where((step > 0.02) & (turn < MAX_TURN) & (second != i), turn / 10 + 2 * step, np.inf)
        if not len(cost) or not np.isfinite(cost.min()):
            continue
        j = int(second[np.argmin(cost)])
        pairs[(min(int(i), j), max(int(i), j))] = None
    chosen = list(pairs)
    return [chosen[i] for i in np.unique(np.linspace(0, len(chosen) - 1, count).round().astype(int))] if chosen else []


def pairs_to_match(poses: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Candidates for ``count`` pairs: as many that are spread over the capture, then as many between them."""
    chosen = choose_pairs(poses, 2 * count)
    return chosen[::2] + chosen[1::2]


class PairCheck(NamedTuple):
    """A pair of frames: number of verified matches and the median residual in pixels of each reading."""

    first: int
    second: int
    matches: int
    residuals: dict[str, float]


def check_pair(
    scene: Scene, poses: dict[str, np.ndarray], first: int, second: int, found: tuple[Features, Features],
    scales: tuple[np.ndarray, np.ndarray],
) -> PairCheck | None:  # fmt: skip
    """Matches two views and measures how far the matches are from each reading's epipolar planes.

    Args:
      scene: for its cameras.
      poses: readings (see ``readings``).
      first, second: rows of the frames.
      found: their features.
      scales: [2] pixels of the camera per pixel of the matched image.
    """
    pairs = match(*found)
    directions, size = [], 0.0
    for row, feature, column, scale in zip((first, second), found, (0, 1), scales, strict=True):
        points = feature.points[pairs[:, column]] * scale
        camera = scene.cameras[np.full(len(points), row)]
        rays = unproject(camera, points, xp=np)
        directions.append(rays.directions)
        size = max(size, float(np.asarray(scene.cameras.size[row]).max()))
    focal = float(np.mean(np.asarray(scene.cameras.focal[[first, second]], np.float64)))
    if scene.cameras.models == ("equirectangular",):
        focal = size / (2 * np.pi)
    good = consistent(*directions, tolerance=0.004 * size / focal)
    if not good.any():
        return None
    a, b = (values[good] for values in directions)
    residuals = {}
    for name, reading in poses.items():
        rotation = reading[second, :, :3].T @ reading[first, :, :3]
        step = reading[second, :, :3].T @ (reading[first, :, 3] - reading[second, :, 3])
        essential = np.cross(np.eye(3), step / max(np.linalg.norm(step), 1e-12)) @ rotation
        residuals[name] = float(np.median(epipolar_angle(-essential, a, b)) * focal)
    return PairCheck(first, second, int(good.sum()), residuals)


def points_share(scene: Scene, poses: np.ndarray, points: np.ndarray) -> float:
    """Share of (camera, point) pairs of which the point is imaged, up to 60 cameras and 500 points."""
    rows = np.unique(np.linspace(0, len(poses) - 1, 60).round().astype(int))
    points = points[np.unique(np.linspace(0, len(points) - 1, 500).round().astype(int))]
    cameras = scene.cameras[rows].replace(pose=poses[rows])[np.repeat(np.arange(len(rows)), len(points))]
    projection = project(cameras, np.tile(points, (len(rows), 1)), xp=np)
    return float(np.mean(projection.valid & inside_image(cameras, projection.pixels, xp=np)))


def weigh(
    scene: Scene, *, points: np.ndarray | None, features_of: Callable[[int], tuple[Features, np.ndarray]] | None,
    pairs: int,
) -> Convention:  # fmt: skip
    """Gathers the evidence.

    Args:
      scene: as read.
      points: [P, 3] sparse points in scene coordinates.
      features_of: features and scale of a row; None = no matching.
      pairs: how many pairs to match, of twice as many candidates.
    """
    poses = capture_poses(scene)
    axes = str(scene.provenance.get("axes", "opengl"))
    axes = axes if axes in OTHER_AXES else "opengl"
    all_readings = readings(poses, axes)
    shares = {}
    if points is not None and len(points):
        scene_readings = readings(np.asarray(scene.cameras.pose, np.float64), axes)
        shares = {name: points_share(scene, scene_readings[name], points) for name in READINGS[:2]}
    checks = []
    if features_of is not None:
        for first, second in pairs_to_match(poses, pairs):
            if len(checks) == pairs:
                break
            a, b = features_of(first), features_of(second)
            check = check_pair(scene, all_readings, first, second, (a[0], b[0]), (a[1], b[1]))
            checks += [check] if check is not None else []
    residuals = {}
    if len(checks) >= 3 or (len(checks) == 2 and len(poses) < 5):
        residuals = {name: float(np.median([check.residuals[name] for check in checks])) for name in READINGS}
    measured = tuple((c.first, c.second, c.matches, c.residuals["as read"]) for c in checks)
    side = int(np.median(np.asarray(scene.cameras.size).max(axis=-1)))
    return Convention(axes, look_of(poses), shares, residuals, measured, side)


def findings(scene: Scene, evidence: Convention) -> list[Finding]:
    """Names the convention that fits, where it is not the one that was read."""
    best, look = evidence.best(), evidence.look
    if best == "as read":
        return _odd_pairs(scene, evidence)
    if best is not None:
        return [_wrong(scene, evidence, best, _residual_text(evidence, best))]
    out: list[Finding] = []
    if evidence.residuals and min(evidence.residuals.values()) > BADLY * evidence.side:
        found = ", ".join(f"{name}: {value:.1f} px" for name, value in evidence.residuals.items())
        out.append(
            Finding(
                "poses-do-not-fit",
                "warning",
                "The images contradict the poses, whatever their axes.",
                file=scene.source,
                found=f"median epipolar residuals of {len(evidence.pairs)} pairs: {found}",
                expected=f"less than {WELL * evidence.side:.1f} px",
                fix="check that images and poses are paired rightly, and the intrinsics",
            )  # fmt: skip
        )
    share, flipped = (evidence.points.get(name, 0.0) for name in READINGS[:2])
    if flipped > 2 * share and flipped > 0.1:
        found = f"{share:.0%} of the points fall into the images, {flipped:.0%} with the other axes"
        return [*out, _wrong(scene, evidence, "other axes", found)]
    fits = evidence.residuals and evidence.residuals["as read"] < WELL * evidence.side
    if look is None or look.ahead > 0.25 or not look.converges or fits:
        return out
    found = f"{1 - look.ahead:.0%} of the cameras look away from the point that their optical axes meet at"
    if scene.geometry.bounded:
        return [*out, _wrong(scene, evidence, "other axes", found)]
    return [
        *out,
        Finding(
            "axes-suspect",
            "warning",
            "The cameras look away from each other's common centre.",
            file=scene.source,
            found=found,
            expected="cameras that look inwards, unless the capture looks outwards from one place",
            fix=_fix(evidence, "other axes") + ", if the capture surrounds its subject",
        ),  # fmt: skip
    ]


def _odd_pairs(scene: Scene, evidence: Convention) -> list[Finding]:
    """Pairs whose images contradict their poses where those of the others agree: one of the two poses is wrong."""
    usual = evidence.residuals["as read"]
    limit = max(BADLY * evidence.side, 10 * usual)
    odd = sorted((pair for pair in evidence.pairs if pair[3] > limit and pair[2] >= SURE), key=lambda pair: -pair[3])
    if not odd:
        return []
    names = [scene.frames[row].name for row in odd[0][:2]]
    texts = [f"{scene.frames[a].name} and {scene.frames[b].name}: {value:.0f} px" for a, b, _, value in odd]
    return [
        Finding(
            "pose-contradicted", "warning",
            f"The images of {len(odd)} of {len(evidence.pairs)} pairs contradict their poses, where the others agree.",
            file=scene.source, frame=names[0], found=f"epipolar residuals of {shorten(texts, 3)}",
            expected=f"about {max(usual, 0.1):.1f} px, as the others",
            fix="check the poses of both frames, and whether they show the same place",
        )
    ]  # fmt: skip


def _residual_text(evidence: Convention, best: str) -> str:
    pairs, asread, other = len(evidence.pairs), evidence.residuals["as read"], evidence.residuals[best]
    return f"{asread:.1f} px as read ({evidence.axes}), {other:.1f} px as {_name(evidence, best)} ({pairs} pairs)"


def _name(evidence: Convention, reading: str) -> str:
    axes = evidence.axes if reading in ("as read", "inverse") else OTHER_AXES[evidence.axes]
    direction = "world-to-camera" if reading.startswith("inverse") else "camera-to-world"
    return f"{direction} with {'OpenCV' if axes == 'opencv' else 'OpenGL'} axes"


def _fix(evidence: Convention, reading: str) -> str:
    other = OTHER_AXES[evidence.axes]
    if reading == "other axes":
        return f"give --convention={other} (train: --config.scene.convention={other})"
    again = "" if reading == "inverse" else f" and give --convention={other}"
    return f"invert the matrices in the file{again}"


def _wrong(scene: Scene, evidence: Convention, reading: str, found: str) -> Finding:
    return Finding(
        "axes-wrong", "error", f"The poses are {_name(evidence, reading)}, not what the format means.",
        file=scene.source, found=found, expected=_name(evidence, "as read"), fix=_fix(evidence, reading),
    )  # fmt: skip
