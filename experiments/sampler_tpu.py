"""Compiles the training step of every sampler for a TPU that is not here, and prints the compiler's own estimate.

    pip install 'jax[tpu]'
    JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 python experiments/sampler_tpu.py [SAMPLER ...] [--topology=v5e:2x2]

One step (a dispatch of K = 1, one micro-batch) of ``configs/nerfjax.py`` with 4096 rays over the chips of the
topology, on the procedural scene. The columns are XLA's cost analysis of one chip's program: estimated milliseconds
(loops, of which a marching sampler has one per ray and grid, are counted as a single turn), GFLOP, gigabytes accessed,
and the temporaries in megabytes. Nothing is run. About a minute a sampler.
"""

import argparse
import sys

from nerfjax.preflight import compile_step, described_mesh, estimated_seconds
from nerfjax.samplers import SAMPLERS
from nerfjax.train.configuration import load_config

RAYS = 4096


def main() -> int:
    """Compiles and prints a row for each sampler."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("samplers", nargs="*", default=sorted(SAMPLERS))
    parser.add_argument("--topology", default="v5e:2x2")
    arguments = parser.parse_args()
    mesh = described_mesh(arguments.topology)
    print(f"{'sampler':<14} {'ms':>8} {'GFLOP':>9} {'GB':>8} {'temp MB':>8}", flush=True)
    for name in arguments.samplers:
        overrides = {"sampler.name": name, "train.batch_rays": RAYS, "scene.source": "analytic:toys"}
        program = compile_step(load_config("nerfjax", overrides), mesh)
        cost, memory = program.cost_analysis(), program.memory_analysis()
        row = (
            1e3 * estimated_seconds(program),
            cost.get("flops", float("nan")) / 1e9,
            cost.get("bytes accessed", float("nan")) / 1e9,
            memory.temp_size_in_bytes / 2**20,
        )
        print(f"{name:<14} {row[0]:>8.2f} {row[1]:>9.2f} {row[2]:>8.3f} {row[3]:>8.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
