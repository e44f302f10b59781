"""Curves of a run as inline SVG whose colours follow the page, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

# Matplotlib knows no CSS: it draws in these stand-ins, which become the page's variables.
INK, LINE, FIRST, SECOND = "#010101", "#020202", "#030303", "#040404"
CSS_VARIABLE = {INK: "--ink", LINE: "--line", FIRST: "--first", SECOND: "--second"}
MAX_POINTS = 400
FIGURE_SIZE = (5.6, 3.0)


def curve(
    points: Sequence[tuple[float, float]],
    *,
    title: str,
    marks: Sequence[tuple[float, float]] = (),
    labels: tuple[str, str] = ("", ""),
    log: bool = False,
) -> str:
    """Draws a quantity over the training steps.

    Args:
      points: (step, value), drawn as a line; more than ``MAX_POINTS`` are averaged in bins.
      title: what is drawn, with its unit.
      marks: (step, value) drawn as dots, such as test evaluations.
      labels: names of the line and the dots; a legend appears where there are dots.
      log: whether the vertical axis is logarithmic.

    Returns:
      An ``<svg>`` element.
    """
    figure = Figure(figsize=FIGURE_SIZE, layout="constrained")
    axes = figure.add_subplot()
    if len(points):
        steps, values = average_in_bins(points)
        axes.plot(steps, values, color=FIRST, linewidth=1.8, label=labels[0])
    if len(marks):
        steps, values = np.asarray(sorted(marks), np.float64).T
        axes.plot(steps, values, "o-", color=SECOND, linewidth=1.0, markersize=5, label=labels[1])
        axes.legend(frameon=False, labelcolor=INK, fontsize=9)
    if log:
        axes.set_yscale("log")
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel("step", fontsize=9)
    return as_svg(figure, axes, salt=title)


def strip(values: Sequence[float], *, title: str) -> str:
    """Draws the sorted values of all images as bars, so that one sees the tail and not only the mean."""
    figure = Figure(figsize=FIGURE_SIZE, layout="constrained")
    axes = figure.add_subplot()
    ordered = np.sort(np.asarray(values, np.float64))
    axes.bar(np.arange(len(ordered)), ordered, width=0.86, color=FIRST)
    axes.axhline(float(ordered.mean()), color=SECOND, linewidth=1.4)
    axes.set_ylim(min(ordered[0] - 1.0, ordered[0] * 0.95), ordered[-1] + 0.5)
    axes.set_xlabel("test views, worst first", fontsize=9)
    axes.set_xticks([])
    axes.set_title(title, loc="left", fontsize=10)
    return as_svg(figure, axes, salt=title)


def average_in_bins(
    points: Sequence[tuple[float, float]], max_points: int = MAX_POINTS
) -> tuple[np.ndarray, np.ndarray]:
    """Returns steps and values [P], P <= max_points: means of neighbouring points, non-finite ones left out."""
    table = np.asarray(sorted(points), np.float64).reshape(-1, 2)
    table = table[np.isfinite(table).all(axis=1)]
    bins = np.array_split(table, min(len(table), max_points)) if len(table) else [table[:0]]
    means = np.array([part.mean(axis=0) for part in bins if len(part)]).reshape(-1, 2)
    return means[:, 0], means[:, 1]


def as_svg(figure: Figure, axes, *, salt: str, variables: Mapping[str, str] = CSS_VARIABLE) -> str:
    """Returns a figure as an ``<svg>`` element that fills its place and takes its colours from the page.

    Args:
      figure: the figure.
      axes: its only axes.
      salt: makes the ids inside differ from those of other figures.
      variables: the CSS variable for each stand-in colour.
    """
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(LINE)
    axes.tick_params(which="both", color=LINE, labelcolor=INK, labelsize=8)
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    for text in (axes.title, axes.xaxis.label, axes.yaxis.label, axes._left_title):
        text.set_color(INK)
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'^<svg([^>]*?) width="[^"]*"', r"<svg\1", text, count=1)
    text = re.sub(r'^<svg([^>]*?) height="[^"]*"', r"<svg\1", text, count=1)
    text = text.replace("'DejaVu Sans'", "inherit")
    for color, variable in variables.items():
        text = text.replace(color, f"var({variable})")
    return text
