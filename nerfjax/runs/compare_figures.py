"""Quality against what it took, one line a run and one colour a method, as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from nerfjax.runs.figures import CSS_VARIABLE, as_svg

FIGURE_SIZE = (5.6, 3.4)
# Stand-ins that become the page's variables --series-0, …; after Okabe and Ito, who chose them for all eyes.
SERIES = tuple(f"#0a0a{i:02x}" for i in range(1, 9))
LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b2559a", "#a67c00", "#3a9bd6", "#7a4b2a", "#6b6f78")
DARK = ("#56b4e9", "#f0824a", "#3ecf9f", "#e39cc9", "#e6b93c", "#9ad1f5", "#c99a76", "#a8adb8")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)))


class Line(NamedTuple):
    """One run in a figure.

    Attributes:
      method: index of its method, which gives the colour.
      quick: (x, value) of measurements on a few views, drawn as a line.
      whole: (x, value) of measurements of the whole split, drawn as dots.
    """

    method: int
    quick: Sequence[tuple[float, float]]
    whole: Sequence[tuple[float, float]]


def quality_figure(lines: Sequence[Line], *, x: str, y: str, title: str) -> str:
    """Draws a metric against a cost.

    Args:
      lines: the runs.
      x: the cost, with its unit.
      y: the metric, with its unit.
      title: what tells this figure from others on the page.

    Returns:
      An ``<svg>`` element.
    """
    figure = Figure(figsize=FIGURE_SIZE, layout="constrained")
    axes = figure.add_subplot()
    for line in lines:
        style = dict(
            color=SERIES[line.method % len(SERIES)], linestyle=DASHES[line.method // len(SERIES) % len(DASHES)]
        )
        if line.quick:
            axes.plot(*zip(*line.quick, strict=True), linewidth=1.4, **style)
        if line.whole:
            axes.plot(*zip(*line.whole, strict=True), marker="o", markersize=6, linewidth=0.8, **style)
    axes.set_title(f"{y} against {x}", loc="left", fontsize=10)
    axes.set_xlabel(x, fontsize=9)
    axes.set_xlim(left=0)
    if x == "steps":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if axes.get_xlim()[1] >= 1000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    variables = {**CSS_VARIABLE, **{color: f"--series-{i}" for i, color in enumerate(SERIES)}}
    return as_svg(figure, axes, salt=f"{title} {x} {y}", variables=variables)


def swatch(method: int) -> str:
    """Returns the CSS colour of a method."""
    return f"var(--series-{method % len(SERIES)})"


def palette_css(colors: Sequence[str]) -> str:
    """Returns the declarations of the series' variables."""
    return " ".join(f"--series-{i}: {color};" for i, color in enumerate(colors))
