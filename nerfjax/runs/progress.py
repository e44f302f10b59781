"""Where a run stands, from its folder alone: it may be running, finished, stopped, or moved to another place."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import platform
import re
import time
from typing import Any, NamedTuple

import psutil

from nerfjax.runs.manifest import read_manifest

# What a run without a lock that we can ask (another host's) may take between two reports before it counts as stopped.
SILENCE_SECONDS = 600.0
STATE_FROM_STATUS = {"done": "finished", "preempted": "stopped", "interrupted": "stopped"}


class RunProgress(NamedTuple):
    """Where a run stands.

    Attributes:
      state: "running", "finished", "stopped", "diverged" or "failed".
      step: steps done, by the last report or checkpoint.
      total_steps: steps of the whole run; None where the manifest does not say.
      last: the last report with a loss, {} before the first.
      silence: seconds since the last report; None before the first.
      checkpoints: steps of the checkpoints, ascending.
      evaluations: the documents of RUN/eval/STEP/metrics.json, by step.
      manifest: the run's manifest.
      compile_seconds: that training waited for compilations, by stage of the curriculum.
      save: ``blocked_seconds`` and ``background_seconds`` of the last checkpoint whose time was reported; or {}.
    """

    state: str
    step: int
    total_steps: int | None
    last: dict[str, Any]
    silence: float | None
    checkpoints: tuple[int, ...]
    evaluations: dict[int, dict[str, Any]]
    manifest: dict[str, Any]
    compile_seconds: dict[int, float]
    save: dict[str, float]


def read_progress(workdir: str | os.PathLike) -> RunProgress:
    """Reads where a run stands.

    Raises:
      UserError: the folder is no run's.
    """
    folder = pathlib.Path(workdir)
    manifest = read_manifest(folder)
    reports = [report for report in read_metrics(folder) if report.get("loss") is not None]
    record = folder / "metrics.jsonl"
    silence = max(time.time() - record.stat().st_mtime, 0.0) if record.exists() else None
    checkpoints = _numbered(folder / "checkpoints")
    ended = (manifest.get("end") or {}).get("step")
    reached = [*(report["step"] for report in reports[-1:]), *checkpoints[-1:]]
    return RunProgress(
        state=_state(folder, manifest, silence),
        step=int(ended if ended is not None else max(reached, default=0)),
        total_steps=manifest["config"].get("train", {}).get("steps"),
        last=reports[-1] if reports else {},
        silence=silence,
        checkpoints=checkpoints,
        evaluations=read_evaluations(folder),
        manifest=manifest,
        compile_seconds=_compile_seconds(reports),
        save=_last_save(reports),
    )


def _compile_seconds(reports: list[dict[str, Any]]) -> dict[int, float]:
    seconds: dict[int, float] = {}
    for report in reports:
        spent, stage = report.get("compile_seconds"), report.get("stage") or 0
        if isinstance(spent, (int, float)) and isinstance(stage, int):
            seconds[stage] = seconds.get(stage, 0.0) + spent
    return seconds


def _last_save(reports: list[dict[str, Any]]) -> dict[str, float]:
    names = ("blocked_seconds", "background_seconds")
    for report in reversed(reports):
        if all(isinstance(report.get(f"save/{name}"), (int, float)) for name in names):
            return {name: report[f"save/{name}"] for name in names}
    return {}


def read_metrics(workdir: str | os.PathLike) -> list[dict[str, Any]]:
    """Returns the reports of RUN/metrics.jsonl by ascending step; a broken line (a torn write) is left out."""
    path = pathlib.Path(workdir) / "metrics.jsonl"
    reports = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            report = json.loads(line)
        except ValueError:
            continue
        if isinstance(report, dict) and isinstance(report.get("step"), int):
            reports.append(report)
    return sorted(reports, key=lambda report: report["step"])


def read_evaluations(workdir: str | os.PathLike) -> dict[int, dict[str, Any]]:
    """Returns the finished test evaluations of a run, by ascending step; a damaged one is left out."""
    folder = pathlib.Path(workdir) / "eval"
    found = {}
    for step in _numbered(folder):
        path = folder / str(step) / "metrics.json"
        with contextlib.suppress(OSError, ValueError):
            found[step] = json.loads(path.read_bytes())
    return found


def _numbered(folder: pathlib.Path) -> tuple[int, ...]:
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return tuple(sorted(int(name) for name in names if name.isdigit()))


def _state(folder: pathlib.Path, manifest: dict[str, Any], silence: float | None) -> str:
    status = manifest.get("status", "running")
    if status != "running":
        return STATE_FROM_STATUS.get(status, status)
    return "running" if _is_alive(folder, silence) else "stopped"


def _is_alive(folder: pathlib.Path, silence: float | None) -> bool:
    """Whether the process that holds the folder's lock lives; on another host, whether it reported lately."""
    try:
        holder = re.match(r"process (\d+) on (.*), since ", (folder / ".lock").read_text())
    except OSError:
        return False
    if holder and holder[2] == platform.node():
        return psutil.pid_exists(int(holder[1]))
    return silence is not None and silence < SILENCE_SECONDS
