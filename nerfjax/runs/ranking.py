"""Which method is better: only where nothing but the method differs, and only what is more than chance.

Methods are tested in pairs over the same scenes: by Welch's test over seeds where every method has two or more on
every scene, else by a paired test over the test images, which is said. p values are corrected for the number of pairs
(Holm). A method's rank is one more than the number of methods that are distinguishably better: methods that cannot be
told apart share it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nerfjax.errors import UserError
from nerfjax.runs.compare import Comparison, brief, run_name
from nerfjax.runs.confounders import CONFOUNDER
from nerfjax.runs.statistics import Contrast, Judgement, average, holm, judge, paired, welch

LOWER_IS_BETTER = ("lpips", "mse", "mae")
ALPHA = 0.05


class Test(NamedTuple):
    """Whether one method is better than another: the contrast of their means, and p corrected for many tests."""

    __test__ = False  # for pytest: this is no test

    methods: tuple[int, int]
    basis: str
    judgement: Judgement
    p: float

    @property
    def distinguishable(self) -> bool:
        """Whether the difference is more than chance would give."""
        return self.p < ALPHA


class Ranking(NamedTuple):
    """Methods by rank.

    Attributes:
      order: methods, best first.
      ranks: of each method of ``order``: 1 + the number of methods that are distinguishably better.
      means: over the scenes compared, of each method of ``order``.
      tests: for every two methods.
      basis: "seeds" or "images", what the tests are over.
      scenes: the scenes compared.
      objections: what would have forbidden the ranking; it was forced if there are any.
    """

    order: list[int]
    ranks: list[int]
    means: list[float]
    tests: list[Test]
    basis: str
    scenes: list[int]
    objections: list[str]

    def alike(self, method: int) -> list[int]:
        """Returns the methods that cannot be told from one."""
        both = [test.methods for test in self.tests if not test.distinguishable and method in test.methods]
        return [other for other in self.order if other != method and any(other in each for each in both)]


def rank(comparison: Comparison, *, force: bool = False) -> Ranking:
    """Ranks the methods.

    Args:
      comparison: the runs.
      force: rank in spite of objections, which the ranking then carries.

    Raises:
      UserError: something but the method differs between the runs (without ``force``), or nothing is left to rank.
    """
    objections = objections_to(comparison)
    if objections and not force:
        lines = "".join(f"\n  - {objection}" for objection in objections)
        fix = "compare runs that differ in the method only, declare what is studied with --subject=KEY, or --force"
        raise UserError(f"These runs cannot be ranked:{lines}", fix=fix)
    shown = [m for m in range(len(comparison.methods)) if any(method == m for method, _ in comparison.cells)]
    scenes = [s for s in range(len(comparison.scenes)) if all((m, s) in comparison.cells for m in shown)]
    if len(shown) < 2 or not scenes:
        raise UserError("There is nothing to rank.", found=_what_is_there(shown, scenes))
    by_seeds = all(len(comparison.cells[m, s].seeds[comparison.metric]) > 1 for m in shown for s in scenes)
    basis = "seeds" if by_seeds else "images"
    couples = list(itertools.combinations(shown, 2))
    judged = [judge(_contrast(comparison, a, b, scenes, basis)) for a, b in couples]
    corrected = holm([each.p for each in judged])
    tests = [Test(couple, basis, each, p) for couple, each, p in zip(couples, judged, corrected, strict=True)]
    sign = -1 if comparison.metric in LOWER_IS_BETTER else 1
    mean = {m: float(np.mean([comparison.cells[m, s].interval(comparison.metric).mean for s in scenes])) for m in shown}
    order = sorted(shown, key=lambda m: -sign * mean[m])
    better = [sum(_beats(test, other, m, sign) for test in tests for other in order) for m in order]
    return Ranking(order, [1 + n for n in better], [mean[m] for m in order], tests, basis, scenes, objections)


def objections_to(comparison: Comparison) -> list[str]:
    """Returns what forbids a ranking: runs without a result, confounders by key, scenes that a method lacks."""
    records = comparison.records
    objections = [f"{run_name(records[i])}: {reason}" for i, reason in comparison.unusable.items()]
    by_key: dict[tuple[int, str, str], dict[str, list[str]]] = {}
    scene_of = {run: index for index, scene in enumerate(comparison.scenes) for run in scene.runs}
    for pair in comparison.pairs:
        for difference in pair.of_kind(CONFOUNDER) if pair.same_scene else ():
            sides = by_key.setdefault((scene_of[pair.first], difference.category, difference.key), {})
            for run, value in zip((pair.first, pair.second), difference.values, strict=True):
                labels = sides.setdefault(brief(value), [])
                labels += [records[run].label] if records[run].label not in labels else []
    for (scene, category, key), sides in by_key.items():
        where = f" (on {comparison.scenes[scene].name})" if len(comparison.scenes) > 1 else ""
        told = " against ".join(f"{value} in {', '.join(labels)}" for value, labels in sides.items())
        objections.append(f"{category}{where}: {key if key != category else ''} {told}".replace(":  ", ": "))
    for m, method in enumerate(comparison.methods):
        missing = [scene.name for s, scene in enumerate(comparison.scenes) if (m, s) not in comparison.cells]
        if missing and len(comparison.scenes) > 1:
            objections.append(f"scene: {method.name} has no result on {', '.join(missing)}")
    return objections


def _contrast(comparison: Comparison, first: int, second: int, scenes: Sequence[int], basis: str) -> Contrast:
    contrasts = []
    for scene in scenes:
        a, b = comparison.cells[first, scene], comparison.cells[second, scene]
        if basis == "seeds":
            contrasts.append(welch(a.seeds[comparison.metric], b.seeds[comparison.metric]))
            continue
        one, other = a.images[comparison.metric], b.images[comparison.metric]
        names = [name for name in one if np.isfinite(one[name]) and np.isfinite(other.get(name, np.nan))]
        values = [one[name] for name in names], [other[name] for name in names]
        contrasts.append(paired(*values) if names else Contrast(float("nan"), float("nan"), 0.0))
    return average(contrasts)


def _beats(test: Test, better: int, worse: int, sign: int) -> bool:
    if test.methods not in ((better, worse), (worse, better)) or not test.distinguishable:
        return False
    return sign * test.judgement.mean * (1 if test.methods[0] == better else -1) > 0


def _what_is_there(shown: Sequence[int], scenes: Sequence[int]) -> str:
    if len(shown) < 2:
        return f"{len(shown) or 'no'} method{'s' if not shown else ''} with a result"
    return "no scene on which all methods have a result" if not scenes else ""
