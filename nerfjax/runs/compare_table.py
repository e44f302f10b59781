"""The comparison in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nerfjax.quantities import format_count, format_seconds
from nerfjax.runs.compare import Comparison, brief
from nerfjax.runs.compare_document import stamps
from nerfjax.runs.confounders import CONFOUNDER, COST, DECLARED, NOTE, REPLICATE, SUBJECT, Difference
from nerfjax.runs.ranking import Ranking
from nerfjax.runs.spending import Spent, device_name
from nerfjax.runs.statistics import CONFIDENCE, Interval

UNITS = {"psnr": ("PSNR (dB)", 2), "ssim": ("SSIM", 4), "lpips": ("LPIPS", 4)}
KIND_WORDS = {
    **{CONFOUNDER: "confounder", SUBJECT: "subject", DECLARED: "declared", REPLICATE: "seed", COST: "hardware"},
    **{NOTE: "packages"},
}
SHOWN_DIFFERENCES = 8
NOTHING = {"replicate": "nothing but the seed", "equal": "nothing"}


def print_comparison(comparison: Comparison, ranking: Ranking | None = None, *, console: Console | None = None) -> None:
    """Prints runs, pairs, results, and the ranking where there is one."""
    console = console or Console()
    for stamp in stamps(comparison, ranking):
        console.print(f"! {stamp}", style="bold yellow", markup=False, highlight=False, soft_wrap=True)
    console.print(_runs_table(comparison))
    console.print(_costs_table(comparison))
    _print_pairs(comparison, console)
    if comparison.cells:
        console.print(_results_table(comparison))
    if ranking is not None:
        console.print(_ranking_table(comparison, ranking))
        console.print(basis_in_words(ranking), style="dim", markup=False, highlight=False)


def metric_title(metric: str) -> str:
    """Returns a metric's name with its unit."""
    return UNITS.get(metric, (metric, 4))[0]


def digits_of(metric: str) -> int:
    """Returns how many decimals of a metric are worth showing."""
    return UNITS.get(metric, (metric, 4))[1]


def in_words(interval: Interval | None, metric: str) -> str:
    """Returns ``31.02 ± 0.13``, without the interval where one seed says nothing of it."""
    if interval is None:
        return "—"
    digits = digits_of(metric)
    spread = "" if interval.high is None else f" ± {interval.high - interval.mean:.{digits}f}"
    return f"{interval.mean:.{digits}f}{spread}"


def spent_in_words(spent: Spent) -> dict[str, str]:
    """Returns the cost of a run under its headings; "—" is what was not recorded."""
    amounts = {
        "steps": f"{spent.step:,}",
        "time": None if spent.seconds is None else format_seconds(spent.seconds),
        "rays": spent.rays and format_count(spent.rays),
        "evaluations": spent.evaluations and format_count(spent.evaluations),
        "FLOPs": spent.flops and f"{spent.flops:.2e}",
        "device-hours": None if spent.device_hours is None else f"{spent.device_hours:.3g}",
    }
    return {name: str(amount or "—") for name, amount in amounts.items()}


def basis_in_words(ranking: Ranking) -> str:
    """Says what the tests of a ranking are over."""
    corrected = f", corrected for {len(ranking.tests)} pairs (Holm)" if len(ranking.tests) > 1 else ""
    level = f"{corrected}, level {1 - CONFIDENCE:.2g}."
    if ranking.basis == "seeds":
        return f"Welch's t over seeds{level}"
    return (
        f"Some method has one seed on some scene: paired t over the test images{level} "
        "It tells these runs apart; another seed may rank otherwise."
    )


def grouped_pairs(comparison: Comparison) -> list[tuple[str, str, tuple[Difference, ...]]]:
    """Returns (pairs in words, verdict, differences): what all runs of two methods differ in is told once.

    Of two runs on different scenes there is nothing more to say than that.
    """
    groups: dict[tuple, dict[tuple, list[set[str]]]] = {}
    for pair in comparison.pairs:
        if not pair.same_scene and len(comparison.scenes) > 1:
            continue
        ends = [_method_of(comparison, run) for run in (pair.first, pair.second)]
        told = [d._replace(values=(brief(d.values[0]), brief(d.values[1]))) for d in shown_differences(pair)]
        runs = (pair.first, pair.second)
        if ends[0] > ends[1]:  # so that A against B and B against A are told once
            ends, runs = ends[::-1], runs[::-1]
            told = [d._replace(values=d.values[::-1]) for d in told]
        scene = next(s for s, group in enumerate(comparison.scenes) if pair.first in group.runs)
        sides = groups.setdefault((pair.verdict, tuple(told)), {}).setdefault((scene, *ends), [set(), set()])
        for side, run in zip(sides, runs, strict=True):
            side.add(comparison.records[run].label)
    return [
        (", ".join(_pairs_in_words(*sides, inside=key[1] == key[2]) for key, sides in cells.items()), verdict, told)
        for (verdict, told), cells in groups.items()
    ]


def _pairs_in_words(first: set[str], second: set[str], *, inside: bool) -> str:
    if inside:
        return f"{_letters(first | second)}"
    return f"{_letters(first)} – {_letters(second)}"


def _letters(labels: set[str]) -> str:
    ordered = sorted(labels, key=lambda label: (len(label), label))
    return ("" if all(len(label) == 1 for label in ordered) else " ").join(ordered)


def _method_of(comparison: Comparison, run: int) -> int:
    return next(m for m, method in enumerate(comparison.methods) if run in method.runs)


def shown_differences(pair) -> list[Difference]:
    """Returns what differs, confounders first; the options of members with different names say nothing."""
    heads = {d.key.removesuffix(".name") for d in pair.differences if d.key.endswith(".name") and d.kind == DECLARED}
    kept = [d for d in pair.differences if d.key.endswith(".name") or d.key.split(".")[0] not in heads]
    kept = [d for d in kept if d.kind not in (NOTE, REPLICATE)]
    order = list(KIND_WORDS)
    return sorted(kept, key=lambda d: (order.index(d.kind), d.key != "sampler.name", d.key))


def verdict_style(verdict: str) -> str:
    """Returns the colour of a verdict."""
    return {"confounded": "red", "declared": "cyan", "replicate": "green", "equal": "green"}[verdict]


def difference_in_words(difference: Difference) -> str:
    """Returns ``precision: default | highest``, with the category where the key does not say it."""
    one, other = (brief(value) for value in difference.values)
    of = "" if difference.key.startswith(difference.category) else f" [{difference.category}]"
    return f"{difference.key}{of}: {one} | {other}"


def _runs_table(comparison: Comparison) -> Table:
    many = len(comparison.scenes) > 1
    table = Table(title=f"runs, measured on the {comparison.split} split", title_justify="left")
    for heading in ("", "run", *(["scene"] if many else []), "method"):
        table.add_column(heading, overflow="fold")
    for heading in ("seed", *map(metric_title, comparison.metrics)):
        table.add_column(heading, justify="right", no_wrap=True)
    for i, record in enumerate(comparison.records):
        scene = [escape(scene.name) for scene in comparison.scenes if i in scene.runs and many]
        method = next(method.name for method in comparison.methods if i in method.runs)
        mean = comparison.evaluations[i].mean if i in comparison.evaluations else {}
        values = [f"{mean[m]:.{digits_of(m)}f}" if m in mean else "—" for m in comparison.metrics]
        table.add_row(record.label, escape(record.name), *scene, escape(method), record.seed, *values)
    reasons = (f"{comparison.records[i].label}: {reason}" for i, reason in comparison.unusable.items())
    table.caption = escape("\n".join(reasons)) or None
    table.caption_justify, table.caption_style = "left", "red"
    return table


def _costs_table(comparison: Comparison) -> Table:
    costs = [spent_in_words(spent) for spent in comparison.spent]
    headings = [name for name in costs[0] if any(each[name] != "—" for each in costs)]
    table = Table(title="what that took", title_justify="left")
    table.add_column("")
    for heading in headings:
        table.add_column(heading, justify="right")
    table.add_column("hardware", overflow="fold")
    for record, cost in zip(comparison.records, costs, strict=True):
        table.add_row(record.label, *(cost[heading] for heading in headings), escape(device_name(record)))
    return table


def _print_pairs(comparison: Comparison, console: Console) -> None:
    table = Table(title="what differs", title_justify="left", show_header=False)
    table.add_column(overflow="fold", min_width=5)
    table.add_column()
    table.add_column(overflow="fold", ratio=1)
    for labels, verdict, differences in grouped_pairs(comparison):
        lines = [f"{KIND_WORDS[d.kind]:<10} {difference_in_words(d)}" for d in differences[:SHOWN_DIFFERENCES]]
        more = len(differences) - SHOWN_DIFFERENCES
        lines += [f"and {more} more: --json has them all"] if more > 0 else []
        table.add_row(labels, f"[{verdict_style(verdict)}]{verdict}[/]", escape("\n".join(lines) or NOTHING[verdict]))
    if table.row_count:
        console.print(table)


def _results_table(comparison: Comparison) -> Table:
    many = len(comparison.scenes) > 1
    seeds = {len(cell.seeds[comparison.metric]) for cell in comparison.cells.values()}
    spread = f" ± {CONFIDENCE:.0%} interval over seeds" if max(seeds) > 1 else "; one seed each"
    table = Table(title=f"{metric_title(comparison.metric)}, mean of the {comparison.split} views{spread}")
    table.title_justify = "left"
    table.add_column("method", overflow="fold")
    for scene in comparison.scenes:
        table.add_column(escape(scene.name), justify="right")
    if many:
        table.add_column(f"mean of {len(comparison.scenes)} scenes", justify="right", style="bold")
    table.add_column("seeds", justify="right")
    for m, method in enumerate(comparison.methods):
        cells = [comparison.cells.get((m, s)) for s in range(len(comparison.scenes))]
        if not any(cells):
            continue
        metric = comparison.metric
        values = [in_words(cell.interval(metric) if cell else None, metric) for cell in cells]
        mean = [in_words(comparison.mean(m, metric), metric)] if many else []
        counts = _span([len(cell.seeds[metric]) for cell in cells if cell])
        table.add_row(escape(method.name), *values, *mean, counts)
    incomplete = many and not all(comparison.complete(m) for m in range(len(comparison.methods)))
    table.caption = "no mean where a scene is missing" if incomplete else None
    table.caption_justify = "left"
    return table


def _ranking_table(comparison: Comparison, ranking: Ranking) -> Table:
    scenes = ", ".join(comparison.scenes[s].name for s in ranking.scenes)
    forced = "FORCED " if ranking.objections else ""
    table = Table(
        title=f"{forced}ranking by {metric_title(comparison.metric)} on {escape(scenes)}", title_justify="left"
    )
    for heading in ("rank", "method", "mean", ""):
        table.add_column(heading, overflow="fold", justify="right" if heading in ("rank", "mean") else "left")
    digits = digits_of(comparison.metric)
    for m, rank, mean in zip(ranking.order, ranking.ranks, ranking.means, strict=True):
        alike = ", ".join(comparison.methods[other].name for other in ranking.alike(m))
        told = escape(f"not distinguishable from {alike}") if alike else ""
        table.add_row(str(rank), escape(comparison.methods[m].name), f"{mean:.{digits}f}", told)
    return table


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}–{high}"
