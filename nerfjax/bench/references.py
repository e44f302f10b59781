"""Rays of the procedural scenes with their exact colours and weights: what samplers are measured against.

Along a ray, ``F(s) = (1 - T(s)) / (1 - T(1))`` is the exact distribution of its weight, tabulated at the edges of
``CELLS`` equal cells of the sampler's coordinate s (the scene's spacing between the ray's near and far).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from nerfjax.geometry.warps import t_from_s
from nerfjax.renderer import camera_rays
from nerfjax.scenes import read_scene
from nerfjax.scenes.analytic_field import Rows, evaluate_rows, primitive_rows
from nerfjax.scenes.analytic_scenes import SCENES, primitives
from nerfjax.scenes.primitives import optical_depth, render_rays
from nerfjax.types import Array, Cameras, Points, Rays, SceneGeometry

CELLS = 1024
SOURCE = "analytic:{name}?views=60&val=0&test=8&size=128"
BACKGROUND = 1.0  # white


@struct.dataclass
class Reference:
    """N rays of a scene and what is exactly true of them: arrays alone, so that programs serve all scenes.

    Attributes:
      rays: [N] rays through random pixels of the test views.
      rows: the scene's primitives (``analytic_field.primitive_rows``), padded to the same shape for all scenes.
      geometry: the scene's geometry.
      color: [N, 3] exact colour over white.
      accumulation: [N] exact opacity between near and far.
      cell_weights: [N, CELLS] exact weight of each cell of s.
    """

    rays: Rays
    rows: Rows
    geometry: SceneGeometry
    color: Array
    accumulation: Array
    cell_weights: Array


@cache
def geometry_and_cameras(name: str) -> tuple[SceneGeometry, Cameras]:
    """Returns a procedural scene's geometry and the cameras of its test views; no image is rendered."""
    scene = read_scene(SOURCE.format(name=name))
    geometry, cameras = jax.tree.map(jnp.asarray, (scene.geometry, scene.subset("test").cameras))
    return geometry, cameras


def make_reference(name: str, *, num_rays: int = 256, seed: int = 0, rays: Rays | None = None) -> Reference:
    """Draws rays of a scene and integrates them exactly.

    Args:
      name: a key of ``SCENES``.
      num_rays: N.
      seed: of the choice of pixels.
      rays: rays to take instead of random ones.
    """
    geometry, cameras = geometry_and_cameras(name)
    rays = random_rays(jax.random.key(seed), geometry, cameras, count=num_rays) if rays is None else rays
    origins, directions, near, far = (
        np.asarray(x, np.float64) for x in (rays.origins, rays.directions, rays.near, rays.far)
    )
    exact = render_rays(primitives(name), origins, directions, near, far, background=np.full(3, BACKGROUND))
    s = jnp.broadcast_to(jnp.linspace(0.0, 1.0, CELLS + 1), (*rays.near.shape, CELLS + 1))
    through = exact_transmittance(name, rays)(np.asarray(t_from_s(geometry.spacing, s, rays.near, rays.far)))
    return Reference(
        rays=rays, rows=padded_rows(name), geometry=geometry,
        color=jnp.asarray(exact.color, jnp.float32), accumulation=jnp.asarray(exact.accumulation, jnp.float32),
        cell_weights=jnp.asarray(through[:, :-1] - through[:, 1:], jnp.float32),
    )  # fmt: skip


@partial(jax.jit, static_argnames="count")
def random_rays(key: Array, geometry: SceneGeometry, cameras: Cameras, *, count: int) -> Rays:
    """Returns [count] rays through random pixels of cameras that share their size."""
    key_image, key_pixel = jax.random.split(key)
    image = jax.random.randint(key_image, (count,), 0, len(cameras), jnp.int32)
    share = jax.random.uniform(key_pixel, (2, count))
    column, row = (jnp.floor(share[i] * cameras.size[0, i]).astype(jnp.int32) for i in (0, 1))
    return camera_rays(geometry, cameras, image, row, column, jnp.arange(count, dtype=jnp.int32))


def exact_transmittance(name: str, rays: Rays) -> Callable[[np.ndarray], np.ndarray]:
    """Returns ``t [N, K] -> T [N, K]``, the exact transmittance from the rays' near (float64, on the host)."""
    origins, directions, near = (np.asarray(x, np.float64) for x in (rays.origins, rays.directions, rays.near))
    return lambda t: np.exp(-optical_depth(primitives(name), origins, directions, near, t))


@cache
def padded_rows(name: str) -> Rows:
    """Returns a scene's primitives in the shape that all scenes fit into, so that one program serves them all."""
    scenes = [primitives(other) for other in SCENES]
    most = max(len(scene.kind) for scene in scenes)
    waves = max(scene.wave.shape[1] for scene in scenes)
    rows = []
    for array in primitive_rows(primitives(name)):
        # The waves' axis, where there is one, is the second of three; zeros have neither density nor amplitude.
        widths = [(0, most - array.shape[0])] + [(0, 0)] * (array.ndim - 1)
        rows.append(jnp.pad(array, widths))
    *head, amplitude, wave, phase = rows
    more = waves - phase.shape[1]
    amplitude, wave = (jnp.pad(array, ((0, 0), (0, more), (0, 0))) for array in (amplitude, wave))
    return (*head, amplitude, wave, jnp.pad(phase, ((0, 0), (0, more))))


def point_density(rows: Rows, positions: Array, radii: Array) -> Array:
    """Exact density [...] at positions [..., 3]: with the rows bound, a sampler's ``point_density_fn``."""
    del radii
    return evaluate_rows(rows, positions)[0]


def density_at(rows: Rows, points: Points) -> tuple[Array, Array]:
    """Exact (density [...], colour [..., 3]) at points."""
    return evaluate_rows(rows, points.positions)
