"""Zip-NeRF's field (Barron et al. 2023, "Zip-NeRF", section 2 and supplement): an anti-aliased hash grid.

Its proposal network is ``density_networks.multisampled_density``.
"""

from __future__ import annotations

import jax.numpy as jnp
from flax import linen as nn

from nerfjax.encodings.frequency import frequency_encoding
from nerfjax.encodings.hashgrid import GridLevel, grid_levels, init_grid
from nerfjax.encodings.multisampled import INIT_SCALE, encode_multisamples, normalized_decay
from nerfjax.fields.activations import density_activation as activation_of
from nerfjax.fields.base import Domain, domain_of
from nerfjax.fields.mipnerf import COLOR_PADDING
from nerfjax.fields.mlp import MLP, Dense
from nerfjax.types import Array, Conditioning, Multisamples, SceneGeometry


class ZipNerfField(nn.Module):
    """A multisampled grid and a small MLP give density and a bottleneck; a view-dependent MLP gives colour.

    density = activation(raw + bias) / scale; space outside the box is contracted where the scene is unbounded, and the
    size of a sample with it, by the cube root of the determinant of the contraction's Jacobian.
    """

    domain: Domain
    levels: tuple[GridLevel, ...]
    features: int
    density_width: int
    density_layers: int
    bottleneck_width: int
    color_width: int
    color_layers: int
    direction_degrees: int
    scale_features: bool
    density_activation: str
    density_bias: float
    precision: str
    point_kind: str = "multisample"

    def setup(self) -> None:
        """Declares the tables, the trunk, the density head, the bottleneck and the colour head."""
        self.tables = self.param("tables", init_grid, self.levels, self.features, INIT_SCALE)
        hidden = (self.density_width,) * (self.density_layers - 1)
        self.trunk = MLP(hidden, self.density_width, precision=self.precision)
        self.density_head = Dense(1, precision=self.precision)
        self.bottleneck = Dense(self.bottleneck_width, precision=self.precision)
        self.color_head = MLP((self.color_width,) * self.color_layers, 3, precision=self.precision)

    def density(self, points: Multisamples) -> tuple[Array, Array]:
        """Returns density [...], 1 / world unit, and features [..., density_width]."""
        samples = self.domain.multisamples(points)
        encoded = encode_multisamples(self.tables, samples, levels=self.levels, scale_features=self.scale_features)
        features = nn.relu(self.trunk(encoded))
        raw = self.density_head(features)[..., 0] + self.density_bias
        density = activation_of(self.density_activation)(raw) / self.domain.scale
        return jnp.where(self.domain.inside(jnp.mean(points.positions, axis=-2)), density, 0.0), features

    def color(self, features: Array, directions: Array, conditioning: Conditioning) -> Array:
        """Returns colour [..., 3], up to ``COLOR_PADDING`` outside [0, 1]."""
        del conditioning
        encoded = frequency_encoding(directions, min_degree=0, max_degree=self.direction_degrees)
        raw = self.color_head(jnp.concatenate([self.bottleneck(features), encoded], axis=-1))
        return nn.sigmoid(raw) * (1.0 + 2.0 * COLOR_PADDING) - COLOR_PADDING

    def regularize(self) -> dict[str, Array]:
        """Returns {"decay": the normalised decay of the grid}, unweighted."""
        return {"decay": normalized_decay(self.tables)}


def zipnerf(
    geometry: SceneGeometry,
    *,
    levels: int = 10,
    features: int = 4,
    log2_size: int = 21,
    base_resolution: int = 16,
    max_resolution: int = 8192,
    density_width: int = 64,
    density_layers: int = 1,
    bottleneck_width: int = 256,
    color_width: int = 256,
    color_layers: int = 3,
    direction_degrees: int = 4,
    scale_features: bool = True,
    density_activation: str = "softplus",
    density_bias: float = -1.0,
    precision: str = "default",
) -> ZipNerfField:
    """Returns Zip-NeRF's field.

    Args:
      geometry: the scene; its box (contracted space, if unbounded) fills the grid.
      levels: number of grid levels; the published ladder doubles from level to level.
      features: features per level.
      log2_size: log2 of the largest table.
      base_resolution: cells a side of the coarsest level.
      max_resolution: cells a side of the finest level.
      density_width: width of the trunk.
      density_layers: layers of the trunk.
      bottleneck_width: features handed to the colour head.
      color_width: width of the colour head.
      color_layers: hidden layers of the colour head.
      direction_degrees: frequencies for directions.
      scale_features: whether the network is told how much of each level it is shown.
      density_activation: "softplus" or "exp".
      density_bias: added before the activation; negative starts emptier.
      precision: matmul precision.

    Raises:
      UserError: there is no such activation.
    """
    activation_of(density_activation)
    ladder = grid_levels(levels, base_resolution, max_resolution, log2_size)
    return ZipNerfField(
        domain_of(geometry), ladder, features, density_width, density_layers, bottleneck_width, color_width,
        color_layers, direction_degrees, scale_features, density_activation, density_bias, precision,
    )  # fmt: skip
