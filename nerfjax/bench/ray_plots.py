"""Pictures of single rays and of strips of rays: where samplers put their points, and what they make of it.

rays = pixel_rays("toys", row=64, columns=range(32, 96))
record = trace(key, ready.sampler, ready.state, rays, density_fn(scene), transmittance=exact_transmittance(scene, rays))
plot_ray(axes, record.numpy(), 20, color="#0072b2")
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

from nerfjax.background import white
from nerfjax.bench.laboratory import Ready
from nerfjax.bench.references import BACKGROUND, exact_transmittance, geometry_and_cameras, padded_rows, point_density
from nerfjax.geometry.rays import cast_points
from nerfjax.geometry.warps import s_from_t, t_from_s
from nerfjax.renderer import camera_rays, make_renderer
from nerfjax.samplers.base import DensityFn
from nerfjax.samplers.trace import LevelTrace, RayTrace
from nerfjax.scenes.analytic_field import analytic_field
from nerfjax.scenes.analytic_scenes import primitives
from nerfjax.scenes.primitives import evaluate, render_rays
from nerfjax.types import Array, Rays

FINE = 2000  # places along a ray at which exact curves are drawn
EXACT = "#222222"


def pixel_rays(scene: str, *, row: int, columns: Sequence[int], view: int = 0) -> Rays:
    """Returns rays through pixels of a row of a procedural scene's test view (128 by 128 pixels)."""
    geometry, cameras = geometry_and_cameras(scene)
    column = jnp.asarray(list(columns), jnp.int32)
    image, rows = jnp.full_like(column, view), jnp.full_like(column, row)
    return camera_rays(geometry, cameras, image, rows, column, jnp.arange(len(column), dtype=jnp.int32))


def picture_rays(scene: str, *, size: int, view: int = 0) -> Rays:
    """Returns [size * size] rays, evenly spaced over a test view."""
    geometry, cameras = geometry_and_cameras(scene)
    places = ((np.arange(size) + 0.5) * (128 / size)).astype(np.int32)
    row, column = (jnp.asarray(x.reshape(-1)) for x in np.meshgrid(places, places, indexing="ij"))
    index = jnp.arange(size * size, dtype=jnp.int32)
    return camera_rays(geometry, cameras, jnp.full_like(index, view), row, column, index)


def density_fn(scene: str) -> DensityFn:
    """Returns the exact density of a scene over intervals, as samplers ask for it."""

    def density(rays: Rays, intervals: Any, *, level: int) -> Array:
        return point_density(padded_rows(scene), cast_points(rays, intervals).positions, rays.near)

    return density


def exact_colors(scene: str, rays: Rays) -> np.ndarray:
    """Returns the exact colours [N, 3] of rays over white."""
    ends = (np.asarray(x, np.float64) for x in (rays.origins, rays.directions, rays.near, rays.far))
    return render_rays(primitives(scene), *ends, background=np.full(3, BACKGROUND)).color


def sampled_colors(key: Array, ready: Ready, scene: str, rays: Rays) -> np.ndarray:
    """Returns the colours [N, 3] that a sampler renders of the exact field over white."""
    renderer = make_renderer(analytic_field(scene), ready.sampler, white())
    params = {"field": {}, "sampler": ready.state.params, "background": {}}
    render = jax.jit(partial(renderer.render, step=jnp.int32(10**6)))
    return np.asarray(render(key, params, ready.state.aux, rays, jnp.ones_like(rays.directions)).final.color)


class ExactRay:
    """Curves along one ray of a procedural scene.

    Attributes:
      t: [FINE+1] distances, equally spaced in the scene's s.
      s: [FINE+1].
      density: [FINE] between them.
      weight: [FINE] weight per unit of s.
    """

    def __init__(self, scene: str, rays: Rays, index: int):
        one = jax.tree.map(lambda leaf: leaf[index : index + 1], rays)
        spacing = geometry_and_cameras(scene)[0].spacing
        self.s = np.linspace(0.0, 1.0, FINE + 1)
        self.t = np.asarray(t_from_s(spacing, jnp.asarray(self.s[None], jnp.float32), one.near, one.far))[0]
        middle = 0.5 * (self.t[1:] + self.t[:-1])
        origin, direction = (np.asarray(x, np.float64)[0] for x in (one.origins, one.directions))
        self.density = evaluate(primitives(scene), origin + middle[:, None] * direction)[0]
        through = exact_transmittance(scene, one)(self.t[None])[0]
        self.weight = -np.diff(through) * FINE
        self._warp = spacing, float(one.near[0]), float(one.far[0])

    def s_of(self, t: np.ndarray) -> np.ndarray:
        """Returns the normalised coordinates of distances."""
        spacing, near, far = self._warp
        return np.asarray(s_from_t(spacing, jnp.asarray(t, jnp.float32).reshape(1, -1), near, far)).reshape(np.shape(t))


def plot_exact(axes: Axes, ray: ExactRay) -> None:
    """Draws the density along a ray, and the weight that is left of it."""
    axes.fill_between(ray.s[1:], ray.density, step="pre", color="#d9d9d9", linewidth=0, label="density")
    axes.set_ylabel("density", fontsize=8)
    axes.set_ylim(0.0, 1.12 * max(float(ray.density.max()), 1e-3))
    twin = axes.twinx()
    twin.plot(ray.s[1:], ray.weight, color=EXACT, linewidth=1.2)
    twin.set_ylabel("exact weight per s", fontsize=8)
    twin.set_ylim(0.0, 1.12 * max(float(ray.weight.max()), 1e-3))
    for each in (axes, twin):
        each.spines["top"].set_visible(False)
        each.tick_params(labelsize=7)


def plot_ray(axes: Axes, record: RayTrace, index: int, ray: ExactRay, *, color: str) -> None:
    """Draws a ray's levels: ticks for the points, coarse above fine, and the mass of the final weights.

    The mass is drawn as its running sum over s, next to the exact one: the sampler's error is what lies between.

    Args:
      axes: where to draw.
      record: of ``trace``, NumPy.
      index: the ray.
      ray: its exact curves.
      color: of the sampler.
    """
    final = record.final
    valid = np.asarray(final.valid)[index]
    places = np.concatenate([[0.0], ray.s_of(np.asarray(final.t1)[index][valid]), [1.0]])
    mass = np.cumsum(np.concatenate([[0.0], np.asarray(final.weights)[index][valid]]))
    exact = np.concatenate([[0.0], np.cumsum(ray.weight) / FINE])
    axes.fill_between(
        ray.s, exact, np.interp(ray.s, places, np.append(mass, mass[-1])), color=color, alpha=0.25, linewidth=0
    )
    axes.plot(ray.s, exact, color=EXACT, linewidth=1.0)
    axes.plot(places, np.append(mass, mass[-1]), color=color, linewidth=1.6)
    for number, level in enumerate(record.levels):
        last = number == len(record.levels) - 1
        height = -0.1 - 0.13 * (len(record.levels) - 1 - number)
        plot_points(axes, level, index, ray, height=height, color=color if last else "#9a9a9a")
    axes.axhline(0.0, color="#bbbbbb", linewidth=0.6)
    axes.set_ylim(-0.15 - 0.13 * len(record.levels), 1.08)
    axes.set_yticks([0, 0.5, 1])
    axes.set_xlim(-0.01, 1.01)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=7)


def plot_points(axes: Axes, level: LevelTrace, index: int, ray: ExactRay, *, height: float, color: str) -> None:
    """Draws the points of one level as ticks at a height."""
    points = ray.s_of(np.asarray(level.t_point)[index][np.asarray(level.valid)[index]])
    axes.plot(points, np.full(points.shape, height), "|", color=color, markersize=6, markeredgewidth=0.9)


def plot_strip(axes: Axes, record: RayTrace, scene: str, rays: Rays, *, color: str, cells: int = 256) -> None:
    """Draws a strip of rays from above: the exact weights as an image, a ray a column, with the final points on it.

    Args:
      axes: where to draw.
      record: of ``trace``, NumPy.
      scene: a key of ``SCENES``.
      rays: the strip.
      color: of the points.
      cells: pixels of the image along a ray.
    """
    spacing = geometry_and_cameras(scene)[0].spacing
    count = rays.near.shape[0]
    s = jnp.broadcast_to(jnp.linspace(0.0, 1.0, cells + 1), (count, cells + 1))
    through = exact_transmittance(scene, rays)(np.asarray(t_from_s(spacing, s, rays.near, rays.far)))
    weight = -np.diff(through, axis=-1) * cells
    axes.imshow(
        np.log10(np.maximum(weight, 1e-3)).T, origin="lower", aspect="auto", extent=(-0.5, count - 0.5, 0.0, 1.0),
        cmap="Greys", vmin=-2.0, vmax=2.5, interpolation="nearest",
    )  # fmt: skip
    final = record.final
    points = np.asarray(s_from_t(spacing, jnp.asarray(final.t_point), rays.near, rays.far))
    column, _ = np.nonzero(final.valid)
    axes.scatter(column, points[np.asarray(final.valid)], s=1.6, color=color, linewidths=0)
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylim(0.0, 1.0)
    axes.tick_params(labelsize=7)
