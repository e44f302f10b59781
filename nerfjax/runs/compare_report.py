"""The comparison as one page: verdicts, results, curves, and the same test pixels side by side; it stands alone."""

from __future__ import annotations

import base64
import importlib.resources
import io
import os
import pathlib
from typing import Any

import jinja2
import markupsafe
from PIL import Image

from nerfjax import __version__
from nerfjax.errors import UserError
from nerfjax.runs.compare import Comparison
from nerfjax.runs.compare_document import stamps
from nerfjax.runs.compare_figures import DARK, LIGHT, Line, palette_css, quality_figure, swatch
from nerfjax.runs.compare_table import (
    KIND_WORDS,
    NOTHING,
    basis_in_words,
    difference_in_words,
    digits_of,
    grouped_pairs,
    in_words,
    metric_title,
    spent_in_words,
)
from nerfjax.runs.crops import Crop, worst_crops
from nerfjax.runs.ranking import Ranking
from nerfjax.runs.spending import device_name, quality_points

AXES = {
    "steps": lambda spent: spent.step,
    "training time (s)": lambda spent: spent.seconds,
    "evaluations of the field": lambda spent: spent.evaluations,
    "FLOPs": lambda spent: spent.flops,
    "device-hours": lambda spent: spent.device_hours,
}
CONTEXT_SIDE = 320
CROPS = 3
MAX_CROPS = 24


def write_page(comparison: Comparison, ranking: Ranking | None, path: str | os.PathLike) -> pathlib.Path:
    """Writes the page.

    Args:
      comparison: the runs side by side.
      ranking: the methods by rank, where it was asked for.
      path: the HTML file.

    Returns:
      Its path.

    Raises:
      UserError: the file cannot be written.
    """
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    source = importlib.resources.files("nerfjax.runs").joinpath("compare.html.jinja").read_text()
    page = environment.from_string(source).render(
        title=f"{len(comparison.records)} runs, {_count(comparison.methods, 'method')}, "
        f"{_count(comparison.scenes, 'scene')}",
        light=markupsafe.Markup(palette_css(LIGHT)),
        dark=markupsafe.Markup(palette_css(DARK)),
        stamps=stamps(comparison, ranking),
        unusable=[(comparison.records[i], reason) for i, reason in comparison.unusable.items()],
        ranking=None if ranking is None else _ranking(comparison, ranking),
        results=_results(comparison),
        metrics=[metric_title(metric) for metric in comparison.metrics],
        split=comparison.split,
        scenes=[scene.name for scene in comparison.scenes],
        sections=_sections(comparison),
        runs=_runs(comparison),
        costs=_recorded_costs(comparison),
        pairs=[
            (labels, verdict, [(d.kind, KIND_WORDS[d.kind], difference_in_words(d)) for d in differences])
            for labels, verdict, differences in grouped_pairs(comparison)
        ],
        nothing=NOTHING,
        version=__version__,
    )
    path = pathlib.Path(path)
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(page, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UserError("The page cannot be written.", file=path, found=error.strerror) from error
    return path


def _sections(comparison: Comparison) -> list[dict[str, Any]]:
    """Curves and crops of each scene."""
    per_scene = min(CROPS, max(1, MAX_CROPS // max(len(comparison.scenes), 1)))
    sections = []
    for s, scene in enumerate(comparison.scenes):
        shown = [m for m in range(len(comparison.methods)) if (m, s) in comparison.cells]
        runs = [comparison.cells[m, s].runs[0] for m in shown]
        crops = worst_crops([comparison.evaluations[run] for run in runs], count=per_scene) if len(runs) > 1 else []
        legend = [
            (comparison.methods[m].name, swatch(m), comparison.records[r].label)
            for m, r in zip(shown, runs, strict=True)
        ]
        sections.append(
            {
                "scene": scene.name,
                "curves": [markupsafe.Markup(svg) for svg in _curves(comparison, s)],
                "legend": legend,
                "crops": [_crop(crop, legend) for crop in crops],
            }
        )
    return sections


def _curves(comparison: Comparison, scene: int) -> list[str]:
    metric, split = comparison.metric, comparison.split
    points = {
        run: quality_points(comparison.records[run], metric=metric, split=split)
        for run in comparison.scenes[scene].runs
    }
    method_of = {run: m for m, method in enumerate(comparison.methods) for run in method.runs}
    figures = []
    for name, amount in AXES.items():
        lines = []
        for run, each in points.items():
            known = [(p.whole, (float(x), p.value)) for p in each if (x := amount(p.spent)) is not None]
            quick, whole = ([point for is_whole, point in known if is_whole == which] for which in (False, True))
            lines += [Line(method_of[run], quick, whole)] if known else []
        if len({line.method for line in lines}) and any(line.quick or line.whole for line in lines):
            scene_name = comparison.scenes[scene].name
            figures.append(quality_figure(lines, x=name, y=metric_title(metric), title=scene_name))
    return figures


def _crop(crop: Crop, legend: list[tuple[str, str, str]]) -> dict[str, Any]:
    small = crop.context.copy()
    small.thumbnail((CONTEXT_SIDE, CONTEXT_SIDE), Image.Resampling.LANCZOS)
    best = max(crop.psnr)
    return {
        "view": crop.view,
        "side": crop.box[2] - crop.box[0],
        "context": _inline(small),
        "is_small": max(crop.context.size) < CONTEXT_SIDE // 2,
        "target": _inline(crop.target),
        "methods": [
            {
                "name": name,
                "color": color,
                "label": label,
                "prediction": _inline(prediction),
                "error": None if error is None else _inline(error),
                "psnr": f"{psnr:.2f} dB",
                "best": psnr == best,
            }
            for (name, color, label), prediction, error, psnr in zip(
                legend, crop.predictions, crop.errors, crop.psnr, strict=True
            )
        ],
    }


def _results(comparison: Comparison) -> list[dict[str, Any]]:
    rows = []
    for m, method in enumerate(comparison.methods):
        cells = [comparison.cells.get((m, s)) for s in range(len(comparison.scenes))]
        rows.append(
            {
                "method": method.name,
                "color": swatch(m),
                "runs": "".join(comparison.records[i].label for i in method.runs),
                "seeds": max((len(cell.seeds[comparison.metric]) for cell in cells if cell), default=0),
                "values": [
                    [in_words(cell.interval(metric) if cell else None, metric) for cell in cells]
                    + ([in_words(comparison.mean(m, metric), metric)] if len(cells) > 1 else [])
                    for metric in comparison.metrics
                ],
            }
        )
    return rows


def _ranking(comparison: Comparison, ranking: Ranking) -> dict[str, Any]:
    digits = digits_of(comparison.metric)
    names = [method.name for method in comparison.methods]
    return {
        "metric": metric_title(comparison.metric),
        "forced": bool(ranking.objections),
        "basis": basis_in_words(ranking),
        "scenes": ", ".join(comparison.scenes[s].name for s in ranking.scenes),
        "rows": [
            (rank, names[m], swatch(m), f"{mean:.{digits}f}", ", ".join(names[other] for other in ranking.alike(m)))
            for m, rank, mean in zip(ranking.order, ranking.ranks, ranking.means, strict=True)
        ],
    }


def _runs(comparison: Comparison) -> list[dict[str, Any]]:
    rows = []
    for i, record in enumerate(comparison.records):
        method = next(m for m, group in enumerate(comparison.methods) if i in group.runs)
        mean = comparison.evaluations[i].mean if i in comparison.evaluations else {}
        rows.append(
            {
                "record": record,
                "scene": next(scene.name for scene in comparison.scenes if i in scene.runs),
                "method": comparison.methods[method].name,
                "color": swatch(method),
                "values": [f"{mean[m]:.{digits_of(m)}f}" if m in mean else "—" for m in comparison.metrics],
                "costs": [spent_in_words(comparison.spent[i])[name] for name in _recorded_costs(comparison)],
                "device": device_name(record),
            }
        )
    return rows


def _recorded_costs(comparison: Comparison) -> list[str]:
    costs = [spent_in_words(spent) for spent in comparison.spent]
    return [name for name in costs[0] if any(each[name] != "—" for each in costs)]


def _inline(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _count(items: list, noun: str) -> str:
    return f"{len(items)} {noun}" + ("s" if len(items) != 1 else "")
