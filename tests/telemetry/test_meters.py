"""The clock and the numbers of an interval, on a clock of our own."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.telemetry.meters import Clock, Interval, interval_means, is_measured


class Time:
    def __init__(self):
        self.value = 50.0

    def __call__(self) -> float:
        return self.value


def test_clock_counts_only_what_runs():
    time = Time()
    clock = Clock(100, now=time)
    time.value += 7
    assert clock.seconds == 100.0
    with clock.running():
        time.value += 3
        with clock.paused():
            time.value += 1000
            assert clock.seconds == 103.0
        time.value += 2
        assert clock.seconds == 105.0
    time.value += 9
    assert clock.seconds == 105.0


def test_clock_survives_errors():
    time = Time()
    clock = Clock(now=time)
    with pytest.raises(KeyError), clock.running():
        with pytest.raises(ValueError), clock.paused():
            time.value += 5
            raise ValueError
        time.value += 1
        raise KeyError
    time.value += 5
    assert clock.seconds == 1.0


def test_report_of_an_interval():
    time = Time()
    clock = Clock(20.0, now=time)
    with clock.running():
        interval = Interval(clock)
        with interval.compiling(2):
            time.value += 30
        interval.add(2, {"loss": jnp.array([4.0, 2.0]), "learning_rate": jnp.array([0.3, 0.2])}, 500)
        with interval.waiting_for_data():
            time.value += 1
        time.value += 3
        rates = jnp.array([0.1, 0.1, 0.1, 0.05])
        interval.add(4, {"loss": jnp.array([3.0, 3.0, 3.0, 0.0]), "learning_rate": rates}, 1000)
        report = interval.report(6, 46)
        assert report["loss"] == 2.5 and math.isclose(report["learning_rate"], 0.05, rel_tol=1e-6)
        assert report["rays_per_step"] == 5000 / 6
        # Four steps of 1000 rays in four seconds, beside the compilation and its first dispatch.
        assert report["rays_per_second"] == 1000 and report["data_wait"] == 0.25
        assert report["eta_seconds"] == 40 and report["seconds"] == 54.0 and report["compile_seconds"] == 30
        time.value += 8
        interval.add(4, {"loss": jnp.ones(4)}, 1000)
        report = interval.report(10, 46)
        assert report["rays_per_second"] == 500 and "compile_seconds" not in report
        assert 36 < report["eta_seconds"] < 72  # smoothed between one and two seconds a step


def test_an_interval_of_nothing_but_compilation_has_a_finite_rate():
    time = Time()
    clock = Clock(now=time)
    with clock.running():
        interval = Interval(clock)
        with interval.compiling(5):
            time.value += 10
        interval.add(5, {"loss": jnp.ones(5)}, 10)
        report = interval.report(5, 10)
        assert report["rays_per_second"] == 5 and report["eta_seconds"] == 10
        time.value += 1
        interval.add(5, {"loss": jnp.ones(5)}, 10)
        assert interval.report(10, 20)["eta_seconds"] == 2  # the compilation is forgotten


def test_parts_of_the_time_add_up_to_the_interval():
    time = Time()
    clock = Clock(now=time)
    with clock.running():
        interval = Interval(clock)
        with interval.compiling(1):
            time.value += 20
        interval.add(1, {"samples_per_ray": jnp.full(1, 4.0)}, 8, flops_per_step=10.0)
        for part, seconds in (("dispatch", 1), ("device", 2), ("data", 3), ("checkpoint", 4), ("dispatch", 0.5)):
            with interval.spending(part):
                time.value += seconds
        with clock.paused(), interval.spending("evaluation"):
            time.value += 100
        time.value += 0.25
        interval.add(3, {"samples_per_ray": jnp.full(3, 4.0)}, 8, flops_per_step=20.0)
        report = interval.report(4, 10)
        parts = {name.removeprefix("time/"): value for name, value in report.items() if name.startswith("time/")}
        assert parts == {
            **{"dispatch": 1.5, "device": 2, "data": 3, "checkpoint": 4, "evaluation": 100},
            **{"compilation": 20, "other": 0.25},
        }
        # Three steps beside the compilation and the evaluation.
        assert math.isclose(report["step_seconds"], 10.75 / 3) and report["flops_per_step"] == 70 / 4
        assert math.isclose(report["samples_per_second"], 4 * report["rays_per_second"])
        interval.add(1, {}, 8)
        assert "flops_per_step" not in interval.report(5, 10)  # not known of all dispatches: of none


def test_what_is_measured_is_told_from_what_the_run_is():
    for name in ("time/device", "step_seconds", "cost", "save/blocked_seconds", "eval/seconds", "cpu_cores"):
        assert is_measured(name)
    for name in ("step", "loss", "loss/color", "flops_per_step", "rays_per_step", "occupancy", "eval/psnr", "stage"):
        assert not is_measured(name)


def test_means_are_over_steps_not_over_dispatches():
    means = interval_means([{"a": np.zeros(3)}, {"a": np.full(1, 4.0), "late": np.array(2.0)}])
    assert means == {"a": 1.0, "late": 2.0}
    assert interval_means([]) == {}
