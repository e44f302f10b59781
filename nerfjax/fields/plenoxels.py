"""A dense grid of densities and spherical harmonics, no network (Fridovich-Keil, Yu et al. 2022, "Plenoxels").

  density(x) = gain max(0, v(x)) / scale,     colour(x, d) = 1/2 + sum_lm k_lm(x) Y_lm(d), cut to [0, 1]

with v and k interpolated trilinearly between the voxels' corners (section 3.1). The published grid is sparse and drops
empty voxels; this one is dense, and an occupancy sampler leaves empty space out.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from nerfjax.encodings.directional import spherical_harmonics
from nerfjax.encodings.factorized import interpolate, isotropic_total_variation
from nerfjax.errors import UserError
from nerfjax.fields.base import Domain, domain_of
from nerfjax.fields.factor_tables import axis_resolutions, resample_tables
from nerfjax.types import Array, Conditioning, Points, SceneGeometry


class PlenoxelsField(nn.Module):
    """Voxels; see the module's docstring."""

    domain: Domain
    resolutions: tuple[int, int, int]
    harmonics_degree: int
    density_gain: float
    initial_density: float
    point_kind: str = "point"

    def setup(self) -> None:
        """Declares the two tables."""
        self.tables = self.param("tables", self._init_tables)

    def _init_tables(self, key: Array) -> dict[str, Array]:
        del key
        coefficients = 3 * self.harmonics_degree**2
        return {
            # With its type, or a second call would compile again: a number's is weak.
            "density": jnp.full((*self.resolutions, 1), self.initial_density / self.density_gain, jnp.float32),
            "color": jnp.zeros((*self.resolutions, coefficients)),
        }

    def density(self, points: Points) -> tuple[Array, Array]:
        """Returns density [...], 1 / world unit, and the harmonics' coefficients [..., 3 degree^2]."""
        cube = self.domain.unit_cube(points.positions)
        raw = interpolate(self.tables["density"], cube)[..., 0]
        density = nn.relu(raw) * (self.density_gain / self.domain.scale)
        return jnp.where(self.domain.inside(points.positions), density, 0.0), interpolate(self.tables["color"], cube)

    def color(self, features: Array, directions: Array, conditioning: Conditioning) -> Array:
        """Returns colour [..., 3] in [0, 1]."""
        del conditioning
        basis = spherical_harmonics(directions, degree=self.harmonics_degree)
        coefficients = features.reshape(*features.shape[:-1], 3, -1)
        color = 0.5 + jnp.sum(coefficients * basis[..., None, :], axis=-1)
        # The gradient passes through the cut, so that a saturated voxel can come back.
        return color + jax.lax.stop_gradient(jnp.clip(color, 0.0, 1.0) - color)

    def regularize(self) -> dict[str, Array]:
        """Returns the penalties "tv" of the density and "color_tv" of the coefficients (Eq. 3)."""
        return {
            "tv": isotropic_total_variation(self.density_gain * self.tables["density"]),
            "color_tv": isotropic_total_variation(self.tables["color"]),
        }

    def resample(self, params: Any, shapes: Any) -> Any:
        """Returns parameters at the resolution of ``shapes`` (section 3.2, coarse to fine)."""
        return resample_tables(params, shapes)


def plenoxels(
    geometry: SceneGeometry,
    *,
    resolution: int = 256,
    harmonics_degree: int = 3,
    density_gain: float = 3000.0,
    initial_density: float = 0.1,
) -> PlenoxelsField:
    """Returns the voxels' field.

    Args:
      geometry: the scene; its box (contracted space, if unbounded) fills the grid.
      resolution: the cube root of the number of vertices; a box's longer sides have more.
      harmonics_degree: bands of the harmonics; 3 gives 9 coefficients a channel.
      density_gain: density of the box's half side at a table value of 1. The published learning rates are 30 for
        densities and 0.01 for coefficients; with a gain of 3000, one rate serves both.
      initial_density: density at the start, of the box's half side.

    Raises:
      UserError: the grid has no cell.
    """
    if resolution < 2:
        raise UserError("A grid needs two vertices a side.", field="resolution", found=resolution, expected="2 or more")
    domain = domain_of(geometry)
    resolutions = axis_resolutions(domain, resolution)
    return PlenoxelsField(domain, resolutions, harmonics_degree, density_gain, initial_density)
