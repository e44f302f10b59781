"""Where a run stands and what it costs, as the document of ``schemas/status.schema.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerfjax.runs.progress import RunProgress

PARTS = ("device", "dispatch", "data", "checkpoint", "evaluation", "compilation", "other")
SPEED = (
    "step_seconds", "rays_per_second", "samples_per_second", "samples_per_ray", "proposal_samples_per_ray",
    "flops_per_second", "matmul_share",
)  # fmt: skip
SAMPLING = ("occupancy", "packed_fill", "overflow", "cut_rays", "samples_wanted", "rays_per_step")
RESOURCES = ("device_memory_bytes", "host_memory_bytes", "cpu_cores", "device_hours", "cost")


def status_document(progress: RunProgress, *, run: str) -> dict[str, Any]:
    """Returns what ``nerfjax status RUN --json`` prints; what is not recorded is left out.

    Args:
      progress: as from ``read_progress``.
      run: the run's name.
    """
    last, end = progress.last, progress.manifest.get("end") or {}
    stages = progress.manifest.get("curriculum")
    seconds = end.get("seconds") if end.get("seconds") is not None else last.get("seconds")
    return {
        "run": run,
        "state": progress.state,
        "reason": end.get("status"),
        "step": progress.step,
        "total_steps": progress.total_steps,
        "stage": last.get("stage"),
        "stages": len(stages) if isinstance(stages, list) else None,
        "rung": last.get("rung"),
        "seconds": seconds,
        "eta_seconds": last.get("eta_seconds") if progress.state == "running" else None,
        "silence_seconds": progress.silence,
        "training": _taken(last, ("loss", "psnr", "learning_rate", "grad_norm")),
        "speed": _taken(last, SPEED),
        "time_shares": time_shares(last),
        "sampling": _taken(last, SAMPLING),
        "resources": _taken(last, RESOURCES),
        "compile_seconds": {str(stage): value for stage, value in progress.compile_seconds.items()},
        "saves": {name: progress.save[name] for name in sorted(progress.save)},
        "checkpoints": list(progress.checkpoints),
        "restarts": len(progress.manifest.get("restarts") or ()),
        "evaluations": [
            {"step": step, "n": evaluation.get("n"), "mean": evaluation.get("mean")}
            for step, evaluation in progress.evaluations.items()
        ],
    }


def time_shares(report: Mapping[str, Any]) -> dict[str, float]:
    """Returns how the host's time between the last two reports divides into parts; {} where it is not recorded."""
    seconds = {part: report.get(f"time/{part}") for part in PARTS}
    known = {part: float(value) for part, value in seconds.items() if isinstance(value, (int, float))}
    whole = sum(known.values())
    return {part: value / whole for part, value in known.items()} if whole > 0 else {}


def _taken(report: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: report[name] for name in names if report.get(name) is not None}
