"""What a run had spent by a step: wall time, rays, evaluations of the field, FLOPs, device-hours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nerfjax.runs.records import RunRecord, is_number, section


class Spent(NamedTuple):
    """What a run had spent when it had done ``step`` steps; None where it is not recorded.

    Attributes:
      step: training steps.
      seconds: of the training clock (evaluation is left out).
      rays: shot in training.
      evaluations: of the main field.
      proposal_evaluations: of proposal networks.
      flops: floating-point operations.
      device_hours: hours times devices.
    """

    step: int
    seconds: float | None = None
    rays: float | None = None
    evaluations: float | None = None
    proposal_evaluations: float | None = None
    flops: float | None = None
    device_hours: float | None = None


class QualityPoint(NamedTuple):
    """A measurement on held-out views: of the whole split (``whole``) or of a few of them in the middle of training."""

    spent: Spent
    value: float
    whole: bool


def spent_by(record: RunRecord, step: int) -> Spent:
    """Returns what a run had spent by a step, from its reports (linear between them) and its seal."""
    rows = [report for report in record.reports if is_number(report.get("seconds")) and report["step"] > 0]
    steps = np.array([0, *(row["step"] for row in rows)], np.float64)
    end = section(record.manifest, "end")
    seconds = _at(step, steps, [0.0, *(row["seconds"] for row in rows)])
    if seconds is None and end.get("step") == step and is_number(end.get("seconds")):
        seconds = float(end["seconds"])
    rays = _per_step(rows, "rays_per_step", _nominal_rays(record))
    amounts = {
        "rays": rays,
        "evaluations": _product(rays, _per_step(rows, "samples_per_ray")),
        "proposal_evaluations": _product(rays, _per_step(rows, "proposal_samples_per_ray")),
        "flops": _per_step(rows, "flops_per_step", record.manifest.get("flops_per_step")),
    }
    sums = {
        name: _at(step, steps, np.cumsum([0.0, *np.diff(steps) * np.array(values)]))
        for name, values in amounts.items()
        if values is not None
    }
    count = device_count(record)
    hours = None if seconds is None or count is None else seconds / 3600 * count
    return Spent(step, seconds, device_hours=hours, **sums)


def quality_points(record: RunRecord, *, metric: str, split: str) -> list[QualityPoint]:
    """Returns a run's measurements by ascending step, the quick ones first."""
    quick = [(report["step"], report.get(f"eval/{metric}")) for report in record.reports]
    whole = [(each.step, each.mean.get(metric)) for each in record.evaluations if each.split == split]
    points = [
        QualityPoint(spent_by(record, step), float(value), is_whole)
        for is_whole, each in ((False, quick), (True, whole))
        for step, value in each
        if is_number(value)
    ]
    return sorted(points, key=lambda point: (point.whole, point.spent.step))


def device_count(record: RunRecord) -> int | None:
    """Returns how many devices the run used."""
    chosen = record.config.get("parallel.devices") or section(record.manifest, "devices").get("device_count")
    return int(chosen) if is_number(chosen) else None


def device_name(record: RunRecord) -> str:
    """Returns the devices in words, equal for runs whose times can be compared."""
    devices, count = section(record.manifest, "devices"), device_count(record)
    kind = devices.get("device_kind") or devices.get("platform")
    if not kind:
        return "unknown hardware"
    cores = f", {devices['cpu_count']} cores" if devices.get("platform") == "cpu" and devices.get("cpu_count") else ""
    return f"{count or '?'} × {kind}{cores}"


def _nominal_rays(record: RunRecord) -> Any:
    """Rays of every step; None where a ladder of rungs or a curriculum may change them on the way."""
    varies = any(key.startswith("curriculum.") for key in record.config) or record.config.get("train.rungs", 1) != 1
    return None if varies else record.config.get("train.batch_rays")


def _per_step(rows: Sequence[dict[str, Any]], name: str, default: Any = None) -> list[float] | None:
    values = [row.get(name, default) for row in rows]
    return [float(value) for value in values] if values and all(map(is_number, values)) else None


def _product(first: list[float] | None, second: list[float] | None) -> list[float] | None:
    return None if first is None or second is None else [a * b for a, b in zip(first, second, strict=True)]


def _at(step: int, steps: np.ndarray, values: Sequence[float] | np.ndarray) -> float | None:
    inside = len(steps) > 1 and 0 <= step <= steps[-1]
    return float(np.interp(step, steps, values)) if inside else None
