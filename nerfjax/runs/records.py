"""What a run folder says of its run, read for comparison: by any version, of any version, and never with a traceback.

What is missing is None, what cannot be read is told in ``problems``, what is unknown is kept.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from nerfjax.errors import UserError
from nerfjax.runs.progress import read_metrics, read_progress

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
FlatConfig = Callable[[Mapping[str, Any]], dict[str, Any]]


class Evaluation(NamedTuple):
    """One evaluation of a run: the document of ``schemas/eval.schema.json``.

    Attributes:
      step: training step of the checkpoint.
      split: "train", "val" or "test".
      protocol: the variant of every metric, in words; {} where not recorded.
      mean: mean of each metric.
      images: rows of the images by name.
      folder: where the pictures are.
    """

    step: int
    split: str
    protocol: dict[str, Any]
    mean: dict[str, float]
    images: dict[str, dict[str, Any]]
    folder: pathlib.Path


class RunRecord(NamedTuple):
    """A run, as its folder tells it.

    Attributes:
      label: a letter.
      name: the end of the folder's path that tells it from the others.
      folder: the run folder.
      manifest: its manifest.
      config: ``{"a.b": value}`` of the options that took part in the run.
      reports: the lines of metrics.jsonl, by ascending step.
      state: "finished", "running", "stopped", "diverged" or "failed".
      step: steps done.
      total_steps: steps of the whole run; None where not recorded.
      evaluations: by ascending step, all splits.
      problems: what could not be read.
    """

    label: str
    name: str
    folder: pathlib.Path
    manifest: dict[str, Any]
    config: dict[str, Any]
    reports: list[dict[str, Any]]
    state: str
    step: int
    total_steps: int | None
    evaluations: tuple[Evaluation, ...]
    problems: tuple[str, ...]

    @property
    def scene(self) -> str:
        """The scene's name."""
        scene = section(self.manifest, "scene")
        source = section(section(self.manifest, "config"), "scene").get("source")
        return str(scene.get("name") or source or "unnamed scene")

    @property
    def seed(self) -> str:
        """The seeds of the run, as text that is equal for equal seeds."""
        seeds = section(self.manifest, "seeds")
        values = list(seeds.values()) or [section(section(self.manifest, "config"), "train").get("seed")]
        return str(values[0]) if len(values) == 1 else json.dumps(seeds, sort_keys=True)

    def evaluation(self, split: str) -> Evaluation | None:
        """Returns the latest evaluation of a split."""
        found = [evaluation for evaluation in self.evaluations if evaluation.split == split]
        return found[-1] if found else None


def read_records(folders: Sequence[str | os.PathLike], *, flat_config: FlatConfig | None = None) -> list[RunRecord]:
    """Reads run folders.

    Args:
      folders: the run folders, two or more.
      flat_config: ``config -> {"a.b": value}`` of what a recorded config bound; ``chosen_options`` by default.

    Raises:
      UserError: fewer than two, one named twice, or one that is no run folder.
    """
    paths = [pathlib.Path(folder) for folder in folders]
    if len(paths) < 2:
        raise UserError("A comparison needs two runs at least.", found=", ".join(map(str, paths)) or "none")
    seen: dict[pathlib.Path, pathlib.Path] = {}
    for path in paths:
        if seen.setdefault(path.resolve(), path) is not path:
            raise UserError("A run is named twice.", found=f"{seen[path.resolve()]} and {path}", fix="name it once")
    labels = [LETTERS[i] if len(paths) <= len(LETTERS) else f"R{i + 1}" for i in range(len(paths))]
    return [
        read_record(path, label=label, name=name, flat_config=flat_config or chosen_options)
        for path, label, name in zip(paths, labels, distinct_names(paths), strict=True)
    ]


def read_record(folder: pathlib.Path, *, label: str, name: str, flat_config: FlatConfig) -> RunRecord:
    """Reads one run folder; see ``read_records``."""
    try:
        progress = read_progress(folder)
        evaluations, problems = read_all_evaluations(folder)
        total = progress.total_steps
        return RunRecord(
            label=label,
            name=name,
            folder=folder,
            manifest=_of_known_form(progress.manifest),
            config=flat_config(progress.manifest["config"]),
            reports=read_metrics(folder),
            state=progress.state,
            step=progress.step,
            total_steps=int(total) if is_number(total) else None,
            evaluations=evaluations,
            problems=problems,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            "The run's folder cannot be read.", file=folder, found=f"{type(error).__name__}: {error}",
            expected="a manifest of the form of schemas/manifest.schema.json", fix="leave this run out",
        ) from error  # fmt: skip


def _of_known_form(manifest: dict[str, Any]) -> dict[str, Any]:
    """Leaves out splits that are no lists of names, and restarts that are no objects."""
    split, restarts = section(manifest, "split"), manifest.get("restarts")
    names = {name: [str(item) for item in items] for name, items in split.items() if isinstance(items, list)}
    kept = [each for each in restarts if isinstance(each, Mapping)] if isinstance(restarts, list) else []
    return {**manifest, "split": names, "restarts": kept}


def read_all_evaluations(folder: pathlib.Path) -> tuple[tuple[Evaluation, ...], tuple[str, ...]]:
    """Returns the evaluations in RUN/eval, by ascending step, and what is wrong with those that cannot be used."""
    root, found, problems = folder / "eval", [], []
    names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    for name in names:
        path = root / name / "metrics.json"
        if not re.fullmatch(r"\d+(-\w+)?", name) or not path.is_file():
            continue
        try:
            found.append(_evaluation(json.loads(path.read_bytes()), path.parent))
        except (ValueError, KeyError, TypeError, AttributeError, OSError):
            problems.append(f"its evaluation eval/{name}/metrics.json is damaged")
    return tuple(sorted(found, key=lambda evaluation: evaluation.step)), tuple(problems)


def _evaluation(document: Any, folder: pathlib.Path) -> Evaluation:
    images = {str(image["name"]): dict(image) for image in document["images"]}
    mean = {str(k): float(v) for k, v in document["mean"].items() if is_number(v)}
    if not images or not mean or int(document["step"]) < 0:
        raise ValueError("nothing was measured")
    split = str(document.get("split") or "test")
    return Evaluation(int(document["step"]), split, dict(document.get("protocol") or {}), mean, images, folder)


def distinct_names(paths: Sequence[pathlib.Path]) -> list[str]:
    """Returns the shortest ends of the paths, whole parts of the same number, that tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            break
    return names


def chosen_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``{"a.b": value}`` of a config without the members that its sections do not choose.

    It needs to know no member: a section with a ``name`` and an object of that name is a choice.
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            name = value.get("name")
            is_choice = isinstance(name, str) and isinstance(value.get(name), Mapping)
            kept = {"name": name, name: value[name]} if is_choice else value
            flat |= {f"{key}.{inner}": item for inner, item in chosen_options(kept).items()}
        else:
            flat[str(key)] = value
    return flat


def section(document: Any, name: str) -> dict[str, Any]:
    """Returns an object inside of a JSON object, {} where there is none."""
    found = document.get(name) if isinstance(document, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
