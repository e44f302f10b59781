"""Rounds of density networks, which tell where the next intervals go: shared by the samplers that own such networks.

Round k evaluates a network over its intervals; the interlevel loss is all that trains it, since positions carry no
gradient. mip-NeRF 360 (Barron et al. 2022), section 3; the update schedule follows nerfacto (Tancik et al. 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax

from nerfjax import losses
from nerfjax.errors import UserError
from nerfjax.geometry.casting import cast
from nerfjax.geometry.warps import s_from_t
from nerfjax.samplers import placement
from nerfjax.types import (
    Array,
    DensityNetwork,
    Intervals,
    Level,
    PackedIntervals,
    Rays,
    Rendering,
    SamplerInfo,
    SceneGeometry,
)
from nerfjax.volume import weights_from_density

INTERLEVEL = ("mipnerf360", "antialiased")


class Rounds(NamedTuple):
    """Static choices; the samplers' docstrings explain them."""

    networks: tuple[DensityNetwork, ...]
    counts: tuple[int, ...]
    opaque_end: bool
    update_after: int
    update_every: int
    interlevel: str
    interlevel_weight: float
    pulse_widths: tuple[float, ...]


def rounds_of(
    *, networks: Sequence[DensityNetwork], num_proposal: Sequence[int], opaque_end: bool, update_after: int,
    update_every: int, interlevel: str, interlevel_weight: float, pulse_widths: Sequence[float],
) -> Rounds:  # fmt: skip
    """Returns the validated choices.

    Raises:
      UserError: an option is not valid.
    """
    networks, counts = tuple(networks), tuple(num_proposal)
    for count in counts:
        placement.check_counts(num_proposal=count)
    placement.check_name("interlevel", interlevel, INTERLEVEL)
    if counts and len(networks) not in (1, len(counts)):
        raise UserError(
            "the number of proposal networks fits neither one for all rounds nor one for each",
            field="networks", found=len(networks), expected=f"1 or {len(counts)}",
        )  # fmt: skip
    if interlevel == "antialiased" and len(pulse_widths) < len(counts):
        raise UserError(
            "the anti-aliased interlevel loss needs a pulse width for each round",
            field="pulse_widths", found=len(pulse_widths), expected=len(counts),
        )  # fmt: skip
    widths = tuple(pulse_widths)
    return Rounds(networks, counts, opaque_end, update_after, update_every, interlevel, interlevel_weight, widths)


def init_networks(rounds: Rounds, key: Array, geometry: SceneGeometry) -> tuple:
    """Returns the parameters of each network, drawn independently."""
    keys = jax.random.split(key, max(len(rounds.networks), 1))
    return tuple(network.init(k, geometry) for network, k in zip(rounds.networks, keys, strict=False))


def propose(
    rounds: Rounds, key: Array | None, params: tuple, rays: Rays, intervals: Intervals, number: int, step
) -> Level:
    """Returns the level of round ``number``: its intervals and the weights that its network gives them.

    ``key`` is what turns multisamples (``geometry.casting``), None in evaluation.
    """
    own = min(number, len(rounds.networks) - 1)
    apply = rounds.networks[own].apply
    points = cast(rounds.networks[own].point_kind, key, rays, intervals)
    if rounds.update_every == 1:
        density = apply(params[own], points)
    else:
        update = (step < rounds.update_after) | (step % rounds.update_every == 0)

        def frozen(params, points):
            return apply(jax.lax.stop_gradient(params), points)

        density = jax.lax.cond(update, apply, frozen, params[own], points)
    weights = weights_from_density(density, intervals.t_delta, opaque_end=rounds.opaque_end)
    return Level(intervals=intervals, weights=weights)


def network_penalties(rounds: Rounds, params: tuple) -> dict[str, Array]:
    """Returns {name: unweighted penalty} of the networks' parameters, added up over the networks."""
    total: dict[str, Array] = {}
    for network, own in zip(rounds.networks, params, strict=False):
        for name, term in (network.regularize(own) if network.regularize else {}).items():
            total[name] = total.get(name, 0.0) + term
    return total


def interlevel_loss(rounds: Rounds, info: SamplerInfo, rendering: Rendering, *, spacing: str) -> dict[str, Array]:
    """Returns {"interlevel": the weighted loss of all rounds}, or nothing where there is no round.

    Args:
      rounds: the choices.
      info: with a level of each round.
      rendering: of dense or packed final intervals.
      spacing: name of the s-t warp; used for packed intervals, whose edges are known in world units.
    """
    if not info.levels:
        return {}
    loss = _packed_loss if isinstance(rendering.intervals, PackedIntervals) else _dense_loss
    total = sum(loss(rounds, k, level, rendering, spacing) for k, level in enumerate(info.levels))
    return {"interlevel": rounds.interlevel_weight * total}


def _dense_loss(rounds: Rounds, k: int, level: Level, rendering: Rendering, spacing: str) -> Array:
    del spacing
    final = rendering.intervals.s, jax.lax.stop_gradient(rendering.weights)
    proposed = level.intervals.s, level.weights
    if rounds.interlevel == "antialiased":
        return losses.interlevel_antialiased(final, proposed, half_width=rounds.pulse_widths[k])
    return losses.interlevel(final, proposed)


def _packed_loss(rounds: Rounds, k: int, level: Level, rendering: Rendering, spacing: str) -> Array:
    """The same of packed final intervals; the level covers its rays, so that its ends are theirs."""
    packed, t = rendering.intervals, level.intervals.t
    if rounds.interlevel != "antialiased":
        return losses.packed_interlevel(packed.t0, packed.t1, rendering.weights, packed, (t, level.weights))
    near, far = (end.at[packed.ray].get(mode="clip") for end in (t[:, 0], t[:, -1]))
    s0, s1 = (s_from_t(spacing, end[:, None], near, far)[:, 0] for end in (packed.t0, packed.t1))
    return losses.packed_interlevel_antialiased(
        s0, s1, rendering.weights, packed, (level.intervals.s, level.weights), half_width=rounds.pulse_widths[k]
    )
