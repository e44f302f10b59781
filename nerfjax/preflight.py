"""Compiles the training step for hardware that is not here, and reads what the compiler says of it.

Nothing is run: the devices are descriptions, and the arrays are shapes. XLA's TPU compiler comes with ``jax[tpu]`` and
works on any machine (``JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1``).
"""

from __future__ import annotations

import math
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from nerfjax.train.build import build_experiment
from nerfjax.train.step import AXIS, make_dispatch


def described_mesh(topology: str, *, devices: int = 0) -> Mesh:
    """Returns a mesh over the TPU devices of a topology.

    Args:
      topology: e.g. "v5e:2x2".
      devices: how many of them; 0 for all.
    """
    described = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    chosen = described.devices[: devices or None]
    made = topologies.make_mesh(described, (len(chosen),), (AXIS,)).devices if not devices else chosen
    return Mesh(made, (AXIS,), axis_types=(AxisType.Auto,))


def compile_step(config: ConfigDict, mesh: Mesh) -> Any:
    """Returns the compiled training step of a config (a dispatch of K = 1, one micro-batch) on a described mesh.

    Args:
      config: the run's; its scene is read, as shapes depend on it.
      mesh: as from ``described_mesh``.
    """
    experiment = build_experiment(config)
    everywhere = NamedSharding(mesh, PartitionSpec())
    state, data = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere),
        (experiment.abstract_state, experiment.data),
    )
    return make_dispatch(experiment.parts, mesh, 1).lower(state, data).compile()


def estimated_seconds(program: Any) -> float:
    """Returns XLA's estimate of a program's time on one device; the body of a loop counts once.

    ``optimal_seconds`` holds -1 for every call that views several buffers as one (``ConcatBitcast``), which costs
    nothing. As a step takes far less than a second, what is above the next whole number below is the time.

    Args:
      program: compiled for TPUs.

    Raises:
      RuntimeError: the estimate holds something else than these and times.
    """
    seconds = program.cost_analysis()["optimal_seconds"]
    views = program.as_text().count('custom_call_target="ConcatBitcast"')
    if not -views <= math.floor(seconds) <= 0:
        raise RuntimeError(f"XLA's estimate holds something else than times: {seconds} s with {views} views")
    return seconds - math.floor(seconds)
