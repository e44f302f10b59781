"""When a capture cannot be read: what else is wrong with it, and the part of it that can be read.

For transforms.json and Blender captures every frame is tried on its own, so that all bad frames are named at once and
the good ones are examined. For other formats the images are opened, so that all unreadable ones are named.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from nerfjax.errors import UserError
from nerfjax.scenes.assemble import assemble, capture_name
from nerfjax.scenes.base import SPLITS, Scene, holdout_splits, shorten
from nerfjax.scenes.capture import Capture, RawFrame
from nerfjax.scenes.doctor.findings import Finding, finding_from_error
from nerfjax.scenes.image_files import ImageFiles, normal_path
from nerfjax.scenes.images import open_image
from nerfjax.scenes.json_frames import frames_of, load_json
from nerfjax.scenes.transforms_json import raw_frame

MAX_FRAMES = 5  # findings of one kind; the others are counted


def salvage(source: str, error: UserError, options: dict[str, Any]) -> tuple[Scene | None, list[Finding]]:
    """Finds out more about a capture that a reader refused.

    Args:
      source: as given.
      error: what the reader said.
      options: of ``read_scene``.

    Returns:
      The scene of what can be read, or None; and findings, of which at least one is an error.
    """
    path, first = Path(source), finding_from_error(error)
    if not path.exists() or first.code in ("option-wrong", "not-recognised"):
        return None, [first]
    files = [path] if path.is_file() else [p for name in _names() if (p := path / name).is_file()]
    files = [file for file in files if file.suffix.lower() == ".json"]
    if options.get("format", "auto") not in ("auto", "blender", "transforms_json") or not files:
        return None, _once([first, *_unreadable_images(path)])
    axes = options.get("convention", "auto")
    axes = "opengl" if axes == "auto" else axes
    frames: list[RawFrame] = []
    findings: list[Finding] = []
    for file in files:
        more, wrong = _salvage_json(file, axes)
        frames, findings = [*frames, *more], [*findings, *wrong]
    findings = _once(findings or [first])
    if not any(finding.severity == "error" for finding in findings):
        findings = [first, *findings]
    if not any(frame.split == "train" for frame in frames):
        return None, findings
    folder = path if path.is_dir() else path.parent
    provenance = {"axes": axes, "salvaged": True}
    kind = "transforms_json" if len(files) == 1 and files[0].stem == "transforms" else "blender"
    capture = Capture(capture_name(folder), kind, source, tuple(frames), (), provenance)
    try:
        return assemble(capture), findings
    except UserError as refused:
        return None, _once([*findings, finding_from_error(refused)])


def _names() -> list[str]:
    return ["transforms.json", *(f"transforms_{split}.json" for split in SPLITS)]


def _salvage_json(path: Path, axes: str) -> tuple[list[RawFrame], list[Finding]]:
    """The readable frames of a file, and what is wrong with the others."""
    try:
        content = load_json(path)
        entries = content.get("frames")
        if not isinstance(entries, list) or not entries:
            frames_of(content, path)
    except UserError as error:
        return [], [finding_from_error(error)]
    files, found, missing, findings = ImageFiles(path.parent), [], [], []
    for index, entry in enumerate(entries):
        name = f"frames[{index}]"
        try:
            frames_of({**content, "frames": [entry]}, path)
            name = normal_path(entry["file_path"])
            image = files.exact(name) or files.elsewhere(name, set())
            if image is None:
                missing.append(name)
            else:
                found.append(raw_frame(entry, content, image, "train", path, axes=axes))
        except UserError as error:
            findings.append(finding_from_error(error, frame=name))
    if missing:
        findings.append(
            Finding(
                "images-missing",
                "error" if not found else "warning",
                f"{len(missing)} of {len(entries)} images are missing.",
                str(path),
                missing[0],
                shorten(missing),
                expected="the files beside the cameras",
                fix="bring the images, or remove the frames",
            )  # fmt: skip
        )
    split = next((split for split in SPLITS if path.stem.endswith(split)), None)
    splits = [split] * len(found) if split else holdout_splits([frame.name for frame in found], 8)
    return [replace(frame, split=split) for frame, split in zip(found, splits, strict=True)], findings


def _unreadable_images(path: Path) -> list[Finding]:
    folder = path if path.is_dir() else path.parent
    findings = []
    for image in (p for paths in ImageFiles(folder).listing.values() for p in paths):
        try:
            open_image(image)
        except UserError as error:
            name = image.relative_to(folder).as_posix()
            findings.append(finding_from_error(error, code="image-unreadable", frame=name))
    return findings


def _once(findings: list[Finding]) -> list[Finding]:
    """The first ``MAX_FRAMES`` findings of a code, and one that counts the others; no file is complained of twice."""
    groups: dict[str, dict[tuple, Finding]] = {}
    for finding in findings:
        key = (finding.file, finding.found) if finding.code == "image-unreadable" else (finding,)
        groups.setdefault(finding.code, {}).setdefault(key, finding)
    kept = []
    for code, group in groups.items():
        first, others = list(group.values())[:MAX_FRAMES], list(group.values())[MAX_FRAMES:]
        kept += first
        if others:
            names = [finding.frame for finding in others if finding.frame is not None]
            problem = f"{len(others)} more frames have a fault of this kind."
            kept.append(Finding(code, first[0].severity, problem, first[0].file, found=shorten(names) or None))
    return kept
