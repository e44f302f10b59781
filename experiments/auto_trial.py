"""Trains the default method with its fixed sampling and with sampler "auto", side by side, on real captures.

    NERFJAX_TEST_DATA=captures make trial NAME=auto_trial

    NERFJAX_TEST_DATA=captures python experiments/auto_trial.py fox steps=300 seed=1

For each capture: test PSNR at equal steps; and at equal wall time, where the faster of the two is trained anew with as
many steps as the slower one's time allows (its schedule being as long). Time is that of the steps alone, from the
median of the reported rates. Wanted: auto falls behind nowhere by more than ``SLACK`` dB, about what the seed alone
is worth. About half an hour on two CPU cores.
"""

import json
import os
import pathlib
import sys
from typing import NamedTuple

from nerfjax.cli.main import main

SLACK = 0.15
STEPS = 1500
DOWNSCALE = {"fox": 8, "blender_lego_200": 1, "ingp_fruit": 4}
SAMPLERS = {"fixed": "proposal", "auto": "auto"}
LEAST = 0.05  # difference in time, below which the runs count as equally long


class Result(NamedTuple):
    """Test PSNR and seconds of training steps of one run."""

    psnr: float
    seconds: float


def train(capture: str, kind: str, steps: int, seed: int) -> Result:
    """Trains and evaluates one run."""
    data = pathlib.Path(os.environ.get("NERFJAX_TEST_DATA", "data"))
    workdir = pathlib.Path("runs/auto_trial") / f"{capture}_{kind}_{steps}_{seed}"
    code = main([
        "train", "--config=nerfjax", f"--workdir={workdir}", f"--config.sampler.name={SAMPLERS[kind]}",
        f"--config.scene.source={data / capture}", f"--config.scene.downscale={DOWNSCALE[capture]}",
        f"--config.train.steps={steps}", f"--config.train.seed={seed}",
    ])  # fmt: skip
    if code:
        sys.exit(code)
    psnr = json.loads((workdir / "eval" / str(steps) / "metrics.json").read_text())["mean"]["psnr"]
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    rates = sorted(row["rays_per_second"] for row in rows if "rays_per_second" in row)
    rays = json.loads((workdir / "manifest.json").read_text())["config"]["train"]["batch_rays"]
    return Result(psnr, steps * rays / rates[len(rates) // 2])


def compare(capture: str, steps: int, seed: int) -> dict[str, tuple[Result, Result]]:
    """Returns {"steps" | "time": (fixed, auto)}."""
    results = {kind: train(capture, kind, steps, seed) for kind in SAMPLERS}
    timed = dict(results)
    slow, fast = sorted(results, key=lambda kind: -results[kind].seconds)
    ratio = results[slow].seconds / results[fast].seconds
    if ratio > 1 + LEAST:
        timed[fast] = train(capture, fast, round(steps * ratio / 10) * 10, seed)
    return {"steps": (results["fixed"], results["auto"]), "time": (timed["fixed"], timed["auto"])}


def run() -> int:
    """Runs all captures (or those named) and prints a table; 1 if auto falls behind."""
    numbers = dict(argument.split("=") for argument in sys.argv[1:] if "=" in argument)
    steps, seed = int(numbers.get("steps", STEPS)), int(numbers.get("seed", 0))
    table = {name: compare(name, steps, seed) for name in [a for a in sys.argv[1:] if "=" not in a] or DOWNSCALE}
    print(f"{'capture':<20} {'equal':<6} {'fixed dB':>9} {'auto dB':>9} {'gain':>6} {'fixed s':>8} {'auto s':>8}")
    gains = []
    for capture, rows in table.items():
        for what, (fixed, auto) in rows.items():
            gains.append(auto.psnr - fixed.psnr)
            print(
                f"{capture:<20} {what:<6} {fixed.psnr:>9.2f} {auto.psnr:>9.2f} {gains[-1]:>+6.2f} "
                f"{fixed.seconds:>8.0f} {auto.seconds:>8.0f}"
            )
    return int(min(gains) < -SLACK)


if __name__ == "__main__":
    sys.exit(run())
