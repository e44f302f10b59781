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
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from nerfjax import load_config
from nerfjax.train.build import build_experiment
from nerfjax.train.step import AXIS, make_dispatch

LIMIT = 1 / 5


def compiled_step(name: str, mesh: Mesh, rays: int) -> Any:
    """Returns the compiled step of a config on a mesh of described devices."""
    experiment = build_experiment(load_config(name, {"train.batch_rays": rays, "scene.source": "analytic:toys"}))
    everywhere = NamedSharding(mesh, PartitionSpec())
    state, data = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere),
        (experiment.abstract_state, experiment.data),
    )
    return make_dispatch(experiment.parts, mesh, 1).lower(state, data).compile()


def estimated_seconds(program: Any) -> float:
    """Returns XLA's estimate of a program's time.

    Its ``optimal_seconds`` hold -1 for every call that views several buffers as one (``ConcatBitcast``), which costs
    nothing. As a step takes far less than a second, what is above the next whole number below is the time.
    """
    seconds = program.cost_analysis()["optimal_seconds"]
    views = program.as_text().count('custom_call_target="ConcatBitcast"')
    if not -views <= math.floor(seconds) <= 0:
        raise RuntimeError(f"XLA's estimate holds something else than times: {seconds} s with {views} views")
    return seconds - math.floor(seconds)


def main() -> int:
    """Compiles the configs and prints a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="*", default=["tpu", "instant_ngp"])
    parser.add_argument("--topology", default="v5e:2x2")
    parser.add_argument("--rays", type=int, default=4096)
    arguments = parser.parse_args()
    topology = topologies.get_topology_desc(platform="tpu", topology_name=arguments.topology)
    mesh = Mesh(topology.devices[:1], (AXIS,), axis_types=(AxisType.Auto,))
    print(f"{'config':<14} {'ms':>8} {'GFLOP':>9} {'GB':>8} {'temp MB':>8}", flush=True)
    seconds = {}
    for name in arguments.configs:
        program = compiled_step(name, mesh, arguments.rays)
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
