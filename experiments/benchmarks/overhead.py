"""What watching costs: the training loop with all its monitoring against the bare compiled dispatch, side by side.

    make trial NAME=benchmarks/overhead
    .venv/bin/python experiments/benchmarks/overhead.py --steps=200 --every=20 --source='analytic:toys?views=6&size=32'

One process trains ``configs/demo.py`` with everything that a run has: record, TensorBoard, progress, monitor. After
each report a writer, the last one, runs as many steps of the same program on a state of its own, with nothing around
them. So blocks of both kinds alternate, and whatever slows the machine for a while slows both. A block of the loop
begins when the writer returns and ends when it is called again: it holds all that the loop does, the report and the
other writers included. Blocks in which something was compiled or saved are left out. (The rates that the run prints
meanwhile count the time of the bare blocks, too.)

Printed: the median wall time of a step of both, and the median of the ratio of a block to the mean of the two bare ones
around it, with the quartiles. Wanted: at most 1.03; otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from typing import Any

import jax

from nerfjax import load_config
from nerfjax.evaluate import score_views
from nerfjax.train.build import build_experiment
from nerfjax.train.run import train

LIMIT = 1.03


class BareBlocks:
    """A writer that does the steps of each interval once more without a loop, and takes the time of both."""

    def __init__(self, config: Any):
        experiment = build_experiment(config)
        self._stage = experiment.stages[0]
        self._count = config.train.steps_per_dispatch
        self._program = self._stage.compile(self._count, 0)
        self._state, self._data = experiment.init_state(), experiment.data
        self._step, self._returned = 0, None
        self.pairs: list[tuple[float, float, float]] = []  # seconds per step: bare before, loop, bare after
        self._bare = self._run(config.train.log_every)

    def _run(self, steps: int) -> float:
        start = time.perf_counter()
        for _ in range(steps // self._count):
            self._state, metrics = self._program(self._state, self._data)
        jax.block_until_ready((self._state, metrics))
        return (time.perf_counter() - start) / steps

    def write(self, report: dict[str, Any]) -> None:
        now = time.perf_counter()
        if "loss" not in report:
            return
        steps, before = report["step"] - self._step, self._bare
        self._bare, self._step = self._run(steps), report["step"]
        disturbed = report["time/compilation"] or report["time/checkpoint"] or report["time/evaluation"]
        if self._returned is not None and not disturbed:
            self.pairs.append((before, (now - self._returned) / steps, self._bare))
        self._returned = time.perf_counter()

    def close(self) -> None:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--every", type=int, default=50, help="steps of a block: between two reports")
    parser.add_argument("--source", default="", help="another scene than the demo's")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    changes = {"train.steps": options.steps, "train.log_every": options.every, "train.checkpoint_every": options.steps}
    config = load_config("demo", changes | ({"scene.source": options.source} if options.source else {}))
    if options.every % config.train.steps_per_dispatch or options.steps % options.every:
        parser.error("blocks must be whole dispatches, and the run whole blocks")
    blocks = BareBlocks(config)
    with tempfile.TemporaryDirectory() as folder:
        train(config, f"{folder}/run", score=score_views, writers=[blocks])
    loop = statistics.median(pair[1] for pair in blocks.pairs)
    bare = statistics.median(pair[2] for pair in blocks.pairs)
    ratios = [pair[1] / (0.5 * (pair[0] + pair[2])) for pair in blocks.pairs]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    result = dict(
        blocks=len(ratios), steps_per_block=options.every, loop_ms=1e3 * loop, bare_ms=1e3 * bare, ratio=ratio,
        quartiles=[low, high], ratio_of_medians=loop / bare, limit=LIMIT, device=jax.devices()[0].device_kind,
    )  # fmt: skip
    if options.json:
        print(json.dumps(result))
    else:
        print(f"{len(ratios)} pairs of blocks of {options.every} steps on {result['device']}")
        print(f"loop with all monitoring   {1e3 * loop:8.2f} ms a step (median)")
        print(f"bare compiled dispatch     {1e3 * bare:8.2f} ms a step (median)")
        print(f"ratio of the medians       {loop / bare:8.4f}")
        print(f"median of the ratios       {ratio:8.4f} (quartiles {low:.4f} to {high:.4f}); wanted: {LIMIT} at most")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
