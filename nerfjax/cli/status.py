"""``nerfjax status``: where a run stands, read from its folder while it runs, or after."""

from __future__ import annotations

import argparse
import pathlib

EPILOG = """\
Reads the folder only: it works beside a run in progress, and after the folder
was moved.

example:
  nerfjax status runs/fox
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("run", metavar="RUN", type=pathlib.Path, help="the run's folder")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from nerfjax.runs.progress import read_progress

    progress = read_progress(arguments.run)
    table = Table(title=escape(arguments.run.resolve().name), show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in _rows(progress):
        table.add_row(name, escape(value))
    Console().print(table)
    return 0


def _rows(progress) -> list[tuple[str, str]]:
    from nerfjax.quantities import format_count, format_seconds

    total, last, end = progress.total_steps, progress.last, progress.manifest.get("end") or {}
    share = f" of {total:,} ({progress.step / total:.0%})" if total else ""
    rows = [("state", _state(progress)), ("step", f"{progress.step:,}{share}")]
    rows += _stage(progress)
    if progress.state == "running" and last.get("eta_seconds") is not None:
        rows.append(("time left", format_seconds(last["eta_seconds"])))
    for name, key, show in (
        ("loss", "loss", "{:.5f}".format),
        ("training PSNR", "psnr", "{:.2f} dB".format),
        ("rays/s", "rays_per_second", format_count),
        ("training time", "seconds", format_seconds),
    ):
        value = end.get("seconds") if key == "seconds" and end.get("seconds") is not None else last.get(key)
        if value is not None:
            rows.append((name, show(value)))
    if progress.silence is not None:
        rows.append(("last report", f"{format_seconds(progress.silence)} ago"))
    rows.append(("checkpoints", ", ".join(f"{step:,}" for step in progress.checkpoints) or "none"))
    for step, evaluation in list(progress.evaluations.items())[-1:]:
        mean = evaluation["mean"]
        rows.append(
            (f"test, step {step:,}", f"PSNR {mean['psnr']:.2f} dB, SSIM {mean['ssim']:.4f}, n = {evaluation['n']}")
        )
    return rows


def _stage(progress) -> list[tuple[str, str]]:
    """Stage of the curriculum and rung of the ladder, where there is more than one."""
    stages, last = progress.manifest.get("curriculum") or [], progress.last
    rows, index = [], last.get("stage")
    if index is None or index >= len(stages):
        return rows
    if len(stages) > 1:
        rows.append(("stage", f"{index + 1} of {len(stages)}, {stages[index]['sampler']['name']}"))
    rays = stages[index]["rays_by_rung"]
    if len(rays) > 1:
        rows.append(("rung", f"{last['rung'] + 1} of {len(rays)}, {rays[last['rung']]:,} rays a step"))
    return rows


def _state(progress) -> str:
    end = progress.manifest.get("end") or {}
    if progress.state == "stopped":
        reason = end.get("status", "killed")
        return f"stopped ({reason}); the same train command goes on from step {max(progress.checkpoints, default=0):,}"
    return progress.state
