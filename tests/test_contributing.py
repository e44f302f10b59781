"""CONTRIBUTING's worked example is a sampler: it is short, and it passes the conformance suite."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pathlib
import re
import sys
import types

import jax
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
SUITE = "test_samplers"
SIMPLEST = "stratified"

sys.path.insert(0, str(ROOT / "tests" / "conformance"))
pytest.register_assert_rewrite(SUITE)
suite = importlib.import_module(SUITE)
rows = importlib.import_module("sampler_rows")


def example() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text.split("## Add a sampler")[1], flags=re.DOTALL)
    return block


def combinations(mark) -> list[dict]:
    """What a parametrize mark gives to a test of the simplest row, without the row's name."""
    names = [name.strip() for name in mark.args[0].split(",")]
    values = [dict(zip(names, value if len(names) > 1 else (value,), strict=True)) for value in mark.args[1]]
    values = [value for value in values if value.get("name", SIMPLEST) == SIMPLEST]
    return [{name: item for name, item in value.items() if name != "name"} for value in values]


def cases() -> list:
    """Every test of the suite that takes a row's name, once per combination of its other parameters."""
    found = []
    for test_name, test in inspect.getmembers(suite, inspect.isfunction):
        if not test_name.startswith("test_") or "name" not in inspect.signature(test).parameters:
            continue
        marks = [combinations(mark) for mark in test.pytestmark if mark.name == "parametrize"]
        for parts in itertools.product(*marks):
            arguments = {name: item for part in parts for name, item in part.items()}
            label = "-".join([test_name.removeprefix("test_"), *map(str, arguments.values())])
            found.append(pytest.param(test, arguments, id=label))
    return found


@pytest.fixture(scope="module")
def two_zones():
    module = types.ModuleType("two_zones")
    exec(compile(example(), "CONTRIBUTING.md", "exec"), module.__dict__)
    return module.two_zones


def test_the_example_is_short():
    assert len(example().splitlines()) < 40


def test_the_example_does_what_it_says(two_zones):
    sampler = two_zones(num_samples=8, split=0.25, share=0.5, deterministic=True)
    state = sampler.init(jax.random.key(0), suite.geometry())
    intervals, _ = sampler.sample(jax.random.key(0), state, suite.make_rays(1), suite.smooth_field, step=0)
    assert (intervals.s[0, :-1] < 0.25).sum() == 4
    assert intervals.s[0, 4] == pytest.approx(0.25)


def test_the_whole_suite_is_run():
    names = {parameter.values[0].__name__ for parameter in cases()}
    assert len(names) >= 8 and "test_color_and_transmittance_converge_at_the_stated_order" in names


@pytest.mark.parametrize(("test", "arguments"), cases())
def test_the_example_conforms(monkeypatch, two_zones, test, arguments):
    monkeypatch.setitem(suite.SAMPLERS, "two_zones", two_zones)
    row = rows.Row("two_zones", lambda n, **options: suite.SAMPLERS["two_zones"](num_samples=n, **options))
    monkeypatch.setitem(suite.ROWS, "two_zones", row)
    test("two_zones", **arguments)
