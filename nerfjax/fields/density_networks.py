"""Density-only networks that a proposal sampler owns (mip-NeRF 360, section 3.1).

Each factory ``name(geometry, *, options) -> DensityNetwork`` gives pure functions ``init(key, geometry)`` and
``apply(params, points)``.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn

from nerfjax.encodings.frequency import frequency_encoding
from nerfjax.encodings.hashgrid import GridLevel, encode_grid, grid_levels, init_grid
from nerfjax.encodings.hats import encode_separable, init_separable, interpolate_grid
from nerfjax.encodings.hats import init_grid as init_dense_grid
from nerfjax.encodings.integrated import icosahedron_basis, integrated_encoding, project
from nerfjax.encodings.multisampled import INIT_SCALE, encode_multisamples, normalized_decay
from nerfjax.fields.activations import density_activation as activation_of
from nerfjax.fields.base import Domain, domain_of
from nerfjax.fields.factor_tables import axis_resolutions, encode_scales, init_scales, scales_variation
from nerfjax.fields.mlp import MLP
from nerfjax.geometry.casting import cast_balls
from nerfjax.numerics import safe_exp
from nerfjax.types import Array, CastPoints, DensityNetwork, Gaussians, Multisamples, Points, SceneGeometry


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


class _IntegratedDensity(nn.Module):
    domain: Domain
    depth: int
    width: int
    degrees: int
    precision: str

    @nn.compact
    def __call__(self, points: Gaussians) -> Array:
        projected = project(self.domain.gaussians(points), icosahedron_basis())
        encoded = integrated_encoding(*projected, max_degree=self.degrees)
        raw = MLP((self.width,) * self.depth, 1, precision=self.precision, name="trunk")(encoded)
        density = nn.softplus(raw[..., 0] - 1.0) / self.domain.scale
        return jnp.where(self.domain.inside(points.means), density, 0.0)


class _KPlanesDensity(nn.Module):
    domain: Domain
    resolutions: tuple[int, int, int]
    features: int
    width: int
    bias: float
    precision: str

    def setup(self) -> None:
        self.tables = self.param("tables", init_scales, (self.resolutions,), self.features)
        self.head = MLP((self.width,), 1, use_bias=False, precision=self.precision)

    def __call__(self, points: Points) -> Array:
        raw = self.head(encode_scales(self.tables, self.domain.unit_cube(points.positions)))[..., 0]
        density = safe_exp(raw + self.bias) / self.domain.scale
        return jnp.where(self.domain.inside(points.positions), density, 0.0)

    def regularize(self) -> dict[str, Array]:
        return {"tv": scales_variation(self.tables)}


class _MultisampledDensity(nn.Module):
    domain: Domain
    levels: tuple[GridLevel, ...]
    features: int
    width: int
    scale_features: bool
    activation: str
    bias: float
    precision: str

    def setup(self) -> None:
        self.tables = self.param("tables", init_grid, self.levels, self.features, INIT_SCALE)
        self.head = MLP((self.width,), 1, precision=self.precision)

    def __call__(self, points: Multisamples) -> Array:
        samples = self.domain.multisamples(points)
        encoded = encode_multisamples(self.tables, samples, levels=self.levels, scale_features=self.scale_features)
        raw = self.head(encoded)[..., 0] + self.bias
        density = activation_of(self.activation)(raw) / self.domain.scale
        return jnp.where(self.domain.inside(jnp.mean(points.positions, axis=-2)), density, 0.0)

    def regularize(self) -> dict[str, Array]:
        return {"decay": normalized_decay(self.tables)}


class _SeparableDensity(nn.Module):
    domain: Domain
    resolution: int
    features: int
    coefficients: int
    max_frequency: float
    grid_resolution: int
    grid_features: int
    width: int
    bias: float
    precision: str

    def _init(self, key: Array) -> dict[str, Array]:
        key_lines, key_grid = jax.random.split(key)
        lines = init_separable(key_lines, self.resolution, self.features, self.coefficients, self.max_frequency)
        return {**lines, "grid": init_dense_grid(key_grid, self.grid_resolution, self.grid_features)}

    @nn.compact
    def __call__(self, points: Points) -> Array:
        positions = points.positions
        tables, cube = self.param("tables", self._init), self.domain.unit_cube(positions)
        separable = encode_separable(tables, cube, precision=self.precision)
        flat = jnp.clip(cube.reshape(-1, 3), 0.0, 1.0)
        near = interpolate_grid(tables["grid"], flat, resolution=self.grid_resolution, precision=self.precision)
        encoded = jnp.concatenate([separable, near.reshape(*cube.shape[:-1], -1)], axis=-1)
        raw = MLP((self.width,), 1, precision=self.precision, name="head")(encoded)
        density = safe_exp(raw[..., 0] + self.bias) / self.domain.scale
        return jnp.where(self.domain.inside(positions), density, 0.0)


def _network(module: nn.Module, kind: str = "point") -> DensityNetwork:
    def init(key: Array, geometry: SceneGeometry):
        del geometry
        return module.init(key, cast_balls(kind, jnp.zeros((1, 3)), jnp.ones((1,))))["params"]

    def apply(params, points: CastPoints) -> Array:
        return module.apply({"params": params}, points)

    def regularize(params) -> dict[str, Array]:
        return module.apply({"params": params}, method="regularize") if hasattr(module, "regularize") else {}

    return DensityNetwork(init, apply, kind, regularize)


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


def integrated_density(
    geometry: SceneGeometry, *, depth: int = 4, width: int = 256, degrees: int = 12, precision: str = "default"
) -> DensityNetwork:
    """Returns mip-NeRF 360's proposal network: an MLP density on the encoding of its field (``fields.mipnerf360``)."""
    return _network(_IntegratedDensity(domain_of(geometry), depth, width, degrees, precision), "gaussian")


def kplanes_density(
    geometry: SceneGeometry,
    *,
    resolution: int = 128,
    features: int = 8,
    width: int = 64,
    density_bias: float = -1.0,
    precision: str = "default",
) -> DensityNetwork:
    """Returns a density of three planes (``fields.kplanes``), which are 128 and 256 a side in the published rounds."""
    domain = domain_of(geometry)
    resolutions = axis_resolutions(domain, resolution)
    return _network(_KPlanesDensity(domain, resolutions, features, width, density_bias, precision))


def multisampled_density(
    geometry: SceneGeometry,
    *,
    levels: int = 6,
    features: int = 1,
    log2_size: int = 21,
    base_resolution: int = 16,
    max_resolution: int = 512,
    width: int = 64,
    scale_features: bool = True,
    density_activation: str = "softplus",
    density_bias: float = -1.0,
    precision: str = "default",
) -> DensityNetwork:
    """Returns Zip-NeRF's proposal network, a density on the encoding of its field, whose options it shares.

    Published: one network of 6 levels, up to 512 cells a side, for the first round, and one of 8, up to 2048, for the
    second, with an MLP of one layer of 64.
    """
    activation_of(density_activation)
    ladder = grid_levels(levels, base_resolution, max_resolution, log2_size)
    module = _MultisampledDensity(
        domain_of(geometry), ladder, features, width, scale_features, density_activation, density_bias, precision
    )
    return _network(module, "multisample")


def separable_density(
    geometry: SceneGeometry,
    *,
    resolution: int = 128,
    features: int = 32,
    coefficients: int = 0,
    max_frequency: float = 8.0,
    grid_resolution: int = 24,
    grid_features: int = 4,
    width: int = 32,
    density_bias: float = 0.0,
    precision: str = "default",
) -> DensityNetwork:
    """Returns a density without gathers, on the encoding of ``fields.tpu``, whose options it shares, and a dense grid.

    The grid has ``grid_resolution`` nodes a side; its values, unlike those of the lines, concern one place only.
    """
    module = _SeparableDensity(
        domain_of(geometry), resolution, features, coefficients, max_frequency, grid_resolution, grid_features, width,
        density_bias, precision,
    )  # fmt: skip
    return _network(module)
