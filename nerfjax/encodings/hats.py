"""Interpolation without gathers: hat functions as small dense matrices, for hardware that multiplies best.

Notation: N nodes at i / (N - 1), i = 0 .. N - 1, of the unit interval; hat functions

  h_i(x) = max(0, 1 - |(N - 1) x - i|),

at most two of which are not 0 at any x, and which sum to 1. Linear interpolation of a line of N rows is the product
h(x) @ line: N multiplications a feature rather than 2, but in matrix products, which an MXU does two orders of
magnitude faster than it reads scattered rows; the backward pass is the product h(x)^T @ cotangent, not a scatter.

A line of every axis, multiplied, is a separable function of space (TensoRF's CP factors, Chen et al. 2022, Eq. 4); a
small dense grid, trilinearly interpolated, is the product of the hats of two axes, [P, N^2], with rows that hold the
features of all nodes of the third, [N^2, N F], followed by a sum over those N: wide rows fill the MXU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from nerfjax.precision import matmul
from nerfjax.types import Array

COEFFICIENT_SPREAD = 0.3
# Tables hold a quarter of their values: Adam then moves these four times as fast as at the networks' learning rate.
GAIN = 4.0


def hat_weights(x: Array, nodes: int) -> Array:
    """Evaluates the hat functions: x [P] in [0, 1] -> [P, nodes]."""
    place = x[:, None] * (nodes - 1)
    return jnp.maximum(1.0 - jnp.abs(place - jnp.arange(nodes, dtype=x.dtype)[None]), 0.0)


def interpolate_line(line: Array, x: Array, *, precision: str = "default") -> Array:
    """Interpolates a line linearly.

    Args:
      line: [N, F] values at the nodes.
      x: [P] in [0, 1].
      precision: of the product, a name of ``nerfjax.precision.PRECISIONS``.

    Returns:
      [P, F].
    """

    def product(line: Array, x: Array) -> Array:
        return matmul(hat_weights(x, line.shape[0]), line, precision=precision)

    # The hats are cheaper to compute again than to keep: P N numbers.
    return jax.checkpoint(product)(line, x)


def interpolate_grid(grid: Array, positions: Array, *, resolution: int, precision: str = "default") -> Array:
    """Interpolates a dense grid trilinearly.

    Args:
      grid: [N^2, N F], N = ``resolution`` nodes a side: the row is x N + y, the column z F + feature.
      positions: [P, 3] in the unit cube.
      resolution: nodes a side, N.
      precision: of the product.

    Returns:
      [P, F].
    """

    def product(grid: Array, positions: Array) -> Array:
        x, y, z = (hat_weights(positions[:, axis], resolution) for axis in range(3))
        columns = (x[:, :, None] * y[:, None, :]).reshape(-1, resolution**2)
        rows = matmul(columns, grid, precision=precision).reshape(positions.shape[0], resolution, -1)
        return jnp.sum(rows * z[:, :, None], axis=1)

    return jax.checkpoint(product)(grid, positions)


def init_grid(key: Array, resolution: int, features: int, scale: float = 1e-4) -> Array:
    """Returns a grid [N^2, N F] for ``interpolate_grid``, uniform in [-scale, scale]."""
    return jax.random.uniform(key, (resolution**2, resolution * features), minval=-scale, maxval=scale)


def init_separable(
    key: Array, resolution: int, features: int, coefficients: int, max_frequency: float
) -> dict[str, Array]:
    """Returns the tables of ``encode_separable``: separable waves that every place weighs about alike.

    Feature f of the lines starts as sqrt(2) cos(2 pi (nu_d x_d + phi_d)) along axis d, of random phase and of frequency
    log-uniform in [1/4, ``max_frequency``] cycles a side: smooth, of mean square 1, and different for every f, so that
    the network behind sees random Fourier features from the first step. Small random lines would multiply to nothing.

    Args:
      key: a key.
      resolution: nodes of a line, N.
      features: separable functions, F.
      coefficients: nodes a side of the grid of coefficients, M; 0 is none.
      max_frequency: cycles per side of the cube.

    Returns:
      {"lines": [3, N, F], "coefficients": [M^2, M F]}.
    """
    key_frequency, key_phase, key_coefficients = jax.random.split(key, 3)
    low, high = math.log(0.25), math.log(max_frequency)
    frequency = jnp.exp(jax.random.uniform(key_frequency, (3, 1, features), minval=low, maxval=high))
    phase = jax.random.uniform(key_phase, (3, 1, features))
    turns = phase + frequency * np.linspace(0.0, 1.0, resolution, dtype=np.float32)[None, :, None]
    tables = {"lines": math.sqrt(2.0) / GAIN * jnp.cos(2.0 * math.pi * (turns - jnp.round(turns)))}
    if coefficients:
        shape = (coefficients**2, coefficients * features)
        values = 1.0 + COEFFICIENT_SPREAD * jax.random.normal(key_coefficients, shape)
        tables["coefficients"] = values / GAIN
    return tables


def encode_separable(tables: Mapping[str, Array], positions: Array, *, precision: str = "default") -> Array:
    """Evaluates separable functions of space, weighted by coefficients that depend on the place.

      f_k(x) = c_k(x) l_k1(x_1) l_k2(x_2) l_k3(x_3)

    with lines l of high and a grid of coefficients c of low resolution: around each node of the grid, a mixture of its
    own of the same separable functions (as the dictionary fields of Chen et al. 2023, Eq. 5, with lines for a basis).

    Args:
      tables: as made by ``init_separable``.
      positions: [..., 3] in the unit cube (clipped to it).
      precision: of the products.

    Returns:
      [..., F].
    """
    flat = jnp.clip(positions.reshape(-1, 3), 0.0, 1.0)
    x, y, z = (interpolate_line(tables["lines"][axis], flat[:, axis], precision=precision) for axis in range(3))
    features = (GAIN * x) * (GAIN * y) * (GAIN * z)
    if "coefficients" in tables:
        resolution = round(tables["coefficients"].shape[0] ** 0.5)
        features = (
            features * GAIN * interpolate_grid(tables["coefficients"], flat, resolution=resolution, precision=precision)
        )
    return features.reshape(*positions.shape[:-1], -1)
