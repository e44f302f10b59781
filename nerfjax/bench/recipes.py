"""How each sampler spends a budget of main-field evaluations per ray.

A recipe turns a ``Budget`` into factory options, in the papers' proportions; all that it leaves out has the factory's
default. Samplers that step through a grid have as many evaluations as their steps meet occupied cells: ``scale``
divides all lengths of steps, and the bench chooses the finest steps whose evaluations fit into the budget.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from nerfjax.errors import UserError, did_you_mean
from nerfjax.fields import DENSITY_NETWORKS
from nerfjax.samplers import SAMPLERS, Sampler
from nerfjax.types import DensityNetwork, SceneGeometry

BUDGETS = (8, 16, 32, 64, 128, 256)
# Shared by all rounds: a second network would have to be fitted, and paid for, to the same density.
NETWORK = dict(levels=4, features=2, log2_size=16, base_resolution=16, max_resolution=128, width=16)
ANNEAL = 100  # steps
FIRST = 128  # even steps that look at the grid
DIAGONAL_STEPS = 1024  # instant-ngp's


class Budget(NamedTuple):
    """What a recipe may use.

    Attributes:
      evaluations: of the main field per ray, over all levels.
      scale: factor on the number of steps of stepping samplers; at 1, instant-ngp's 1024 along the box's diagonal.
      bounded: whether the scene is.
    """

    evaluations: int
    scale: float = 1.0
    bounded: bool = True


class Recipe(NamedTuple):
    """How a sampler is made for a budget.

    Attributes:
      options: ``Budget -> options of the factory``.
      words: what it does with b evaluations.
      steps: whether it steps through a grid, so that ``scale`` has a meaning.
      lookups: reads of a grid that it counts among its ``proposal_evaluations``, per ray; they take no FLOPs.
    """

    options: Callable[[Budget], dict[str, Any]]
    words: str
    steps: bool = False
    lookups: int = 0


def _stratified(budget: Budget) -> dict[str, Any]:
    return dict(num_samples=budget.evaluations)


def _hierarchical(budget: Budget) -> dict[str, Any]:
    # NeRF's 64 + 128 cost 64 + 192 evaluations.
    coarse = max(budget.evaluations // 4, 1)
    return dict(num_coarse=coarse, num_fine=max(budget.evaluations - 2 * coarse, 1))


def _proposal(budget: Budget) -> dict[str, Any]:
    return dict(num_proposal=(64, 64), num_final=budget.evaluations, anneal_steps=ANNEAL)


def _compose(budget: Budget) -> dict[str, Any]:
    return dict(num_proposal=(64,), num_final=budget.evaluations, num_first=FIRST, anneal_steps=ANNEAL, **_grid(budget))


def _adaptive(budget: Budget) -> dict[str, Any]:
    return dict(
        num_proposal=(64, 64), samples_per_ray=float(budget.evaluations), minimum=min(4, budget.evaluations // 2),
        anneal_steps=ANNEAL,
    )  # fmt: skip


def _grid(budget: Budget) -> dict[str, Any]:
    # About as many cells in the cascades of an unbounded scene as in the one of a bounded scene.
    return dict(resolution=64 if budget.bounded else 32)


def _occupancy(budget: Budget) -> dict[str, Any]:
    diagonal_steps = max(round(DIAGONAL_STEPS * budget.scale), 1)
    cone = -1.0 if budget.bounded else 1.0 / (256.0 * budget.scale)
    slots = float(budget.evaluations)
    return dict(samples_per_ray=slots, diagonal_steps=diagonal_steps, cone=cone, **_grid(budget))


def _neus(budget: Budget) -> dict[str, Any]:
    # U points, I more in R rounds (NeuS: 64, 64 and 4) cost U + I (1 - 1/R) to find and U + I - 1 to render.
    rounds = 4 if budget.evaluations >= 32 else 2
    uniform = max(round((budget.evaluations + 1) / 3.75), 2)
    per_round = (budget.evaluations + 1 - 2 * uniform) / (2 * rounds - 1)
    return dict(num_uniform=uniform, num_importance=rounds * max(int(per_round), 1), num_rounds=rounds)


RECIPES: dict[str, Recipe] = {
    "stratified": Recipe(_stratified, "a point in each of b strata"),
    "hierarchical": Recipe(_hierarchical, "b/4 coarse, then their union with b/2 drawn ones"),
    "proposal": Recipe(_proposal, "two rounds of 64 by a network, then b"),
    "occupancy": Recipe(_occupancy, "equal steps in occupied cells, b slots per ray", steps=True),
    "compose": Recipe(_compose, "a grid, a round of 64 by a network, then b", lookups=FIRST),
    "adaptive": Recipe(_adaptive, "two rounds of 64 by a network, then b on average"),
    "neus": Recipe(_neus, "b/4 even ones, sharpening rounds that add as many, all of them again at the end"),
}


def proposal_network(geometry: SceneGeometry) -> DensityNetwork:
    """Returns the network that all samplers with proposals get."""
    return DENSITY_NETWORKS["hashgrid"](geometry, **NETWORK)


def make_sampler(
    name: str,
    evaluations: int,
    geometry: SceneGeometry,
    *,
    scale: float = 1.0,
    deterministic: bool = False,
    **options: Any,
) -> Sampler:
    """Makes a sampler that spends a number of evaluations of the main field per ray.

    Args:
      name: a key of ``RECIPES`` and ``SAMPLERS``.
      evaluations: of the main field per ray, over all levels.
      geometry: the scene's; its spacing is the sampler's, its box that of networks and grids.
      scale: see ``Budget``.
      deterministic: evaluation sampling.
      options: options of the factory in place of the recipe's.

    Raises:
      UserError: there is no such sampler, or no recipe for it.
    """
    known = [member for member in SAMPLERS if member in RECIPES]
    if name not in known:
        raise UserError(
            "There is no such sampler to measure.", field="--samplers", found=name, expected=", ".join(known),
            fix=did_you_mean(name, known),
        )  # fmt: skip
    parameters = inspect.signature(SAMPLERS[name]).parameters
    context = dict(
        networks=(proposal_network(geometry),) if "networks" in parameters else (),
        deterministic=deterministic,
        spacing=geometry.spacing,
        geometry=geometry,
    )
    taken = {key: value for key, value in context.items() if key in parameters}
    recipe = RECIPES[name].options(Budget(evaluations, scale, geometry.bounded))
    return SAMPLERS[name](**{**taken, **recipe, **options})
