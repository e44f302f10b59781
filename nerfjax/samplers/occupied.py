"""What clipping and an occupancy grid leave of a ray, as a step function: the first stage of composed sampling."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from nerfjax.geometry.rays import rays_in_box
from nerfjax.geometry.warps import s_from_t, t_from_s
from nerfjax.samplers.gaps import Stage
from nerfjax.samplers.marching import WORD, Lattice, StepRule, make_lattice, occupied_steps, step_coordinate
from nerfjax.samplers.occupancy_grid import GridSpec, OccupancyGrid, cell_coordinates, cell_index, skip_levels
from nerfjax.types import Array, Rays


def even_edges(begin: Array, end: Array, count: int) -> Array:
    """Edges [N, count + 1] of equal steps between ``begin`` and ``end`` [N]."""
    share = jnp.linspace(0.0, 1.0, count + 1, dtype=jnp.float32)[None]
    return begin[:, None] * (1.0 - share) + end[:, None] * share


def box_ends(spacing: str, rays: Rays, box) -> tuple[Array, Array]:
    """Where rays enter and leave a box, in s [N]; the first sliver of a ray that misses it (``rays_in_box``)."""
    inside = rays_in_box(rays, box)
    ends = jnp.stack([inside.near, inside.far], axis=1)
    s = s_from_t(spacing, ends, rays.near, rays.far)
    return s[:, 0], s[:, 1]


def left_stage(
    spacing: str, spec: GridSpec, rule: StepRule, grid: OccupancyGrid, rays: Rays, s: Array, *, widen: int
) -> Stage:
    """What the grid leaves of steps with edges ``s`` [N, K+1].

    A step's weight is its length in s times the share of it that is occupied, or all of its length if it is within
    ``widen`` steps of an occupied one (a grid that was filled by random points misses corners). Empty steps before
    the first that is occupied, and behind the last, lose their width. A ray that is empty throughout is left whole.
    """
    share = occupied_share(spec, rule, grid, rays, t_from_s(spacing, s, rays.near, rays.far))
    if widen > 0:
        near_by = lax.reduce_window(
            (share > 0.0).astype(jnp.float32), 0.0, lax.max, (1, 2 * widen + 1), (1, 1), ((0, 0), (widen, widen))
        )
        share = jnp.maximum(share, near_by)
    there = (share > 0.0) & (jnp.diff(s) > 0.0)
    nothing = ~jnp.any(there, axis=1, keepdims=True)
    share, there = jnp.where(nothing, 1.0, share), there | nothing
    begin = jnp.min(jnp.where(there, s[:, :-1], jnp.inf), axis=1, keepdims=True)
    end = jnp.max(jnp.where(there, s[:, 1:], -jnp.inf), axis=1, keepdims=True)
    s = jnp.clip(s, begin, end)
    return Stage(s, share * jnp.diff(s), share == 0.0)


def occupied_share(spec: GridSpec, rule: StepRule, grid: OccupancyGrid, rays: Rays, t: Array) -> Array:
    """Share of the marching steps that meet each interval of ``t`` [N, K+1] which are occupied: [N, K].

    What the grid cannot know, beyond its last cascade or the last marching step, counts as occupied where there are
    several cascades (an unbounded scene), else as empty.
    """
    lattice = make_lattice(spec, rule, rays, jnp.zeros_like(rays.near))
    bits = occupied_steps(spec, grid, rays, lattice)
    place = step_coordinate(rule, t) - lattice.base[:, None]
    # Every marching step that an interval touches: a thin interval inside a step is as full as the step.
    first, end = (
        jnp.clip(bound, 0.0, lattice.count[:, None].astype(jnp.float32)).astype(jnp.int32)
        for bound in (jnp.floor(place[:, :-1]), jnp.ceil(place[:, 1:]))
    )
    inside = _set_before(bits, end) - _set_before(bits, first)
    share = inside.astype(jnp.float32) / jnp.maximum(end - first, 1).astype(jnp.float32)
    if spec.cascades == 1:
        return share
    return jnp.where(_beyond(lattice, t, place), 1.0, share)


def _set_before(bits: Array, step: Array) -> Array:
    """Number of bits [N, W] of 32 that are set before steps [N, n], int32."""
    counts = lax.population_count(bits).astype(jnp.int32)
    total = jnp.concatenate([jnp.zeros_like(counts[:, :1]), jnp.cumsum(counts, axis=1)], axis=1)
    word, place = step // WORD, (step % WORD).astype(jnp.uint32)
    below = (jnp.uint32(1) << place) - jnp.uint32(1)
    own = jnp.take_along_axis(bits, jnp.minimum(word, bits.shape[1] - 1), axis=1) & below
    return jnp.take_along_axis(total, word, axis=1) + lax.population_count(own).astype(jnp.int32)


def _beyond(lattice: Lattice, t: Array, place: Array) -> Array:
    """Whether intervals reach out of what was marched, [N, K]."""
    before = t[:, :-1] < lattice.near[:, None]
    behind = t[:, 1:] > lattice.far[:, None]
    unmarched = ~lattice.complete[:, None] & (place[:, 1:] > lattice.count[:, None].astype(jnp.float32))
    return before | behind | unmarched | (lattice.far <= lattice.near)[:, None]


def cells_near_points(spec: GridSpec, points: Array, reach: int) -> Array:
    """The ``skip`` of a grid that is occupied within ``reach`` cells of points [P, 3]: [K, R, R, R] uint8."""
    marked = []
    for k in range(spec.cascades):
        cascade = jnp.full(points.shape[:1], k, jnp.int32)
        cell = jnp.floor(cell_coordinates(spec, points, cascade)).astype(jnp.int32)
        inside = jnp.all((cell >= 0) & (cell < spec.resolution), axis=-1)
        index = jnp.where(inside, cell_index(spec, cascade * 0, cell), spec.resolution**3)
        here = jnp.zeros(spec.resolution**3, jnp.uint8).at[index].set(1, mode="drop")
        marked.append(here.reshape(spec.shape[1:]))
    occupied = jnp.stack(marked)
    for axis in range(1, 4):
        window = tuple(2 * reach + 1 if i == axis else 1 for i in range(4))
        occupied = lax.reduce_window(occupied, jnp.uint8(0), lax.max, window, (1,) * 4, "SAME")
    return skip_levels(spec, occupied > 0)
