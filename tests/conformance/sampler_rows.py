"""The rows of the samplers' suite: every member of ``SAMPLERS`` with options, and what of it is random."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import pytest

from nerfjax.samplers import SAMPLERS, DensityNetwork
from nerfjax.types import Cameras, SceneGeometry

# Where density is unlikely few intervals are drawn; a tenth of weight for each brings the asymptotic order to those n.
EVEN = 0.1


class Kind(NamedTuple):
    """What of a sampler is random: the options that say so, and the order of convergence that is stated for it."""

    options: dict[str, Any]
    order: float


# The stated order of convergence in the number of intervals of what is random (``nerfjax.samplers.placement``).
DENSE_KINDS = {
    "midpoints": Kind(dict(deterministic=True), 2.0),
    "points-stratum": Kind(dict(jitter="stratum", randomize="points"), 1.5),
    "points-single": Kind(dict(jitter="single", randomize="points"), 1.0),
    "edges-stratum": Kind(dict(jitter="stratum", randomize="edges"), 2.0),
    "edges-single": Kind(dict(jitter="single", randomize="edges"), 2.0),
}
# Steps of which all of a ray's are shifted together.
SHIFTED_KINDS = {"midpoints": Kind(dict(deterministic=True), 2.0), "edges-single": Kind({}, 2.0)}


class Row(NamedTuple):
    """A member with options; ``make(n, **options)`` has a number of final intervals that grows with n.

    ``random`` names the kinds with which the tests ask what is random; the first one is used where one is enough.
    ``lookups`` are looks at a grid that are counted among the evaluations of networks. Rays that share a budget
    (``shares``) depend on what else is in their batch, though not on its order.
    """

    member: str
    make: Callable[..., Any]
    kinds: dict[str, Kind] = DENSE_KINDS
    random: tuple[str, ...] = ("points-stratum", "points-single")
    lookups: int = 0
    shares: bool = False


def peaked_network() -> DensityNetwork:
    """A proposal network with one parameter, which peaks in the middle of the ray."""
    return DensityNetwork(
        init=lambda key, geometry: {"scale": jnp.asarray(1.0, jnp.float32)},
        apply=lambda params, points: params["scale"] / (1.0 + (points.positions[..., 2] + 2.5) ** 2),
    )


def proposal_of(n, network=None, **options):
    return SAMPLERS["proposal"](
        networks=(network or peaked_network(),), num_proposal=(8, 6), num_final=n, padding=EVEN, **options
    )  # fmt: skip


def occupancy_of(n, growing=False, **options):
    """Steps of which a ray has about n, through a grid that is occupied all along it."""
    if growing:
        options = dict(cascades=2, cone=2.0 / n, **options)
    return SAMPLERS["occupancy"](
        geometry=geometry().replace(bounded=not growing), diagonal_steps=4 * n, samples_per_ray=2.0 * n + 4.0,
        resolution=8, **options,
    )  # fmt: skip


def compose_of(n, network=None, **options):
    return SAMPLERS["compose"](
        networks=(network or peaked_network(),), geometry=geometry(), num_first=16, num_proposal=(8, 6), num_final=n,
        resolution=8, padding=EVEN, **options,
    )  # fmt: skip


def adaptive_of(n, network=None, **options):
    return SAMPLERS["adaptive"](
        networks=(network or peaked_network(),), num_proposal=(8, 6), samples_per_ray=float(n), padding=EVEN, **options
    )  # fmt: skip


def neus_of(n, **options):
    rounds = 4 if n % 8 == 0 else 1
    return SAMPLERS["neus"](num_uniform=n // 2 + 1, num_importance=n // 2, num_rounds=rounds, padding=EVEN, **options)


def geometry() -> SceneGeometry:
    cameras = Cameras(
        pose=jnp.eye(4)[None, :3], focal=jnp.ones((1, 2)), center=jnp.ones((1, 2)), distortion=jnp.zeros((1, 6)),
        size=2 * jnp.ones((1, 2), jnp.int32), model=jnp.zeros((1,), jnp.int32),
    )  # fmt: skip
    box = jnp.asarray([[-6.0] * 3, [6.0] * 3])
    return SceneGeometry(box=box, near=jnp.asarray(0.5), far=jnp.asarray(4.5), cameras=cameras)


ROWS = {
    "stratified": Row("stratified", lambda n, **options: SAMPLERS["stratified"](num_samples=n, **options)),
    "hierarchical": Row(
        "hierarchical",
        lambda n, **options: SAMPLERS["hierarchical"](num_coarse=8, num_fine=n, padding=EVEN, **options),
    ),
    "hierarchical-fine-only": Row(
        "hierarchical",
        lambda n, **options: SAMPLERS["hierarchical"](
            num_coarse=8, num_fine=n, reuse_coarse=False, blur=True, padding=EVEN, **options
        ),
    ),
    "proposal": Row("proposal", proposal_of),
    "occupancy": Row("occupancy", occupancy_of, SHIFTED_KINDS, ("edges-single",)),
    "occupancy-growing": Row(
        "occupancy", functools.partial(occupancy_of, growing=True), SHIFTED_KINDS, ("edges-single",)
    ),
    "compose": Row("compose", compose_of, lookups=16),
    "adaptive": Row("adaptive", adaptive_of, shares=True),
    "neus": Row("neus", neus_of),
}
each_row = pytest.mark.parametrize("name", ROWS)


def each_kind(choose: Callable[[Row], tuple[str, ...]]):
    """Parametrizes by name and kind."""
    return pytest.mark.parametrize("name, kind", [(name, kind) for name, row in ROWS.items() for kind in choose(row)])
