"""Trains the same field on the same scene with every sampler: quality at equal wall time and at equal evaluations.

    make trial NAME=sampler_study
    .venv/bin/python experiments/sampler_study.py --samplers=stratified,compose --seeds=3 --seconds=30 --out=runs/study

The demo's field and batch, each sampler with about 32 evaluations of the main field per ray, a constant learning rate
(so that every beginning of a run is itself a run of that length, and one run gives the whole curve), at least three
seeds. A run goes on until it has spent both the time and the evaluations, or three times the time; its held-out PSNR is
taken when it passes an eighth, a quarter, a half and all of either. Evaluation and compilation are not counted.

Printed: mean PSNR with its 95 % confidence interval (Student's t over seeds) for either cost, and which sampler is
better than which, said only where the intervals are apart. In the folder: one JSON file for each run, by which an
interrupted study goes on, and quality_by_cost.png. With the defaults about fifty minutes on two idle CPU cores.
Expected: at equal evaluations compose, adaptive and proposal first and stratified last; at equal time they are closer.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import sys
import time

import jax
import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from nerfjax.bench.sampler_plots import color_of, tidy
from nerfjax.evaluate import score_views
from nerfjax.samplers import SAMPLERS
from nerfjax.train.build import build_experiment
from nerfjax.train.configuration import load_config

SETTINGS = {
    "stratified": {"num_samples": 32},
    "hierarchical": {"num_coarse": 8, "num_fine": 16},
    "proposal": {"num_proposal": (48,), "num_final": 32},
    "occupancy": {"samples_per_ray": 32.0, "diagonal_steps": 256, "resolution": 64},
    "compose": {"num_proposal": (48,), "num_final": 32, "resolution": 64},
    "adaptive": {"num_proposal": (48,), "samples_per_ray": 32.0},
    "neus": {"num_uniform": 9, "num_importance": 8},
}
SHARES = (0.125, 0.25, 0.5, 1.0)  # of the whole cost, at which quality is taken
PATIENCE = 3.0  # times the time that a run may take
COSTS = {"evaluations": "million evaluations of the main field", "seconds": "seconds of training"}
CONFIDENCE = 0.95


def make_config(sampler: str, seed: int, options: argparse.Namespace):
    """Returns the config of one run."""
    chosen = {f"sampler.{sampler}.{key}": value for key, value in SETTINGS[sampler].items()}
    return load_config("demo", {
        "scene.source": options.scene, "train.seed": seed, "train.batch_rays": options.batch_rays,
        "train.steps": 10**6, "sampler.name": sampler, "schedule.log_lerp.initial": 5e-3,
        "schedule.log_lerp.final": 5e-3, **chosen,
    })  # fmt: skip


def train_run(sampler: str, seed: int, options: argparse.Namespace) -> list[dict]:
    """Trains one run; returns [{cost: kind, share, seconds, evaluations (millions), step, psnr}]."""
    experiment = build_experiment(make_config(sampler, seed, options))
    count = experiment.config.train.steps_per_dispatch
    dispatch, state = experiment.dispatch_for(count), experiment.init_state()
    whole = {"seconds": options.seconds, "evaluations": options.evaluations}
    waiting = {kind: list(SHARES) for kind in whole}
    spent, points, step = {"seconds": 0.0, "evaluations": 0.0}, [], 0
    while any(waiting.values()) and spent["seconds"] < PATIENCE * options.seconds:
        data = experiment.feed(step, count)
        start = time.perf_counter()
        state, metrics = jax.block_until_ready(dispatch(state, data))
        if step:  # the first dispatch compiles; its seconds are taken to be those of the second
            spent["seconds"] += (time.perf_counter() - start) * (2 if step == count else 1)
        spent["evaluations"] += float(np.sum(metrics["samples_per_ray"])) * options.batch_rays / 1e6
        step += count
        due = [(kind, share) for kind in whole for share in waiting[kind] if spent[kind] >= share * whole[kind]]
        if due:
            psnr = score_views(experiment, state, count=options.views)["eval/psnr"]
            for kind, share in due:
                waiting[kind].remove(share)
                points.append({"cost": kind, "share": share, **spent, "step": step, "psnr": psnr})
    return points


def study(options: argparse.Namespace) -> dict[str, dict[int, list[dict]]]:
    """Trains all runs that are not in the folder yet; returns {sampler: {seed: points}}."""
    folder = pathlib.Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {key: getattr(options, key) for key in ("scene", "batch_rays", "seconds", "evaluations", "views")}
    runs = {}
    # Seeds outside: an interrupted study has all samplers equally often.
    for seed, sampler in itertools.product(range(options.seeds), options.samplers):
        file = folder / f"{sampler}-{seed}.json"
        wanted = json.loads(json.dumps({**settings, "sampler": SETTINGS[sampler]}))
        done = json.loads(file.read_text()) if file.is_file() else {}
        if done.get("settings") != wanted:
            print(f"{sampler}, seed {seed}", file=sys.stderr, flush=True)
            done = {"settings": wanted, "points": train_run(sampler, seed, options)}
            partial = file.with_suffix(".partial")
            partial.write_text(json.dumps(done, indent=1))
            partial.replace(file)
        runs.setdefault(sampler, {})[seed] = done["points"]
    return runs


def values_at(runs: dict, kind: str, share: float) -> dict[str, list[float]]:
    """Returns {sampler: PSNR of each seed that came so far}."""
    return {
        sampler: [p["psnr"] for points in seeds.values() for p in points if p["cost"] == kind and p["share"] == share]
        for sampler, seeds in runs.items()
    }


def interval(values: list[float]) -> tuple[float, float]:
    """Returns (mean, half width of the confidence interval); infinitely wide for one value."""
    if len(values) < 2:
        return (float(np.mean(values)) if values else float("nan")), float("inf")
    quantile = stats.t.ppf(0.5 + 0.5 * CONFIDENCE, len(values) - 1)
    return float(np.mean(values)), float(quantile * np.std(values, ddof=1) / np.sqrt(len(values)))


def ranking(values: dict[str, list[float]]) -> list[tuple[str, str]]:
    """Returns (better, worse) for every pair of samplers whose confidence intervals are apart."""
    ends = {name: (mean - half, mean + half) for name, (mean, half) in ((n, interval(v)) for n, v in values.items())}
    return [(a, b) for a, b in itertools.permutations(ends, 2) if ends[a][0] > ends[b][1]]


def report(runs: dict, kind: str, whole: float) -> None:
    """Prints the table and the ranking for one cost."""
    values = values_at(runs, kind, 1.0)
    print(f"\nafter {whole:g} {COSTS[kind]}")
    for name, own in sorted(values.items(), key=lambda item: -np.nan_to_num(interval(item[1])[0])):
        mean, half = interval(own)
        print(f"  {name:<14}{mean:6.2f} ± {half:.2f} dB  ({len(own)} seeds)" if own else f"  {name:<14}not reached")
    pairs = ranking(values)
    for name in values:
        worse = [b for a, b in pairs if a == name]
        if worse:
            print(f"  {name} is better than {', '.join(worse)}")
    if not pairs:
        print("  no two intervals are apart")


def draw(runs: dict, options: argparse.Namespace) -> Figure:
    """Draws PSNR against either cost, with confidence intervals."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    for axes, (kind, label) in zip(figure.subplots(1, 2, sharey=True), COSTS.items(), strict=True):
        for number, sampler in enumerate(runs):
            points = [(share, *interval(values_at(runs, kind, share)[sampler])) for share in SHARES]
            points = [point for point in points if np.isfinite(point[1])]
            if not points:
                continue
            share, mean, half = np.asarray(points, np.float64).T
            # Slightly apart, so that bars do not hide each other.
            x = share * getattr(options, kind) * 2.0 ** (0.03 * (number - len(runs) / 2))
            half = np.where(np.isfinite(half), half, 0.0)
            style = dict(color=color_of(sampler), marker="o", markersize=4, linewidth=1.6, capsize=2.5)
            axes.errorbar(x, mean, half, label=sampler, **style)
        axes.set_xscale("log", base=2)
        axes.set_xlabel(label, fontsize=10)
        tidy(axes)
        figure.axes[0].set_ylabel("held-out PSNR, dB", fontsize=10)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside upper center", ncols=len(labels), fontsize=9)
    return figure


def main(arguments: list[str]) -> int:
    """Runs the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [name for name in SETTINGS if name in SAMPLERS]
    parser.add_argument("--samplers", type=lambda text: text.split(","), default=known, help="default: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="time of a run (default: 60)")
    parser.add_argument("--evaluations", type=float, default=16.0, help="millions, of a run (default: 16: 500 steps)")
    parser.add_argument("--scene", default="analytic:toys?views=60&size=128&val=0&test=8")
    parser.add_argument("--batch-rays", type=int, default=1024)
    parser.add_argument("--views", type=int, default=4, help="held-out views that are scored (default: 4)")
    parser.add_argument("--out", default="runs/sampler_study")
    options = parser.parse_args(arguments)
    unknown = set(options.samplers) - set(known)
    if unknown:
        parser.error(f"no such sampler: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    runs = study(options)
    for kind in COSTS:
        report(runs, kind, getattr(options, kind))
    file = pathlib.Path(options.out) / "quality_by_cost.png"
    draw(runs, options).savefig(file, dpi=150)
    print(f"\nfigure  {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
