"""The hash-grid field (Müller et al. 2022, "Instant Neural Graphics Primitives", section 5.4)."""

from __future__ import annotations

import jax.numpy as jnp
from flax import linen as nn

from nerfjax.encodings.directional import spherical_harmonics
from nerfjax.encodings.hashgrid import GridLevel, encode_grid, grid_levels, init_grid
from nerfjax.fields.base import Domain, domain_of
from nerfjax.fields.mlp import MLP
from nerfjax.numerics import safe_exp
from nerfjax.types import Array, Conditioning, Points, SceneGeometry


class InstantNGPField(nn.Module):
    """A hash grid and a small MLP give density = exp(raw + bias) / scale and features; a second MLP gives colour."""

    domain: Domain
    levels: tuple[GridLevel, ...]
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
        """Declares the tables and the two heads."""
        self.tables = self.param("tables", init_grid, self.levels, self.features)
        out = 1 + self.geometry_features
        self.density_head = MLP((self.density_width,), out, use_bias=False, precision=self.precision)
        widths = (self.color_width,) * self.color_layers
        self.color_head = MLP(widths, 3, use_bias=False, precision=self.precision)

    def density(self, points: Points) -> tuple[Array, Array]:
        """Returns density [...], 1 / world unit, and features [..., geometry_features]."""
        encoded = encode_grid(self.tables, self.domain.unit_cube(points.positions), levels=self.levels)
        out = self.density_head(encoded)
        density = safe_exp(out[..., 0] + self.density_bias) / self.domain.scale
        return jnp.where(self.domain.inside(points.positions), density, 0.0), out[..., 1:]

    def color(self, features: Array, directions: Array, conditioning: Conditioning) -> Array:
        """Returns colour [..., 3] in [0, 1]."""
        del conditioning
        encoded = spherical_harmonics(directions, degree=self.harmonics_degree)
        return nn.sigmoid(self.color_head(jnp.concatenate([features, encoded], axis=-1)))


def instant_ngp(
    geometry: SceneGeometry,
    *,
    levels: int = 16,
    features: int = 2,
    log2_size: int = 19,
    base_resolution: int = 16,
    max_resolution: int = 2048,
    density_width: int = 64,
    geometry_features: int = 15,
    color_width: int = 64,
    color_layers: int = 2,
    harmonics_degree: int = 4,
    density_bias: float = 0.0,
    precision: str = "default",
) -> InstantNGPField:
    """Returns the hash-grid field.

    Args:
      geometry: the scene; its box (contracted space, if unbounded) fills the grid.
      levels: number of grid levels, L.
      features: features per level, F.
      log2_size: log2 of the largest table, T.
      base_resolution: cells a side of the coarsest level.
      max_resolution: cells a side of the finest level.
      density_width: width of the density head's hidden layer.
      geometry_features: features handed to the colour head.
      color_width: width of the colour head.
      color_layers: hidden layers of the colour head.
      harmonics_degree: degree of the spherical harmonics of the direction.
      density_bias: added before the exponential; negative starts emptier.
      precision: matmul precision.
    """
    ladder = grid_levels(levels, base_resolution, max_resolution, log2_size)
    return InstantNGPField(
        domain_of(geometry), ladder, features, density_width, geometry_features, color_width, color_layers,
        harmonics_degree, density_bias, precision,
    )  # fmt: skip
