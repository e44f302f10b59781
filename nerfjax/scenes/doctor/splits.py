"""Checks of the splits: leakage between them, and whether their cameras live in one coordinate frame."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np

from nerfjax.scenes.base import SPLITS, Scene, shorten
from nerfjax.scenes.doctor.convention import WELL, capture_poses, check_pair, choose_pairs, look_of
from nerfjax.scenes.doctor.findings import Finding
from nerfjax.scenes.doctor.matching import Features
from nerfjax.scenes.doctor.measure import FrameMeasure

NEARLY = 0.006  # mean difference of thumbnails, in standard deviations, below which images count as the same


def check_leakage(scene: Scene, measures: Mapping[int, FrameMeasure]) -> list[Finding]:
    """The same or nearly the same image in two splits."""
    by_length = defaultdict(list)
    for row, frame in enumerate(scene.frames):
        if frame.image.path is not None and frame.image.path.is_file():
            by_length[frame.image.path.stat().st_size].append(row)
    pairs: dict[tuple[int, int], None] = {}
    for rows in by_length.values():
        if len({scene.frames[row].split for row in rows}) < 2:
            continue
        seen: dict[bytes, int] = {}
        for row in rows:
            other = seen.setdefault(scene.frames[row].image.digest(), row)
            if scene.frames[other].split != scene.frames[row].split:
                pairs[other, row] = None
    findings = _leak(scene, list(pairs), "split-leakage", "images occur in two splits: test scores will flatter.")
    if findings:
        return findings
    return _leak(
        scene, _nearly_equal(scene, measures), "split-near-duplicates", "images are nearly equal in two splits."
    )


def _leak(scene: Scene, pairs: list[tuple[int, int]], code: str, text: str) -> list[Finding]:
    if not pairs:
        return []
    names = [f"{scene.frames[a].name} = {scene.frames[b].name}" for a, b in pairs]
    return [
        Finding(
            code,
            "warning",
            f"{len(pairs)} {text}",
            scene.source,
            scene.frames[pairs[0][1]].name,
            shorten(names, 3),
            "disjoint splits",
            "remove the copies from one split",
        )  # fmt: skip
    ]


def _nearly_equal(scene: Scene, measures: Mapping[int, FrameMeasure]) -> list[tuple[int, int]]:
    rows = [row for row, m in measures.items() if m.tiny is not None and m.deviation > 0.02]
    train = [row for row in rows if scene.frames[row].split == "train"]
    held = [row for row in rows if scene.frames[row].split != "train"]
    if not train or not held:
        return []
    known = np.stack([measures[row].tiny.ravel() for row in train])
    pairs = []
    for row in held:
        difference = np.abs(known - measures[row].tiny.ravel()).mean(axis=1) / measures[row].deviation
        best = int(np.argmin(difference))
        # Where many are that near, the views just differ little.
        if difference[best] < NEARLY and np.sum(difference < 4 * NEARLY) == 1:
            pairs.append((train[best], row))
    return pairs


def check_held_out(scene: Scene) -> list[Finding]:
    """Whether there is anything to evaluate."""
    if scene.indices("test"):
        return []
    return [
        Finding(
            "no-test-frames", "info", "No frame is held out for testing: there will be nothing to evaluate.",
            file=scene.source, found=f"{len(scene.indices('train'))} train, {len(scene.indices('val'))} val, 0 test",
            expected="test frames", fix=how_to_hold_out(scene),
        )
    ]  # fmt: skip


def how_to_hold_out(scene: Scene) -> str:
    """Returns in words how a capture gets test frames."""
    if scene.format == "blender":
        own = "list test frames in transforms_test.json"
    elif scene.format == "analytic":
        own = "give analytic:NAME?test=8"
    else:
        own = "hold out every 8th frame with --config.scene.holdout=8, unless the capture's own files name the splits"
    return f"{own}; or evaluate the val frames: nerfjax eval RUN --split=val" if scene.indices("val") else own


def check_frames_agree(
    scene: Scene,
    features_of: Callable[[int], tuple[Features, np.ndarray]] | None,
    measures: Mapping[int, FrameMeasure],
    *,
    pairs: int = 6,
) -> list[Finding]:
    """Whether the splits were solved in one coordinate frame: by what they look at, else by matches across them."""
    findings = []
    poses = capture_poses(scene)
    train = np.array(scene.indices("train"))
    home = look_of(poses[train]) if len(train) else None
    for split in SPLITS[1:]:
        rows = np.array(scene.indices(split), np.int64)
        if len(rows) < 2:
            continue
        away = look_of(poses[rows])
        text = None
        if home is not None and away is not None and home.miss < 0.02 and away.miss < 0.02:
            shift = float(np.linalg.norm(home.center - away.center)) / home.radius
            ratio = away.radius / home.radius
            if shift > 0.1 or not 0.4 < ratio < 2.5:
                text = f"they look at points {shift:.2f} camera distances apart, from {ratio:.2f} times as far"
        elif features_of is not None:
            alike = _alike_pairs(measures, rows, train, pairs)
            text = _compare_matches(scene, poses, train, rows, features_of, alike, pairs)
        if text is not None:
            findings.append(
                Finding(
                    "splits-in-different-frames",
                    "error",
                    f"The cameras of train and {split} live in different coordinate frames.",
                    file=scene.source,
                    frame=scene.frames[rows[0]].name,
                    found=text,
                    expected="one frame for all splits",
                    fix="solve all images together, or apply one transform to all splits",
                )  # fmt: skip
            )
    return findings


def _compare_matches(scene, poses, train, rows, features_of, alike, pairs) -> str | None:
    """What matches say: within the training views the poses fit, across the splits they do not."""
    within = _median_residual(scene, poses, choose_pairs(poses, 2 * pairs, train, train), features_of)
    across = _median_residual(scene, poses, {*choose_pairs(poses, pairs, rows, train), *alike}, features_of)
    limit = WELL * float(np.median(np.asarray(scene.cameras.size).max(axis=-1)))
    if within is None or across is None or within > limit or across < max(limit, 4 * within):
        return None
    return f"median epipolar residual {across:.1f} px across the splits, {within:.1f} px within train"


def _alike_pairs(measures, rows, train, count: int) -> list[tuple[int, int]]:
    """Pairs across the splits whose images look alike: neighbours, whatever their poses say."""
    rows, train = ([int(r) for r in part if r in measures and measures[r].tiny is not None] for part in (rows, train))
    if not rows or not train:
        return []

    def normal(row: int) -> np.ndarray:
        values = measures[row].tiny.ravel() - measures[row].tiny.mean()
        return values / max(float(np.linalg.norm(values)), 1e-6)

    known = np.stack([normal(row) for row in train])
    chosen = [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, count).round().astype(int))]
    return [tuple(sorted((row, train[int(np.argmax(known @ normal(row)))]))) for row in chosen]


def _median_residual(scene, poses, chosen, features_of) -> float | None:
    residuals = []
    for first, second in chosen:
        a, b = features_of(first), features_of(second)
        check = check_pair(scene, {"as read": poses}, first, second, (a[0], b[0]), (a[1], b[1]))
        residuals += [check.residuals["as read"]] if check is not None else []
    return float(np.median(residuals)) if len(residuals) >= 2 else None
