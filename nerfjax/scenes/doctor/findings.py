"""What the doctor says: findings with a code, and how readers' errors and notes become findings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nerfjax.errors import UserError

MAX_TEXT = 240
SEVERITIES = ("error", "warning", "info")

# Every code, and what it means. Codes are stable: scripts look for them.
CODES = {
    "unreadable": "the capture, or a part of it, cannot be read",
    "note": "what the reader wants to be known",
    # images
    "images-missing": "frames name images that do not exist; they are left out",
    "image-unreadable": "an image is truncated or no image",
    "image-blank": "an image shows nothing",
    "images-duplicated": "the same image occurs more than once in a split",
    "images-unregistered": "images that look like the others have no camera",
    "images-extra": "images of another kind lie among the capture's",
    "few-registered": "few of the images have cameras",
    "few-images": "there are too few images to train on",
    "size-mismatch": "an image has another shape than its camera",
    "size-swapped": "width and height are swapped",
    "sizes-mixed": "the images have several sizes",
    "blurred": "frames are less sharp than the rest",
    "exposure-jump": "frames are much brighter or darker than the rest",
    "exposure-varies": "brightness varies through the capture",
    "mask-size": "a mask has another size than its image",
    "file-missing": "a mask or another file beside the images is named and not there",
    "mask-all-black": "a mask leaves nothing of its image",
    "mask-all-white": "masks mask nothing",
    "masks-partial": "some frames have masks and others have none",
    # intrinsics
    "intrinsics-bad": "an intrinsic is missing, not a number, or impossible",
    "intrinsics-assumed": "intrinsics were assumed that the capture does not state",
    "principal-point": "the principal point is far from the middle of the image, or outside",
    "focal-implausible": "the field of view is implausible",
    "focal-aspect": "the two focal lengths differ much",
    "distortion-degenerate": "the lens distortion folds back inside the image",
    # poses
    "pose-not-finite": "a pose holds a number that is not finite",
    "pose-scaled": "a rotation is scaled",
    "pose-not-orthonormal": "a rotation is not orthonormal",
    "pose-left-handed": "a rotation is mirrored",
    "pose-bad": "a pose is no matrix of numbers",
    "pose-outlier": "cameras stand far from all others",
    "poses-duplicated": "several images have the same pose",
    "poses-identical": "all cameras stand at one point",
    "cameras-look-away": "some cameras look away from what the others look at",
    "poses-do-not-fit": "the images contradict the poses or the intrinsics",
    # convention
    "axes-wrong": "the poses follow another axis convention than the format's",
    "axes-suspect": "the poses may follow another axis convention than the format's",
    # points and bounds
    "points-behind": "sparse points are behind the cameras",
    "points-outside": "sparse points are outside the scene's bounds",
    "near-far": "near is not less than far, or not positive",
    "several-models": "the capture holds several reconstructions",
    # splits
    "split-leakage": "the same image is in two splits",
    "split-near-duplicates": "nearly the same image is in two splits",
    "splits-in-different-frames": "the splits' cameras live in different coordinate frames",
    "no-test-frames": "no frame is held out for testing",
}

# What readers say, by words that it has. The first that fits counts; a reader's own code goes before.
_ERROR_CODES = (
    (r"mask has another", "mask-size"),
    (r"another shape than its camera", "size-mismatch"),
    (r"image cannot be read", "image-unreadable"),
    (r"[Nn]one of the images|has an image here", "images-missing"),
    (r"file is missing that|mask is missing", "file-missing"),
    (r"at one point", "poses-identical"),
    (r"[Nn]o photo is registered", "few-registered"),
    (r"pose of |impossibly far", "pose-bad"),
    (
        r"intrinsic|focal|camera model|coefficient|field of view|lens of|[Tt]he size of|impossible size",
        "intrinsics-bad",
    ),
)
_NOTE_CODES = (
    (r"images are missing|have no image|cameras? .*missing", "images-missing", "warning"),
    (r"two splits", "split-leakage", "warning"),
    (r"times the usual distance", "pose-outlier", "warning"),
    (r"no calibration", "intrinsics-assumed", "warning"),
    (r"principal point", "principal-point", "warning"),
    (
        r"not registered|unregistered|have no (camera|pose)|have none of|belong to no frame",
        "images-unregistered",
        "info",
    ),
    (r"have masks", "note", "info"),
    (r"(several|two|\d+) (sparse )?(models|reconstructions)", "several-models", "warning"),
    (r"found by name|took|ignored|are not used|read as|were scaled", "note", "info"),
)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or worth knowing.

    Attributes:
      code: a key of ``CODES``.
      severity: "error" (training would fail or mislead), "warning" or "info".
      problem: one sentence.
      file: the file it was found in.
      frame: the frame's name; the first of several.
      found: what stands there.
      expected: what should stand there.
      fix: what to do, in the imperative.
    """

    code: str
    severity: str
    problem: str
    file: str | None = None
    frame: str | None = None
    found: str | None = None
    expected: str | None = None
    fix: str | None = None

    def __post_init__(self):
        if self.code not in CODES or self.severity not in SEVERITIES:
            raise ValueError(f"no such finding: {self.severity} {self.code}")

    def as_json(self) -> dict[str, Any]:
        """Returns a JSON-able dictionary."""
        return asdict(self)


def finding_from_error(error: UserError, *, code: str = "unreadable", frame: str | None = None) -> Finding:
    """Returns what a reader refused as a finding.

    Args:
      error: what the reader raised.
      code: where it has none, and its words tell none.
      frame: the frame at fault.
    """
    worded = next((name for pattern, name in _ERROR_CODES if re.search(pattern, error.problem)), code)
    code = error.code or worded
    found = " ".join(_text(part) for part in (error.field, error.found) if part is not None) or None
    if found is not None and len(found) > MAX_TEXT:
        found = found[:MAX_TEXT] + " …"
    if code == "size-mismatch" and is_swapped(str(error.found), str(error.expected)):
        code = "size-swapped"
    return Finding(
        code, "error", error.problem, _text(error.file), frame, found, _text(error.expected), _text(error.fix)
    )


def finding_from_note(note: str) -> Finding:
    """Returns what a reader noted as a finding, by the words of the note."""
    for pattern, code, severity in _NOTE_CODES:
        if re.search(pattern, note):
            return Finding(code, severity, note)
    return Finding("note", "warning", note)


def is_swapped(found: str, expected: str) -> bool:
    """Whether two texts name sizes (``640x480``) of which one is the other turned."""
    sizes = [re.search(r"([\d.]+)\s*x\s*([\d.]+)", text) for text in (found, expected)]
    if not all(sizes):
        return False
    (w, h), (a, b) = ([float(size[1]), float(size[2])] for size in sizes)
    return min(w, h, a, b) > 0 and abs(w * a / (h * b) - 1) < 0.01 and abs(w / h - 1) > 0.01


def arrange(findings: Iterable[Finding]) -> list[Finding]:
    """Returns the findings by severity, then by code, each once."""
    unique = list(dict.fromkeys(findings))
    order = {code: i for i, code in enumerate(CODES)}
    return sorted(unique, key=lambda finding: (SEVERITIES.index(finding.severity), order[finding.code]))


def count(findings: Sequence[Finding]) -> dict[str, int]:
    """Returns how many findings there are of each severity."""
    return {severity: sum(f.severity == severity for f in findings) for severity in SEVERITIES}


def error_from_findings(findings: Sequence[Finding], source: str | os.PathLike) -> UserError | None:
    """Returns the error to stop with, made of the findings that are errors; None where there is none."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if not errors:
        return None
    first = errors[0]
    more = f" (and {len(errors) - 1} more; nerfjax inspect {source} shows them)" if len(errors) > 1 else ""
    return UserError(
        f"{first.problem}{more}",
        file=first.file or source, field=first.frame, found=first.found, expected=first.expected, fix=first.fix,
    )  # fmt: skip


def print_findings(findings: Sequence[Finding], *, severities: Sequence[str] = SEVERITIES, console=None) -> None:
    """Prints findings for people.

    Args:
      findings: in any order.
      severities: which of them.
      console: a rich Console; by default one on standard error.
    """
    from rich.console import Console
    from rich.text import Text

    console = console or Console(stderr=True)
    styles = {"error": "bold red", "warning": "yellow", "info": "dim"}
    for finding in arrange(findings):
        if finding.severity not in severities:
            continue
        line = Text.assemble(
            (f"{finding.severity:<8}", styles[finding.severity]), finding.problem, (f"  [{finding.code}]", "dim")
        )
        console.print(line, soft_wrap=True, highlight=False)
        for name in ("file", "frame", "found", "expected", "fix"):
            value = getattr(finding, name)
            if value is not None:
                console.print(Text(f"        {name + ':':<10}{value}"), soft_wrap=True, highlight=False)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
