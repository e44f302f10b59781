"""All checks in order, on a scene or on a source that may not even be readable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.base import SPLITS, Scene
from nerfjax.scenes.doctor.convention import Convention, capture_poses, pairs_to_match, weigh
from nerfjax.scenes.doctor.convention import findings as convention_findings
from nerfjax.scenes.doctor.findings import Finding, arrange, count, finding_from_note
from nerfjax.scenes.doctor.images import Unused, check_files, check_looks, check_masks, find_unused
from nerfjax.scenes.doctor.intrinsics import check_intrinsics
from nerfjax.scenes.doctor.matching import Features
from nerfjax.scenes.doctor.measure import FrameMeasure, in_parallel, matchable, measure_frames
from nerfjax.scenes.doctor.points import check_bounds, check_models, check_reprojection
from nerfjax.scenes.doctor.poses import Coverage, check_placement, check_rotations, coverage
from nerfjax.scenes.doctor.salvage import salvage
from nerfjax.scenes.doctor.splits import check_frames_agree, check_held_out, check_leakage

PAIRS, QUICK_PAIRS = 12, 6
QUICK_IMAGES = 48
_KEPT_NOTES = ("note", "images-missing")


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor found.

    Attributes:
      source: what the user gave.
      findings: by severity.
      scene: None where the capture cannot be read.
      format: name of the reader; None where none recognises the source.
      reason: why its format is what it is.
      measures: what images show, by row.
      convention: what speaks for the axis convention.
      coverage: how cameras are placed.
      unused: image files without a frame.
    """

    source: str
    findings: list[Finding]
    scene: Scene | None = None
    format: str | None = None
    reason: str | None = None
    measures: dict[int, FrameMeasure] = field(default_factory=dict)
    convention: Convention | None = None
    coverage: Coverage | None = None
    unused: Unused = Unused((), ())

    @property
    def registered(self) -> float | None:
        """Share of the images that have a camera."""
        if self.scene is None:
            return None
        return len(self.scene.frames) / (len(self.scene.frames) + len(self.unused.unregistered))

    def as_json(self) -> dict[str, Any]:
        """Returns the document that ``nerfjax inspect --json`` prints (schemas/inspect.schema.json)."""
        return {
            "source": self.source,
            "format": self.format,
            "reason": self.reason,
            "readable": self.scene is not None,
            "counts": count(self.findings),
            "findings": [finding.as_json() for finding in self.findings],
            "scene": None if self.scene is None else self._scene_json(self.scene),
        }

    def _scene_json(self, scene: Scene) -> dict[str, Any]:
        sizes: dict[tuple[int, int], int] = {}
        for frame in scene.frames:
            sizes[frame.image.size] = sizes.get(frame.image.size, 0) + 1
        points = scene.points
        return {
            "name": scene.name,
            "images": len(scene.frames),
            "splits": {split: len(scene.indices(split)) for split in SPLITS},
            "sizes": [{"width": w, "height": h, "images": n} for (w, h), n in sizes.items()],
            "camera_models": list(scene.cameras.models),
            "near": float(scene.geometry.near),
            "far": float(scene.geometry.far),
            "box": np.asarray(scene.geometry.box, np.float64).round(5).tolist(),
            "bounded": bool(scene.geometry.bounded),
            "background": scene.background,
            "points": None if points is None else len(points),
            "registered": None if self.registered is None else round(self.registered, 4),
            "coverage": None if self.coverage is None else self.coverage.as_json(),
            "convention": None if self.convention is None else self.convention.as_json(),
            "frames": [self._frame_json(scene, row) for row in range(len(scene.frames))],
        }

    def _frame_json(self, scene: Scene, row: int) -> dict[str, Any]:
        frame, measured = scene.frames[row], self.measures.get(row)
        usable = measured is not None and measured.error is None
        return {
            "name": frame.name,
            "split": frame.split,
            "size": list(frame.image.size),
            "position": np.asarray(scene.cameras.pose[row, :, 3], np.float64).round(5).tolist(),
            "sharpness": round(measured.sharpness, 3) if usable else None,
            "exposure": round(measured.exposure, 3) if usable else None,
            "valid": round(measured.mask, 4) if usable and measured.mask is not None else None,
        }


def examine(scene: Scene, *, quick: bool = False) -> list[Finding]:
    """Returns what is wrong with a scene, or worth knowing.

    Args:
      scene: as read.
      quick: looks at a few dozen images only, and matches features only where nothing else tells the convention.
    """
    return diagnose(scene, quick=quick).findings


def inspect_source(source: str, *, progress: bool = False, **options) -> Diagnosis:
    """Reads a capture and examines it; what the reader refuses becomes findings, and the rest is examined still.

    Args:
      source: as for ``read_scene``.
      progress: whether bars are shown on a terminal.
      **options: of ``read_scene``: format, convention, holdout.
    """
    from nerfjax.scenes import READERS, read_scene

    source = str(source)
    format = str(options.get("format", "auto"))
    asked = READERS.items() if format == "auto" else [(format, READERS[format])] if format in READERS else []
    format, reason = next(((name, why) for name, reader in asked if (why := _why(reader, source))), (None, None))
    try:
        scene, refused = read_scene(source, **options), []
    except UserError as error:
        scene, refused = salvage(source, error, options)
        if scene is None:
            return Diagnosis(source, arrange(refused), None, format, reason)
    if format == "prepared":
        reason = f"{reason}, made from a capture of the format {scene.format}"
    return diagnose(scene, progress=progress, format=format or scene.format, reason=reason, refused=refused)


def diagnose(
    scene: Scene, *, quick: bool = False, progress: bool = False, format: str | None = None, reason: str | None = None,
    refused: Sequence[Finding] = (),
) -> Diagnosis:  # fmt: skip
    """Runs all checks.

    Args:
      scene: as read.
      quick: see ``examine``.
      progress: whether bars are shown on a terminal.
      format: name of the reader; by default the scene's.
      reason: why the format is what it is.
      refused: what reading has found already.
    """
    points = scene.points
    rotations = check_rotations(scene)
    findings = [*refused, *rotations, *check_intrinsics(scene), *check_models(scene.source)]
    findings += check_reprojection(scene)
    # The images of refused frames would count as unregistered.
    unused = Unused((), ()) if refused else find_unused(scene)
    findings += check_files(scene, unused)
    measures = measure_frames(
        scene, limit=QUICK_IMAGES if quick else None, procedural=not quick, progress=progress
    )  # fmt: skip
    findings += [*check_looks(scene, measures), *check_masks(scene, measures), *check_leakage(scene, measures)]
    evidence, cover = None, None
    if not rotations:
        placement = check_placement(scene, measures)
        findings += [*placement, *check_bounds(scene, points)]
        if not any(finding.code == "poses-identical" for finding in placement):
            evidence, more = _check_convention(scene, points, measures, quick=quick, progress=progress)
            findings += more
            cover = coverage(scene)
    findings += check_held_out(scene)
    own = {finding.code for finding in findings}
    own |= {"images-unregistered"} if own & {"images-extra", "few-registered"} else set()
    notes = [finding_from_note(note) for note in scene.notes]
    findings += [note for note in notes if note.code in _KEPT_NOTES or note.code not in own]
    format = format or scene.format
    return Diagnosis(scene.source, arrange(findings), scene, format, reason, measures, evidence, cover, unused)


def _check_convention(scene, points, measures, *, quick: bool, progress: bool) -> tuple[Convention, list[Finding]]:
    known = FeatureCache(scene)
    evidence = weigh(scene, points=points, features_of=None, pairs=0)
    look = evidence.look
    plain = look is not None and look.converges and look.ahead > 0.75
    files = all(frame.image.path is not None for frame in scene.frames)
    matching = (not plain and files) if quick else True
    if matching:
        pairs = QUICK_PAIRS if quick else PAIRS
        chosen = pairs_to_match(capture_poses(scene), pairs)[:pairs]
        known.prepare({row for pair in chosen for row in pair}, progress=progress)
        evidence = weigh(scene, points=points, features_of=known, pairs=pairs)
    found = convention_findings(scene, evidence)
    if not any(finding.code == "axes-wrong" for finding in found):
        # Other formats state all their poses in one file, and the splits are made of them.
        by_matches = not quick and scene.format == "blender"
        found += check_frames_agree(scene, known if by_matches else None, measures)
    return evidence, found


class FeatureCache:
    """Features of a scene's images, each found once; an image that cannot be read has none."""

    def __init__(self, scene: Scene):
        self._scene = scene
        self._known: dict[int, tuple[Features, np.ndarray]] = {}

    def prepare(self, rows: Iterable[int], *, progress: bool = False) -> None:
        """Finds the features of several images in parallel."""
        rows = sorted(set(rows) - set(self._known))
        found = in_parallel(self._find, rows, label="matching views", progress=progress)
        self._known.update(zip(rows, found, strict=True))

    def __call__(self, row: int) -> tuple[Features, np.ndarray]:
        """Returns the features of a row and how many of its pixels make one of theirs."""
        if row not in self._known:
            self._known[row] = self._find(row)
        return self._known[row]

    def _find(self, row: int) -> tuple[Features, np.ndarray]:
        try:
            return matchable(self._scene.frames[row].image)
        except UserError:
            return Features(np.zeros((0, 2)), np.zeros((0, 64), np.float32)), np.ones(2)


def _why(reader, source: str) -> str | None:
    try:
        return reader.sniff(source)
    except (UserError, OSError):
        return None
