"""``nerfjax status``: where a run stands and what it costs, read from its folder while it runs, or after."""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import time
from typing import Any

from nerfjax.errors import UserError

EPILOG = """\
Reads the folder only: it works beside a run in progress, and after the folder
was moved.

example:
  nerfjax status runs/fox --watch
"""
REFRESH_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("run", metavar="RUN", type=pathlib.Path, help="the run's folder")
    parser.add_argument("--watch", action="store_true", help="refresh until the run ends (Ctrl-C leaves it alone)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table or the document."""
    from nerfjax.runs.progress import read_progress
    from nerfjax.runs.status_document import status_document

    if arguments.watch and arguments.json:
        raise UserError("--json prints one document: it cannot watch.", field="--watch", fix="give one of the two")
    if arguments.json:
        document = status_document(read_progress(arguments.run), run=arguments.run.resolve().name)
        print(json.dumps(_finite(document), allow_nan=False))
    elif arguments.watch:
        watch(arguments.run)
    else:
        from rich.console import Console

        Console().print(_table(arguments.run)[0])
    return 0


def watch(folder: pathlib.Path, *, seconds: float = REFRESH_SECONDS, console: Any = None) -> None:
    """Shows the table until the run is no longer running, or Ctrl-C."""
    from rich.live import Live

    table, running = _table(folder)
    try:
        with Live(table, console=console, auto_refresh=False) as live:
            while running:
                time.sleep(seconds)
                table, running = _table(folder)
                live.update(table, refresh=True)
    except KeyboardInterrupt:
        return


def _table(folder: pathlib.Path) -> tuple[Any, bool]:
    """The table, and whether the run is running."""
    from rich.markup import escape
    from rich.table import Table

    from nerfjax.runs.progress import read_progress
    from nerfjax.runs.status_document import status_document

    progress = read_progress(folder)
    table = Table(title=escape(folder.resolve().name), show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    document = status_document(progress, run=folder.resolve().name)
    for name, value in [*_standing(progress, document), *_figures(document), *_results(progress)]:
        table.add_row(name, escape(value))
    return table, progress.state == "running"


def _standing(progress, document: dict[str, Any]) -> list[tuple[str, str]]:
    from nerfjax.quantities import format_seconds

    total = progress.total_steps
    share = f" of {total:,} ({progress.step / total:.0%})" if total else ""
    rows = [("state", _state(progress)), ("step", f"{progress.step:,}{share}"), *_stage(progress)]
    for name, value in (("time left", document["eta_seconds"]), ("training time", document["seconds"])):
        if value is not None:
            rows.append((name, format_seconds(value)))
    if progress.silence is not None:
        rows.append(("last report", f"{format_seconds(progress.silence)} ago"))
    return rows


def _figures(document: dict[str, Any]) -> list[tuple[str, str]]:
    """What the last report says, as far as it says anything."""
    from nerfjax.quantities import format_count

    figures = {**document["training"], **document["speed"], **document["sampling"], **document["resources"]}
    shown = (
        ("loss", "loss", "{:.5f}".format),
        ("training PSNR", "psnr", "{:.2f} dB".format),
        ("step time", "step_seconds", lambda v: f"{1e3 * v:.1f} ms"),
        ("rays/s", "rays_per_second", format_count),
        ("samples/s", "samples_per_second", format_count),
        ("samples/ray", "samples_per_ray", "{:.1f}".format),
        ("grid occupied", "occupancy", "{:.1%}".format),
        ("packed room used", "packed_fill", "{:.1%}".format),
        ("samples left out", "overflow", lambda v: f"{v:.0f} a step"),
        ("device memory", "device_memory_bytes", _bytes),
        ("host memory", "host_memory_bytes", _bytes),
        ("processor", "cpu_cores", "{:.1f} cores busy".format),
    )
    rows = [(name, show(figures[key])) for name, key, show in shown if key in figures]
    if "flops_per_second" in figures:
        share = f", {figures['matmul_share']:.1%} of what matrix products reach" if "matmul_share" in figures else ""
        rows.append(("operations", f"{format_count(figures['flops_per_second'])} FLOP/s{share}"))
    if document["time_shares"]:
        parts = sorted(document["time_shares"].items(), key=lambda item: -item[1])
        rows.append(("time goes to", ", ".join(f"{part} {share:.0%}" for part, share in parts if share >= 0.005)))
    if document["compile_seconds"]:
        spent = document["compile_seconds"]
        names = [f"stage {int(stage) + 1} " if len(spent) > 1 else "" for stage in spent]
        each = [f"{name}{seconds:.1f} s" for name, seconds in zip(names, spent.values(), strict=True)]
        rows.append(("compiled in", ", ".join(each)))
    if document["saves"]:
        blocked, background = (document["saves"][f"{name}_seconds"] for name in ("blocked", "background"))
        rows.append(("last save", f"held training {blocked:.2f} s, and took {background:.2f} s beside it"))
    if "device_hours" in figures:
        price = f", cost {figures['cost']:.2f}" if "cost" in figures else ""
        rows.append(("spent", f"{figures['device_hours']:.3f} device-hours{price}"))
    return rows


def _results(progress) -> list[tuple[str, str]]:
    rows = [("checkpoints", ", ".join(f"{step:,}" for step in progress.checkpoints) or "none")]
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


def _bytes(value: float | int) -> str:
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.1f} MiB"


def _finite(value: Any) -> Any:
    """The document without what JSON cannot say: numbers that are not finite are null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
