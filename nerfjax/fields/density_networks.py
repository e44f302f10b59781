"""Density-only networks that a proposal sampler owns (mip-NeRF 360, section 3.1).

Each factory ``name(geometry, *, options) -> DensityNetwork`` gives pure functions ``init(key, geometry)`` and
``apply(params, points)``.
"""

from __future__ import annotations

import jax.numpy as jnp
from flax import linen as nn

from nerfjax.encodings.frequency import frequency_encoding
from nerfjax.encodings.hashgrid import GridLevel, encode_grid, grid_levels, init_grid
from nerfjax.fields.base import Domain, domain_of
from nerfjax.fields.mlp import MLP
from nerfjax.geometry.casting import cast_balls
from nerfjax.numerics import safe_exp
from nerfjax.types import Array, CastPoints, DensityNetwork, Points, SceneGeometry


class _HashgridDensity(nn.Module):
    domain: Domain
    levels: tuple[GridLevel, ...]
    features: int
    width: int
    bias: float
    precision: str

    @nn.compact
    def __call__(self, points: Points) -> Array:
        positions = points.positions
        tables = self.param("tables", init_grid, self.levels, self.features)
        encoded = encode_grid(tables, self.domain.unit_cube(positions), levels=self.levels)
        if self.width:
            raw = MLP((self.width,), 1, use_bias=False, precision=self.precision, name="head")(encoded)
        else:
            raw = MLP((), 1, precision=self.precision, name="head")(encoded)
        density = safe_exp(raw[..., 0] + self.bias) / self.domain.scale
        return jnp.where(self.domain.inside(positions), density, 0.0)


class _MLPDensity(nn.Module):
    domain: Domain
    depth: int
    width: int
    degrees: int
    precision: str

    @nn.compact
    def __call__(self, points: Points) -> Array:
        positions = points.positions
        cube = self.domain.unit_cube(positions) * 2.0 - 1.0
        encoded = frequency_encoding(cube, min_degree=0, max_degree=self.degrees)
        raw = MLP((self.width,) * self.depth, 1, precision=self.precision, name="trunk")(encoded)
        density = nn.softplus(raw[..., 0] - 1.0) / self.domain.scale
        return jnp.where(self.domain.inside(positions), density, 0.0)


def _network(module: nn.Module, kind: str = "point") -> DensityNetwork:
    def init(key: Array, geometry: SceneGeometry):
        del geometry
        return module.init(key, cast_balls(kind, jnp.zeros((1, 3)), jnp.ones((1,))))["params"]

    def apply(params, points: CastPoints) -> Array:
        return module.apply({"params": params}, points)

    return DensityNetwork(init, apply, kind)


def hashgrid_density(
    geometry: SceneGeometry,
    *,
    levels: int = 5,
    features: int = 2,
    log2_size: int = 17,
    base_resolution: int = 16,
    max_resolution: int = 128,
    width: int = 16,
    density_bias: float = 0.0,
    precision: str = "default",
) -> DensityNetwork:
    """Returns a hash-grid density; ``width`` 0 means a linear head. Other options as in ``fields.instant_ngp``."""
    ladder = grid_levels(levels, base_resolution, max_resolution, log2_size)
    return _network(_HashgridDensity(domain_of(geometry), ladder, features, width, density_bias, precision))


def mlp_density(
    geometry: SceneGeometry, *, depth: int = 4, width: int = 256, degrees: int = 10, precision: str = "default"
) -> DensityNetwork:
    """Returns a frequency-encoded MLP density of ``depth`` layers (mip-NeRF 360: 4 of 256)."""
    return _network(_MLPDensity(domain_of(geometry), depth, width, degrees, precision))
