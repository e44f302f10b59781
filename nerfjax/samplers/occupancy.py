"""Occupancy sampling: fixed steps, but only where a grid has seen density.

Mueller et al. 2022, Instant Neural Graphics Primitives, section 5.4 and appendix C.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from nerfjax.errors import UserError
from nerfjax.numerics import ray_uniform
from nerfjax.samplers.base import DensityFn, PointDensityFn, Sampler, SamplerState, no_loss
from nerfjax.samplers.budget import capacity
from nerfjax.samplers.marching import make_lattice, occupied_steps, pack_steps, step_rule
from nerfjax.samplers.occupancy_grid import grid_spec, init_grid, refresh_grid
from nerfjax.types import Array, PackedIntervals, Rays, SamplerInfo, SceneGeometry

CONE_UNBOUNDED = 1.0 / 256.0


def occupancy(
    *,
    geometry: SceneGeometry,
    ray_share: float = 1.0,
    samples_per_ray: float = 64.0,
    resolution: int = 128,
    cascades: int = 0,
    threshold: float = 1.0,
    decay: float = 0.95,
    warmup: int = 256,
    period: int = 16,
    diagonal_steps: int = 1024,
    cone: float = -1.0,
    max_steps: int = 0,
    early_stop: float = 0.0,
    deterministic: bool = False,
) -> Sampler:
    """Steps along each ray and keeps the steps whose middles lie in occupied cells, packed.

    A step at distance t has length ``dt = clamp(cone t, dt_min, dt_max)``; dt_min is the box's diagonal over
    ``diagonal_steps``, dt_max the diagonal of a cell of the last cascade. The steps of a ray are shifted by one random
    part of a step, so that every place is the middle of a step equally often. What does not fit into the
    ``samples_per_ray * N / ray_share`` slots is counted in ``info.overflow``, and ``info.t_end`` says how far each ray
    came: whole rays first come first served in training, equal shares in deterministic evaluation, where the renderer
    calls again from ``t_end``.

    Nothing beyond the last cascade is sampled. The density that the grid stores is a maximum over space and time, an
    overestimate; a transmittance from it would hide what stands behind thin things, so rays are not stopped by
    default (rendering stops them by their true transmittance). With ``early_stop`` the transmittance comes from the
    lowest density of each cell's neighbourhood, which is sound but for the delay with which the grid forgets.

    Args:
      geometry: the scene.
      ray_share: rays of this batch as a share of the largest one's, for which ``samples_per_ray`` is meant.
      samples_per_ray: slots per ray; at least 1 (``ray_share`` of 1).
      resolution, cascades, threshold, decay, warmup, period: see ``occupancy_grid.grid_spec``.
      diagonal_steps: shortest steps along the box's diagonal.
      cone: growth of the step with distance; negative for 0 in bounded and 1/256 in unbounded scenes.
      max_steps: steps of a ray in one call, a multiple of 32; 0 for as many as the longest ray needs.
      early_stop: transmittance below which a ray ends, such as 1e-4; 0 for never.
      deterministic: whether steps are not shifted and slots are shared equally.

    Returns:
      The sampler; its state is an ``OccupancyGrid``, in ``aux``. The evaluations of its refreshes are counted there
      (``aux.evaluations``, a running total) and not in ``info.proposal_evaluations``.

    Raises:
      UserError: an option is not valid.
    """
    if samples_per_ray < 1.0 or not 0.0 < ray_share <= 1.0:
        raise UserError(
            "a packed sampler needs at least one slot for each ray", field="samples_per_ray",
            found=samples_per_ray, expected="1 or more",
        )  # fmt: skip
    if not 0.0 <= early_stop < 1.0:
        raise UserError("a transmittance to stop at", field="early_stop", found=early_stop, expected="0 to 1")
    spec = grid_spec(
        geometry, resolution=resolution, cascades=cascades, threshold=threshold, decay=decay, warmup=warmup,
        period=period, diagonal_steps=diagonal_steps, solid=early_stop > 0.0,
    )  # fmt: skip
    growth = cone if cone >= 0.0 else (0.0 if geometry.bounded else CONE_UNBOUNDED)
    rule = step_rule(spec, cone=growth, max_steps=max_steps)

    def init(key: Array, geometry: SceneGeometry) -> SamplerState:
        return SamplerState(params={}, aux=init_grid(spec, key, geometry))

    def sample(
        key: Array, state: SamplerState, rays: Rays, density_fn: DensityFn, *, step
    ) -> tuple[PackedIntervals, SamplerInfo]:
        del density_fn, step
        rays = jax.lax.stop_gradient(rays)
        count = rays.near.shape[0]
        phase = jnp.zeros_like(rays.near) if deterministic else ray_uniform(key, rays.index, (1,))[:, 0]
        lattice = make_lattice(spec, rule, rays, phase)
        bits = occupied_steps(spec, state.aux, rays, lattice, early_stop=early_stop)
        room = capacity(count, samples_per_ray, ray_share)
        packed, t_end = pack_steps(bits, lattice, rays, room, fair=deterministic)
        info = SamplerInfo(
            levels=(),
            evaluations=jnp.sum(packed.count).astype(jnp.float32) / count,
            proposal_evaluations=jnp.zeros((), jnp.float32),
            overflow=packed.overflow,
            t_end=t_end,
        )
        return packed, info

    def refresh(key: Array, state: SamplerState, point_density_fn: PointDensityFn, *, step) -> SamplerState:
        return state.replace(aux=refresh_grid(spec, key, state.aux, point_density_fn, step=step))

    return Sampler(init=init, sample=sample, refresh=refresh, loss=no_loss)
