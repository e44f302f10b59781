"""A grid that remembers where the density is, in cascades: what occupancy sampling skips space with.

Cascade k has R^3 cells and is 2^k times as wide as the scene's box, about the same centre. A position belongs to the
finest cascade that holds it; the middle of the others (``hollow``) is never asked. A cell stores a decayed maximum of
the density at random points inside it, ``max(decay * stored, fresh)``, and is occupied where that reaches
``min(threshold / (2^k edge), mean)``, with ``edge`` the box's longest: the first is an optical depth across the whole
cascade, the second lets a scene that is still thin be seen. Cells that no training camera sees hold -1 for ever and are
empty.

Instant-NGP asks for an optical depth of 0.01 along one step of 1/1024 of the diagonal, which is 5.9 across the box.
Such fog hides nearly all that is behind it: a trained field with a wisp of it lost 1.9 dB at a threshold of 5.9, 0.009
dB at 1. Measured by the box, neither finer steps nor finer cells lose more than coarse ones; measured by the cell
(0.01), a coarse grid keeps the haze of early training, on which the budget is spent (the demo lost 4 dB).

Mueller et al. 2022, Instant Neural Graphics Primitives, appendix C; Li et al. 2023, NerfAcc (which cells decay).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from nerfjax.errors import UserError
from nerfjax.geometry.cameras import inside_image, project
from nerfjax.samplers.base import PointDensityFn
from nerfjax.types import Array, Cameras, SceneGeometry

CASCADES_MAX = 8
CHUNK = 1 << 16  # points of one call of the density: bounds the memory of a refresh
SEEN_BLOCKS = 32  # blocks along each axis for which it is asked whether a camera sees them


class GridSpec(NamedTuple):
    """Static choices of a grid.

    Attributes:
      lower, upper: corners of cascade 0, world units.
      near, far: distances between which a camera sees, world units.
      resolution: R, cells along each axis of each cascade; a multiple of 4.
      cascades: K.
      step: length of the shortest marching step, world units.
      threshold: optical depth along the box's longest edge, of a density at which a cell is occupied.
      decay: factor on what is stored, at each refresh of the cell.
      warmup: the grid's first steps, during which a refresh looks at all cells.
      period: steps between refreshes, later on.
      solid: whether ``OccupancyGrid.solid`` is kept.
    """

    lower: tuple[float, float, float]
    upper: tuple[float, float, float]
    near: float
    far: float
    resolution: int
    cascades: int
    step: float
    threshold: float
    decay: float
    warmup: int
    period: int
    solid: bool

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """[K, R, R, R]."""
        return (self.cascades, self.resolution, self.resolution, self.resolution)

    @property
    def edge(self) -> float:
        """Longest edge of the box, world units."""
        return max(high - low for low, high in zip(self.lower, self.upper, strict=True))

    @property
    def center(self) -> np.ndarray:
        """[3] centre of all cascades, world units."""
        return (0.5 * (np.asarray(self.lower) + np.asarray(self.upper))).astype(np.float32)

    @property
    def half(self) -> np.ndarray:
        """[3] half the width of cascade 0, world units."""
        return (0.5 * (np.asarray(self.upper) - np.asarray(self.lower))).astype(np.float32)

    @property
    def outer_half(self) -> np.ndarray:
        """[3] half the width of the last cascade, world units."""
        return self.half * np.float32(2 ** (self.cascades - 1))


@struct.dataclass
class OccupancyGrid:
    """The grid's state; no gradient flows through it.

    Attributes:
      density: [K, R, R, R] decayed maximum of the density, 1 / world unit; -1 where no training camera sees.
      skip: [K, R, R, R] uint8: 0 where occupied; l >= 1 where the aligned block of 2^(l-1) cells per axis, the
        largest such block that holds the cell, is empty. Hollow cells hold 0: no block reaches into a finer cascade.
      solid: [K, R, R, R] lowest ``density`` among a cell and its 26 neighbours (0 at the cascade's rim), or None.
      evaluations: [] float32, densities evaluated by all refreshes so far (not counted per ray).
      born: [] int32, the step of the first refresh, from which the schedule counts; -1 before.
    """

    density: Any
    skip: Any
    solid: Any
    evaluations: Any
    born: Any


def grid_spec(
    geometry: SceneGeometry,
    *,
    resolution: int = 128,
    cascades: int = 0,
    diagonal_steps: int = 1024,
    threshold: float = 1.0,
    decay: float = 0.95,
    warmup: int = 256,
    period: int = 16,
    solid: bool = False,
) -> GridSpec:
    """Returns the static choices for a scene.

    Args:
      geometry: with concrete leaves. A bounded scene has one cascade, its box.
      resolution: cells along each axis.
      cascades: of an unbounded scene; 0 for as many as ``far`` asks for, at most 8.
      diagonal_steps: shortest marching steps along the diagonal of the box.
      threshold, decay, warmup, period, solid: see ``GridSpec``.

    Raises:
      UserError: an option is not valid.
    """
    if resolution < 4 or resolution % 4:
        raise UserError(
            "the cascades of a grid fit into each other only if its resolution is a multiple of 4",
            field="resolution", found=resolution, expected="4, 8, 12, ...",
        )  # fmt: skip
    if not 0 <= cascades <= CASCADES_MAX:
        raise UserError("too many cascades", field="cascades", found=cascades, expected=f"0 to {CASCADES_MAX}")
    lower, upper = np.asarray(geometry.box, np.float64)
    near, far = float(np.asarray(geometry.near)), float(np.asarray(geometry.far))
    half = 0.5 * (upper - lower)
    if geometry.bounded:
        cascades = 1
    elif cascades == 0:
        eyes = np.abs(np.asarray(geometry.cameras.pose, np.float64)[:, :, 3] - 0.5 * (lower + upper))
        widest = float(np.max((eyes.max(axis=0, initial=0.0) + far) / half))
        cascades = int(np.clip(1 + math.ceil(math.log2(max(widest, 1.0))), 1, CASCADES_MAX))
    step = 2.0 * float(np.linalg.norm(half)) / diagonal_steps
    corners = [tuple(float(x) for x in corner) for corner in (lower, upper)]
    return GridSpec(*corners, near, far, resolution, cascades, step, threshold, decay, warmup, period, solid)


# ---------------------------------------------------------------------------- positions and cells


def cascade_of(spec: GridSpec, positions: Array) -> tuple[Array, Array]:
    """Which cascade positions [..., 3] belong to: ([...] int32, [...] bool whether any cascade holds them)."""
    shape = (1,) * (positions.ndim - 1) + (3,)
    reach = jnp.max(jnp.abs(positions - spec.center.reshape(shape)) / spec.half.reshape(shape), axis=-1)
    cascade = jnp.zeros_like(reach, jnp.int32)
    for k in range(spec.cascades - 1):
        cascade += (reach > 2.0**k).astype(jnp.int32)
    return cascade, reach <= 2.0 ** (spec.cascades - 1)


def cell_coordinates(spec: GridSpec, positions: Array, cascade: Array) -> Array:
    """Positions [..., 3] in cells of their cascade [...]: [..., 3], in [0, R] inside it."""
    shape = (1,) * (positions.ndim - 1) + (3,)
    half = spec.half.reshape(shape) * jnp.exp2(cascade.astype(jnp.float32))[..., None]
    return ((positions - spec.center.reshape(shape)) / half + 1.0) * (0.5 * spec.resolution)


def cell_index(spec: GridSpec, cascade: Array, cell: Array) -> Array:
    """Flat index [...] int32 of cells [..., 3] int32, clipped into their cascade."""
    r = spec.resolution
    x, y, z = (jnp.clip(cell[..., axis], 0, r - 1) for axis in range(3))
    return ((cascade * r + x) * r + y) * r + z


def occupied_at(spec: GridSpec, grid: OccupancyGrid, positions: Array) -> Array:
    """Whether positions [..., 3] lie in occupied cells: [...] bool; False outside the last cascade."""
    cascade, inside = cascade_of(spec, positions)
    cell = jnp.floor(cell_coordinates(spec, positions, cascade)).astype(jnp.int32)
    skip = grid.skip.reshape(-1).at[cell_index(spec, cascade, cell)].get(mode="promise_in_bounds")
    return inside & (skip == 0)


def cell_points(spec: GridSpec, index: Array, fraction: Array) -> tuple[Array, Array]:
    """Points inside cells.

    Args:
      spec: the static choices.
      index: [n] int32 flat indices.
      fraction: [n, 3] place inside the cell, in [0, 1].

    Returns:
      (positions [n, 3], half the mean width of the cell [n]), world units.
    """
    r = spec.resolution
    cell = jnp.stack([index // (r * r) % r, index // r % r, index % r], axis=-1).astype(jnp.float32)
    scale = jnp.exp2((index // (r * r * r)).astype(jnp.float32))[:, None]
    offset = (cell + fraction) * (2.0 / r) - 1.0
    positions = spec.center[None] + spec.half[None] * scale * offset
    return positions, scale[:, 0] * float(np.mean(spec.half)) / r


# ---------------------------------------------------------------------------- which cells a camera sees


def seen_cells(spec: GridSpec, cameras: Cameras) -> Array:
    """Cells that some camera sees: [K, R, R, R] bool, some of their neighbours included.

    The corners of at most 32^3 blocks per cascade are projected into every image, by the lens's own model; a block
    is seen if one of its corners, or one of a neighbouring block, falls into an image between near and far.
    """
    r = spec.resolution
    blocks = max(count for count in range(1, SEEN_BLOCKS + 1) if r % count == 0)
    ticks = np.linspace(-1.0, 1.0, blocks + 1)
    unit = np.stack(np.meshgrid(ticks, ticks, ticks, indexing="ij"), axis=-1).reshape(-1, 3)
    scales = 2.0 ** np.arange(spec.cascades)
    points = spec.center + (scales[:, None, None] * spec.half * unit).reshape(-1, 3)
    margin = np.repeat(scales * 2.0 * np.linalg.norm(spec.half) / blocks, len(unit))
    points, margin = jnp.asarray(points, jnp.float32), jnp.asarray(margin, jnp.float32)

    def look(seen: Array, camera: Cameras) -> tuple[Array, None]:
        camera = jax.tree.map(lambda leaf: leaf[None], camera)
        image = project(camera, points)
        between = (image.distance + margin >= spec.near) & (image.distance - margin <= spec.far)
        return seen | (image.valid & between & inside_image(camera, image.pixels)), None

    seen = lax.scan(look, jnp.zeros(len(points), bool), jax.tree.map(jnp.asarray, cameras))[0]
    seen = seen.reshape((spec.cascades,) + (blocks + 1,) * 3).astype(jnp.uint8)
    corners = lax.reduce_window(seen, jnp.uint8(0), lax.max, (1, 2, 2, 2), (1,) * 4, "VALID")
    around = lax.reduce_window(corners, jnp.uint8(0), lax.max, (1, 3, 3, 3), (1,) * 4, "SAME")
    return _repeat(around, r // blocks) > 0


def hollow_cells(spec: GridSpec) -> Array:
    """Cells of cascades 1, 2, ... in whose place a finer cascade is asked: [K, R, R, R] bool."""
    cell = jnp.arange(spec.resolution, dtype=jnp.int32)
    middle = (cell >= spec.resolution // 4) & (cell < 3 * spec.resolution // 4)
    inner = middle[:, None, None] & middle[None, :, None] & middle[None, None, :]
    return (jnp.arange(spec.cascades) > 0).reshape(-1, 1, 1, 1) & inner[None]


def _repeat(values: Array, factor: int) -> Array:
    """[K, B, B, B] to [K, factor B, ...]: each block's value for all of its cells."""
    if factor == 1:
        return values
    k, b = values.shape[:2]
    shape = (k, b, factor, b, factor, b, factor)
    return jnp.broadcast_to(values[:, :, None, :, None, :, None], shape).reshape(k, *(b * factor,) * 3)


# ---------------------------------------------------------------------------- state


def init_grid(spec: GridSpec, key: Array, geometry: SceneGeometry) -> OccupancyGrid:
    """Returns a grid in which every cell that a camera sees counts as occupied, until the first refresh."""
    del key
    seen = seen_cells(spec, geometry.cameras) & ~hollow_cells(spec)
    density = jnp.where(seen, 0.0, -1.0).astype(jnp.float32)
    return _finished(spec, density, jnp.zeros((), jnp.float32), jnp.full((), -1, jnp.int32))


def filled_grid(spec: GridSpec, density: Array) -> OccupancyGrid:
    """Returns the grid of given densities [K, R, R, R]; negative ones are empty for ever."""
    density = jnp.where(hollow_cells(spec), -1.0, density).astype(jnp.float32)
    return _finished(spec, density, jnp.zeros((), jnp.float32), jnp.full((), -1, jnp.int32))


def occupied_cells(spec: GridSpec, density: Array) -> Array:
    """[K, R, R, R] bool: density at or above ``min(threshold / (2^k edge), mean of the cells that are seen)``."""
    seen = density >= 0.0
    mean = jnp.sum(jnp.where(seen, density, 0.0)) / jnp.maximum(jnp.sum(seen.astype(jnp.float32)), 1.0)
    limit = np.float32(spec.threshold / spec.edge) / np.exp2(np.arange(spec.cascades, dtype=np.float32))
    # The mean of equal densities must not rise above them; and where all is 0, nothing is known: all is occupied.
    limit = jnp.minimum(limit.reshape(-1, 1, 1, 1), 0.999 * mean)
    return seen & (density >= limit)


def skip_levels(spec: GridSpec, occupied: Array) -> Array:
    """The ``skip`` of ``OccupancyGrid`` from [K, R, R, R] occupied cells: a pyramid of "any", read from the top."""
    pyramid = [occupied | hollow_cells(spec)]
    while pyramid[-1].shape[1] % 2 == 0:
        k, b = pyramid[-1].shape[0], pyramid[-1].shape[1] // 2
        pyramid.append(jnp.any(pyramid[-1].reshape(k, b, 2, b, 2, b, 2), axis=(2, 4, 6)))
    skip = jnp.zeros_like(pyramid[-1], jnp.uint8)
    for level in reversed(range(len(pyramid))):
        skip = skip if level == len(pyramid) - 1 else _repeat(skip, 2)
        skip = jnp.where((skip == 0) & ~pyramid[level], jnp.uint8(level + 1), skip)
    return skip


def _finished(spec: GridSpec, density: Array, evaluations: Array, born: Array) -> OccupancyGrid:
    solid = None
    if spec.solid:
        solid = lax.reduce_window(
            jnp.maximum(density, 0.0), jnp.float32(jnp.inf), lax.min, (1, 3, 3, 3), (1,) * 4, "VALID"
        )
        solid = jnp.pad(solid, ((0, 0), (1, 1), (1, 1), (1, 1)))
    return OccupancyGrid(
        density=density,
        skip=skip_levels(spec, occupied_cells(spec, density)),
        solid=solid,
        evaluations=evaluations,
        born=born,
    )


# ---------------------------------------------------------------------------- refresh


def refresh_due(spec: GridSpec, age: Array) -> Array:
    """Whether a grid that is ``age`` steps old is refreshed: every min(period, age / 16 + 1) steps."""
    return age % jnp.minimum(spec.period, age // 16 + 1) == 0


def refresh_grid(
    spec: GridSpec, key: Array, grid: OccupancyGrid, point_density_fn: PointDensityFn, *, step: Array
) -> OccupancyGrid:
    """Looks at cells again, if it is time to (``refresh_due``); the grid's age counts from its first refresh.

    During the warm-up all cells that a camera sees are evaluated, later a random quarter of all and, of the occupied
    ones, as many as a quarter (a random run of them where there are more).

    Args:
      spec: the static choices.
      key: of this step.
      grid: the state.
      point_density_fn: ``(positions [n, 3], radii [n]) -> density [n]`` of the field; the radius is half a cell.
      step: [] int32, the training step that has just been done.

    Returns:
      The state; its ``evaluations`` have grown by what the refresh has cost.
    """
    step = jnp.asarray(step, jnp.int32)
    born = jnp.where(grid.born < 0, step, grid.born)

    def look(grid: OccupancyGrid) -> OccupancyGrid:
        key_choice, key_points = jax.random.split(key)
        chosen = _chosen_cells(spec, key_choice, grid, step - born)
        density = _looked_at(spec, key_points, grid.density.reshape(-1), chosen, point_density_fn)
        spent = grid.evaluations + jnp.sum(chosen.astype(jnp.int32)).astype(jnp.float32)
        return _finished(spec, density.reshape(spec.shape), spent, born)

    return lax.cond(refresh_due(spec, step - born), look, lambda grid: grid, grid)


def _chosen_cells(spec: GridSpec, key: Array, grid: OccupancyGrid, age: Array) -> Array:
    """[K R^3] bool: the cells that this refresh evaluates."""
    key_uniform, key_occupied = jax.random.split(key)
    seen = (grid.density >= 0.0).reshape(-1)
    quarter = seen.size // 4
    # One cell of every four: no cell twice, and no index list to draw.
    lane = jax.random.randint(key_uniform, (quarter, 1), 0, 4, jnp.int32)
    uniform = (jnp.arange(4, dtype=jnp.int32)[None] == lane).reshape(-1)
    occupied = (grid.skip == 0).reshape(-1) & seen
    rank = jnp.cumsum(occupied.astype(jnp.int32)) - 1
    count = jnp.maximum(rank[-1] + 1, 1)
    first = jax.random.randint(key_occupied, (), 0, count, jnp.int32)
    in_run = occupied & ((rank - first) % count < quarter)
    return seen & ((age < spec.warmup) | uniform | in_run)


def _looked_at(spec: GridSpec, key: Array, density: Array, chosen: Array, point_density_fn: PointDensityFn) -> Array:
    """Stored densities [K R^3] after a fresh look at the chosen cells, a chunk at a time; only full chunks cost."""
    total = density.size
    chunk = min(CHUNK, total)
    room = -(-total // chunk) * chunk
    slot = jnp.cumsum(chosen.astype(jnp.int32))
    place = jnp.where(chosen, slot - 1, room)
    cells = jnp.full((room,), total, jnp.int32).at[place].set(jnp.arange(total, dtype=jnp.int32), mode="drop")

    def look(state):
        number, density = state
        index = lax.dynamic_slice_in_dim(cells, number * chunk, chunk)
        fraction = jax.random.uniform(jax.random.fold_in(key, number), (chunk, 3), jnp.float32)
        fresh = point_density_fn(*cell_points(spec, jnp.minimum(index, total - 1), fraction)).astype(jnp.float32)
        faded = spec.decay * density.at[index].get(mode="fill", fill_value=0.0)
        # Not a maximum: a NaN would stay for ever.
        stored = jnp.where(fresh > faded, fresh, faded)
        return number + 1, density.at[index].set(stored, mode="drop")

    start = (jnp.zeros((), jnp.int32), density)
    return lax.while_loop(lambda state: state[0] * chunk < slot[-1], look, start)[1]
