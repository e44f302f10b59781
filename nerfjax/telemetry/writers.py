"""Where reports go: ``RUN/metrics.jsonl``, TensorBoard events in ``RUN/tensorboard/``, and the terminal.

A writer is any object with ``write(report)`` for a flat dict with ``step``, and ``close()``; ``telemetry.loggers`` has
more of them. The report of an evaluation may hold pictures ([H, W, 3] uint8), which a writer of numbers leaves out
(``without_pictures``). On resume the record holds each step once: what an earlier process wrote after the restored step
is dropped.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from etils import epath

from nerfjax.errors import UserError
from nerfjax.quantities import format_count, format_seconds
from nerfjax.telemetry.tensorboard_events import TensorBoardWriter


@runtime_checkable
class Writer(Protocol):
    """Takes reports."""

    def write(self, report: Mapping[str, Any]) -> None:
        """Takes one report."""

    def close(self) -> None:
        """Writes out what is left."""


def without_pictures(report: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what of a report is no picture."""
    return {name: value for name, value in report.items() if not isinstance(value, np.ndarray)}


def open_writers(
    workdir: str | os.PathLike,
    *,
    total_steps: int,
    resume_step: int = 0,
    hparams: Mapping[str, Any] | None = None,
) -> tuple[Writer, ...]:
    """Returns the writers of a run on process 0 and none elsewhere.

    Args:
      workdir: the run folder.
      total_steps: steps of the whole run.
      resume_step: the step at which this process begins.
      hparams: flat configuration, for TensorBoard.

    Raises:
      UserError: the folder cannot be written.
    """
    if jax.process_index() != 0:
        return ()
    folder = epath.Path(workdir)
    try:
        return (
            JsonlWriter(folder / "metrics.jsonl", resume_step=resume_step),
            TensorBoardWriter(folder / "tensorboard", resume_step=resume_step, hparams=hparams),
            ProgressWriter(total_steps, initial_step=resume_step),
        )
    except OSError as error:
        raise UserError("the run folder cannot be written", file=folder, found=error, fix="choose another") from error


def json_line(report: Mapping[str, Any]) -> str:
    """Returns a report as one line of strict JSON; what is not finite becomes null."""
    plain = without_pictures(report)
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in plain.items()}
    return json.dumps(finite, allow_nan=False) + "\n"


class JsonlWriter:
    """Appends one line per report, each in one write, so that a reader or a kill never meets half a line.

    Args:
      path: the file, local or ``gs://``.
      resume_step: lines of later steps are dropped first, and so are broken ones.
    """

    def __init__(self, path: str | os.PathLike, *, resume_step: int = 0):
        self._path = epath.Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        found = self._path.read_text().splitlines(keepends=True) if self._path.exists() else []
        kept = [line for line in found if _belongs(line, resume_step)]
        if kept != found:
            _replace_text(self._path, "".join(kept))
        # Object stores can't append: there the whole record, which is small, is written anew each time.
        self._lines = kept if "://" in str(self._path) else None
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = None if self._lines is not None else os.open(self._path, flags, 0o644)

    def write(self, report: Mapping[str, Any]) -> None:
        """Appends one line."""
        line = json_line(report)
        if self._file is not None:
            os.write(self._file, line.encode())
        elif self._lines is not None:
            self._lines.append(line)
            _replace_text(self._path, "".join(self._lines))

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _belongs(line: str, resume_step: int) -> bool:
    try:
        row = json.loads(line)
    except ValueError:
        return False
    if not line.endswith("\n") or not isinstance(row, dict):
        return False
    step = row.get("step", 0)
    return isinstance(step, (int, float)) and step <= resume_step


def _replace_text(path: epath.Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)


class ProgressWriter:
    """A live line on a terminal; elsewhere one plain line per report. Goes to standard error.

    Args:
      total_steps: steps of the whole run.
      initial_step: the step at which this process begins.
      console: a ``rich.console.Console``; it leaves out colours where NO_COLOR is set.
    """

    def __init__(self, total_steps: int, *, initial_step: int = 0, console: Any = None):
        from rich.console import Console

        self._console = console or Console(stderr=True)
        self._total, self._display, self._task = total_steps, None, None
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._begin(initial_step)

    def _begin(self, step: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.table import Column

        # On a narrow terminal the end of the summary is cut, never the count.
        count = Column(no_wrap=True, min_width=2 * len(str(self._total)) + 1)
        columns = [MofNCompleteColumn(table_column=count)]
        if self._console.width >= 110:
            columns.append(BarColumn(bar_width=16))
        columns.append(TextColumn("{task.fields[summary]}", table_column=Column(no_wrap=True, overflow="ellipsis")))
        self._display = Progress(*columns, console=self._console, refresh_per_second=4)
        self._task = self._display.add_task("train", total=self._total, completed=step, summary="compiling …")
        self._display.start()

    def write(self, report: Mapping[str, Any]) -> None:
        """Shows a report."""
        line = summary_line(report)
        if self._display is None:
            self._print(f"step {report['step']}/{self._total}  {line}")
        elif "loss" in report:
            self._display.update(self._task, completed=report["step"], summary=line)
        else:
            self._print(f"step {report['step']}  {line}")

    def note(self, text: str) -> None:
        """Shows a message above the live line."""
        self._print(text)

    def close(self) -> None:
        """Ends the live line, which stays in view."""
        if self._display is not None:
            self._display.stop()
            self._display = None

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


_SHOWN = {
    "eta_seconds": lambda v: f"eta {format_seconds(v)}",
    "loss": lambda v: f"loss {v:.5f}",
    "psnr": lambda v: f"psnr {v:.2f}",
    "rays_per_second": lambda v: f"{format_count(v)} rays/s",
    "samples_per_ray": lambda v: f"{v:.1f} samples/ray",
    "data_wait": lambda v: f"data wait {v:.0%}",
}


def summary_line(report: Mapping[str, Any]) -> str:
    """Returns the numbers of a report that a person watches; all of them where it has none of the usual ones."""
    shown = [text(report[name]) for name, text in _SHOWN.items() if report.get(name) is not None]
    if "compile_seconds" in report:
        shown.append(f"compiled in {format_seconds(report['compile_seconds'])}")
    plain = without_pictures(report)
    others = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in plain.items() if k != "step")
    return "  ".join(shown or others)
