"""The multilayer perceptron of every field."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from nerfjax.types import Array


class MLP(nn.Module):
    """Dense layers with ``activation`` between them and none at the end.

    Attributes:
      widths: hidden widths.
      out: width of the output.
      skips: indices of hidden layers whose input is concatenated with the network's input.
      use_bias: whether layers have a bias.
      precision: matmul precision, a name of ``jax.lax.Precision``.
    """

    widths: Sequence[int]
    out: int
    skips: Sequence[int] = ()
    activation: Callable[[Array], Array] = nn.relu
    kernel_init: Callable[..., Array] = nn.initializers.he_uniform()
    use_bias: bool = True
    precision: str = "default"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps [..., in] to [..., out]."""
        inputs = x
        dense = dict(kernel_init=self.kernel_init, use_bias=self.use_bias, precision=jax.lax.Precision(self.precision))
        for index, width in enumerate(self.widths):
            if index in self.skips:
                x = jnp.concatenate([x, inputs], axis=-1)
            x = self.activation(nn.Dense(width, name=f"hidden_{index}", **dense)(x))
        return nn.Dense(self.out, name="out", **dense)(x)
