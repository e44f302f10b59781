"""What a compiled program costs by XLA's own count, and how fast the devices can be at best.

XLA counts the operations of a program that it has compiled, for one device, and the body of a loop once. A dispatch is
a scan over steps, so its count is that of one step. The same rule makes it rough for what happens inside of the step: a
loop (the marching of a grid, which may end early) counts as if it turned once, and of a choice (a grid that is not
refreshed at every step) the dearer side counts, whichever is taken.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from nerfjax.precision import matmul

SIDES = {"cpu": 512}  # of the matrices whose product is timed
SIDE = 4096
PRODUCTS = 4  # in a row, so that starting them does not count
SECONDS = 0.1
_PEAKS: dict[tuple[Any, ...], float] = {}


class ProgramCost(NamedTuple):
    """What a dispatch costs.

    Attributes:
      flops_per_step: floating-point operations of one step on all devices; None where XLA does not say.
      memory_bytes: device memory that the program needs, arguments included, on one device; None likewise.
    """

    flops_per_step: float | None = None
    memory_bytes: int | None = None


def program_cost(program: Any, *, devices: int = 1) -> ProgramCost:
    """Asks a compiled dispatch what it costs; what is no ``jax.stages.Compiled`` has no known cost.

    Args:
      program: a scan over steps.
      devices: on which it runs.
    """
    if not hasattr(program, "cost_analysis"):
        return ProgramCost()
    try:
        analysis, memory = program.cost_analysis(), program.memory_analysis()
    except (NotImplementedError, jax.errors.JaxRuntimeError):  # not every backend analyses
        return ProgramCost()
    analysis = analysis[0] if isinstance(analysis, (list, tuple)) and analysis else analysis
    flops = analysis.get("flops") if isinstance(analysis, dict) else None
    needed = None
    if memory is not None:
        parts = (memory.argument_size_in_bytes, memory.output_size_in_bytes, memory.temp_size_in_bytes)
        needed = int(sum(parts) - memory.alias_size_in_bytes)
    return ProgramCost(float(flops) * devices if flops and flops > 0 else None, needed)


def matmul_peak(devices: Sequence[Any], *, precision: str = "default") -> float:
    """Returns the FLOP/s that the devices together reach in products of large square matrices.

    It takes a fraction of a second, once for each kind and number of devices. Every process measures its own devices
    and takes those of the others for equally fast.

    Args:
      devices: one kind of them.
      precision: of the products, a name of ``nerfjax.precision.PRECISIONS``.
    """
    key = (devices[0].device_kind, len(devices), precision)
    if key not in _PEAKS:
        own = [device for device in devices if device.process_index == jax.process_index()]
        _PEAKS[key] = _measure(own, precision) * len(devices) / len(own)
    return _PEAKS[key]


def _measure(devices: Sequence[Any], precision: str) -> float:
    side = SIDES.get(devices[0].platform, SIDE)
    mesh = jax.make_mesh((len(devices),), ("device",), devices=devices, axis_types=(AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec("device"))

    def random() -> Any:  # ones and zeros are faster on some devices
        return jax.random.normal(jax.random.key(0), (len(devices), side, side)) / np.float32(np.sqrt(side))

    def chain(a: Any, b: Any) -> Any:
        product = a[0]
        for _ in range(PRODUCTS):
            product = matmul(product, b[0], precision=precision)
        return product[None]

    spread = jax.shard_map(chain, mesh=mesh, in_specs=PartitionSpec("device"), out_specs=PartitionSpec("device"))
    matrices = jax.jit(random, out_shardings=sharding)()
    program = jax.jit(spread).lower(matrices, matrices).compile()
    jax.block_until_ready(program(matrices, matrices))
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < SECONDS:
        start = time.perf_counter()
        jax.block_until_ready(program(matrices, matrices))
        times.append(time.perf_counter() - start)
    return 2.0 * side**3 * PRODUCTS * len(devices) / min(times)
