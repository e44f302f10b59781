"""A run that is killed at random moments, and started again each time, ends in the same bits as one left alone.

    make trial NAME=kill        (or: python experiments/kill.py --kills=3 --stops=3 --seed=1)

A small run with a curriculum of two stages is trained three times, each by the same ``nerfjax train`` command: once
left alone, once killed with SIGKILL at 20 random moments, once stopped with SIGTERM at 20. A moment is in a step, while
a checkpoint is written, in an evaluation, or while a stage is entered and compiled: a thread in the process itself
sends the signal a random time after that has begun. SIGKILL must end the process by the signal, SIGTERM with exit code
75. In the end every leaf of the final checkpoint and every number of metrics.jsonl but for times must be equal. Prints
a table of the moments, and exits with 1 where something differs. About ten minutes on two CPU cores.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

RUNS = pathlib.Path("runs/kill")
STEPS, STAGE, CHECKPOINT, EVALUATE = 6000, 3000, 60, 150
FLAGS = (
    "--config=demo",
    "--config.scene.source=analytic:spheres?views=4&size=16&val=0&test=1",
    f"--config.train.steps={STEPS}",
    f"--config.train.checkpoint_every={CHECKPOINT}",
    f"--config.train.eval_every={EVALUATE}",
    "--config.train.log_every=50",
    "--config.train.batch_rays=64",
    "--config.sampler.name=proposal",
    "--config.sampler.proposal.num_proposal=(12,)",
    "--config.sampler.proposal.num_final=6",
    "--config.sampler.stratified.num_samples=8",
    "--config.field.instant_ngp.levels=3",
    "--config.field.instant_ngp.log2_size=9",
    "--config.network.hashgrid.levels=2",
    "--config.network.hashgrid.log2_size=9",
    "--config.parallel.devices=1",
    f"--config.curriculum.stage0.until={STAGE}",
    "--config.curriculum.stage0.sampler=stratified",
    "--config.curriculum.stage1.sampler=proposal",
)
# How long after its beginning a moment may lie, seconds: about as long as what has begun takes.
SPANS = {"step": 0.02, "checkpoint": 0.3, "evaluation": 0.2, "stage": 1.0}
EXPECTED = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 75}


class Moment(NamedTuple):
    """When a process is to be hit: ``delay`` seconds after the first ``kind`` that begins at ``step`` or later."""

    kind: str
    step: int
    delay: float


def next_moment(generator: random.Random, newest: int, left: int) -> Moment:
    """Returns a moment that a run which goes on from step ``newest`` reaches, ``left`` more of them before its end."""
    reach = max((STEPS - newest) // (left + 2), 2)
    if newest <= STAGE < newest + 2 * reach:
        return Moment("stage", STAGE, generator.uniform(0.0, SPANS["stage"]))
    kind = generator.choices(("step", "checkpoint", "evaluation"), (7, 6, 4))[0]
    return Moment(kind, newest + generator.randrange(1, reach), generator.uniform(0.0, SPANS[kind]))


def hit(moment: Moment, number: int) -> None:
    """Arranges that the signal falls on this process at the moment."""
    from nerfjax import evaluate
    from nerfjax.train.checkpoint import Checkpoints
    from nerfjax.train.feeds import ResidentFeed
    from nerfjax.train.stage import Stage

    begun = threading.Event()

    def watch(function: Callable, step_of: Callable[..., int]) -> Callable:
        @functools.wraps(function)
        def watched(*arguments: Any, **options: Any) -> Any:
            if not begun.is_set() and step_of(*arguments) >= moment.step:
                begun.set()
                timer = threading.Timer(moment.delay, os.kill, (os.getpid(), number))
                timer.daemon = True
                timer.start()
            return function(*arguments, **options)

        return watched

    owner, name, step_of = {
        "step": (ResidentFeed, "__call__", lambda feed, step, count: step),
        "checkpoint": (Checkpoints, "save", lambda checkpoints, step, *rest: step),
        "evaluation": (evaluate, "score_views", lambda experiment, state: int(state.step)),
        "stage": (Stage, "enter", lambda stage, *rest: stage.begin),
    }[moment.kind]
    setattr(owner, name, watch(getattr(owner, name), step_of))


def start(
    workdir: pathlib.Path, moment: Moment | None = None, number: int = 0, *, flags: Sequence[str] = FLAGS
) -> tuple[int, str, float]:
    """Runs ``nerfjax train`` in a process that is hit at the moment; returns (exit code, output, seconds)."""
    plan = json.dumps([moment, number] if moment else None)
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, __file__, "child", plan, *flags, f"--workdir={workdir}"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
    )  # fmt: skip
    return done.returncode, done.stdout, time.monotonic() - begin


def child(plan: str, flags: Sequence[str]) -> int:
    """What a process of ``start`` does."""
    from nerfjax.cli.main import main

    if (found := json.loads(plan)) is not None:
        hit(Moment(*found[0]), found[1])
    return main(["train", *flags])


def leave_alone(workdir: pathlib.Path) -> None:
    """Trains to the end without a signal."""
    code, output, seconds = start(workdir)
    if code:
        raise SystemExit(f"{workdir}: exit code {code}\n{output}")
    print(f"{workdir.name}: trained to the end in {seconds:.0f} s", flush=True)


def trouble(workdir: pathlib.Path, number: int, count: int, generator: random.Random) -> list[str]:
    """Trains with a signal at every moment, then to the end; prints a row for each, and returns what went wrong."""
    name, wrong = signal.Signals(number).name, []
    print(
        f"\n{'':>3} {name:<8} {'in a':<11} {'at step':>7} {'after ms':>8} {'exit':>5}  on disk afterwards", flush=True
    )
    for i in range(1, count + 1):
        moment = next_moment(generator, newest_whole(workdir), count - i)
        code, output, _ = start(workdir, moment, number)
        found = describe_checkpoints(workdir)
        print(
            f"{i:>3} {name:<8} {moment.kind:<11} {moment.step:>7} {1000 * moment.delay:>8.0f} {code:>5}  {found}",
            flush=True,
        )
        if code != EXPECTED[number]:
            wrong.append(f"{name} {i}: exit code {code} instead of {EXPECTED[number]}\n{output}")
    leave_alone(workdir)
    return wrong


def newest_whole(workdir: pathlib.Path) -> int:
    """Returns the step of the newest finished checkpoint, from which the run will go on; 0 where there is none."""
    folders = [path.parent for path in (workdir / "checkpoints").glob("*/SHA256SUMS")]
    return max((int(folder.name) for folder in folders if folder.name.isdigit()), default=0)


def describe_checkpoints(workdir: pathlib.Path) -> str:
    """Says which checkpoints there are, and which of them are not finished."""
    folders = sorted((workdir / "checkpoints").glob("*"), key=lambda path: (len(path.name), path.name))
    texts = [path.name + ("" if (path / "SHA256SUMS").exists() else " (unfinished)") for path in folders]
    return ", ".join(text[:40] for text in texts) or "no checkpoint"


def differences(one: pathlib.Path, other: pathlib.Path) -> tuple[int, int, list[str]]:
    """Returns (leaves, rows, what differs) of two finished runs."""
    import jax
    import numpy as np

    from nerfjax.telemetry.meters import is_measured
    from nerfjax.train.run import load_run
    from nerfjax.train.state import named_leaves

    states = [named_leaves(jax.device_get(load_run(workdir).state)) for workdir in (one, other)]
    wrong = (
        [f"other leaves: {sorted(states[0].keys() ^ states[1].keys())}"] if states[0].keys() != states[1].keys() else []
    )
    for name in states[0].keys() & states[1].keys():
        a, b = (np.asarray(state[name]) for state in states)
        if a.dtype != b.dtype or a.tobytes() != b.tobytes():
            wrong.append(f"{name}: other bits")
    records = []
    for workdir in (one, other):
        rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
        records.append([{key: value for key, value in row.items() if not is_measured(key)} for row in rows])
    if len(records[0]) != len(records[1]):
        steps = [[row["step"] for row in rows] for rows in records]
        wrong.append(f"metrics.jsonl: reports at the steps {steps[0]} and {steps[1]}")
    for a, b in zip(*records, strict=False):
        wrong += [
            f"metrics.jsonl, step {a['step']}: {key} {a.get(key)} and {b.get(key)}"
            for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)
        ]  # fmt: skip
    return len(states[0]), len(records[0]), wrong


def run(arguments: Sequence[str]) -> int:
    """Runs the trial; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="with SIGKILL (default: 20)")
    parser.add_argument("--stops", type=int, default=20, help="with SIGTERM (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=pathlib.Path, default=RUNS, help=f"folder of the runs (default: {RUNS})")
    options = parser.parse_args(arguments)
    logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax narrates its options
    generator = random.Random(options.seed)
    shutil.rmtree(options.out, ignore_errors=True)
    alone = options.out / "alone"
    leave_alone(alone)
    wrong = []
    for number, count in ((signal.SIGKILL, options.kills), (signal.SIGTERM, options.stops)):
        if count:
            workdir = options.out / signal.Signals(number).name.lower()
            wrong += trouble(workdir, number, count, generator)
            leaves, rows, different = differences(alone, workdir)
            verdict = "; ".join(different[:5]) or "equal to the run left alone, bit for bit"
            print(f"{workdir.name}: {leaves} leaves, {rows} reports: {verdict}", flush=True)
            wrong += different
    for line in wrong:
        print(f"WRONG {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(child(sys.argv[2], sys.argv[3:]) if sys.argv[1:2] == ["child"] else run(sys.argv[1:]))
