"""Whether a difference between methods is more than chance: Student's t over seeds, images and scenes.

A ``Contrast`` is an estimated difference with the variance of that estimate and its degrees of freedom. Seeds are
replicates of a run: two sets of them are contrasted by Welch's test, which lets their variances differ. Where a method
has one seed, the test images of both runs are paired instead; that says how sure the difference of THESE two runs is,
and nothing of what another seed would give. The mean over a fixed set of scenes is again a contrast: variances add,
and degrees of freedom combine by Welch and Satterthwaite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

CONFIDENCE = 0.95
Values = Sequence[float | int] | np.ndarray


class Interval(NamedTuple):
    """A mean with its confidence interval; ``low`` and ``high`` are None where one value says nothing of the spread."""

    mean: float
    low: float | None
    high: float | None
    count: int


class Contrast(NamedTuple):
    """An estimated difference.

    Attributes:
      mean: the difference.
      variance: of ``mean``.
      freedom: degrees of freedom of ``variance``; 0 where there is nothing to estimate it from.
    """

    mean: float
    variance: float
    freedom: float


class Judgement(NamedTuple):
    """A contrast tested against zero: its confidence interval and two-sided p value."""

    mean: float
    low: float | None
    high: float | None
    p: float


def mean_interval(values: Values, confidence: float = CONFIDENCE) -> Interval:
    """Returns mean ± t·s/√n of n values."""
    mean, variance, count = _moments(values)
    if count < 2:
        return Interval(mean, None, None, count)
    half = _quantile(count - 1, confidence) * math.sqrt(variance / count)
    return Interval(mean, mean - half, mean + half, count)


def welch(first: Values, second: Values) -> Contrast:
    """Returns mean(first) - mean(second) of independent values (Welch 1947); two values a side at least."""
    (mean_a, variance_a, count_a), (mean_b, variance_b, count_b) = _moments(first), _moments(second)
    if min(count_a, count_b) < 2:
        return Contrast(mean_a - mean_b, math.nan, 0.0)
    parts = [Contrast(mean_a, variance_a / count_a, count_a - 1), Contrast(-mean_b, variance_b / count_b, count_b - 1)]
    return _sum(parts)


def paired(first: Values, second: Values) -> Contrast:
    """Returns the mean of first[i] - second[i]; two pairs at least."""
    mean, variance, count = _moments(np.asarray(first, np.float64) - np.asarray(second, np.float64))
    return Contrast(mean, variance / count if count > 1 else math.nan, max(count - 1, 0))


def average(contrasts: Sequence[Contrast]) -> Contrast:
    """Returns the mean of independent contrasts, such as one per scene of a fixed set."""
    scale = 1 / len(contrasts)
    return _sum([Contrast(c.mean * scale, c.variance * scale**2, c.freedom) for c in contrasts])


def judge(contrast: Contrast, confidence: float = CONFIDENCE) -> Judgement:
    """Tests a contrast against zero; without degrees of freedom nothing is known, and p is 1."""
    if contrast.freedom <= 0 or not math.isfinite(contrast.variance):
        return Judgement(contrast.mean, None, None, 1.0)
    error = math.sqrt(contrast.variance)
    if error == 0:
        return Judgement(contrast.mean, contrast.mean, contrast.mean, float(contrast.mean == 0))
    half = _quantile(contrast.freedom, confidence) * error
    p = 2 * float(stdtr(contrast.freedom, -abs(contrast.mean) / error))
    return Judgement(contrast.mean, contrast.mean - half, contrast.mean + half, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p values adjusted for being many (Holm 1979): below α only where the family errs with less than α."""
    order = np.argsort(p_values, kind="stable")
    adjusted, worst = [1.0] * len(p_values), 0.0
    for rank, i in enumerate(order.tolist()):
        worst = max(worst, min(1.0, p_values[i] * (len(p_values) - rank)))
        adjusted[i] = worst
    return adjusted


def _sum(parts: Sequence[Contrast]) -> Contrast:
    """Adds independent contrasts; the degrees of freedom are those of Welch and Satterthwaite."""
    mean, variance = sum(part.mean for part in parts), sum(part.variance for part in parts)
    if any(part.freedom <= 0 for part in parts):
        return Contrast(mean, math.nan, 0.0)
    spread = sum(part.variance**2 / part.freedom for part in parts)
    return Contrast(mean, variance, variance**2 / spread if spread > 0 else sum(part.freedom for part in parts))


def _moments(values: Values) -> tuple[float, float, int]:
    array = np.asarray(values, np.float64)
    return float(array.mean()), float(array.var(ddof=1)) if len(array) > 1 else math.nan, len(array)


def _quantile(freedom: float | int, confidence: float) -> float:
    return float(stdtrit(freedom, 0.5 + 0.5 * confidence))
