"""The contract of every sampler: where along a ray to evaluate the field.

A sampler is a NamedTuple of pure functions, made by a factory with keyword-only options
(``stratified(num_samples=64)``). It sees rays, a density function and the scene's geometry; never a
model, a config or an optimizer. The primitive is a function of ONE ray, vmapped over the batch, and
its randomness comes from ``fold_in(key, rays.index)`` alone, so that micro-batches, device counts and
host counts give the same numbers. Deterministic evaluation sampling is a factory choice
(``deterministic=True``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from flax import struct

from nerfjax.types import Array, DensityNetwork, Intervals, PackedIntervals, Rays, Rendering, SamplerInfo, SceneGeometry

__all__ = [
    "DensityFn",
    "DensityNetwork",
    "PointDensityFn",
    "Sampler",
    "SamplerState",
    "no_loss",
    "no_penalty",
    "no_refresh",
    "stateless",
]


@struct.dataclass
class SamplerState:
    """``params`` are differentiated; ``aux`` (grids, counters) is carried and checkpointed."""

    params: Any
    aux: Any


@runtime_checkable
class DensityFn(Protocol):
    """Density of the main field over intervals; the renderer casts them to points, cones or multisamples."""

    def __call__(self, rays: Rays, intervals: Intervals | PackedIntervals, *, level: int) -> Array:
        """Returns densities, 1 / world unit, shaped like the interval midpoints."""


@runtime_checkable
class PointDensityFn(Protocol):
    """Density of the main field at points, for grids."""

    def __call__(self, positions: Array, radii: Array) -> Array:
        """Maps [..., 3] positions and [...] radii to [...] densities."""


def no_penalty(params: Any) -> dict[str, Array]:
    """``regularize`` of a sampler whose parameters are not penalised."""
    del params
    return {}


class Sampler(NamedTuple):
    """Pure functions of one sampler.

    Attributes:
      init: ``(key, geometry: SceneGeometry) -> SamplerState``.
      sample: ``(key, state, rays, density_fn, *, step) -> (Intervals | PackedIntervals, SamplerInfo)``. ``rays`` has
        batch shape [N]. Positions carry no gradient; the weights of proposal levels do.
      refresh: ``(key, state, point_density_fn, *, step) -> SamplerState``, called after each optimizer update.
      loss: ``(info: SamplerInfo, rendering: Rendering, *, step) -> {name: scalar}``, weighted, to be added up.
      regularize: ``(params) -> {name: scalar}``, unweighted penalties of the networks that the sampler owns.
    """

    init: Callable[..., SamplerState]
    sample: Callable[..., tuple[Intervals | PackedIntervals, SamplerInfo]]
    refresh: Callable[..., SamplerState]
    loss: Callable[..., dict[str, Array]]
    regularize: Callable[[Any], dict[str, Array]] = no_penalty


def stateless(key: Array, geometry: SceneGeometry) -> SamplerState:
    """``init`` of a sampler that keeps nothing."""
    del key, geometry
    return SamplerState(params={}, aux={})


def no_refresh(key: Array, state: SamplerState, point_density_fn: PointDensityFn, *, step: Array) -> SamplerState:
    """``refresh`` of a sampler whose state the optimizer alone changes."""
    del key, point_density_fn, step
    return state


def no_loss(info: SamplerInfo, rendering: Rendering, *, step: Array) -> dict[str, Array]:
    """``loss`` of a sampler that learns nothing."""
    del info, rendering, step
    return {}
