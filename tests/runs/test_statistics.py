"""The tests of differences agree with scipy's, and err as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from nerfjax.runs.statistics import average, holm, judge, mean_interval, paired, welch


def samples(seed: int, *counts: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.normal(30 + 0.2 * i, 0.3 + 0.2 * i, count) for i, count in enumerate(counts)]


@pytest.mark.parametrize("counts", [(2, 2), (3, 7), (30, 4)])
def test_welch_equals_scipy(counts):
    a, b = samples(0, *counts)
    theirs = stats.ttest_ind(a, b, equal_var=False)
    ours = judge(welch(a, b))
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
    interval = theirs.confidence_interval(0.95)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-9)


def test_paired_and_interval_equal_scipy():
    a, b = samples(1, 6, 6)
    theirs = stats.ttest_rel(a, b)
    assert judge(paired(a, b)).p == pytest.approx(theirs.pvalue, rel=1e-9)
    low, high = stats.t.interval(0.95, 5, loc=a.mean(), scale=stats.sem(a))
    assert mean_interval(a)[:3] == pytest.approx((a.mean(), low, high), rel=1e-9)


def test_one_value_tells_nothing():
    assert mean_interval([3.0]) == (3.0, None, None, 1)
    for contrast in (
        welch([1.0], [2.0, 3.0]),
        paired([1.0], [9.0]),
        average([paired([1, 2], [5, 7]), welch([1], [2])]),
    ):
        judged = judge(contrast)
        assert judged.p == 1 and judged.low is None


def test_without_any_spread_a_difference_is_a_difference():
    assert judge(paired([1.0, 1.0], [1.0, 1.0])).p == 1
    assert judge(welch([1.0, 1.0], [2.0, 2.0])).p == 0


def test_the_error_rate_is_the_one_promised():
    """Under no difference, p < 0.05 in one case of twenty; over three scenes with three seeds each too."""
    random = np.random.default_rng(3)
    scale = np.array([0.1, 0.5, 2.0])[:, None]
    hits = 0
    for _ in range(2000):
        a, b = random.normal(size=(2, 3, 3)) * scale + 5 * scale
        hits += judge(average([welch(x, y) for x, y in zip(a, b, strict=True)])).p < 0.05
    assert 0.02 < hits / 2000 < 0.06  # Satterthwaite errs on the careful side


def test_holm_steps_down():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
