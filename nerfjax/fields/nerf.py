"""NeRF's field (Mildenhall et al. 2020, "NeRF", section 5.1 and appendix A)."""

from __future__ import annotations

import jax.numpy as jnp
from flax import linen as nn

from nerfjax.encodings.frequency import frequency_encoding
from nerfjax.fields.base import Domain, domain_of
from nerfjax.fields.mlp import MLP, Dense
from nerfjax.types import Array, Conditioning, Points, SceneGeometry


class NerfField(nn.Module):
    """Frequency-encoded positions through a deep MLP; colour from its features and the encoded direction.

    Positions are scaled so that the box (contracted: twice the box) is [-1, 1]^3 and encoded with
    (x, sin(2^k pi x), cos(2^k pi x)), k < ``position_degrees`` (Eq. 4).
    """

    domain: Domain
    depth: int
    width: int
    skip: int
    position_degrees: int
    direction_degrees: int
    color_width: int
    density_activation: str
    precision: str
    point_kind: str = "point"

    def setup(self) -> None:
        """Declares the trunk, the density head and the colour head."""
        self.trunk = MLP((self.width,) * (self.depth - 1), self.width, skips=(self.skip + 1,), precision=self.precision)
        self.density_head = Dense(1, precision=self.precision)
        self.bottleneck = Dense(self.width, precision=self.precision)
        self.color_head = MLP((self.color_width,), 3, precision=self.precision)

    def density(self, points: Points) -> tuple[Array, Array]:
        """Returns density [...], 1 / world unit, and features [..., width]."""
        cube = self.domain.unit_cube(points.positions) * 2.0 - 1.0
        encoded = frequency_encoding(cube, min_degree=0, max_degree=self.position_degrees)
        features = nn.relu(self.trunk(encoded))
        raw = self.density_head(features)[..., 0]
        activation = {"softplus": nn.softplus, "relu": nn.relu}[self.density_activation]
        density = activation(raw) / self.domain.scale
        return jnp.where(self.domain.inside(points.positions), density, 0.0), features

    def color(self, features: Array, directions: Array, conditioning: Conditioning) -> Array:
        """Returns colour [..., 3] in [0, 1]."""
        del conditioning
        encoded = frequency_encoding(directions, min_degree=0, max_degree=self.direction_degrees)
        return nn.sigmoid(self.color_head(jnp.concatenate([self.bottleneck(features), encoded], axis=-1)))


def nerf(
    geometry: SceneGeometry,
    *,
    depth: int = 8,
    width: int = 256,
    skip: int = 4,
    position_degrees: int = 10,
    direction_degrees: int = 4,
    color_width: int = 128,
    density_activation: str = "softplus",
    precision: str = "default",
) -> NerfField:
    """Returns NeRF's field.

    Args:
      geometry: the scene; its box becomes the domain.
      depth: layers of the trunk.
      width: width of the trunk.
      skip: the encoded position is fed in again after this layer.
      position_degrees: frequencies for positions.
      direction_degrees: frequencies for directions.
      color_width: width of the colour head.
      density_activation: "softplus", or "relu" as in the paper (which may die at the start).
      precision: matmul precision.
    """
    return NerfField(
        domain_of(geometry), depth, width, skip, position_degrees, direction_degrees, color_width,
        density_activation, precision,
    )  # fmt: skip
