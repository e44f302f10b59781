"""What programs cost, what the machine says, and the profiler's window."""

from __future__ import annotations

import types

import jax
import jax.numpy as jnp
import pytest

from nerfjax.errors import UserError
from nerfjax.telemetry import costs
from nerfjax.telemetry.costs import ProgramCost, matmul_peak, program_cost
from nerfjax.telemetry.monitor import Monitor
from nerfjax.telemetry.profile import Profile, parse_steps

SIDE = 64


def scanned(steps: int):
    def body(carry, _):
        return jnp.matmul(carry, carry), jnp.sum(carry)

    program = jax.jit(lambda x: jax.lax.scan(body, x, length=steps))
    return program.lower(jnp.ones((SIDE, SIDE))).compile()


def test_the_body_of_a_dispatch_is_counted_once():
    one, many = (program_cost(scanned(steps)) for steps in (2, 50))
    assert 2 * SIDE**3 <= one.flops_per_step < 1.1 * 2 * SIDE**3
    assert many.flops_per_step == pytest.approx(one.flops_per_step, rel=0.01)
    assert program_cost(scanned(2), devices=8).flops_per_step == 8 * one.flops_per_step
    assert one.memory_bytes >= 2 * SIDE**2 * 4


def test_what_cannot_say_its_cost_has_none():
    assert program_cost(lambda state, data: None) == ProgramCost()

    def refuses():
        raise NotImplementedError

    assert program_cost(types.SimpleNamespace(cost_analysis=refuses, memory_analysis=refuses)) == ProgramCost()


def test_the_peak_is_measured_once_for_a_kind_of_device(monkeypatch):
    calls, measure = [], costs._measure
    monkeypatch.setattr(costs, "_PEAKS", {})
    monkeypatch.setattr(costs, "SIDES", {"cpu": 64})
    monkeypatch.setattr(costs, "SECONDS", 0.0)
    monkeypatch.setattr(costs, "_measure", lambda *a: (calls.append(a), measure(*a))[1])
    devices = tuple(jax.devices()[:2])
    assert matmul_peak(devices) == matmul_peak(devices) > 1e6
    assert len(calls) == 1
    matmul_peak(devices, precision="highest")
    assert len(calls) == 2


class Device:
    process_index, device_kind = 0, "fake"

    def __init__(self, stats):
        self.stats = stats

    def memory_stats(self):
        return self.stats


REPORT = {"step": 10, "seconds": 1800.0, "step_seconds": 0.5, "flops_per_step": 100.0}


def test_readings_of_a_machine_that_counts():
    monitor = Monitor(
        devices=(Device({"peak_bytes_in_use": 7}), Device({"peak_bytes_in_use": 9})), peak=1000.0,
        price_per_device_hour=2.5,
    )  # fmt: skip
    found = monitor.readings(REPORT)
    assert found["device_memory_bytes"] == 9 and found["flops_per_second"] == 200 and found["matmul_share"] == 0.2
    assert found["device_hours"] == 1.0 and found["cost"] == 2.5
    assert found["host_memory_bytes"] > 2**20 and found["cpu_cores"] >= 0


def test_memory_is_that_of_the_largest_program_where_the_device_does_not_count():
    monitor = Monitor(devices=(Device(None),))
    found = monitor.readings({"step": 1})
    assert not {"device_memory_bytes", "matmul_share", "cost", "flops_per_second"} & set(found)
    programs = [scanned(2), scanned(3)]
    assert all(monitor.flops_per_step(program) for program in programs)
    assert monitor.readings({})["device_memory_bytes"] == max(program_cost(p).memory_bytes for p in programs)


def test_saves_are_reported_once_and_summed_up():
    save = types.SimpleNamespace(blocked=0.5, background=2.0)
    checkpoints = types.SimpleNamespace(take_times=lambda times=[[save, save], [], [save]]: times.pop(0))
    monitor = Monitor(devices=(Device(None),))
    report = monitor.with_readings(REPORT, checkpoints)
    assert report["save/blocked_seconds"] == 1.0 and report["save/background_seconds"] == 4.0 and report["step"] == 10
    assert not any(name.startswith("save/") for name in monitor.with_readings(REPORT, checkpoints))
    monitor.saved(checkpoints.take_times())
    assert monitor.summary() == {"saves": {"count": 3, "blocked_seconds": 1.5, "background_seconds": 6.0}}


def test_the_profile_covers_whole_dispatches_and_is_written_after_an_error(monkeypatch):
    seen = []
    monkeypatch.setattr(jax.profiler, "start_trace", lambda folder: seen.append(folder))
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: seen.append("stop"))
    with Profile("/folder", start=10, stop=20) as profile:
        for step in (0, 8, 16, 24, 32):
            profile.at(step)
            with profile.step(step):
                seen.append(step)
    assert seen == [0, 8, "/folder", 16, "stop", 24, 32]
    seen.clear()
    with pytest.raises(RuntimeError), Profile("/folder", start=0, stop=20) as profile:
        profile.at(0)
        raise RuntimeError
    assert seen == ["/folder", "stop"]
    seen.clear()
    with Profile() as profile:
        profile.at(0)
    assert seen == []


@pytest.mark.parametrize("text", ["", "5", "5:", "7:5", "5:5", "a:b", "-1:5"])
def test_steps_to_trace_are_two_in_order(text):
    with pytest.raises(UserError, match="START:STOP"):
        parse_steps(text)
    assert parse_steps("5:70") == (5, 70)
