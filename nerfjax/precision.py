"""The precision of the networks' matrix products: ``config.precision``.

The names of ``jax.lax.Precision`` leave the operands in float32 and say how much of them a device may drop: "default"
is float32 on CPUs, TF32 on GPUs and bfloat16 on TPUs. "bfloat16" says it everywhere: operands, forward and backward,
are rounded to bfloat16 (8 bits of mantissa, the range of float32), products are accumulated in float32, and what comes
out, activations and gradients, is float32, as the parameters are.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from nerfjax.types import Array

PRECISIONS = ("default", "high", "highest", "bfloat16")


def matmul(x: Array, kernel: Array, *, precision: str = "default") -> Array:
    """Multiplies the last axis of ``x`` by a matrix, at one of ``PRECISIONS``.

    Args:
      x: [..., I] float32.
      kernel: [I, O] float32.
      precision: its name.

    Returns:
      [..., O] float32.
    """
    if precision == "bfloat16":
        return _matmul_bfloat16(x, kernel)
    return jnp.matmul(x, kernel, precision=lax.Precision(precision))


def _dot_bfloat16(a: Array, b: Array, contract: tuple[tuple[int, ...], tuple[int, ...]]) -> Array:
    a, b = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    return lax.dot_general(a, b, (contract, ((), ())), preferred_element_type=jnp.float32)


@jax.custom_vjp
def _matmul_bfloat16(x: Array, kernel: Array) -> Array:
    return _dot_bfloat16(x, kernel, ((x.ndim - 1,), (0,)))


def _forward(x: Array, kernel: Array):
    return _matmul_bfloat16(x, kernel), (x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16))


# Automatic differentiation would multiply float32 cotangents by bfloat16 operands, for which GPUs have no fast product.
def _backward(residuals: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    x, kernel = residuals
    batch = tuple(range(x.ndim - 1))
    x_bar = _dot_bfloat16(cotangent, kernel, ((x.ndim - 1,), (1,)))
    return x_bar, _dot_bfloat16(x, cotangent, (batch, batch))


_matmul_bfloat16.defvjp(_forward, _backward)
