"""The figures of ``bench samplers`` as tables, and samplers compared at equal cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

COSTS = {
    "evaluations": "evaluations",
    "flops": "flop_evaluations_with_warmup",
    "time": "milliseconds_with_warmup",
}
YARDSTICK, YARDSTICK_BUDGET = "stratified", 32
COLUMNS = {
    "rmse": ("RMSE", "{:.4f}"),
    "bias": ("bias", "{:.4f}"),
    "deviation": ("dev.", "{:.4f}"),
    "wasserstein": ("W1", "{:.4f}"),
    "useful": ("useful", "{:.0%}"),
    "evaluations": ("evals", "{:.1f}"),
    "flop_evaluations": ("FLOP evals", "{:.1f}"),
    "flop_evaluations_with_warmup": ("+ warm-up", "{:.1f}"),
    "milliseconds": ("ms", "{:.1f}"),
    "milliseconds_with_warmup": ("+ warm-up", "{:.1f}"),
    "peak_bytes": ("MB", "{:.0f}"),
}


def rmse_at_cost(rows: Sequence[dict[str, Any]], column: str, cost: float | int) -> float | None:
    """Returns the RMSE at a cost, interpolated between a sampler's budgets; None outside of them.

    Both axes are logarithmic, in which errors fall along nearly straight lines.

    Args:
      rows: of one sampler on one scene.
      column: the cost's, a value of ``COSTS``.
      cost: the cost.
    """
    points = sorted((row[column], max(row["rmse"], 1e-9)) for row in rows if row[column])
    if not points or not points[0][0] <= cost * (1 + 1e-6) or not cost <= points[-1][0] * (1 + 1e-6):
        return None
    x, y = np.log(np.asarray(points, np.float64)).T
    return float(np.exp(np.interp(np.log(cost), x, y)))


def equal_cost(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compares samplers on each scene at the three costs of stratified sampling with 32 evaluations.

    Where that was not measured, the first sampler's middle budget is the yardstick.

    Returns:
      One entry per scene: the costs, and for each sampler the RMSE at each cost (None where it has none).
    """
    entries = []
    for scene in dict.fromkeys(row["scene"] for row in rows):
        here = [row for row in rows if row["scene"] == scene]
        samplers = list(dict.fromkeys(row["sampler"] for row in here))
        own = [row for row in here if row["sampler"] == (YARDSTICK if YARDSTICK in samplers else samplers[0])]
        chosen = [row for row in own if row["budget"] == YARDSTICK_BUDGET] or [own[len(own) // 2]]
        costs = {kind: chosen[0][column] for kind, column in COSTS.items()}
        rmse = {
            name: {
                kind: None if cost is None else rmse_at_cost([r for r in here if r["sampler"] == name], column, cost)
                for (kind, column), cost in zip(COSTS.items(), costs.values(), strict=True)
            }
            for name in samplers
        }
        entries.append(dict(scene=scene, yardstick=chosen[0]["sampler"], costs=costs, rmse=rmse))
    return entries


def print_samplers(result: dict[str, Any]) -> None:
    """Prints a table for each scene, then the samplers at equal cost."""
    console = Console()
    for scene in dict.fromkeys(row["scene"] for row in result["rows"]):
        console.print(_scene_table(result, scene))
    console.print(_cost_table(result))


def _scene_table(result: dict[str, Any], scene: str) -> Table:
    table = Table(
        title=f"{scene} · {result['rays']} rays, {result['keys']} keys · {result['device']}", title_justify="left"
    )
    table.add_column("sampler")
    for heading in ("budget", *(heading for heading, _ in COLUMNS.values())):
        table.add_column(heading, justify="right")
    last = None
    for row in (row for row in result["rows"] if row["scene"] == scene):
        if last not in (None, row["sampler"]):
            table.add_section()
        values = {key: row[key] if key != "peak_bytes" or row[key] is None else row[key] / 1e6 for key in COLUMNS}
        cells = ["–" if value is None else COLUMNS[key][1].format(value) for key, value in values.items()]
        table.add_row(row["sampler"] if row["sampler"] != last else "", str(row["budget"]), *cells)
        last = row["sampler"]
    return table


def _cost_table(result: dict[str, Any]) -> Table:
    title = "RMSE at the cost of stratified sampling with 32 evaluations: by evaluations | FLOPs | time (with warm-up)"
    table = Table(title=title, title_justify="left")
    samplers = list(result["recipes"])
    table.add_column("scene")
    for name in samplers:
        table.add_column(name, justify="right")
    for entry in result["equal_cost"]:
        cells = []
        for name in samplers:
            values = entry["rmse"][name].values()
            cells.append(" | ".join("–" if value is None else f"{value:.4f}" for value in values))
        table.add_row(entry["scene"], *cells)
    return table
