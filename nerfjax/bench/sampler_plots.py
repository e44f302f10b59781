"""The figures of ``bench samplers``: error against cost and where the points lie, a panel for each scene.

Every sampler has one colour, in all figures here and in the notebooks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

# Distinct for most kinds of colour vision (after Okabe and Ito 2008), and in lightness.
COLORS = {
    "stratified": "#8a8a8a",
    "hierarchical": "#56b4e9",
    "proposal": "#0072b2",
    "occupancy": "#e69f00",
    "compose": "#d55e00",
    "adaptive": "#009e73",
    "neus": "#cc79a7",
}
MARKERS = {"stratified": "s", "hierarchical": "D", "proposal": "o", "occupancy": "^", "compose": "v", "adaptive": "P"}
OTHER = "#333333"
COLUMNS = 4
AXES = {
    "evaluations": ("evaluations", "evaluations of the main field per ray"),
    "flops": ("flop_evaluations_with_warmup", "FLOPs per ray in evaluations of the main field, warm-up included"),
    "time": ("milliseconds_with_warmup", "milliseconds per 4096 rays, warm-up included"),
}


def color_of(sampler: str) -> str:
    """Returns the colour of a sampler."""
    return COLORS.get(sampler, OTHER)


def plot_samplers(result: dict[str, Any], out: str | os.PathLike) -> list[Path]:
    """Draws the figures of a bench as PNG files.

    Args:
      result: what ``bench_samplers`` returns.
      out: the folder; made where absent.

    Returns:
      The files: ``rmse_by_evaluations.png``, ``…_flops``, ``…_time``, ``wasserstein.png``, ``bias.png``,
      ``useful.png``, ``equal_cost.png``.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    figures = {
        f"rmse_by_{kind}": error_figure(result, column, label)
        for kind, (column, label) in AXES.items()
        if any(row[column] is not None for row in result["rows"])
    }
    column, label = AXES["evaluations"]
    figures["wasserstein"] = error_figure(
        result, column, label, quantity="wasserstein", ylabel="W1 to the exact weights"
    )
    figures["bias"] = error_figure(result, column, label, quantity="bias", ylabel="bias of colour")
    figures["useful"] = error_figure(result, column, label, quantity="useful", ylabel="useful evaluations", log=False)
    figures["equal_cost"] = equal_cost_figure(result)
    files = []
    for name, figure in figures.items():
        files.append(out / f"{name}.png")
        figure.savefig(files[-1], dpi=150)
    return files


def error_figure(
    result: dict[str, Any],
    column: str,
    xlabel: str,
    *,
    quantity: str = "rmse",
    ylabel: str = "RMSE of colour",
    log: bool = True,
) -> Figure:
    """Draws a quantity against a cost, a panel for each scene and a line for each sampler.

    Args:
      result: what ``bench_samplers`` returns.
      column: of the cost.
      xlabel: what the cost is.
      quantity: column of the vertical axis.
      ylabel: what it is.
      log: whether the vertical axis is logarithmic.
    """

    def draw(axes: Axes, rows: list[dict[str, Any]]) -> None:
        for sampler in dict.fromkeys(row["sampler"] for row in rows):
            points = [(row[column], row[quantity]) for row in rows if row["sampler"] == sampler and row[column]]
            if not points:
                continue
            x, y = np.asarray(sorted(points), np.float64).T
            floor = 1e-5 if log else 0.0
            axes.plot(
                x, np.maximum(y, floor), color=color_of(sampler), marker=MARKERS.get(sampler, "X"), markersize=4.5,
                linewidth=1.6, label=sampler,
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        if log:
            axes.set_yscale("log")
        else:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
            axes.set_ylim(0.0, None)

    return panels(result, draw, xlabel, ylabel)


def equal_cost_figure(result: dict[str, Any]) -> Figure:
    """Draws the RMSE at equal cost, relative to the yardstick's: bars for each scene, a panel for each cost."""
    entries = result["equal_cost"]
    kinds = [kind for kind in AXES if any(entry["costs"][kind] for entry in entries)]
    samplers = list(result["recipes"])
    height = 1.5 + len(entries) * (0.16 * len(samplers) + 0.2)
    figure = Figure(figsize=(max(2.9 * len(kinds) + 1.2, 6.0), height), layout="constrained")
    grid = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for axes, kind in zip(grid, kinds, strict=True):
        for number, sampler in enumerate(samplers):
            ratios = [_ratio(entry, sampler, kind) for entry in entries]
            place = np.arange(len(entries)) + (number - (len(samplers) - 1) / 2) * 0.8 / len(samplers)
            axes.barh(place, ratios, height=0.72 / len(samplers), color=color_of(sampler), label=sampler)
        axes.axvline(1.0, color="#555555", linewidth=0.8)
        axes.set_title(f"equal {kind}" if kind != "flops" else "equal FLOPs", loc="left", fontsize=10)
        axes.set_yticks(np.arange(len(entries)), [entry["scene"] for entry in entries])
        axes.set_xlim(0.0, 1.6)
        tidy(axes)
    grid[0].invert_yaxis()
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside upper center", ncols=len(labels), fontsize=9)
    figure.supxlabel(
        "RMSE relative to the yardstick's at the same cost (no bar: out of the measured range)", fontsize=9
    )
    return figure


def _ratio(entry: dict[str, Any], sampler: str, kind: str) -> float:
    own, yardstick = entry["rmse"][sampler][kind], entry["rmse"][entry["yardstick"]][kind]
    return np.nan if own is None or not yardstick else own / yardstick


def panels(result: dict[str, Any], draw: Callable[..., None], xlabel: str, ylabel: str) -> Figure:
    """Lays out a panel for each scene, and the legend beside or in the free place of the grid."""
    scenes = list(dict.fromkeys(row["scene"] for row in result["rows"]))
    columns = min(COLUMNS, len(scenes))
    lines = -(-len(scenes) // columns)
    figure = Figure(figsize=(max(3.1 * columns + 0.4, 5.5), 2.7 * lines + 0.7), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True)
    for axes, scene in zip(grid.flat, scenes, strict=False):
        draw(axes, [row for row in result["rows"] if row["scene"] == scene])
        axes.set_title(scene, loc="left", fontsize=10, fontweight="bold")
        tidy(axes)
    free = list(grid.flat)[len(scenes) :]
    for axes in free:
        axes.set_axis_off()
    for column in range(columns):  # a panel with nothing below it shows its ticks
        grid[max(line for line in range(lines) if line * columns + column < len(scenes)), column].tick_params(
            labelbottom=True
        )
    handles, labels = grid.flat[0].get_legend_handles_labels()
    place = dict(loc="center", fontsize=10) if free else dict(loc="outside upper center", ncols=len(labels), fontsize=9)
    (free[0] if free else figure).legend(handles, labels, frameon=False, **place)
    figure.supxlabel(xlabel, fontsize=10)
    figure.supylabel(ylabel, fontsize=10)
    return figure


def tidy(axes: Axes) -> None:
    """Takes away what does not carry data, and writes powers of two as numbers."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(which="major", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", labelsize=8, length=3)
    if axes.get_xscale() == "log":
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=12))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(FuncFormatter(_minor_label))


def _minor_label(value: float, _: int | None) -> str:
    """Labels 2 and 5 times a power of ten only: more would overlap."""
    return f"{value:g}" if f"{value:e}"[0] in "25" else ""
