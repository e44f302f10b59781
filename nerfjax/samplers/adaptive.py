"""Adaptive sampling: a fixed number of evaluations per batch, most of them on the rays that need them.

The proposals are mip-NeRF 360's (Barron et al. 2022, section 3); how many intervals a ray gets follows from how widely
its proposed weights are spread. Rays of a batch share one budget: on several devices, those of each device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Float

from nerfjax import stepfun
from nerfjax.errors import UserError
from nerfjax.numerics import safe_sqrt
from nerfjax.samplers import placement
from nerfjax.samplers.base import DensityFn, DensityNetwork, Sampler, SamplerState, no_refresh
from nerfjax.samplers.budget import allocate, capacity, ragged_intervals
from nerfjax.samplers.gaps import ladder
from nerfjax.samplers.rounds import init_networks, interlevel_loss, network_penalties, rounds_of
from nerfjax.samplers.shaping import Shaping, check_shaping
from nerfjax.samplers.stages import run_stages, whole_ray
from nerfjax.types import Array, PackedIntervals, Rays, Rendering, SamplerInfo, SceneGeometry

ALLOCATIONS = ("entropy", "spread", "uniform")


def need(allocate: str, s: Float[Array, "N E"], weights: Float[Array, "N E-1"]) -> Float[Array, " N"]:
    """How much a ray needs evaluations: the width of its weights, times its opacity.

    With p = w / sum(w), the width is in units of s, whatever the edges are:

    - "entropy": exp(-sum_i p_i log(p_i / (s_{i+1} - s_i))), the exponential of the differential entropy: the length
      over which the weights would spread if they were even;
    - "spread": the standard deviation of the step function p;
    - "uniform": 1 for all rays, opaque or not.

    Args:
      allocate: one of ``ALLOCATIONS``.
      s: [N, S+1] edges.
      weights: [N, S].

    Returns:
      [N].
    """
    if allocate == "uniform":
        return jnp.ones(s.shape[:1], s.dtype)
    opacity = jnp.sum(weights, axis=-1, keepdims=True)
    known = opacity > stepfun.MASS_MIN
    p = jnp.where(known, weights / jnp.where(known, opacity, 1.0), 0.0)
    length = jnp.diff(s)
    if allocate == "entropy":
        there = (p > stepfun.MASS_MIN) & (length > 0.0)
        surprise = jnp.log(jnp.where(there, length, 1.0)) - jnp.log(jnp.where(there, p, 1.0))
        width = jnp.exp(jnp.sum(p * surprise, axis=-1))
    else:
        middle = 0.5 * (s[:, 1:] + s[:, :-1])
        offset = middle - jnp.sum(p * middle, axis=-1, keepdims=True)
        width = safe_sqrt(jnp.sum(p * (jnp.square(offset) + jnp.square(length) / 12.0), axis=-1))
    return width * opacity[:, 0]


def adaptive(
    *,
    networks: Sequence[DensityNetwork],
    num_proposal: Sequence[int] = (128,),
    samples_per_ray: float = 32.0,
    minimum: int = 4,
    allocate_by: str = "entropy",
    even_share: float = 0.1,
    quiet: float = 1e-4,
    interlevel: str = "mipnerf360",
    interlevel_weight: float = 1.0,
    pulse_widths: Sequence[float] = (0.03, 0.003),
    anneal_steps: int = 1000,
    anneal_slope: float = 10.0,
    dilation_bias: float = 0.0,
    dilation_multiplier: float = 0.0,
    padding: float = 1e-3,
    update_after: int = 5000,
    update_every: int = 1,
    spacing: str = "linear",
    jitter: str = "single",
    randomize: str = "edges",
    ray_share: float = 1.0,
    deterministic: bool = False,
) -> Sampler:
    """Shares a fixed number of evaluations among the rays of a batch, after rounds of proposals.

    The rounds are those of ``proposal``. From the last one's weights follows each ray's need (``need``); of the
    M = ceil(N samples_per_ray / ray_share) slots every ray gets ``minimum``, and the rest is divided in proportion to
    (1 - even_share) need_i / sum(need) + even_share / N, so that the sum is exactly M (``budget.allocate``). A ray's
    intervals tile it. Steps of the proposal with hardly any weight, and whose neighbours have hardly any, are gaps,
    which get an interval of their own and no more than their weight asks for (``gaps.ladder``).

    A ray's share depends on the rays beside it: on several devices on those of its device, in rendering on those of
    its chunk. The order of the rays does not matter.

    Args:
      networks: one network shared by all rounds or one for each.
      num_proposal: intervals of each round, at least one round.
      samples_per_ray: evaluations of the main field per ray, on average over the batch.
      minimum: intervals that every ray gets, however empty it looks.
      allocate_by: "entropy", "spread" or "uniform" (``need``).
      even_share: share of what is left above the minimum that is divided evenly.
      quiet: weight below which a step counts as empty; 0 for no gaps.
      interlevel, interlevel_weight, pulse_widths, anneal_steps, anneal_slope, dilation_bias, dilation_multiplier,
        padding, update_after, update_every: as in ``proposal``.
      spacing, jitter, randomize, deterministic: as in ``stratified``.
      ray_share: rays of this batch as a share of the largest one's, for which ``samples_per_ray`` is meant.

    Returns:
      The sampler; the networks' parameters are ``state.params``, a tuple.

    Raises:
      UserError: an option is not valid.
    """
    rounds = rounds_of(
        networks=networks, num_proposal=num_proposal, opaque_end=False, update_after=update_after,
        update_every=update_every, interlevel=interlevel, interlevel_weight=interlevel_weight,
        pulse_widths=pulse_widths,
    )  # fmt: skip
    _check(
        rounds=rounds, samples_per_ray=samples_per_ray, minimum=minimum, allocate_by=allocate_by,
        even_share=even_share, quiet=quiet, ray_share=ray_share,
    )  # fmt: skip
    how = placement.placement(spacing=spacing, jitter=jitter, randomize=randomize, deterministic=deterministic)
    shaping = check_shaping(Shaping(False, dilation_bias, dilation_multiplier, anneal_steps, anneal_slope, padding))

    def init(key: Array, geometry: SceneGeometry) -> SamplerState:
        return SamplerState(params=init_networks(rounds, key, geometry), aux={})

    def sample(
        key: Array, state: SamplerState, rays: Rays, density_fn: DensityFn, *, step
    ) -> tuple[PackedIntervals, SamplerInfo]:
        del density_fn
        key_stages, key_final = jax.random.split(key)
        staged = run_stages(rounds, how, shaping, quiet, key_stages, state.params, rays, whole_ray(rays), step)
        total = capacity(rays.near.shape[0], samples_per_ray, ray_share)
        proposed = jax.lax.stop_gradient(staged.levels[-1])
        score = need(allocate_by, proposed.intervals.s, proposed.weights)
        count = allocate(score, rays.index, total=total, minimum=minimum, even_share=even_share)
        packed = ragged_intervals(how, key_final, rays, ladder(staged.last, count), count, total=total)
        info = placement.dense_info(
            rays, evaluations=total / rays.near.shape[0], proposal_evaluations=sum(rounds.counts), levels=staged.levels
        )
        return packed, info

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


def _check(**options) -> None:
    """Raises UserError where an option is out of range."""
    placement.check_name("allocate_by", options["allocate_by"], ALLOCATIONS)
    placement.check_counts(minimum=options["minimum"])
    if not options["rounds"].counts:
        raise UserError("needs follow from a round of proposals", field="num_proposal", found=(), expected="a round")
    if not 0.0 <= options["even_share"] <= 1.0:
        raise UserError("a share", field="even_share", found=options["even_share"], expected="0 to 1")
    if options["quiet"] < 0.0:
        raise UserError("a weight is not negative", field="quiet", found=options["quiet"], expected="0 or more")
    if not 0.0 < options["ray_share"] <= 1.0 or options["samples_per_ray"] < options["minimum"]:
        raise UserError(
            "the rays' minimum does not fit into the budget", field="samples_per_ray",
            found=options["samples_per_ray"], expected=f"at least the minimum of {options['minimum']}",
        )  # fmt: skip
