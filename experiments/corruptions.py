"""Spoils captures of every format in hundreds of ways, and shows what became of them.

    make trial NAME=corruptions

One field, line, file or byte range of a tiny capture is dropped, emptied, doubled, cut, or set to NaN, infinity, huge,
negative, text or garbage; images are deleted, truncated, turned or resized. Wanted: every corruption is refused (exit
code 2), or said in a note or finding, or harmless; "undecidable" are legal numbers in the place of others, which only
the pictures could contradict. With NERFJAX_TEST_DATA the smallest real captures are spoilt as well. About two minutes.
"""

import collections
import importlib.util
import os
import pathlib
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "scenes"))

from corruptions import FAULTS, OUTCOMES, Trial  # noqa: E402
from sample_captures import SAMPLES  # noqa: E402

CASES = 60  # of each sample
REAL = {
    "colmap_txt_maupertuis": 20, "colmap_fisheye_t265": 20, "opensfm_berlin": 10, "sevenscenes_stairs": 20,
    "ingp_fotos6": 20, "openmvg_maupertuis": 10, "bundler_kermit": 20, "blender_lego_dummy": 15,
    "metashape_mvs20": 20, "middlebury_temple": 20, "mobilebrick3": 10,
}  # fmt: skip


def trials(folder: pathlib.Path):
    """Yields (name, trial, number of cases)."""
    for name in SAMPLES:
        if name == "phototourism" and importlib.util.find_spec("h5py") is None:
            print("phototourism is left out: h5py is not installed")
            continue
        yield name, Trial(name, folder / name), CASES
    data = os.environ.get("NERFJAX_TEST_DATA")
    for name, cases in REAL.items() if data else ():
        yield f"{name} (real)", Trial(name, folder / name, capture=pathlib.Path(data) / name), cases


def run() -> int:
    """Runs all trials and prints a table; 1 if one corruption is a fault."""
    warnings.simplefilter("error")
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else None
    total, faults = collections.Counter(), []
    print(f"{'capture':<32}{'cases':>6}" + "".join(f"{kind:>13}" for kind in OUTCOMES), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, trial, cases in trials(pathlib.Path(folder)):
            counts = collections.Counter()
            for seed in range(seeds or cases):
                corruption, outcome = trial.seeded(seed)
                counts[outcome.kind] += 1
                if outcome.kind in FAULTS:
                    what = f"{outcome.kind}: {outcome.detail:.300}"
                    faults.append(f"{name}, seed {seed}: {corruption!s:.200}\n    {what}")
            total += counts
            row = "".join(f"{counts[kind]:>13}" for kind in OUTCOMES)
            print(f"{name:<32}{sum(counts.values()):>6}{row}", flush=True)
    print(f"{'all':<32}{sum(total.values()):>6}" + "".join(f"{total[kind]:>13}" for kind in OUTCOMES))
    print("\n".join(faults).encode("ascii", "backslashreplace").decode())
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(run())
