"""The smallest packed sampler there is, for tests of what the trainer does with one."""

from __future__ import annotations

import math

import jax.numpy as jnp

from nerfjax.samplers.base import Sampler, SamplerState, no_loss, no_refresh
from nerfjax.types import PackedIntervals, SamplerInfo


def packed_stratified(
    *,
    samples_per_ray: float = 8.0,
    wanted: int = 4,
    change_at: int = 0,
    wanted_later: int = 4,
    first_rays: int = 0,
    first_wanted: int = 4,
    depth_share: float = 0.0,
    ray_share: float = 1.0,
    deterministic: bool = False,
) -> Sampler:
    """Equal intervals between near and far, ray after ray while there is room.

    Args:
      samples_per_ray: room per ray of the largest batch.
      wanted: intervals of a ray.
      change_at, wanted_later: their number from that step on; 0 for no change.
      first_rays, first_wanted: the rays of a lower index want another number.
      depth_share: above 0, ``proposal_evaluations`` reports the mean of the measured distances.
      ray_share: this batch as a share of the largest.
      deterministic: without effect.
    """
    del deterministic

    def sample(key, state: SamplerState, rays, density_fn, *, step):
        del key, state, density_fn
        count = rays.near.shape[0]
        room = math.ceil(count * samples_per_ray / ray_share)
        now = jnp.where((change_at > 0) & (step >= change_at), wanted_later, wanted)
        wants = jnp.where(rays.index < first_rays, first_wanted, now)
        end = jnp.cumsum(wants)
        start = end - wants
        kept = jnp.clip(room - start, 0, wants)
        slot = jnp.arange(room, dtype=jnp.int32)
        ray = jnp.searchsorted(end, slot, side="right").astype(jnp.int32)
        inside = ray < count
        of = jnp.minimum(ray, count - 1)
        step_length = ((rays.far - rays.near) / wants)[of]
        place = (slot - start[of]).astype(jnp.float32)
        packed = PackedIntervals(
            t0=jnp.where(inside, rays.near[of] + place * step_length, 0.0),
            t1=jnp.where(inside, rays.near[of] + (place + 1.0) * step_length, 0.0),
            ray=jnp.where(inside, ray, count),
            start=jnp.minimum(start, room).astype(jnp.int32),
            count=kept.astype(jnp.int32),
            overflow=(jnp.sum(wants) - jnp.sum(kept)).astype(jnp.int32),
        )
        told = jnp.zeros(()) if rays.depth_prior is None else jnp.mean(rays.depth_prior)
        info = SamplerInfo(
            levels=(),
            evaluations=jnp.sum(kept).astype(jnp.float32) / count,
            proposal_evaluations=told if depth_share else jnp.zeros(()),
            overflow=packed.overflow,
            t_end=jnp.where(kept == wants, rays.far, rays.near + (rays.far - rays.near) * kept / wants),
        )
        return packed, info

    return Sampler(
        init=lambda key, geometry: SamplerState(params={}, aux={"rows": jnp.zeros((3,))}),
        sample=sample, refresh=no_refresh, loss=no_loss,
    )  # fmt: skip
