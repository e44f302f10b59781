"""Tables of factorized fields: their sizes, how they start, and how they change their resolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from nerfjax.encodings.factorized import PLANES, plane_products, resample, total_variation
from nerfjax.fields.base import Domain
from nerfjax.types import Array


def axis_resolutions(domain: Domain, resolution: int) -> tuple[int, int, int]:
    """Returns the vertices along each axis of a grid of about ``resolution``^3 nearly cubic cells, at least 2.

    A bounded scene's box decides the proportions; contracted space is a cube.
    """
    if not domain.bounded:
        return (resolution,) * 3
    sides = [high - low for low, high in zip(domain.lower, domain.upper, strict=True)]
    mean = (sides[0] * sides[1] * sides[2]) ** (1 / 3)
    return tuple(max(round(resolution * side / mean), 2) for side in sides)


def init_lines(key: Array, resolutions: tuple[int, int, int], components: int, scale: float) -> list[Array]:
    """Returns three lines [n_axis, components], normal of deviation ``scale``."""
    keys = jax.random.split(key, 3)
    return [scale * jax.random.normal(keys[axis], (resolutions[axis], components)) for axis in range(3)]


def init_planes(key: Array, resolutions: tuple[int, int, int], components: int, scale: float) -> list[Array]:
    """Returns three planes [n_b, n_c, components] over the axes ``PLANES``, normal of deviation ``scale``."""
    keys = jax.random.split(key, 3)
    shapes = [(resolutions[first], resolutions[second], components) for first, second in PLANES]
    return [scale * jax.random.normal(keys[axis], shapes[axis]) for axis in range(3)]


def init_scales(key: Array, scales: tuple[tuple[int, int, int], ...], features: int) -> dict[str, list[Array]]:
    """Returns {"scale_0": three planes [n_b, n_c, features], ...}, uniform in [0.1, 0.5].

    Products of three of them stay away from zero, so that each plane gets a gradient.
    """
    tables = {}
    for index, resolutions in enumerate(scales):
        keys = jax.random.split(jax.random.fold_in(key, index), 3)
        shapes = [(resolutions[first], resolutions[second], features) for first, second in PLANES]
        planes = [jax.random.uniform(keys[axis], shapes[axis], minval=0.1, maxval=0.5) for axis in range(3)]
        tables[f"scale_{index}"] = planes
    return tables


def encode_scales(tables: Mapping[str, Sequence[Array]], cube: Array) -> Array:
    """Returns the products of planes of all scales at places [..., 3] of the unit cube, [..., scales * features]."""
    return jnp.concatenate([plane_products(tables[name], cube) for name in sorted(tables)], axis=-1)


def scales_variation(tables: Mapping[str, Sequence[Array]]) -> Array:
    """Returns the total variation of the planes of all scales, added up."""
    return sum(total_variation(plane) for planes in tables.values() for plane in planes)


def resample_tables(params: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a field's parameters with its "tables" resampled to other resolutions; the rest stays.

    Args:
      params: parameters of a field whose tables are grids as in ``encodings.factorized``.
      shapes: the same tree at the new resolution, arrays or ``ShapeDtypeStruct``s.
    """

    def resampled(table: Any, shape: Any) -> Array:
        return jnp.asarray(resample(table, shape.shape[:-1]), shape.dtype)

    return {**params, "tables": jax.tree.map(resampled, params["tables"], shapes["tables"])}
