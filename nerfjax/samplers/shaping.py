"""How the weights of a level become the step function that the next level is drawn from: shared by those that resample.

In this order: widened to the neighbours (mip-NeRF), max-dilated (mip-NeRF 360), flattened early in training (mip-NeRF
360), padded. Everything is in the normalised coordinate and carries no gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from nerfjax import stepfun
from nerfjax.errors import UserError
from nerfjax.types import Array


class StepFunction(NamedTuple):
    """Edges ``s`` [..., S+1] in [0, 1] and ``weights`` [..., S] of any scale, not negative."""

    s: Array
    weights: Array


class Shaping(NamedTuple):
    """Static choices.

    Attributes:
      blur: whether each weight is widened to its neighbours (the maximum of neighbours, averaged).
      dilation_bias, dilation_multiplier: half-width in s of the max-dilation, bias + multiplier / (product of the
        numbers of intervals so far); both 0 for none.
      anneal_steps: weights are raised to b f / ((b - 1) f + 1), f = step / anneal_steps, b = anneal_slope, up to that
        step; 0 for never.
      anneal_slope: see above.
      padding: weight added to each interval, so that none is unreachable.
    """

    blur: bool = False
    dilation_bias: float = 0.0
    dilation_multiplier: float = 0.0
    anneal_steps: int = 0
    anneal_slope: float = 10.0
    padding: float = 0.0


def check_shaping(how: Shaping) -> Shaping:
    """Returns ``how``.

    Raises:
      UserError: a number is negative.
    """
    for field in Shaping._fields[1:]:
        value = getattr(how, field)
        if value < 0:
            raise UserError("it must not be negative", field=field, found=value, expected="0 or more")
    return how


def shaped(how: Shaping, s: Array, weights: Array, *, intervals: int, step) -> StepFunction:
    """Returns the step function to draw from.

    Args:
      how: the choices.
      s: [..., S+1] edges.
      weights: [..., S].
      intervals: product of the numbers of intervals of all levels so far.
      step: [] training step.
    """
    s, weights = jax.lax.stop_gradient((s, weights))
    weights = stepfun.blur_weights(weights) if how.blur else weights
    dilation = how.dilation_bias + how.dilation_multiplier / intervals
    if dilation > 0.0:
        s, weights = stepfun.dilate(s, weights, dilation, domain=(0.0, 1.0))
    if how.anneal_steps > 0:
        fraction = jnp.asarray(step, jnp.float32) / how.anneal_steps
        weights = stepfun.anneal(weights, fraction, slope=how.anneal_slope)
    # Steps of no width would be drawn as points.
    return StepFunction(s, jnp.where(jnp.diff(s) > 0, weights + how.padding, 0.0))
