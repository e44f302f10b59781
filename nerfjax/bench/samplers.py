"""Every sampler at every budget on the procedural scenes: error, where the points lie, and what it all costs.

"Equal cost" has three meanings here: evaluations of the main field over all levels; the same with the evaluations of
proposal networks added, weighted by their FLOPs; wall time. The warm-up of grids and networks is measured once for each
scene and, in the columns that say so, spread over ``AMORTIZED_RAYS`` rays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from nerfjax.bench.costs import MAIN_FIELD, RenderingCost, flops_per_evaluation
from nerfjax.bench.laboratory import FULL, RAYS_TIMED, Laboratory, Sizes
from nerfjax.bench.quality import THRESHOLD, Quality
from nerfjax.bench.recipes import BUDGETS, NETWORK, RECIPES
from nerfjax.bench.references import CELLS
from nerfjax.bench.sampler_tables import equal_cost
from nerfjax.bench.warmup import Warmup
from nerfjax.errors import UserError, did_you_mean
from nerfjax.samplers import SAMPLERS
from nerfjax.scenes.analytic_scenes import SCENES

AMORTIZED_RAYS = 2**20
GRADIENT_COST = 3.0  # FLOPs of a value with its gradient, in FLOPs of the value
LEAST_BUDGET = 4


def bench_samplers(
    *,
    scenes: Sequence[str] = tuple(SCENES),
    samplers: Sequence[str] | None = None,
    budgets: Sequence[int] = BUDGETS,
    sizes: Sizes = FULL,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measures samplers.

    Args:
      scenes: names of procedural scenes.
      samplers: names; None for all that have a recipe.
      budgets: evaluations of the main field per ray.
      sizes: how much is measured.
      say: takes lines about the progress.

    Returns:
      The document of ``schemas/bench_samplers.schema.json``.

    Raises:
      UserError: an unknown scene or sampler.
    """
    names = [name for name in RECIPES if name in SAMPLERS] if samplers is None else list(samplers)
    skipped = sorted({*RECIPES} ^ {*SAMPLERS}) if samplers is None else []
    for name in skipped:
        say(f"{name} is left out: it has no {'recipe' if name in SAMPLERS else 'factory'}")
    check(scenes, names, budgets, sizes)
    laboratory = Laboratory(scenes, sizes)
    flops = flops_per_evaluation(laboratory.references[scenes[0]].geometry)
    rows, warmups = [], []
    for name in names:
        for scene in scenes:
            say(f"{name} on {scene}")
            warmup = laboratory.warmup(name, scene)
            warmups.append(dict(scene=scene, sampler=name, **warmup._asdict()))
            warmups[-1].pop("state")
            qualities = laboratory.qualities(name, budgets, scene)
            costs = laboratory.costs(name, budgets, scene) if sizes.repeats else [None] * len(budgets)
            for budget, quality, cost in zip(budgets, qualities, costs, strict=True):
                rows.append(_row(name, budget, scene, quality, cost, warmup, flops[1] / flops[0]))
        laboratory.forget(name)
    return dict(
        bench="samplers",
        device=str(jax.devices()[0].device_kind),
        rays=sizes.rays,
        keys=sizes.keys,
        cells=CELLS,
        threshold=THRESHOLD,
        amortized_rays=AMORTIZED_RAYS,
        main_field=dict(name="instant_ngp", options=MAIN_FIELD, flops=flops[0]),
        proposal_network=dict(name="hashgrid", options=NETWORK, flops=flops[1]),
        warmup=sizes.warmup._asdict(),
        recipes={name: RECIPES[name].words for name in names},
        skipped=skipped,
        warmups=warmups,
        rows=rows,
        equal_cost=equal_cost(rows),
    )


def check(scenes: Sequence[str], samplers: Sequence[str], budgets: Sequence[int], sizes: Sizes = FULL) -> None:
    """Checks names and numbers.

    Raises:
      UserError: one is not valid.
    """
    known_samplers = [name for name in RECIPES if name in SAMPLERS]
    for flag, names, known in (("--scenes", scenes, list(SCENES)), ("--samplers", samplers, known_samplers)):
        for name in names:
            if name not in known:
                raise UserError(
                    "There is no such name to measure.", field=flag, found=name, fix=did_you_mean(name, known)
                )
        if not names:
            raise UserError("There is nothing to measure.", field=flag, expected=", ".join(known))
    if not budgets or min(budgets) < LEAST_BUDGET:
        raise UserError(
            "A budget is too small.", field="--budgets", found=list(budgets), expected=f"{LEAST_BUDGET} or more"
        )
    for flag, number in (("--rays", sizes.rays), ("--keys", sizes.keys)):
        if number < 1:
            raise UserError("There is nothing to measure.", field=flag, found=number, expected="1 or more")


def _row(
    name: str, budget: int, scene: str, quality: Quality, cost: RenderingCost | None, warmup: Warmup, ratio: float
) -> dict[str, Any]:
    """One row of the document; ``ratio``: FLOPs of a proposal network's evaluation over those of the main field's."""
    flops = quality.evaluations + ratio * (quality.proposal_evaluations - RECIPES[name].lookups)
    spread = (warmup.main_evaluations + GRADIENT_COST * ratio * warmup.proposal_evaluations) / AMORTIZED_RAYS
    spread_milliseconds = 1e3 * warmup.seconds * RAYS_TIMED / AMORTIZED_RAYS
    return dict(
        scene=scene,
        sampler=name,
        budget=budget,
        **quality._asdict(),
        flop_evaluations=flops,
        flop_evaluations_with_warmup=flops + spread,
        milliseconds=None if cost is None else cost.milliseconds,
        milliseconds_with_warmup=None if cost is None else cost.milliseconds + spread_milliseconds,
        peak_bytes=None if cost is None else cost.peak_bytes,
    )
