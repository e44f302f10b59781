"""Durations and counts as people write them."""

from __future__ import annotations

import pytest

from nerfjax.quantities import format_count, format_seconds


@pytest.mark.parametrize("seconds, text", [(0, "0s"), (59.6, "1m00s"), (200, "3m20s"), (7500.0, "2h05m")])
def test_format_seconds(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize("count, text", [(870, "870"), (10_240, "10.2k"), (3.4e6, "3.4M"), (2e9, "2.0G")])
def test_format_count(count, text):
    assert format_count(count) == text
