"""A field without gathers: separable functions by small dense matrix products, for TPUs.

A hash grid reads eight scattered rows per point and level, forward, and scatters as many, backward: a TPU does either
row by row, while its matrix units idle. Here every table is read through a dense matrix of hat functions
(``encodings.hats``), whose gradient is a matrix product, too.
"""

from __future__ import annotations

import jax.numpy as jnp
from flax import linen as nn

from nerfjax.encodings.directional import spherical_harmonics
from nerfjax.encodings.hats import encode_separable, init_separable
from nerfjax.fields.base import Domain, domain_of
from nerfjax.fields.mlp import MLP
from nerfjax.numerics import safe_exp
from nerfjax.types import Array, Conditioning, Points, SceneGeometry


class SeparableField(nn.Module):
    """Separable functions and an MLP give density = exp(raw + bias) / scale and features; a second MLP gives colour."""

    domain: Domain
    resolution: int
    features: int
    coefficients: int
    max_frequency: float
    density_width: int
    density_layers: int
    geometry_features: int
    color_width: int
    color_layers: int
    harmonics_degree: int
    density_bias: float
    precision: str
    point_kind: str = "point"

    def setup(self) -> None:
        """Declares the tables and the two heads."""
        sizes = self.resolution, self.features, self.coefficients, self.max_frequency
        self.tables = self.param("tables", init_separable, *sizes)
        widths, out = (self.density_width,) * self.density_layers, 1 + self.geometry_features
        self.density_head = MLP(widths, out, precision=self.precision)
        self.color_head = MLP((self.color_width,) * self.color_layers, 3, precision=self.precision)

    def density(self, points: Points) -> tuple[Array, Array]:
        """Returns density [...], 1 / world unit, and features [..., geometry_features]."""
        cube = self.domain.unit_cube(points.positions)
        out = self.density_head(encode_separable(self.tables, cube, precision=self.precision))
        density = safe_exp(out[..., 0] + self.density_bias) / self.domain.scale
        return jnp.where(self.domain.inside(points.positions), density, 0.0), out[..., 1:]

    def color(self, features: Array, directions: Array, conditioning: Conditioning) -> Array:
        """Returns colour [..., 3] in [0, 1]."""
        del conditioning
        encoded = spherical_harmonics(directions, degree=self.harmonics_degree)
        return nn.sigmoid(self.color_head(jnp.concatenate([features, encoded], axis=-1)))


def tpu(
    geometry: SceneGeometry,
    *,
    resolution: int = 512,
    features: int = 128,
    coefficients: int = 8,
    max_frequency: float = 8.0,
    density_width: int = 128,
    density_layers: int = 1,
    geometry_features: int = 15,
    color_width: int = 64,
    color_layers: int = 2,
    harmonics_degree: int = 4,
    density_bias: float = 0.0,
    precision: str = "default",
) -> SeparableField:
    """Returns the field without gathers; multiples of 128 fill a TPU's matrix unit.

    Args:
      geometry: the scene; its box (contracted space, if unbounded) is the cube of the tables.
      resolution: nodes of each line.
      features: separable functions.
      coefficients: nodes a side of the grid of their coefficients; 0 is none.
      max_frequency: highest frequency of the lines at the start, cycles per side of the cube.
      density_width: width of the density head's hidden layers.
      density_layers: hidden layers of the density head.
      geometry_features: features handed to the colour head.
      color_width: width of the colour head.
      color_layers: hidden layers of the colour head.
      harmonics_degree: degree of the spherical harmonics of the direction.
      density_bias: added before the exponential; negative starts emptier.
      precision: matmul precision, that of the interpolation included.
    """
    return SeparableField(
        domain_of(geometry), resolution, features, coefficients, max_frequency, density_width, density_layers,
        geometry_features, color_width, color_layers, harmonics_degree, density_bias, precision,
    )  # fmt: skip
