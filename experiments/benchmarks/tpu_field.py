"""Compiles the training steps of ``tpu`` and ``instant_ngp`` for a TPU that is not here, and compares the estimates.

    pip install 'jax[tpu]'
    JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 python experiments/benchmarks/tpu_field.py [--rays=4096] [CONFIG ...]

One step (a dispatch of K = 1) of each config on ONE device of the topology, with the same batch, on the procedural
scene; both take 128 proposal and 64 final samples a ray, and all parameters are float32. The columns are XLA's cost
analysis of the program: estimated milliseconds, GFLOP, gigabytes accessed, temporaries in megabytes, and the time as a
share of the last config's. Wanted: ``tpu`` at most 1/5 of ``instant_ngp``; otherwise the exit code is 1. Nothing is
run. Minutes, most of which go into the scatters of the hash grid. Where another process has libtpu loaded,
ALLOW_MULTIPLE_LIBTPU_LOAD=1 lets this one load it, too.
"""

from __future__ import annotations

import argparse
import math
import sys

from nerfjax import load_config
from nerfjax.preflight import compile_step, described_mesh, estimated_seconds

LIMIT = 1 / 5


def main() -> int:
    """Compiles the configs and prints a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="*", default=["tpu", "instant_ngp"])
    parser.add_argument("--topology", default="v5e:2x2")
    parser.add_argument("--rays", type=int, default=4096)
    arguments = parser.parse_args()
    mesh = described_mesh(arguments.topology, devices=1)
    print(f"{'config':<14} {'ms':>8} {'GFLOP':>9} {'GB':>8} {'temp MB':>8}", flush=True)
    seconds = {}
    for name in arguments.configs:
        overrides = {"train.batch_rays": arguments.rays, "scene.source": "analytic:toys"}
        program = compile_step(load_config(name, overrides), mesh)
        cost, memory = program.cost_analysis(), program.memory_analysis()
        seconds[name] = estimated_seconds(program)
        row = (1e3 * seconds[name], cost.get("flops", math.nan) / 1e9, cost.get("bytes accessed", math.nan) / 1e9)
        print(
            f"{name:<14} {row[0]:>8.2f} {row[1]:>9.2f} {row[2]:>8.3f} {memory.temp_size_in_bytes / 2**20:>8.1f}",
            flush=True,
        )
    share = seconds[arguments.configs[0]] / seconds[arguments.configs[-1]]
    print(f"{arguments.configs[0]} takes {share:.4f} of {arguments.configs[-1]}; wanted at most {LIMIT}")
    return int(share > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
