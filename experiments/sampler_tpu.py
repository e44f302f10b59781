"""Compiles the training step of every sampler for a TPU that is not here, and prints the compiler's own estimate.

    pip install 'jax[tpu]'
    JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 python experiments/sampler_tpu.py [SAMPLER ...] [--topology=v5e:2x2]

One step (a dispatch of K = 1, one micro-batch) of ``configs/nerfjax.py`` with 4096 rays over the chips of the
topology, on the procedural scene. The columns are XLA's cost analysis of one chip's program: estimated milliseconds
(loops, of which a marching sampler has one per ray and grid, are counted as a single turn), GFLOP, gigabytes accessed,
and the temporaries in megabytes. Nothing is run. About a minute a sampler.
"""

import argparse
import math
import sys

import jax
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from nerfjax.samplers import SAMPLERS
from nerfjax.train.build import build_experiment
from nerfjax.train.configuration import load_config
from nerfjax.train.step import AXIS, make_dispatch

RAYS = 4096


def compiled_step(name: str, mesh: Mesh):
    """Returns the compiled step of one sampler on a mesh of described devices."""
    overrides = {"sampler.name": name, "train.batch_rays": RAYS, "scene.source": "analytic:toys"}
    experiment = build_experiment(load_config("nerfjax", overrides))
    everywhere = NamedSharding(mesh, PartitionSpec())
    state, data = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere),
        (experiment.abstract_state, experiment.data),
    )
    return make_dispatch(experiment.parts, mesh, 1).lower(state, data).compile()


def estimated_seconds(program) -> float:
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
    """Compiles and prints a row for each sampler."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("samplers", nargs="*", default=sorted(SAMPLERS))
    parser.add_argument("--topology", default="v5e:2x2")
    arguments = parser.parse_args()
    topology = topologies.get_topology_desc(platform="tpu", topology_name=arguments.topology)
    mesh = topologies.make_mesh(topology, (len(topology.devices),), (AXIS,))
    mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,))
    print(f"{'sampler':<14} {'ms':>8} {'GFLOP':>9} {'GB':>8} {'temp MB':>8}", flush=True)
    for name in arguments.samplers:
        program = compiled_step(name, mesh)
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
