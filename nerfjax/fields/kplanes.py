"""K-Planes, hybrid, of static scenes (Fridovich-Keil et al. 2023, "K-Planes", sections 3.1 to 3.4).

Three planes at several scales; their products, scale by scale, are the features of a place, which two small MLPs turn
into density = exp(raw + bias) / scale and colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from nerfjax.encodings.directional import spherical_harmonics
from nerfjax.errors import UserError
from nerfjax.fields.base import Domain, domain_of
from nerfjax.fields.factor_tables import (
    axis_resolutions,
    encode_scales,
    init_scales,
    resample_tables,
    scales_variation,
)
from nerfjax.fields.mlp import MLP
from nerfjax.numerics import safe_exp
from nerfjax.types import Array, Conditioning, Points, SceneGeometry


class KPlanesField(nn.Module):
    """Products of planes and two MLPs; see the module's docstring."""

    domain: Domain
    scales: tuple[tuple[int, int, int], ...]
    features: int
    density_width: int
    geometry_features: int
    color_width: int
    color_layers: int
    harmonics_degree: int
    density_bias: float
    precision: str
    point_kind: str = "point"

    def setup(self) -> None:
        """Declares the planes and the two heads."""
        self.tables = self.param("tables", init_scales, self.scales, self.features)
        out = 1 + self.geometry_features
        self.density_head = MLP((self.density_width,), out, use_bias=False, precision=self.precision)
        widths = (self.color_width,) * self.color_layers
        self.color_head = MLP(widths, 3, use_bias=False, precision=self.precision)

    def density(self, points: Points) -> tuple[Array, Array]:
        """Returns density [...], 1 / world unit, and features [..., geometry_features]."""
        out = self.density_head(encode_scales(self.tables, self.domain.unit_cube(points.positions)))
        density = safe_exp(out[..., 0] + self.density_bias) / self.domain.scale
        return jnp.where(self.domain.inside(points.positions), density, 0.0), out[..., 1:]

    def color(self, features: Array, directions: Array, conditioning: Conditioning) -> Array:
        """Returns colour [..., 3] in [0, 1]."""
        del conditioning
        encoded = spherical_harmonics(directions, degree=self.harmonics_degree)
        return nn.sigmoid(self.color_head(jnp.concatenate([features, encoded], axis=-1)))

    def regularize(self) -> dict[str, Array]:
        """Returns {"tv": the total variation of all planes} (section 3.2)."""
        return {"tv": scales_variation(self.tables)}

    def resample(self, params: Any, shapes: Any) -> Any:
        """Returns parameters at the resolution of ``shapes``."""
        return resample_tables(params, shapes)


def kplanes(
    geometry: SceneGeometry,
    *,
    resolution: int = 128,
    multipliers: Sequence[int] = (1, 2, 4),
    features: int = 32,
    density_width: int = 64,
    geometry_features: int = 15,
    color_width: int = 64,
    color_layers: int = 2,
    harmonics_degree: int = 4,
    density_bias: float = -1.0,
    precision: str = "default",
) -> KPlanesField:
    """Returns the planes' field.

    Args:
      geometry: the scene; its box (contracted space, if unbounded) fills the planes.
      resolution: vertices a side of the coarsest planes (of a cube; a box's longer sides have more).
      multipliers: factors on it, one for each scale.
      features: features of each scale.
      density_width: width of the density head's hidden layer.
      geometry_features: features handed to the colour head.
      color_width: width of the colour head.
      color_layers: hidden layers of the colour head.
      harmonics_degree: degree of the spherical harmonics of the direction.
      density_bias: added before the exponential.
      precision: matmul precision.

    Raises:
      UserError: there is no scale.
    """
    if not multipliers or resolution * min(multipliers) < 2:
        raise UserError(
            "The planes need at least one scale, of two vertices a side.", field="multipliers",
            found=(resolution, tuple(multipliers)), expected="a resolution of 2 or more and positive factors",
        )  # fmt: skip
    domain = domain_of(geometry)
    scales = tuple(axis_resolutions(domain, resolution * factor) for factor in multipliers)
    return KPlanesField(
        domain, scales, features, density_width, geometry_features, color_width, color_layers, harmonics_degree,
        density_bias, precision,
    )  # fmt: skip
