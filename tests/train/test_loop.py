"""The loop does what is due when it is due, waits only where it reads, and can be stopped at any moment."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from nerfjax.errors import Diverged, Preempted
from nerfjax.telemetry.meters import Clock
from nerfjax.train.checkpoint import Checkpoints, abstract_from_state
from nerfjax.train.loop import IN_FLIGHT, StopSignal, fit


@struct.dataclass
class ToyState:
    step: Any
    params: Any
    key: Any
    first_bad_step: Any
    bad_tensor: Any


def initial_state() -> ToyState:
    key = jax.random.key_data(jax.random.key(7))
    return ToyState(jnp.int32(0), jnp.zeros((4,)), key, jnp.int32(-1), jnp.int32(-1))


class Toy:
    """A run whose parameters are a random walk; with ``bad_at`` the loss of that step is NaN."""

    def __init__(self, bad_at: int = -1):
        self.bad_at, self.made, self.called = bad_at, [], []

    def dispatch_for(self, count: int, rung: int = 0):
        self.made.append(count)

        def one(state: ToyState, data):
            key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)
            params = 0.9 * state.params + data * jax.random.normal(key, (4,))
            good = (state.first_bad_step < 0) & (state.step != self.bad_at)
            loss = jnp.where(state.step == self.bad_at, jnp.nan, state.step.astype(jnp.float32))
            kept = jax.tree.map(
                lambda new, old: jnp.where(good, new, old), state.replace(step=state.step + 1, params=params), state
            )
            failed = ~good & (state.first_bad_step < 0)
            kept = kept.replace(
                first_bad_step=jnp.where(failed, state.step, state.first_bad_step),
                bad_tensor=jnp.where(failed, 1, state.bad_tensor),
            )
            return kept, {"loss": loss, "learning_rate": 1.0 / (1.0 + state.step)}

        compiled = jax.jit(lambda s, d: jax.lax.scan(lambda c, _: one(c, d), s, length=count), donate_argnums=0)

        def dispatch(state, data):
            self.called.append(count)
            return compiled(state, data)

        return dispatch


class Recorder:
    def __init__(self):
        self.reports = []

    def write(self, report):
        self.reports.append(dict(report))

    def close(self):
        pass


DATA = jnp.float32(0.5)


def run(toy: Toy | None = None, *, total_steps: int, state: ToyState | None = None, **options) -> ToyState:
    options = dict(steps_per_dispatch=5, log_every=10) | options
    feed, names = options.pop("feed", lambda step, count: DATA), options.pop("tensor_names", ())
    stage = types.SimpleNamespace(
        index=0, begin=0, end=total_steps, rays=(100,), feed=feed, tensor_names=names,
        dispatch_for=(toy or Toy()).dispatch_for,
    )  # fmt: skip
    return fit(state=initial_state() if state is None else state, stages=[stage], **options)


def test_steps_that_are_no_multiple_of_the_dispatch_are_done_exactly():
    toy, recorder = Toy(), Recorder()
    state = run(toy, total_steps=23, writers=[recorder])
    assert int(state.step) == 23 and toy.called == [5, 5, 5, 5, 3] and toy.made == [5, 3]
    assert [r["step"] for r in recorder.reports] == [10, 20, 23]
    assert [r["loss"] for r in recorder.reports] == [4.5, 14.5, 21.0]  # means over the interval
    np.testing.assert_allclose([r["learning_rate"] for r in recorder.reports], [1 / 10, 1 / 20, 1 / 23], rtol=1e-6)


def test_a_run_that_is_already_done_does_nothing(tmp_path):
    state = run(total_steps=10)
    toy = Toy()
    assert int(run(toy, total_steps=10, state=state).step) == 10 and toy.called == []


def test_a_resumed_run_is_cut_into_the_same_dispatches():
    state, toy = run(total_steps=13), Toy()
    run(toy, total_steps=25, state=state)
    assert toy.called == [2, 5, 5]


@pytest.mark.parametrize("every", [1, 4, 7, 10])
def test_what_is_due_between_dispatches_is_done_after_the_one_that_passes_it(every):
    seen = []
    run(total_steps=40, eval_every=every, on_eval=lambda state, step: seen.append((step, int(state.step))))
    assert seen == [(s, s) for s in range(5, 41, 5) if s // every != (s - 5) // every]


def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path):
    want = jax.tree.map(np.array, run(total_steps=40))
    with Checkpoints(tmp_path) as checkpoints:
        run(total_steps=20, checkpoints=checkpoints)
    with Checkpoints(tmp_path) as checkpoints:
        state, meta = checkpoints.restore(abstract_from_state(initial_state()))
        assert meta["step"] == 20
        got = run(total_steps=40, state=state, checkpoints=checkpoints)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.array_equal(np.asarray(a), b)


def test_checkpoints_are_written_when_due_and_at_the_end(tmp_path):
    with Checkpoints(tmp_path, keep=10) as checkpoints:
        run(total_steps=33, checkpoints=checkpoints, checkpoint_every=10, meta={"config_hash": "abc"})
        assert checkpoints.steps() == (10, 20, 30, 33)
        assert checkpoints.meta().keys() == {"config_hash", "step", "seconds", "evaluation", "interval"}


def test_the_device_is_read_only_to_report(monkeypatch):
    reads, waits, get, block = [], [], jax.device_get, jax.block_until_ready
    monkeypatch.setattr(jax, "device_get", lambda x: (reads.append(1), get(x))[1])
    monkeypatch.setattr(jax, "block_until_ready", lambda x: (waits.append(1), block(x))[1])
    run(total_steps=100, log_every=50, steps_per_dispatch=5)
    # The first step number, and at each of two reports the metrics and the flags of divergence.
    assert len(reads) == 1 + 2 * 2
    # After the compilation, and to keep the queue short.
    assert len(waits) == 1 + (20 - IN_FLIGHT)


def test_the_clock_continues_and_stands_still_in_evaluation():
    ticks = iter(range(10**6))
    clock = Clock(1000.0, now=lambda: next(ticks))
    recorder, spent = Recorder(), []

    def on_eval(state, step):
        before = clock.seconds
        for _ in range(500):
            clock.now()
        spent.append(clock.seconds - before)

    run(total_steps=20, eval_every=10, on_eval=on_eval, clock=clock, writers=[recorder])
    assert spent == [0.0, 0.0]
    assert 1000 < recorder.reports[0]["seconds"] < recorder.reports[1]["seconds"] < 1100
    assert clock.seconds == clock.seconds  # it stands still after the run


def test_waiting_for_data_is_reported():
    ticks = iter(range(10**6))
    clock, recorder = Clock(now=lambda: next(ticks)), Recorder()

    def slow_feed(step, count):
        for _ in range(1000):
            clock.now()
        return DATA

    run(total_steps=40, clock=clock, writers=[recorder], feed=slow_feed)
    assert all(0.9 < r["data_wait"] <= 1.0 for r in recorder.reports)


def test_b87_divergence_names_tensor_step_and_key_and_saves_nothing_newer(tmp_path):
    recorder = Recorder()
    with Checkpoints(tmp_path, keep=9) as checkpoints, pytest.raises(Diverged) as caught:
        options = dict(checkpoints=checkpoints, checkpoint_every=10, tensor_names=("field/kernel", "loss/color"))
        run(Toy(bad_at=27), total_steps=100, writers=[recorder], **options)
    message = str(caught.value)
    assert "loss/color" in message and "step 27" in message and "[0, 7]" in message and "step 20" in message
    assert caught.value.exit_code == 3
    assert Checkpoints(tmp_path).steps() == (10, 20)
    assert recorder.reports[-1]["step"] == 30  # the record shows it, too


def test_divergence_is_met_before_a_checkpoint_between_reports(tmp_path):
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(Diverged):
        run(Toy(bad_at=3), total_steps=100, log_every=1000, checkpoints=checkpoints, checkpoint_every=5)
    assert Checkpoints(tmp_path).steps() == ()


def test_a_request_to_stop_saves_and_says_how_to_go_on(tmp_path):
    with Checkpoints(tmp_path) as checkpoints, StopSignal() as stop:
        feed = lambda step, count: (stop.request("SIGTERM") if step == 15 else None, DATA)[1]  # noqa: E731
        with pytest.raises(Preempted, match="SIGTERM at step 20 of 100") as caught:
            run(total_steps=100, checkpoints=checkpoints, stop=stop, feed=feed)
        assert "same command" in str(caught.value) and caught.value.exit_code == 75
        state, meta = checkpoints.restore(abstract_from_state(initial_state()))
        assert int(state.step) == 20 == meta["step"]
        with pytest.raises(Preempted, match="nothing was saved"):
            run(total_steps=100, stop=stop)


def test_signals_are_handled_and_the_handlers_before_restored():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopSignal() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested and stop.reason == "SIGTERM"
        os.kill(os.getpid(), signal.SIGTERM)  # schedulers repeat themselves
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_stop_signal_works_outside_the_main_thread():
    seen = []

    def work():
        with StopSignal() as stop:
            seen.append(stop.requested)
            stop.request("the user")
            seen.append(stop.reason)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False, "the user"]


PROGRAM = """
    import pathlib, sys
    sys.path[:0] = [TESTS]
    from test_loop import Toy, initial_state, DATA, abstract_from_state, run
    from nerfjax.errors import NerfjaxError
    from nerfjax.telemetry.writers import JsonlWriter
    from nerfjax.train.checkpoint import Checkpoints
    from nerfjax.train.loop import StopSignal
    folder, total = sys.argv[1], int(sys.argv[2])
    with Checkpoints(folder) as checkpoints, StopSignal() as stop:
        state, resumed = initial_state(), 0
        if checkpoints.latest_step() is not None:
            state, meta = checkpoints.restore(abstract_from_state(state))
            resumed = meta["step"]
        writer = JsonlWriter(pathlib.Path(folder) / "metrics.jsonl", resume_step=resumed)
        try:
            run(total_steps=total, state=state, checkpoints=checkpoints, stop=stop, writers=[writer],
                checkpoint_every=100, log_every=50)
        except NerfjaxError as error:
            print(error, file=sys.stderr)
            sys.exit(error.exit_code)
"""


def start(folder, total: int) -> subprocess.Popen:
    program = f"TESTS = {str(pathlib.Path(__file__).parent)!r}\n" + textwrap.dedent(PROGRAM)
    return subprocess.Popen([sys.executable, "-c", program, str(folder), str(total)], stderr=subprocess.PIPE, text=True)


def rows(folder) -> list[dict]:
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_run_that_is_stopped_in_every_way_ends_like_one_that_was_not(tmp_path):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        before = len(rows(tmp_path))
        process = start(tmp_path, 10**7)
        try:
            while process.poll() is None and not before < len(rows(tmp_path)) - 5:
                time.sleep(0.02)
            process.send_signal(number)
            error = process.communicate(timeout=120)[1]
        finally:
            process.kill()
            process.wait()
        if number != signal.SIGKILL:
            assert process.returncode == 75 and "run the same command again" in error, error
    total = max(Checkpoints(tmp_path).steps()) // 50 * 50 + 500
    process = start(tmp_path, total)
    assert process.communicate(timeout=120)[1] == "" and process.returncode == 0
    reported = [row["step"] for row in rows(tmp_path)]
    assert reported == sorted(set(reported)) and reported[-1] == total  # every step once
    assert set(range(50, total + 1, 50)) <= set(reported)  # and none left out
    with Checkpoints(tmp_path) as checkpoints:
        got, _ = checkpoints.restore(abstract_from_state(initial_state()))
    want = run(total_steps=total)
    assert np.array_equal(np.asarray(got.params), np.asarray(want.params))
