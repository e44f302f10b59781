"""One line swaps the sampler: trains the demo with every member of ``SAMPLERS`` and prints what each cost and reached.

    make trial NAME=swap_samplers        (or: python experiments/swap_samplers.py occupancy compose)

Each is ``nerfjax train --config=configs/demo.py --config.sampler.name=NAME``, 600 steps of 1024 rays, nothing else
changed, into runs/swap_samplers/NAME; a run that is there is not repeated. Columns: test PSNR of the 8 views of
128 x 128, training seconds, evaluations per ray of the main field and of proposal networks in the last report, share
of rays that a packed sampler could not cover. About two minutes a sampler on two CPU cores.
"""

import json
import pathlib
import sys

from nerfjax.cli.main import main
from nerfjax.samplers import SAMPLERS

RUNS = pathlib.Path("runs/swap_samplers")


def run_sampler(name: str) -> dict[str, float]:
    """Trains the demo with one sampler; returns what it cost and reached."""
    workdir = RUNS / name
    code = main(["train", "--config=demo", f"--config.sampler.name={name}", f"--workdir={workdir}"])
    if code:
        sys.exit(code)
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if "samples_per_ray" in row][-1]
    newest = max((workdir / "eval").glob("[0-9]*/metrics.json"), key=lambda path: int(path.parent.name))
    return {
        "psnr": json.loads(newest.read_text())["mean"]["psnr"],
        "seconds": last["seconds"],
        "evaluations": last["samples_per_ray"],
        "proposal": last["proposal_samples_per_ray"],
        "cut": last.get("cut_rays", 0.0),
    }


def run() -> int:
    """Trains with all samplers (or those named) and prints a table."""
    results = {name: run_sampler(name) for name in sys.argv[1:] or SAMPLERS}
    print(f"{'sampler':<14} {'test PSNR':>10} {'training s':>11} {'evaluations':>12} {'proposal':>9} {'cut rays':>9}")
    for name, row in results.items():
        print(
            f"{name:<14} {row['psnr']:>10.2f} {row['seconds']:>11.0f} {row['evaluations']:>12.1f} "
            f"{row['proposal']:>9.1f} {row['cut']:>9.3f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(run())
