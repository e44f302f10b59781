"""Checks of the image files, their sharpness and exposure, and the masks."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nerfjax.scenes.base import Frame, Scene, shorten
from nerfjax.scenes.doctor.findings import Finding
from nerfjax.scenes.doctor.measure import FrameMeasure
from nerfjax.scenes.folders import images_in

EXPOSURE_SPREAD = 1.8  # stops
FEW = 0.5  # share of registered images below which there is a warning
_SIDE_IMAGE = re.compile(r"(depth|normal|disp|albedo|mask|acc|segmentation|semantic)", re.IGNORECASE)


class Unused(NamedTuple):
    """Image files beside the capture's that no frame uses: those named alike, and others."""

    unregistered: tuple[str, ...]
    extra: tuple[str, ...]


def find_unused(scene: Scene) -> Unused:
    """Lists the image files in the capture's image folders that no frame uses."""
    references = [frame.image for frame in scene.frames]
    references += [r for f in scene.frames for r in (f.mask, f.depth) if r is not None]
    used = {r.path.resolve() for r in references if r.path is not None}
    images = [frame.image.path for frame in scene.frames if frame.image.path is not None]
    kinds = Counter(_kind(path) for path in images)
    free_names = len(kinds) > 0.5 * len(images)
    unregistered, extra = [], []
    for folder in sorted({path.parent for path in images}):
        for path in images_in(folder):
            if path.resolve() in used or _SIDE_IMAGE.search(path.stem):
                continue
            alike = _kind(path) in kinds or (free_names and path.suffix.lower() in {p.suffix.lower() for p in images})
            (unregistered if alike else extra).append(f"{folder.name}/{path.name}")
    return Unused(tuple(unregistered), tuple(extra))


def _kind(path: Path) -> str:
    return re.sub(r"\d+", "#", path.stem.lower()) + path.suffix.lower()


def check_files(scene: Scene, unused: Unused) -> list[Finding]:
    """Unregistered, extra, duplicated and too few images; mixed sizes."""
    findings = []
    count, listed = len(scene.frames), len(scene.frames) + len(unused.unregistered)
    if count < FEW * listed:
        findings.append(
            Finding(
                "few-registered",
                "warning",
                f"Only {count} of {listed} images have cameras.",
                file=scene.source,
                found=f"without: {shorten(unused.unregistered)}",
                expected="most of them",
                fix="take more overlapping photos, or match exhaustively, and reconstruct again",
            )  # fmt: skip
        )
    elif unused.unregistered:
        findings.append(
            Finding(
                "images-unregistered",
                "info",
                f"{len(unused.unregistered)} of {listed} images have no camera.",
                file=scene.source,
                found=shorten(unused.unregistered),
            )  # fmt: skip
        )
    if unused.extra:
        findings.append(
            Finding(
                "images-extra",
                "info",
                f"{len(unused.extra)} other images lie among the capture's.",
                file=scene.source,
                found=shorten(unused.extra),
            )  # fmt: skip
        )
    for frame, others in _duplicates(scene).items():
        findings.append(
            Finding(
                "images-duplicated",
                "warning",
                "An image occurs more than once.",
                frame=frame,
                file=scene.source,
                found=f"the same bytes: {shorten([frame, *others])}",
                fix="keep one of them",
            )  # fmt: skip
        )
    train = len(scene.indices("train"))
    if train < 3:
        findings.append(
            Finding(
                "few-images",
                "warning",
                "There are too few training images for a geometry.",
                file=scene.source,
                found=str(train),
                expected="20 or more; 3 at the very least",
            )  # fmt: skip
        )
    sizes = Counter(frame.image.size for frame in scene.frames)
    if len(sizes) > 1:
        text = ", ".join(f"{n} of {w}x{h}" for (w, h), n in sizes.most_common(4))
        found = text + (f" and {len(sizes) - 4} more sizes" if len(sizes) > 4 else "")
        findings.append(Finding("sizes-mixed", "info", "The images have several sizes.", scene.source, found=found))
    return findings


def _duplicates(scene: Scene) -> dict[str, list[str]]:
    """Frames whose file has the same bytes as another one's of the same split."""
    by_size = defaultdict(list)
    for frame in scene.frames:
        if frame.image.path is not None and frame.image.path.is_file():
            by_size[frame.split, frame.image.path.stat().st_size].append(frame)
    same: dict[bytes, list[Frame]] = defaultdict(list)
    for (split, _), group in by_size.items():
        for frame in group if len(group) > 1 else ():
            same[split.encode() + frame.image.digest()].append(frame)
    return {group[0].name: [frame.name for frame in group[1:]] for group in same.values() if len(group) > 1}


def check_looks(scene: Scene, measures: Mapping[int, FrameMeasure]) -> list[Finding]:
    """Images that cannot be read or are blank, blurred, or exposed unlike the others."""
    findings = [m.error for m in measures.values() if m.error is not None]
    rows = [row for row, m in measures.items() if m.error is None]
    blank = [row for row in rows if measures[row].deviation < 0.01 or measures[row].opaque < 1e-3]
    findings += _named(
        scene, blank, "image-blank", "{n} images show nothing (one colour, or all transparent).",
        lambda row: f"brightness varies by {measures[row].deviation:.1%}", "remove them",
    )  # fmt: skip
    rows = [row for row in rows if row not in blank]
    by_camera = defaultdict(list)
    for row in rows:
        by_camera[scene.frames[row].image.size].append(row)
    blurred = [row for group in by_camera.values() for row in _blurred(group, measures)]
    middle = float(np.median([measures[row].sharpness for row in rows])) if rows else 0.0
    findings += _named(
        scene, blurred, "blurred", "{n} frames are blurred.",
        lambda row: f"variance of the Laplacian {measures[row].sharpness:.3g}, median {middle:.3g}",
        "leave them out, if the others cover the same views",
    )  # fmt: skip
    exposure = np.array([measures[row].exposure for row in rows])
    if len(rows) >= 5:
        offset = exposure - np.median(exposure)
        spread = 1.4826 * float(np.median(np.abs(offset)))
        odd = [row for row, value in zip(rows, offset, strict=True) if abs(value) > max(1.2, 5 * spread)]
        findings += _named(
            scene, odd, "exposure-jump", "{n} frames are exposed unlike the rest.",
            lambda row: f"{measures[row].exposure - np.median(exposure):+.1f} stops from the median",
            "leave them out, or train with per-image embeddings",
        )  # fmt: skip
        low, high = np.quantile(exposure, [0.1, 0.9])
        if high - low > EXPOSURE_SPREAD and scene.background is None:
            findings.append(
                Finding(
                    "exposure-varies",
                    "warning",
                    "Brightness varies much through the capture.",
                    file=scene.source,
                    found=f"{high - low:.1f} stops between the darkest and the brightest tenth",
                    expected=f"less than {EXPOSURE_SPREAD:g}",
                    fix="lock the exposure, or train with per-image embeddings",
                )  # fmt: skip
            )
    return findings


def _blurred(rows: list[int], measures: Mapping[int, FrameMeasure]) -> list[int]:
    """Rows that are outliers to below in both the Laplacian's variance and its share of the contrast."""
    if len(rows) < 5:
        return []
    low = np.ones(len(rows), bool)
    for name in ("sharpness", "detail"):
        values = np.log(np.maximum([getattr(measures[row], name) for row in rows], 1e-9))
        offset = values - np.median(values)
        low &= offset < -max(np.log(4.0), 3.5 * 1.4826 * float(np.median(np.abs(offset))))
    return [row for row, is_low in zip(rows, low, strict=True) if is_low]


def check_masks(scene: Scene, measures: Mapping[int, FrameMeasure]) -> list[Finding]:
    """Masks that are missing, of another size, all black or all white."""
    findings = [m.mask_error for m in measures.values() if m.mask_error is not None]
    masked = [row for row, m in measures.items() if m.mask is not None]
    stored = {row: _stored_size(scene.frames[row]) for row in masked}
    other = [row for row in masked if stored[row] is not None and measures[row].mask_size != stored[row]]
    turned = [row for row in other if _aspects_differ(measures[row].mask_size, stored[row])]
    for rows, severity in ((turned, "error"), ([row for row in other if row not in turned], "warning")):
        findings += _named(
            scene, rows, "mask-size", "{n} masks have another size than their images.",
            lambda row: f"{_text(measures[row].mask_size)} for an image of {_text(stored[row])}",
            "make the masks anew from these images", severity,
        )  # fmt: skip
    black = [row for row in masked if measures[row].mask < 1e-4]
    everything = len(black) == len(scene.frames)
    findings += _named(
        scene, black, "mask-all-black", "{n} masks are black: nothing of their images is used.",
        lambda row: f"{measures[row].mask:.2%} of the pixels are valid",
        "white is what counts, black what is ignored: invert the masks, or remove these frames",
        "error" if everything else "warning",
    )  # fmt: skip
    white = [row for row in masked if measures[row].mask > 1 - 1e-6]
    if len(white) > 1 and len(white) == len(masked):
        findings += _named(
            scene, white, "mask-all-white", "All {n} masks are white: they mask nothing.", None,
            "if they mark what to ignore, they are the wrong way round", "warning",
        )  # fmt: skip
    have = sum(frame.mask is not None for frame in scene.frames)
    if 0 < have < len(scene.frames):
        without = [frame.name for frame in scene.frames if frame.mask is None]
        problem = f"{len(without)} of {len(scene.frames)} frames have no mask: all their pixels count."
        findings.append(Finding("masks-partial", "info", problem, scene.source, without[0], shorten(without)))
    return findings


def _stored_size(frame: Frame) -> tuple[int, int] | None:
    """The size of the image's file, whatever the scene's downscale."""
    if frame.image.path is None:
        return None
    from nerfjax.scenes.images import open_image

    width, height = open_image(frame.image.path).size
    return (height, width) if frame.image.upright else (width, height)


def _text(size: tuple[int, int] | None) -> str:
    return "" if size is None else f"{size[0]}x{size[1]}"


def _aspects_differ(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return abs(first[0] * second[1] / (first[1] * second[0]) - 1) > 0.02


def _named(scene, rows, code, problem, found, fix, severity="warning") -> list[Finding]:
    """One finding for all rows of a kind; ``found(row)`` describes the first."""
    if not rows:
        return []
    names = [scene.frames[row].name for row in rows]
    text = found(rows[0]) if found is not None else ""
    text = f"{text} ({shorten(names)})" if text else shorten(names)
    problem = problem.format(n=len(rows))
    for plural, singular in ((" frames are", " frame is"), (" images show", " image shows"), (" masks are", " mask is"),
                             (" masks have", " mask has")):  # fmt: skip
        problem = problem.replace(f"1{plural}", f"1{singular}") if len(rows) == 1 else problem
    return [Finding(code, severity, problem, scene.source, names[0], text, fix=fix)]
