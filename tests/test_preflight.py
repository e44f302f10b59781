"""What the compiler for hardware that is not here says, without that compiler."""

import pytest

from nerfjax.preflight import estimated_seconds

VIEW = 'custom-call(%a, %b), custom_call_target="ConcatBitcast"\n'


class Program:
    """A program of which the compiler says so much."""

    def __init__(self, seconds, views):
        self._seconds, self._views = seconds, views

    def cost_analysis(self):
        return {"optimal_seconds": self._seconds}

    def as_text(self):
        return VIEW * self._views


@pytest.mark.parametrize(("seconds", "views"), [(0.0383, 0), (0.0383 - 98, 98), (0.0383 - 62, 132)])
def test_calls_that_cost_nothing_are_taken_out_of_the_estimate(seconds, views):
    # Views inside of a loop are in the text, but not in the sum.
    assert estimated_seconds(Program(seconds, views)) == pytest.approx(0.0383)


@pytest.mark.parametrize(("seconds", "views"), [(-1.96, 1), (1.2, 3), (-0.5, 0)])
def test_an_estimate_that_holds_something_else_is_refused(seconds, views):
    with pytest.raises(RuntimeError, match="something else"):
        estimated_seconds(Program(seconds, views))
