"""Composed sampling: clipping and a grid say where anything is, networks where the weight is, a depth where it must be.

Each stage is a step function over the ray, and the next stage's intervals are drawn from it. Occupancy: Mueller et al.
2022, Instant Neural Graphics Primitives; proposals: Barron et al. 2022, Mip-NeRF 360; samples around a depth: Neff et
al. 2021, DONeRF, and Roessle et al. 2022, Dense Depth Priors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp

from nerfjax.errors import UserError
from nerfjax.samplers import placement
from nerfjax.samplers.base import DensityFn, DensityNetwork, PointDensityFn, Sampler, SamplerState, no_refresh
from nerfjax.samplers.gaps import Stage
from nerfjax.samplers.marching import step_rule
from nerfjax.samplers.mixture import with_depth_share, with_even_share
from nerfjax.samplers.occupancy_grid import OccupancyGrid, grid_spec, init_grid, refresh_grid
from nerfjax.samplers.occupied import box_ends, cells_near_points, even_edges, left_stage
from nerfjax.samplers.rounds import init_networks, interlevel_loss, network_penalties, rounds_of
from nerfjax.samplers.shaping import Shaping, check_shaping
from nerfjax.samplers.stages import draw_intervals, run_stages
from nerfjax.types import Array, Intervals, Rays, Rendering, SamplerInfo, SceneGeometry

CLIPS = ("auto", "none", "box", "points")
CONE_UNBOUNDED = 1.0 / 256.0


def compose(
    *,
    networks: Sequence[DensityNetwork],
    geometry: SceneGeometry,
    clip: str = "auto",
    point_cells: int = 4,
    skip: bool = True,
    widen: int = 1,
    resolution: int = 128,
    cascades: int = 0,
    threshold: float = 1.0,
    decay: float = 0.95,
    warmup: int = 256,
    period: int = 16,
    num_first: int = 128,
    num_proposal: Sequence[int] = (64,),
    num_final: int = 32,
    quiet: float = 1e-4,
    uniform_share: float = 0.1,
    depth_share: float = 0.25,
    depth_width: float = 0.03,
    interlevel: str = "mipnerf360",
    interlevel_weight: float = 1.0,
    pulse_widths: Sequence[float] = (0.03, 0.003),
    anneal_steps: int = 300,
    anneal_slope: float = 10.0,
    dilation_bias: float = 0.0,
    dilation_multiplier: float = 0.0,
    padding: float = 1e-3,
    update_after: int = 5000,
    update_every: int = 1,
    spacing: str = "linear",
    jitter: str = "single",
    randomize: str = "edges",
    deterministic: bool = False,
) -> Sampler:
    """Draws the final intervals of each ray in stages that narrow it down.

    1. Clip: the ray is cut to a box, or to its part between the first and the last cell that is near a sparse point.
    2. Skip: ``num_first`` equal steps in s weigh what an occupancy grid leaves of them; what is empty at both ends is
       cut off, what is empty in between is a gap.
    3. Rounds of networks, as in ``proposal``: intervals are drawn from the stage before, and their weights, annealed,
       dilated and padded, are the next stage. Steps that the grid calls empty stay gaps; so do ``quiet`` ones.
    4. Mixture: the final stage is (1 - a) ((1 - u) w + u e) + a g, with w the last weights, e the even density of what
       the grid left, u = ``uniform_share``, g a normal distribution around ``rays.depth_prior`` of standard deviation
       ``depth_width`` times the distance and a = ``depth_share``, or 0 where no depth is known.

    A gap becomes one interval with edges at its ends (``gaps``): dense intervals reach from the first to the last
    place that is not clipped, and a grid that is wrong about a gap costs accuracy there, not the gap's content. A ray
    on which nothing is left is sampled as if there were no grid.

    Args:
      networks: one network shared by all rounds or one for each; none where there are no rounds.
      geometry: the scene.
      clip: "box" (of the geometry), "points" (sparse points of the capture: what lies behind or before all of them is
        lost, so they should be dense), "none", or "auto": the box of bounded scenes, else nothing.
      point_cells: cells of the grid around each point that count as near it, for ``clip="points"``.
      skip: whether the occupancy grid is used.
      widen: steps beside an occupied one that count as occupied.
      resolution, cascades, threshold, decay, warmup, period: see ``occupancy_grid.grid_spec``.
      num_first: steps of the first stage; each counts as one of ``info.proposal_evaluations`` (a look at the grid).
      num_proposal: intervals of each round; may be empty.
      num_final: intervals for the main field.
      quiet: weight below which a step of the proposal counts as empty, if its neighbours do; 0 for no such gaps.
      uniform_share, depth_share, depth_width: see above.
      interlevel, interlevel_weight, pulse_widths, anneal_steps, anneal_slope, dilation_bias, dilation_multiplier,
        padding, update_after, update_every: as in ``proposal``.
      spacing, jitter, randomize, deterministic: as in ``stratified``.

    Returns:
      The sampler; the networks' parameters are ``state.params``, grids are in ``state.aux``.

    Raises:
      UserError: an option is not valid, or the capture has no points to clip by.
    """
    rounds = rounds_of(
        networks=networks, num_proposal=num_proposal, opaque_end=False, update_after=update_after,
        update_every=update_every, interlevel=interlevel, interlevel_weight=interlevel_weight,
        pulse_widths=pulse_widths,
    )  # fmt: skip
    _check(
        geometry, clip, num_first=num_first, num_final=num_final, uniform_share=uniform_share, quiet=quiet,
        depth_share=depth_share, depth_width=depth_width, widen=widen, point_cells=point_cells,
    )  # fmt: skip
    clip = ("box" if geometry.bounded else "none") if clip == "auto" else clip
    how = placement.placement(spacing=spacing, jitter=jitter, randomize=randomize, deterministic=deterministic)
    shaping = check_shaping(Shaping(False, dilation_bias, dilation_multiplier, anneal_steps, anneal_slope, padding))
    spec = grid_spec(
        geometry, resolution=resolution, cascades=cascades, threshold=threshold, decay=decay, warmup=warmup,
        period=period,
    )  # fmt: skip
    rule = step_rule(spec, cone=0.0 if geometry.bounded else CONE_UNBOUNDED)

    def init(key: Array, geometry_: SceneGeometry) -> SamplerState:
        key_networks, key_grid = jax.random.split(key)
        aux = {"grid": init_grid(spec, key_grid, geometry_)} if skip else {}
        if clip == "points":
            points = jnp.asarray(geometry.points, jnp.float32)
            aux["near_points"] = cells_near_points(spec, points, point_cells)
        return SamplerState(params=init_networks(rounds, key_networks, geometry_), aux=aux)

    def march(grid: OccupancyGrid, rays: Rays, s: Array, widen: int) -> Stage:
        return left_stage(spacing, spec, rule, grid, rays, s, widen=widen)

    def first_stage(aux, rays: Rays) -> Stage:
        begin, end = jnp.zeros_like(rays.near), jnp.ones_like(rays.near)
        if clip == "box":
            begin, end = box_ends(spacing, rays, jnp.asarray(geometry.box))
        elif clip == "points":
            left = march(_as_grid(aux["near_points"]), rays, even_edges(begin, end, num_first), 0)
            begin, end = left.s[:, 0], left.s[:, -1]
        s = even_edges(begin, end, num_first)
        if skip:
            return march(aux["grid"], rays, s, widen)
        return Stage(s, jnp.diff(s), jnp.zeros(s[:, 1:].shape, bool))

    def sample(
        key: Array, state: SamplerState, rays: Rays, density_fn: DensityFn, *, step
    ) -> tuple[Intervals, SamplerInfo]:
        del density_fn
        key_stages, key_final = jax.random.split(key)
        fixed = jax.lax.stop_gradient(rays)
        first = first_stage(state.aux, fixed)
        staged = run_stages(rounds, how, shaping, quiet, key_stages, state.params, rays, first, step)
        last = with_even_share(staged.last, first, uniform_share) if rounds.counts else staged.last
        if depth_share > 0.0 and rays.depth_prior is not None:
            last = with_depth_share(spacing, fixed, last, share=depth_share, width=depth_width)
        info = placement.dense_info(
            rays, evaluations=num_final, proposal_evaluations=num_first * skip + sum(rounds.counts),
            levels=staged.levels,
        )  # fmt: skip
        return draw_intervals(how, key_final, rays, last, num_final), info

    def refresh(key: Array, state: SamplerState, point_density_fn: PointDensityFn, *, step) -> SamplerState:
        grid = refresh_grid(spec, key, state.aux["grid"], point_density_fn, step=step)
        return state.replace(aux={**state.aux, "grid": grid})

    def loss(info: SamplerInfo, rendering: Rendering, *, step) -> dict[str, Array]:
        del step
        return interlevel_loss(rounds, info, rendering, spacing=spacing)

    return Sampler(
        init=init,
        sample=sample,
        refresh=refresh if skip else no_refresh,
        loss=loss,
        regularize=partial(network_penalties, rounds),
    )


def _as_grid(skip: Array) -> OccupancyGrid:
    """A grid of which marching sees ``skip`` and needs nothing else."""
    zero = jnp.zeros((), jnp.float32)
    return OccupancyGrid(density=zero, skip=skip, solid=None, evaluations=zero, born=zero.astype(jnp.int32))


def _check(geometry: SceneGeometry, clip: str, *, num_first: int, num_final: int, **numbers) -> None:
    """Raises UserError where an option is out of range."""
    placement.check_counts(num_first=num_first, num_final=num_final)
    placement.check_name("clip", clip, CLIPS)
    if clip == "points" and geometry.points is None:
        raise UserError("the capture has no sparse points to clip rays by", field="clip", found=clip, expected="box")
    for field, value in numbers.items():
        if value < 0 or (field.endswith("_share") and value > 1):
            expected = "0 to 1" if field.endswith("_share") else "0 or more"
            raise UserError("the number is out of range", field=field, found=value, expected=expected)
