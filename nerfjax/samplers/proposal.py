"""Proposal sampling: small density networks, trained to bound the final weights, tell where the intervals go.

mip-NeRF 360 (Barron et al. 2022), sections 3 and B; Zip-NeRF (Barron et al. 2023), section 3.2, for the anti-aliased
loss; the update schedule follows nerfacto (Tancik et al. 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp

from nerfjax import stepfun
from nerfjax.samplers import placement
from nerfjax.samplers.base import DensityFn, DensityNetwork, Sampler, SamplerState, no_refresh
from nerfjax.samplers.rounds import init_networks, interlevel_loss, network_penalties, propose, rounds_of
from nerfjax.samplers.shaping import Shaping, check_shaping, shaped
from nerfjax.types import Array, Intervals, Level, Rays, Rendering, SamplerInfo, SceneGeometry


def proposal(
    *,
    networks: Sequence[DensityNetwork],
    num_proposal: Sequence[int] = (64, 64),
    num_final: int = 32,
    share_network: bool = False,
    interlevel: str = "mipnerf360",
    interlevel_weight: float = 1.0,
    pulse_widths: Sequence[float] = (0.03, 0.003),
    anneal_steps: int = 1000,
    anneal_slope: float = 10.0,
    dilation_bias: float = 0.0025,
    dilation_multiplier: float = 0.5,
    padding: float = 1e-3,
    cover: bool = True,
    opaque_end: bool = False,
    update_after: int = 5000,
    update_every: int = 1,
    spacing: str = "linear",
    jitter: str = "single",
    randomize: str = "edges",
    deterministic: bool = False,
) -> Sampler:
    """Resamples each ray in rounds, from the weights of density networks that the sampler owns.

    Round k evaluates a network on ``num_proposal[k]`` intervals. Its weights w are dilated, annealed to
    w^a with a = b f / ((b - 1) f + 1), f = step / anneal_steps, b = anneal_slope, padded, and the next edges
    are drawn from them by inverse CDF. Only the interlevel loss trains the networks: positions carry no gradient.

    Args:
      networks: one network shared by all rounds or one for each.
      num_proposal: intervals of each round; may be empty (then the sampler is stratified).
      num_final: intervals for the main field.
      share_network: whether the first of ``networks`` serves all rounds (mip-NeRF 360).
      interlevel: "mipnerf360" (Eq. 13) or "antialiased" (Zip-NeRF, Eq. 10: final weights blurred first).
      interlevel_weight: multiplier of the interlevel loss (mip-NeRF 360: 1; Zip-NeRF: 0.01).
      pulse_widths: half-width in s of each round's blur, for "antialiased".
      anneal_steps: steps until the weights are used as they are; 0 for at once.
      anneal_slope: slope of the annealing at its beginning.
      dilation_bias, dilation_multiplier: round k widens weights by bias + multiplier / (product of the numbers of
        intervals of rounds 0 ... k) in s; both 0 for no dilation.
      padding: weight added to each interval, so that none is unreachable (mip-NeRF 360: 0, nerfacto: 0.01; over 64
        intervals 0.001 leaves one sample in seventeen to chance).
      cover: whether the outermost edges are moved to near and far, so that the intervals cover the ray.
      opaque_end: whether the last interval of each round stops all light, as the renderer's may.
      update_after, update_every: after the step ``update_after`` the networks get a gradient only in every
        ``update_every``-th step, which saves their backward pass in the others.
      spacing, jitter, randomize, deterministic: as in ``stratified``.

    Returns:
      The sampler; the networks' parameters are ``state.params``, a tuple.

    Raises:
      UserError: an option is not valid.
    """
    networks = networks[:1] if share_network else networks
    rounds = rounds_of(
        networks=networks, num_proposal=num_proposal, opaque_end=opaque_end, update_after=update_after,
        update_every=update_every, interlevel=interlevel, interlevel_weight=interlevel_weight,
        pulse_widths=pulse_widths,
    )  # fmt: skip
    placement.check_counts(num_final=num_final)
    how = placement.placement(spacing=spacing, jitter=jitter, randomize=randomize, deterministic=deterministic)
    shaping = check_shaping(Shaping(False, dilation_bias, dilation_multiplier, anneal_steps, anneal_slope, padding))

    def init(key: Array, geometry: SceneGeometry) -> SamplerState:
        return SamplerState(params=init_networks(rounds, key, geometry), aux={})

    def next_edges(key: Array, rays: Rays, level: Level, count: int, product: int, step) -> Array:
        s, weights = shaped(shaping, level.intervals.s, level.weights, intervals=product, step=step)
        edges = stepfun.sample_intervals(placement.draw_jitter(how, key, rays, count), s, weights, count)
        if not cover:
            return edges
        ends = jnp.zeros_like(edges[..., :1]), jnp.ones_like(edges[..., -1:])
        return jnp.concatenate([ends[0], edges[..., 1:-1], ends[1]], axis=-1)

    def sample(
        key: Array, state: SamplerState, rays: Rays, density_fn: DensityFn, *, step
    ) -> tuple[Intervals, SamplerInfo]:
        del density_fn
        counts = (*rounds.counts, num_final)
        key_first, *keys, key_cast = jax.random.split(key, 2 * len(counts) + 1)
        edges, levels = placement.uniform_edges(how, key_first, rays, counts[0]), []
        for k in range(len(rounds.counts)):
            intervals = placement.intervals_from_edges(how, keys[2 * k], rays, edges)
            turned = None if how.deterministic else jax.random.fold_in(key_cast, k)
            levels.append(propose(rounds, turned, state.params, rays, intervals, k, step))
            edges = next_edges(keys[2 * k + 1], rays, levels[-1], counts[k + 1], math.prod(counts[: k + 1]), step)
        intervals = placement.intervals_from_edges(how, keys[-1], rays, edges)
        info = placement.dense_info(
            rays, evaluations=num_final, proposal_evaluations=sum(rounds.counts), levels=tuple(levels)
        )
        return intervals, info

    def loss(info: SamplerInfo, rendering: Rendering, *, step) -> dict[str, Array]:
        del step
        return interlevel_loss(rounds, info, rendering, spacing=spacing)

    return Sampler(
        init=init,
        sample=sample,
        refresh=no_refresh,
        loss=loss,
        regularize=partial(network_penalties, rounds),
    )
