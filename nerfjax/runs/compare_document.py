"""The comparison as one JSON document: ``schemas/compare.schema.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nerfjax.runs.compare import Comparison
from nerfjax.runs.ranking import Ranking
from nerfjax.runs.spending import QualityPoint, device_name, quality_points
from nerfjax.runs.statistics import CONFIDENCE, Interval

SCHEMA = 1


def document_of(
    comparison: Comparison, ranking: Ranking | None = None, *, refusal: list[str] | None = None
) -> dict[str, Any]:
    """Returns the comparison as JSON values.

    Args:
      comparison: the runs side by side.
      ranking: the methods by rank, where it was asked for.
      refusal: why a ranking was asked for and refused.
    """
    document = {
        "schema": SCHEMA,
        "split": comparison.split,
        "metric": comparison.metric,
        "confidence": CONFIDENCE,
        "subjects": list(comparison.subjects),
        "stamps": stamps(comparison, ranking),
        "runs": [_run(comparison, i) for i in range(len(comparison.records))],
        "pairs": [
            {
                "runs": [comparison.records[i].label for i in (pair.first, pair.second)],
                "verdict": pair.verdict,
                "same_scene": pair.same_scene,
                "differences": [difference._asdict() for difference in pair.differences],
            }
            for pair in comparison.pairs
        ],
        "scenes": [_group(comparison, scene) for scene in comparison.scenes],
        "methods": [_method(comparison, m) for m in range(len(comparison.methods))],
        "ranking": None if ranking is None else _ranking(comparison, ranking),
        "refused": refusal,
    }
    return _finite(document)


def stamps(comparison: Comparison, ranking: Ranking | None) -> list[str]:
    """Returns what must stand above every number."""
    forced = [f"FORCED in spite of: {objection}" for objection in ranking.objections] if ranking else []
    return forced + comparison.notes


def _run(comparison: Comparison, i: int) -> dict[str, Any]:
    record, evaluation = comparison.records[i], comparison.evaluations.get(i)
    points = quality_points(record, metric=comparison.metric, split=comparison.split)
    return {
        "label": record.label,
        "name": record.name,
        "folder": str(record.folder),
        "scene": next(scene.name for scene in comparison.scenes if i in scene.runs),
        "method": next(method.name for method in comparison.methods if i in method.runs),
        "seed": record.seed,
        "state": record.state,
        "unusable": comparison.unusable.get(i),
        "device": device_name(record),
        "total_steps": record.total_steps,
        "spent": comparison.spent[i]._asdict(),
        "views": len(evaluation.images) if evaluation else None,
        "metrics": evaluation.mean if evaluation else None,
        "curve": [_point(point) for point in points],
    }


def _point(point: QualityPoint) -> dict[str, Any]:
    return {**point.spent._asdict(), "value": point.value, "whole_split": point.whole}


def _group(comparison: Comparison, group) -> dict[str, Any]:
    return {"name": group.name, "runs": [comparison.records[i].label for i in group.runs]}


def _method(comparison: Comparison, m: int) -> dict[str, Any]:
    on = {scene.name: comparison.cells.get((m, s)) for s, scene in enumerate(comparison.scenes)}
    return {
        **_group(comparison, comparison.methods[m]),
        "scenes": [
            {
                "scene": name,
                "seeds": len(cell.seeds[comparison.metric]),
                "views": len(cell.images[comparison.metric]),
                "metrics": {metric: _interval(cell.interval(metric)) for metric in comparison.metrics},
            }
            for name, cell in on.items()
            if cell is not None
        ],
        "missing_scenes": [name for name, cell in on.items() if cell is None],
        "mean": {
            metric: _interval(mean) for metric in comparison.metrics if (mean := comparison.mean(m, metric)) is not None
        }
        or None,
    }


def _interval(interval: Interval) -> dict[str, Any]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high, "n": interval.count}


def _ranking(comparison: Comparison, ranking: Ranking) -> dict[str, Any]:
    names = [method.name for method in comparison.methods]
    return {
        "forced": bool(ranking.objections),
        "basis": ranking.basis,
        "scenes": [comparison.scenes[s].name for s in ranking.scenes],
        "order": [
            {
                "rank": rank,
                "method": names[m],
                "mean": mean,
                "not_distinguishable_from": [names[other] for other in ranking.alike(m)],
            }
            for m, rank, mean in zip(ranking.order, ranking.ranks, ranking.means, strict=True)
        ],
        "tests": [
            {
                "methods": [names[m] for m in test.methods],
                "difference": test.judgement.mean,
                "low": test.judgement.low,
                "high": test.judgement.high,
                "p": test.judgement.p,
                "p_corrected": test.p,
                "distinguishable": test.distinguishable,
            }
            for test in ranking.tests
        ],
    }


def _finite(value: Any) -> Any:
    """Strict JSON: what is not finite is null."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
