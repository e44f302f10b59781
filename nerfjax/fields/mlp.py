"""The layers and the multilayer perceptron of every field."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from flax import linen as nn

from nerfjax.precision import matmul
from nerfjax.types import Array


class Dense(nn.Module):
    """A layer x W + b whose product is computed at ``precision``; parameters and sums are float32.

    Attributes:
      features: width of the output.
      use_bias: whether there is a b.
      kernel_init: initializer of W.
      precision: a name of ``nerfjax.precision.PRECISIONS``.
    """

    features: int
    use_bias: bool = True
    kernel_init: Callable[..., Array] = nn.initializers.lecun_normal()
    precision: str = "default"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps [..., in] to [..., features]."""
        kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.features), jnp.float32)
        y = matmul(x, kernel, precision=self.precision)
        if not self.use_bias:
            return y
        bias = self.param("bias", nn.initializers.zeros_init(), (self.features,), jnp.float32)
        return y + bias.reshape((1,) * (y.ndim - 1) + (-1,))


class MLP(nn.Module):
    """Dense layers with ``activation`` between them and none at the end.

    Attributes:
      widths: hidden widths.
      out: width of the output.
      skips: indices of hidden layers whose input is concatenated with the network's input.
      use_bias: whether layers have a bias.
      precision: matmul precision, a name of ``nerfjax.precision.PRECISIONS``.
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
        dense = dict(kernel_init=self.kernel_init, use_bias=self.use_bias, precision=self.precision)
        for index, width in enumerate(self.widths):
            if index in self.skips:
                x = jnp.concatenate([x, inputs], axis=-1)
            x = self.activation(Dense(width, name=f"hidden_{index}", **dense)(x))
        return Dense(self.out, name="out", **dense)(x)
