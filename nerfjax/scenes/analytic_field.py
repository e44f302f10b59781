"""A procedural scene as a field: exact density and colour at points, on the device."""

from __future__ import annotations

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from nerfjax.errors import UserError, did_you_mean
from nerfjax.geometry.rays import cast_points
from nerfjax.scenes.analytic_scenes import SCENES, primitives
from nerfjax.scenes.primitives import CUBE, CYLINDER, Primitives
from nerfjax.types import Array, Conditioning, Intervals, PackedIntervals, Points, Rays

Rows = tuple[Array, ...]


class AnalyticField(nn.Module):
    """The field contract for primitives of constant density; it has no parameters and needs no ``init``.

    Attributes:
      primitives: the scene.
    """

    primitives: Primitives
    point_kind: ClassVar[str] = "point"

    def density(self, points: Points) -> tuple[Array, Array]:
        """Returns (density [...], 1 / world unit; features [..., 3], the colour) at points."""
        return evaluate_points(self.primitives, points.positions)

    def color(self, features: Array, directions: Array, conditioning: Conditioning | None = None) -> Array:
        """Returns the colour [..., 3]; it does not depend on the direction."""
        del directions, conditioning
        return features

    def __call__(self, points: Points, directions: Array, conditioning: Conditioning | None = None) -> tuple[Any, Any]:
        """Returns (density [...], colour [..., 3])."""
        density, features = self.density(points)
        return density, self.color(features, directions, conditioning)

    def interval_density(self, rays: Rays, intervals: Intervals | PackedIntervals, *, level: int = 0) -> Array:
        """Density at the midpoints of intervals: the ``density_fn`` of a sampler."""
        del level
        return self.density(cast_points(rays, intervals))[0]

    def point_density(self, positions: Array, radii: Array) -> Array:
        """Density at positions [..., 3]: the ``point_density_fn`` of a sampler."""
        return self.density(Points(positions=positions, radius=radii))[0]


def analytic_field(name: str) -> AnalyticField:
    """Returns the field of a procedural scene by name."""
    if name not in SCENES:
        raise UserError("There is no such analytic scene.", found=name, fix=did_you_mean(name, SCENES))
    return AnalyticField(primitives(name))


def evaluate_points(scene: Primitives, positions: Array) -> tuple[Array, Array]:
    """Evaluates primitives at points.

    Primitives are taken one after another (``lax.scan``), so that memory does not grow with their number.

    Args:
      scene: the primitives.
      positions: [..., 3].

    Returns:
      (density [...], colour [..., 3]); the colour of empty space is black.
    """
    return evaluate_rows(primitive_rows(scene), positions)


def primitive_rows(scene: Primitives) -> Rows:
    """Returns the primitives as arrays with a leading axis [P]: an argument of compiled functions, not a constant."""
    arrays = (scene.matrix, scene.offset, scene.density, scene.base, scene.amplitude, scene.wave, scene.phase)
    return tuple(map(jnp.asarray, [np.asarray(scene.kind, np.int32), *(np.asarray(x, np.float32) for x in arrays)]))


def evaluate_rows(rows: Rows, positions: Array) -> tuple[Array, Array]:
    """``evaluate_points`` of what ``primitive_rows`` returns."""
    x = positions.reshape(-1, 3)

    def add(carry, row):
        density, light = carry
        kind, matrix, offset, sigma, base, amplitude, wave, phase = row
        square = jnp.square(_apply(matrix, x) + offset[None])
        outside = jnp.where(kind == CUBE, jnp.max(square, -1), jnp.sum(square, -1))
        tube = jnp.maximum(square[:, 0] + square[:, 1], square[:, 2])
        outside = jnp.where(kind == CYLINDER, tube, outside)
        inside = jnp.where(kind <= CYLINDER, outside < 1.0, outside > 1.0)
        here = jnp.where(inside, sigma, 0.0)
        waves = jnp.sin(_apply(wave, x) + phase[None])
        color = base[None] + _apply(amplitude.T, waves)
        return (density + here, light + here[:, None] * color), None

    start = (jnp.zeros(x.shape[:1], x.dtype), jnp.zeros_like(x))
    (density, light), _ = jax.lax.scan(add, start, rows)
    color = light / jnp.maximum(density, 1e-12)[:, None]
    return density.reshape(positions.shape[:-1]), color.reshape(positions.shape)


def _apply(matrix: Array, vectors: Array) -> Array:
    return jnp.matmul(vectors, matrix.T, precision=jax.lax.Precision.HIGHEST)
