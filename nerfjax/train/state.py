"""Everything that a run carries from step to step."""

from __future__ import annotations

from typing import Any

import jax
from flax import struct


@struct.dataclass
class TrainState:
    """The state of a run: with (seed, step) it decides all that follows.

    Attributes:
      step: [] int32, steps done.
      params: what is differentiated.
      sampler_aux: what the sampler carries besides (grids, counters).
      pixel_state: what the pixel sampler carries.
      opt_state: the optimizer's state.
      key: uint32 data of the run's key.
      first_bad_step: [] int32, the step whose loss or gradient was not finite; -1 while there is none. From then on the
        state passes through unchanged.
      bad_tensor: [] int32, index into ``tensor_names`` of the first tensor that was not finite; -1.
    """

    step: Any  # not Array: tree maps fill the state with specs, too
    params: Any
    sampler_aux: Any
    pixel_state: Any
    opt_state: Any
    key: Any
    first_bad_step: Any
    bad_tensor: Any


def parameter_names(params) -> tuple[str, ...]:
    """Returns the path of every parameter, e.g. "field/density_head/out/kernel"."""
    paths = jax.tree_util.tree_flatten_with_path(params)[0]
    return tuple(jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in paths)
