"""What the doctor says: findings, how readers' errors and notes become findings, and how they are printed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nerfjax.errors import UserError
from nerfjax.scenes.doctor.codes import CODES, ERROR_CODES, NOTE_CODES

MAX_TEXT = 240
SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or worth knowing.

    Attributes:
      code: a key of ``CODES``.
      severity: "error" (training would fail or mislead), "warning" or "info".
      problem: one sentence.
      file: the file it was found in.
      field: the field, key or option inside it.
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
    field: str | None = None

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
    worded = next((name for pattern, name in ERROR_CODES if re.search(pattern, error.problem)), code)
    code = error.code or worded
    found = _text(error.found)
    if found is not None and len(found) > MAX_TEXT:
        found = found[:MAX_TEXT] + " …"
    if code == "size-mismatch" and is_swapped(str(error.found), str(error.expected)):
        code = "size-swapped"
    return Finding(
        code, "error", error.problem, _text(error.file), frame, found, _text(error.expected), _text(error.fix),
        _text(error.field),
    )  # fmt: skip


def finding_from_note(note: str) -> Finding:
    """Returns what a reader noted as a finding, by the words of the note."""
    for pattern, code, severity in NOTE_CODES:
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
    field = " ".join(filter(None, (first.frame, first.field))) or None
    more = f" (and {len(errors) - 1} more; nerfjax inspect {source} shows them)" if len(errors) > 1 else ""
    return UserError(
        f"{first.problem}{more}",
        file=first.file or source, field=field, found=first.found, expected=first.expected, fix=first.fix,
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
        for name in ("file", "field", "frame", "found", "expected", "fix"):
            value = getattr(finding, name)
            if value is not None:
                console.print(Text(f"        {name + ':':<10}{value}"), soft_wrap=True, highlight=False)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
