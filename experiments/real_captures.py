"""Trains the default method on two real captures for 1500 steps and measures all their test views.

    NERFJAX_TEST_DATA=captures make trial NAME=real_captures

About ten minutes on two CPU cores. Expected test PSNR (8-bit predictions, whole images, mean of per-image values):
fox at an eighth of its size at least 27.0 dB on 7 views, lego at 200 x 200 on white at least 28.0 dB on 200 views.
"""

import json
import os
import pathlib
import sys

from nerfjax.cli.main import main

STEPS = 1500
TRIALS = {"fox": (dict(source="fox", downscale=8), 27.0), "lego": (dict(source="blender_lego_200", downscale=1), 28.0)}


def run_trial(name: str, data: pathlib.Path, runs: pathlib.Path) -> tuple[float, float, float]:
    """Trains and evaluates one capture; returns (test PSNR, rays/s, training seconds)."""
    scene, _ = TRIALS[name]
    code = main([
        "train", "--config=nerfjax", f"--workdir={runs / name}", f"--config.train.steps={STEPS}",
        f"--config.scene.source={data / scene['source']}", f"--config.scene.downscale={scene['downscale']}",
    ])  # fmt: skip
    if code:
        sys.exit(code)
    metrics = json.loads((runs / name / "eval" / str(STEPS) / "metrics.json").read_text())
    rows = [json.loads(line) for line in (runs / name / "metrics.jsonl").read_text().splitlines()]
    rates = sorted(row["rays_per_second"] for row in rows if "rays_per_second" in row)
    return metrics["mean"]["psnr"], rates[len(rates) // 2], rows[-1]["seconds"]


def run() -> int:
    """Runs all trials and prints a table; 1 if one falls short."""
    data = pathlib.Path(os.environ.get("NERFJAX_TEST_DATA", "data"))
    results = {name: run_trial(name, data, pathlib.Path("runs/real_captures")) for name in TRIALS}
    print(f"{'capture':<8} {'test PSNR':>10} {'wanted':>7} {'rays/s (median)':>16} {'training s':>11}")
    for name, (psnr, rate, seconds) in results.items():
        print(f"{name:<8} {psnr:>10.2f} {TRIALS[name][1]:>7.1f} {rate:>16.0f} {seconds:>11.0f}")
    return int(any(results[name][0] < wanted for name, (_, wanted) in TRIALS.items()))


if __name__ == "__main__":
    sys.exit(run())
