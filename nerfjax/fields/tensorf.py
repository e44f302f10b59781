"""TensoRF: a radiance field factorized into lines, or lines and planes (Chen et al. 2022, "TensoRF").

  density(x) = gain softplus(sum_r A_r(x) + shift) / scale,    colour(x, d) = S(B (A^c_1(x), ..., A^c_R(x)), d)

with the components A of a CP or a VM factorization (``encodings.factorized``), the basis matrix B and a small MLP S of
features and direction, both encoded with two frequencies (sections 4.1 and 5, appendix).
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from nerfjax.encodings.factorized import line_products, plane_line_products, total_variation
from nerfjax.encodings.frequency import frequency_encoding
from nerfjax.errors import UserError
from nerfjax.fields.base import Domain, domain_of
from nerfjax.fields.factor_tables import axis_resolutions, init_lines, init_planes, resample_tables
from nerfjax.fields.mlp import MLP, Dense
from nerfjax.types import Array, Conditioning, Points, SceneGeometry

DECOMPOSITIONS = ("vm", "cp")


class TensorfField(nn.Module):
    """Factorized density and appearance; see the module's docstring."""

    domain: Domain
    decomposition: str
    resolutions: tuple[int, int, int]
    density_components: int
    appearance_components: int
    features: int
    color_width: int
    color_layers: int
    degrees: int
    density_shift: float
    density_gain: float
    precision: str
    point_kind: str = "point"

    def setup(self) -> None:
        """Declares the factors, the basis matrix and the colour head."""
        self.tables = self.param("tables", self._init_tables)
        self.basis = Dense(self.features, use_bias=False, precision=self.precision)
        self.color_head = MLP((self.color_width,) * self.color_layers, 3, precision=self.precision)

    def _init_tables(self, key: Array) -> dict[str, Any]:
        # Deviations of the published code: the product of two factors, or three, starts near 0.01.
        scale = 0.1 if self.decomposition == "vm" else 0.2
        tables = {}
        for name, components in (("density", self.density_components), ("color", self.appearance_components)):
            key, key_lines, key_planes = jax.random.split(key, 3)
            tables[f"{name}_lines"] = init_lines(key_lines, self.resolutions, components, scale)
            if self.decomposition == "vm":
                tables[f"{name}_planes"] = init_planes(key_planes, self.resolutions, components, scale)
        return tables

    def _components(self, name: str, cube: Array) -> Array:
        """Returns the components of "density" or "color" at places of the unit cube, [..., R] or [..., 3 R]."""
        lines = self.tables[f"{name}_lines"]
        if self.decomposition == "cp":
            return line_products(lines, cube)
        return plane_line_products(self.tables[f"{name}_planes"], lines, cube)

    def density(self, points: Points) -> tuple[Array, Array]:
        """Returns density [...], 1 / world unit, and the appearance features [..., features]."""
        cube = self.domain.unit_cube(points.positions)
        raw = jnp.sum(self._components("density", cube), axis=-1)
        density = nn.softplus(raw + self.density_shift) * (self.density_gain / self.domain.scale)
        features = self.basis(self._components("color", cube))
        return jnp.where(self.domain.inside(points.positions), density, 0.0), features

    def color(self, features: Array, directions: Array, conditioning: Conditioning) -> Array:
        """Returns colour [..., 3] in [0, 1]."""
        del conditioning
        # Frequencies 2^k, not 2^k pi: the encoding multiplies by pi.
        encoded = [
            frequency_encoding(x / math.pi, max_degree=self.degrees, include_input=False)
            for x in (features, directions)
        ]
        return nn.sigmoid(self.color_head(jnp.concatenate([features, directions, *encoded], axis=-1)))

    def regularize(self) -> dict[str, Array]:
        """Returns the penalties: "l1" of the density's factors; "tv" of the density's and "color_tv" of the colour's.

        Each factor counts by its mean (appendix). The total variation is that of the planes; of the lines for CP.
        """
        smooth = "planes" if self.decomposition == "vm" else "lines"
        factors = [*self.tables["density_lines"], *self.tables.get("density_planes", ())]
        return {
            "l1": sum(jnp.mean(jnp.abs(factor)) for factor in factors),
            "tv": sum(total_variation(factor) for factor in self.tables[f"density_{smooth}"]),
            "color_tv": sum(total_variation(factor) for factor in self.tables[f"color_{smooth}"]),
        }

    def resample(self, params: Any, shapes: Any) -> Any:
        """Returns parameters at the resolution of ``shapes`` (section 4.3, coarse to fine)."""
        return resample_tables(params, shapes)


def tensorf(
    geometry: SceneGeometry,
    *,
    decomposition: str = "vm",
    resolution: int = 300,
    density_components: int = 16,
    appearance_components: int = 48,
    features: int = 27,
    color_width: int = 128,
    color_layers: int = 2,
    degrees: int = 2,
    density_shift: float = -10.0,
    density_gain: float = 37.5,
    precision: str = "default",
) -> TensorfField:
    """Returns the factorized field.

    Args:
      geometry: the scene; its box (contracted space, if unbounded) fills the grids.
      decomposition: "vm" or "cp".
      resolution: the cube root of the number of vertices; a box's longer sides have more.
      density_components: components of the density, of each mode for "vm".
      appearance_components: components of the appearance, of each mode for "vm".
      features: appearance features, which the basis matrix makes of the components.
      color_width: width of the colour head.
      color_layers: hidden layers of the colour head.
      degrees: frequencies of features and direction in the colour head.
      density_shift: added before the softplus; -10 starts empty.
      density_gain: density of the box's half side at a softplus of 1. The published distance scale of 25 per world
        unit is 37.5 per half side of the Blender scenes' box.
      precision: matmul precision.

    Raises:
      UserError: there is no such decomposition, or the grid has no cell.
    """
    if decomposition not in DECOMPOSITIONS:
        raise UserError(
            "Unknown decomposition.", field="decomposition", found=decomposition, expected=", ".join(DECOMPOSITIONS)
        )
    if resolution < 2:
        raise UserError("A grid needs two vertices a side.", field="resolution", found=resolution, expected="2 or more")
    domain = domain_of(geometry)
    return TensorfField(
        domain, decomposition, axis_resolutions(domain, resolution), density_components, appearance_components,
        features, color_width, color_layers, degrees, density_shift, density_gain, precision,
    )  # fmt: skip
