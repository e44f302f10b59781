"""Coarse to fine: a stage of the curriculum whose field has another resolution resamples the field's tables.

The new stage is another program, so shapes stay static. Of what changes its shape, parameters and their running average
are resampled (``Field.resample``), and the optimizer's moments start anew, as in the published methods.
"""

from __future__ import annotations

from typing import Any

import jax
from flax import linen as nn

from nerfjax.errors import UserError
from nerfjax.renderer import FIELD_PARAMS
from nerfjax.train.state import TrainState, named_leaves

AVERAGED = ("params", "ema")


def resample_field(field: nn.Module, old: TrainState, new: TrainState) -> dict[str, Any]:
    """Returns {path in the state: leaf} of the field's parameters and average, resampled where their shapes differ.

    Args:
      field: of the new stage.
      old: the last state of the stage before.
      new: the state of the new stage, arrays or ``ShapeDtypeStruct``s.
    """
    found = {}
    for tree in AVERAGED:
        before, after = getattr(old, tree), getattr(new, tree)
        for part in FIELD_PARAMS:
            if before is None or after is None or part not in before or part not in after:
                continue
            if _shapes(before[part]) == _shapes(after[part]):
                continue
            prefix = f"{tree}/{part}/"
            found |= {
                prefix + name: leaf for name, leaf in named_leaves(field.resample(before[part], after[part])).items()
            }
    return found


def check_resampling(field: nn.Module, old: TrainState, new: TrainState, *, index: int) -> None:
    """Checks that a stage can take the field over from the stage before it; from shapes alone.

    Args:
      field: of the new stage.
      old: a state of the stage before, ``ShapeDtypeStruct``s.
      new: a state of the new stage, likewise.
      index: place of the new stage.

    Raises:
      UserError: the field's parameters change in other ways than by their resolution.
    """
    before, after = old.params["field"], new.params["field"]
    if _shapes(before) == _shapes(after):
        return
    fits = hasattr(field, "resample") and jax.tree.structure(before) == jax.tree.structure(after)
    if fits:
        tables = {name: (leaf.shape[-1], leaf.ndim) for name, leaf in named_leaves(before.get("tables", {})).items()}
        fits = tables == {name: (leaf.shape[-1], leaf.ndim) for name, leaf in named_leaves(after["tables"]).items()}
    if fits:
        resampled = jax.eval_shape(lambda params: field.resample(params, after), before)
        fits = _shapes(resampled) == _shapes(after)
    if not fits:
        raise UserError(
            f"stage {index} of the curriculum changes the field in a way in which its parameters cannot be taken over",
            field=f"config.curriculum.stage{index}.field",
            expected="options that keep every parameter's shape, or, of a field of dense tables, another resolution",
        )  # fmt: skip


def _shapes(params: Any) -> dict[str, tuple]:
    return {name: (leaf.shape, leaf.dtype) for name, leaf in named_leaves(params).items()}
