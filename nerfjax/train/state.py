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
      rung: [2] int32, rung of the ray-count ladder of the next dispatch and of the one after it (``train.ladder``).
      rate_scale: [] float32, factor on the learning rate; 1 unless the run was rolled back after it had diverged.
      ema: running average of ``params`` (``train.averages``); None where it is off.
    """

    step: Any  # not Array: tree maps fill the state with specs, too
    params: Any
    sampler_aux: Any
    pixel_state: Any
    opt_state: Any
    key: Any
    first_bad_step: Any
    bad_tensor: Any
    rung: Any
    rate_scale: Any
    ema: Any = None

    @property
    def render_params(self) -> Any:
        """The parameters to render and to evaluate with: the running average where there is one."""
        return self.params if self.ema is None else self.ema


def parameter_names(params) -> tuple[str, ...]:
    """Returns the path of every parameter, e.g. "field/density_head/out/kernel"."""
    return tuple(named_leaves(params))


def named_leaves(tree: Any) -> dict[str, Any]:
    """Returns {path: leaf} in the tree's order."""
    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in pairs}


def shared_leaves(old: TrainState, new: TrainState, *, same_sampler: bool, same_pixels: bool) -> frozenset[str]:
    """Returns the leaves that a stage of the curriculum takes from the stage before it; the others are made anew.

    Leaves of the same path, shape and type are taken: parameters (the sampler's only where the sampler is the same
    member), the average and the optimizer's moments of the parameters taken, its counters, and what is the run's own.
    Of what a sampler or a pixel sampler carries, all is taken or nothing, and only by the same member. A stage starts
    at the lowest rung.

    Args:
      old: the stage before, arrays or ``ShapeDtypeStruct``s.
      new: this stage, likewise.
      same_sampler: whether both have the same sampler, with the same networks.
      same_pixels: whether both have the same pixel sampler.
    """
    before, after = named_leaves(old), named_leaves(new)
    same = {
        name
        for name, leaf in after.items()
        if name in before and (before[name].shape, before[name].dtype) == (leaf.shape, leaf.dtype)
    }
    params = [name.removeprefix("params/") for name in after if name.startswith("params/")]
    owned = {"params/sampler/": same_sampler, "sampler_aux/": same_sampler, "pixel_state/": same_pixels, "rung": False}
    for whole in ("sampler_aux/", "pixel_state/"):
        parts = [{name for name in tree if name.startswith(whole)} for tree in (before, after)]
        owned[whole] &= parts[0] == parts[1] and parts[1] <= same

    def is_shared(name: str) -> bool:
        if name.startswith("ema/"):
            return name in same and is_shared(name.replace("ema/", "params/", 1))
        if name.startswith("opt_state/"):
            # The longest parameter's path that ends the moment's; counters have none.
            of = max((path for path in params if name.endswith("/" + path)), key=len, default=None)
            return name in same and (of is None or is_shared(f"params/{of}"))
        return name in same and all(owned[prefix] for prefix in owned if name.startswith(prefix))

    return frozenset(name for name in after if is_shared(name))
