"""Runs set side by side: what tells them apart, what they reached, and what that took.

Quality is measured on the whole split at the end of a run. A method on a scene is a set of replicates: their mean, with
a confidence interval over seeds. The mean over scenes is formed where a method has all of them, and names their number.
Who is better, ``ranking`` says.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nerfjax.errors import UserError, did_you_mean
from nerfjax.runs.confounders import SUBJECT, Pair, check_subjects, compare_pair, facts_of
from nerfjax.runs.grouping import Group, group_methods, group_scenes
from nerfjax.runs.records import Evaluation, FlatConfig, RunRecord, is_number, read_records
from nerfjax.runs.spending import Spent, device_name, spent_by
from nerfjax.runs.statistics import Contrast, Interval, average, judge, mean_interval


class Cell(NamedTuple):
    """What a method reached on a scene.

    Attributes:
      runs: indices of its usable runs.
      seeds: the values of each metric, one per seed.
      images: the value of each metric of each image by name, mean over the runs.
    """

    runs: tuple[int, ...]
    seeds: dict[str, list[float]]
    images: dict[str, dict[str, float]]

    def interval(self, metric: str) -> Interval:
        """Returns the mean over seeds with its confidence interval."""
        return mean_interval(self.seeds[metric])


class Comparison(NamedTuple):
    """Runs side by side.

    Attributes:
      records: the runs.
      pairs: what differs, for every two runs.
      scenes: runs by scene.
      methods: runs by method.
      cells: by (method, scene), where there are usable runs.
      unusable: why a run has no result that could be compared, by run.
      evaluations: the result of each other run, by run.
      spent: what each run had spent at its result (or so far).
      metrics: the metrics that every result has.
      metric: the one that ranks.
      split: the views that are measured.
      subjects: confounders that the user declared to be what the experiment is about.
      notes: what a reader of any number should know.
    """

    records: list[RunRecord]
    pairs: list[Pair]
    scenes: list[Group]
    methods: list[Group]
    cells: dict[tuple[int, int], Cell]
    unusable: dict[int, str]
    evaluations: dict[int, Evaluation]
    spent: list[Spent]
    metrics: list[str]
    metric: str
    split: str
    subjects: tuple[str, ...]
    notes: list[str]

    def complete(self, method: int) -> bool:
        """Whether a method has a result on every scene."""
        return all((method, scene) in self.cells for scene in range(len(self.scenes)))

    def mean(self, method: int, metric: str) -> Interval | None:
        """Returns a method's mean over all scenes, None where one is missing."""
        if not self.complete(method):
            return None
        intervals = [self.cells[method, scene].interval(metric) for scene in range(len(self.scenes))]
        values = [self.cells[method, scene].seeds[metric] for scene in range(len(self.scenes))]
        judged = judge(average([_spread(each) for each in values]))
        return Interval(float(np.mean([each.mean for each in intervals])), judged.low, judged.high, len(intervals))


def compare(
    folders: Sequence[str | os.PathLike],
    *,
    split: str = "test",
    metric: str = "psnr",
    subjects: Sequence[str] = (),
    flat_config: FlatConfig | None = None,
) -> Comparison:
    """Sets runs side by side.

    Args:
      folders: run folders, two or more, of any scenes, methods and seeds.
      split: the views that are measured.
      metric: the metric that ranks.
      subjects: confounders that are what the experiment is about, e.g. "precision".
      flat_config: see ``records.read_records``.

    Raises:
      UserError: a folder is no run's, or a subject or the metric does not exist.
    """
    records = read_records(folders, flat_config=flat_config)
    latest = [record.evaluation(split) for record in records]
    facts = [facts_of(record, evaluation) for record, evaluation in zip(records, latest, strict=True)]
    subjects = check_subjects(subjects, facts)
    pairs = [compare_pair(i, j, facts, subjects) for i, j in itertools.combinations(range(len(records)), 2)]
    scenes = group_scenes(records, pairs)
    methods = group_methods(records, facts, scenes)
    evaluations = {i: evaluation for i, evaluation in enumerate(latest) if evaluation is not None}
    metrics = _common_metrics(evaluations)
    if evaluations and metric not in metrics:
        raise UserError(
            "Not every evaluation has that metric.", field="--metric", found=metric, fix=did_you_mean(metric, metrics)
        )
    unusable = {i: reason for i, record in enumerate(records) if (reason := why_unusable(record, split))}
    cells = {}
    for m, s in itertools.product(range(len(methods)), range(len(scenes))):
        runs = [run for run in methods[m].runs if run in scenes[s].runs and run in evaluations and run not in unusable]
        if runs:
            cells[m, s] = _cell(runs, records, evaluations, metrics)
    spent = [
        spent_by(record, evaluation.step if evaluation else record.step)
        for record, evaluation in zip(records, latest, strict=True)
    ]
    notes = _notes(records, pairs, cells, subjects)
    return Comparison(
        records, pairs, scenes, methods, cells, unusable, evaluations, spent, metrics, metric, split, subjects, notes
    )


def why_unusable(record: RunRecord, split: str) -> str | None:
    """Returns why a run has no result that could be compared, None where it has one."""
    of_total = f"step {record.step}" + (f" of {record.total_steps}" if record.total_steps else "")
    if record.state == "diverged":
        return f"diverged at {of_total}"
    if record.state != "finished":
        verb = {"running": "still running, at", "stopped": "unfinished, stopped at"}.get(record.state, "failed at")
        return f"{verb} {of_total}"
    if record.evaluation(split) is not None:
        return None
    others = sorted({f"{each.split} (step {each.step})" for each in record.evaluations})
    elsewhere = f"; only on {', '.join(others)}" if others else ""
    damaged = f"; {'; '.join(record.problems)}" if record.problems else ""
    return f"not evaluated on the {split} split{elsewhere}{damaged}: nerfjax eval {record.folder} --split={split}"


def brief(value: Any, limit: int = 48) -> str:
    """Returns a fact in few words."""
    if isinstance(value, (list, tuple)) and len(value) > 2:
        return f"{len(value)} ({value[0]}, …)"
    if isinstance(value, str) and len(value) == 64 and all(c in "0123456789abcdef" for c in value):
        return value[:8]
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _cell(
    runs: Sequence[int], records: Sequence[RunRecord], evaluations: dict[int, Evaluation], metrics: Sequence[str]
) -> Cell:
    by_seed: dict[str, list[int]] = {}
    for run in runs:
        by_seed.setdefault(records[run].seed, []).append(run)
    seeds = {
        metric: [float(np.mean([evaluations[run].mean[metric] for run in same])) for same in by_seed.values()]
        for metric in metrics
    }
    names = set.intersection(*(set(evaluations[run].images) for run in runs))
    images = {
        metric: {
            name: float(np.mean([_value(evaluations[run].images[name].get(metric)) for run in runs]))
            for name in sorted(names)
        }
        for metric in metrics
    }
    return Cell(tuple(runs), seeds, images)


def _value(value: Any) -> float:
    return float(value) if is_number(value) else float("nan")


def _spread(values: Sequence[float]) -> Contrast:
    interval = mean_interval(values)
    if len(values) < 2:
        return Contrast(interval.mean, float("nan"), 0.0)
    return Contrast(interval.mean, float(np.var(values, ddof=1)) / len(values), len(values) - 1)


def _common_metrics(evaluations: dict[int, Evaluation]) -> list[str]:
    means = [evaluation.mean for evaluation in evaluations.values()]
    return [name for name in (means[0] if means else ()) if all(name in mean for mean in means)]


def _notes(
    records: Sequence[RunRecord], pairs: Sequence[Pair], cells: dict[tuple[int, int], Cell], subjects: Sequence[str]
) -> list[str]:
    studied = sorted({d.category for pair in pairs for d in pair.of_kind(SUBJECT)} | set(subjects))
    notes = [f"declared to be the subject, not a confounder: {', '.join(studied)}"] if subjects else []
    machines: dict[str, list[str]] = {}
    for record in records:
        machines.setdefault(device_name(record), []).append(record.label)
    if len(machines) > 1:
        told = "; ".join(f"{name} ({', '.join(labels)})" for name, labels in machines.items())
        notes.append(f"time and cost are not comparable, the hardware differs: {told}")
    packages = sorted({d.key.partition(".")[2] for pair in pairs for d in pair.differences if d.category == "packages"})
    if packages:
        notes.append(f"versions of packages differ: {', '.join(packages)}")
    for cell in cells.values():
        labels = [records[run].label for run in cell.runs]
        if len({records[run].seed for run in cell.runs}) < len(cell.runs):
            notes.append(f"{', '.join(labels)}: runs of the same seed count as one replicate")
    for record in records:
        if record.problems:
            notes.append(f"{run_name(record)}: {'; '.join(record.problems)}")
    return notes


def run_name(record: RunRecord) -> str:
    """Returns a run's letter and name."""
    return f"{record.label} {record.name}"
