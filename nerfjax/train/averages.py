"""The running average of the parameters (EMA) that a run renders with, where ``config.train.ema`` is on.

What a sampler carries besides (grids, counters) follows the parameters themselves.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


def start_average(params: Any, decay: float | int) -> Any:
    """Returns the average of step 0: the parameters themselves; None where ``decay`` is 0, which is off."""
    return jax.tree.map(jnp.copy, params) if decay else None


def update_average(average: Any, params: Any, *, step: ArrayLike, decay: float | int) -> Any:
    r"""Returns :math:`a + (1 - d)(p - a)` with :math:`d = \min(\text{decay}, (1 + step) / (10 + step))`.

    The smaller decay of the first steps lets the average forget the random parameters that it began with.

    Args:
      average: as from ``start_average``.
      params: after the step.
      step: [] steps done before it.
      decay: of one step, in [0, 1).
    """
    if average is None:
        return None
    step = jnp.asarray(step, jnp.float32)
    weight = 1.0 - jnp.minimum(decay, (1.0 + step) / (10.0 + step))
    return jax.tree.map(lambda a, p: (a + weight * (p - a)).astype(a.dtype), average, params)
