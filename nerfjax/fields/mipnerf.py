"""mip-NeRF's field (Barron et al. 2021, "Mip-NeRF", section 3): a deep MLP on integrated encodings of Gaussians.

mip-NeRF 360's field is the same network, wider and on an off-axis encoding (``fields.mipnerf360``).
"""

from __future__ import annotations

import jax.numpy as jnp
from flax import linen as nn

from nerfjax.encodings.frequency import frequency_encoding
from nerfjax.encodings.integrated import AXES, icosahedron_basis, integrated_encoding, project
from nerfjax.fields.base import Domain, domain_of
from nerfjax.fields.mlp import MLP, Dense
from nerfjax.types import Array, Conditioning, Gaussians, SceneGeometry

DENSITY_SHIFT = -1.0  # density = softplus(raw - 1)
COLOR_PADDING = 0.001  # the sigmoid reaches so far beyond [0, 1], so that black and white are finite


class MipNerfField(nn.Module):
    """Integrated encodings through a deep MLP; colour from a bottleneck and the encoded direction.

    Gaussians are scaled so that the box is [-1, 1]^3, contracted where the scene is unbounded, and encoded along the
    three axes or (``off_axis``) along the 21 directions of a tesselated icosahedron.
    """

    domain: Domain
    depth: int
    width: int
    skip: int
    position_degrees: int
    direction_degrees: int
    bottleneck_width: int
    color_width: int
    off_axis: bool
    precision: str
    point_kind: str = "gaussian"

    def setup(self) -> None:
        """Declares the trunk, the density head, the bottleneck and the colour head."""
        # Published: Glorot's for mip-NeRF, He's for mip-NeRF 360.
        init = nn.initializers.he_uniform() if self.off_axis else nn.initializers.glorot_uniform()

        layers = dict(kernel_init=init, precision=self.precision)
        self.trunk = MLP((self.width,) * (self.depth - 1), self.width, skips=(self.skip + 1,), **layers)
        self.density_head = Dense(1, **layers)
        self.bottleneck = Dense(self.bottleneck_width, **layers)
        self.color_head = MLP((self.color_width,), 3, **layers)

    def density(self, points: Gaussians) -> tuple[Array, Array]:
        """Returns density [...], 1 / world unit, and features [..., width]."""
        basis = icosahedron_basis() if self.off_axis else AXES
        projected = project(self.domain.gaussians(points), basis)
        features = nn.relu(self.trunk(integrated_encoding(*projected, max_degree=self.position_degrees)))
        density = nn.softplus(self.density_head(features)[..., 0] + DENSITY_SHIFT) / self.domain.scale
        return jnp.where(self.domain.inside(points.means), density, 0.0), features

    def color(self, features: Array, directions: Array, conditioning: Conditioning) -> Array:
        """Returns colour [..., 3], up to ``COLOR_PADDING`` outside [0, 1]."""
        del conditioning
        encoded = frequency_encoding(directions, min_degree=0, max_degree=self.direction_degrees)
        raw = self.color_head(jnp.concatenate([self.bottleneck(features), encoded], axis=-1))
        return nn.sigmoid(raw) * (1.0 + 2.0 * COLOR_PADDING) - COLOR_PADDING


def mipnerf(
    geometry: SceneGeometry,
    *,
    depth: int = 8,
    width: int = 256,
    skip: int = 4,
    position_degrees: int = 16,
    direction_degrees: int = 4,
    color_width: int = 128,
    precision: str = "default",
) -> MipNerfField:
    """Returns mip-NeRF's field, which one pair of levels shares.

    Args:
      geometry: the scene; its box becomes the domain.
      depth: layers of the trunk.
      width: width of the trunk and of the bottleneck.
      skip: the encoded position is fed in again after this layer.
      position_degrees: frequencies for positions; with integration there is no need to tune them to the scene.
      direction_degrees: frequencies for directions.
      color_width: width of the colour head.
      precision: matmul precision.
    """
    return MipNerfField(
        domain_of(geometry), depth, width, skip, position_degrees, direction_degrees, width, color_width, False,
        precision,
    )  # fmt: skip
