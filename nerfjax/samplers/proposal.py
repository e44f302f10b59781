"""Proposal sampling: small density networks, trained to bound the final weights, tell where the intervals go.

mip-NeRF 360 (Barron et al. 2022), sections 3 and B; Zip-NeRF (Barron et al. 2023), section 3.2, for the anti-aliased
loss; the update schedule follows nerfacto (Tancik et al. 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from nerfjax import losses, stepfun
from nerfjax.errors import UserError
from nerfjax.geometry.rays import cast_points
from nerfjax.samplers import placement
from nerfjax.samplers.base import DensityFn, DensityNetwork, Sampler, SamplerState, no_refresh
from nerfjax.types import Array, Intervals, Level, Rays, Rendering, SamplerInfo, SceneGeometry
from nerfjax.volume import weights_from_density

INTERLEVEL = ("mipnerf360", "antialiased")


def proposal(
    *,
    networks: Sequence[DensityNetwork],
    num_proposal: Sequence[int] = (64, 64),
    num_final: int = 32,
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
    networks, rounds = tuple(networks), tuple(num_proposal)
    for count in rounds:
        placement.check_counts(num_proposal=count)
    placement.check_counts(num_final=num_final)
    placement.check_name("interlevel", interlevel, INTERLEVEL)
    _check_rounds(networks, rounds, pulse_widths if interlevel == "antialiased" else None)
    how = placement.placement(spacing=spacing, jitter=jitter, randomize=randomize, deterministic=deterministic)

    def init(key: Array, geometry: SceneGeometry) -> SamplerState:
        keys = jax.random.split(key, max(len(networks), 1))
        params = tuple(network.init(k, geometry) for network, k in zip(networks, keys, strict=False))
        return SamplerState(params=params, aux={})

    def propose(params, rays: Rays, intervals: Intervals, network: int, step) -> Array:
        points = cast_points(rays, intervals)
        apply = networks[network].apply
        if update_every == 1:
            return apply(params[network], points.positions, points.radius)
        update = (step < update_after) | (step % update_every == 0)

        def frozen(params, positions, radius):
            return apply(jax.lax.stop_gradient(params), positions, radius)

        return jax.lax.cond(update, apply, frozen, params[network], points.positions, points.radius)

    def next_edges(key: Array, rays: Rays, level: Level, count: int, product: int, step) -> Array:
        s, weights = level.intervals.s, jax.lax.stop_gradient(level.weights)
        dilation = dilation_bias + dilation_multiplier / product
        if dilation > 0.0:
            s, weights = stepfun.dilate(s, weights, dilation, domain=(0.0, 1.0))
        if anneal_steps > 0:
            weights = stepfun.anneal(weights, jnp.asarray(step, jnp.float32) / anneal_steps, slope=anneal_slope)
        edges = stepfun.sample_intervals(
            placement.draw_jitter(how, key, rays, count), s, weights, count, padding=padding
        )
        if not cover:
            return edges
        ends = jnp.zeros_like(edges[..., :1]), jnp.ones_like(edges[..., -1:])
        return jnp.concatenate([ends[0], edges[..., 1:-1], ends[1]], axis=-1)

    def sample(
        key: Array, state: SamplerState, rays: Rays, density_fn: DensityFn, *, step
    ) -> tuple[Intervals, SamplerInfo]:
        del density_fn
        counts = (*rounds, num_final)
        key_first, *keys = jax.random.split(key, 2 * len(counts))
        edges, levels = placement.uniform_edges(how, key_first, rays, counts[0]), []
        for k in range(len(rounds)):
            intervals = placement.intervals_from_edges(how, keys[2 * k], rays, edges)
            density = propose(state.params, rays, intervals, min(k, len(networks) - 1), step)
            weights = weights_from_density(density, intervals.t_delta, opaque_end=opaque_end)
            levels.append(Level(intervals=intervals, weights=weights))
            edges = next_edges(keys[2 * k + 1], rays, levels[-1], counts[k + 1], math.prod(counts[: k + 1]), step)
        intervals = placement.intervals_from_edges(how, keys[-1], rays, edges)
        info = placement.dense_info(rays, evaluations=num_final, proposal_evaluations=sum(rounds), levels=tuple(levels))
        return intervals, info

    def loss(info: SamplerInfo, rendering: Rendering, *, step) -> dict[str, Array]:
        del step
        if not info.levels:
            return {}
        final = rendering.intervals.s, jax.lax.stop_gradient(rendering.weights)
        total = jnp.zeros((), jnp.float32)
        for k, level in enumerate(info.levels):
            envelope = level.intervals.s, level.weights
            if interlevel == "antialiased":
                total += losses.interlevel_antialiased(final, envelope, half_width=pulse_widths[k])
            else:
                total += losses.interlevel(final, envelope)
        return {"interlevel": interlevel_weight * total}

    return Sampler(init=init, sample=sample, refresh=no_refresh, loss=loss)


def _check_rounds(networks: tuple, rounds: tuple, pulse_widths: Sequence[float] | None) -> None:
    if rounds and len(networks) not in (1, len(rounds)):
        raise UserError(
            "the number of proposal networks fits neither one for all rounds nor one for each",
            field="networks", found=len(networks), expected=f"1 or {len(rounds)}",
        )  # fmt: skip
    if pulse_widths is not None and len(pulse_widths) < len(rounds):
        raise UserError(
            "the anti-aliased interlevel loss needs a pulse width for each round",
            field="pulse_widths", found=len(pulse_widths), expected=len(rounds),
        )  # fmt: skip
