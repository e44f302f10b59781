"""The training loop: a story that takes its parts as arguments.

The device is always a dispatch ahead of the host: the loop waits for it only where it reads (reports, checkpoints,
evaluation), after a compilation, and to keep no more than ``IN_FLIGHT`` dispatches queued. A dispatch runs the steps
up to the next multiple of ``steps_per_dispatch`` (or to the end), so that a resumed run is cut into the same
dispatches as an uninterrupted one; what is due "every n steps" is done after the dispatch that reaches or passes the
multiple of n.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from nerfjax.errors import Diverged, Preempted
from nerfjax.telemetry.meters import Clock, Interval
from nerfjax.telemetry.writers import Writer
from nerfjax.train.checkpoint import Checkpoints

IN_FLIGHT = 2


class StopSignal:
    """Turns SIGINT and SIGTERM into a request that the loop obeys after the dispatch in flight.

    A context manager: the handlers before it are restored at the end. A second Ctrl-C raises KeyboardInterrupt.
    Outside the main thread, where Python allows no handlers, only ``request`` works.
    """

    def __init__(self, *, signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM)):
        self.reason: str | None = None
        self._signals, self._before = tuple(signals), {}

    @property
    def requested(self) -> bool:
        """Whether the run shall stop."""
        return self.reason is not None

    def request(self, reason: str) -> None:
        """Asks the loop to save and stop."""
        self.reason = self.reason or reason

    def __enter__(self) -> StopSignal:
        for number in self._signals:
            try:
                self._before[number] = signal.signal(number, self._handle)
            except ValueError:  # not the main thread
                break
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._before.items():
            # None: the handler was not set from Python, and cannot be set again from there.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _handle(self, number: int, frame: Any) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.request(signal.Signals(number).name)
        # Print is not safe here: the signal may have come in the middle of one.
        os.write(2, b"\nstopping: saving a checkpoint first (Ctrl-C again to stop at once)\n")


def fit(
    *,
    state: Any,
    dispatch_for: Callable[[int], Callable[[Any, Any], tuple[Any, Mapping[str, Any]]]],
    feed: Callable[[int, int], Any],
    total_steps: int,
    steps_per_dispatch: int,
    rays_per_step: int,
    log_every: int,
    checkpoints: Checkpoints | None = None,
    checkpoint_every: int = 0,
    eval_every: int = 0,
    on_eval: Callable[[Any, int], None] | None = None,
    writers: Sequence[Writer] = (),
    clock: Clock | None = None,
    stop: StopSignal | None = None,
    meta: Mapping[str, Any] | None = None,
    tensor_names: Sequence[str] = (),
) -> Any:
    """Trains from ``state.step`` to ``total_steps``.

    Args:
      state: has scalar ``step``, ``first_bad_step`` (-1 while all is finite), ``bad_tensor`` and key data ``key``;
        it is donated to the first dispatch.
      dispatch_for: makes the compiled ``(state, data) -> (state, metrics)`` of a number of steps; asked once for
        ``steps_per_dispatch`` and once for each remainder. The state is donated; metrics are ``{name: [steps]}`` on
        the device.
      feed: ``(step, count) -> data`` of a dispatch; ``lambda step, count: data`` for resident images.
      total_steps: steps of the whole run, restarts included.
      steps_per_dispatch: steps of one dispatch, K.
      rays_per_step: rays of one global batch.
      log_every: steps between reports.
      checkpoints: where to save, every ``checkpoint_every`` steps, at a stop and at the end; None saves nothing.
      checkpoint_every: steps between checkpoints; 0 saves at a stop and at the end only.
      eval_every: steps between calls of ``on_eval``; 0 for none.
      on_eval: ``(state, step)``; the training clock stands still meanwhile. It must not keep the state.
      writers: take the reports (see ``telemetry.meters``).
      clock: the training clock, continued from the checkpoint's ``seconds``.
      stop: obeyed after the dispatch in flight.
      meta: further entries of the checkpoints' JSON dict, beside ``step`` and ``seconds``.
      tensor_names: what ``state.bad_tensor`` counts.

    Returns:
      The state after ``total_steps``.

    Raises:
      Diverged: a loss or gradient was not finite; nothing later than that was saved.
      Preempted: ``stop`` was requested; a checkpoint was saved.
    """
    clock = clock or Clock()
    step = int(jax.device_get(state.step))
    with clock.running():
        interval, in_flight, dispatches = Interval(clock, rays_per_step), deque(), {}
        while step < total_steps:
            begin, count = step, min(steps_per_dispatch - step % steps_per_dispatch, total_steps - step)
            with interval.waiting_for_data():
                data = feed(step, count)
            if count not in dispatches:
                with interval.compiling(count), jax.transfer_guard("disallow"):
                    dispatches[count] = dispatch_for(count)
                    state, metrics = jax.block_until_ready(dispatches[count](state, data))
            else:
                with jax.transfer_guard("disallow"):
                    state, metrics = dispatches[count](state, data)
            step += count
            interval.add(count, metrics)
            in_flight.append(metrics)
            if len(in_flight) > IN_FLIGHT:
                jax.block_until_ready(in_flight.popleft())

            last, log = step == total_steps, _due(log_every, begin, step)
            stopping = _stopping(stop, log or last)
            save, evaluate = last or stopping or _due(checkpoint_every, begin, step), _due(eval_every, begin, step)
            if log or last or stopping:
                report = interval.report(step, total_steps)
                for writer in writers:
                    writer.write(report)
            if log or last or stopping or save or evaluate:
                _check_finite(state, tensor_names, checkpoints)
            if save and checkpoints is not None:
                checkpoints.save(step, state, {**(meta or {}), "step": step, "seconds": clock.seconds})
            if stopping and stop is not None:
                raise _preempted(stop, step, total_steps, checkpoints)
            if evaluate and on_eval is not None:
                with clock.paused():
                    on_eval(state, step)
        if checkpoints is not None:
            checkpoints.wait()
    return state


def _due(every: int, begin: int, end: int) -> bool:
    """Whether a multiple of ``every`` lies in (begin, end]."""
    return every > 0 and begin // every != end // every


def _stopping(stop: StopSignal | None, meeting: bool) -> bool:
    """Whether to stop now; several processes ask each other, and only where they wait for the device anyway."""
    if stop is None or jax.process_count() == 1:
        return stop is not None and stop.requested
    if not meeting:
        return False
    from jax.experimental import multihost_utils

    asked = bool(np.any(multihost_utils.process_allgather(np.int32(stop.requested))))
    if asked:
        stop.request("a signal to another process")
    return asked


def _check_finite(state: Any, tensor_names: Sequence[str], checkpoints: Checkpoints | None) -> None:
    bad_step, bad_tensor = (int(x) for x in jax.device_get((state.first_bad_step, state.bad_tensor)))
    if bad_step < 0:
        return
    key = ", ".join(str(word) for word in np.ravel(jax.device_get(state.key)))
    tensor = tensor_names[bad_tensor] if 0 <= bad_tensor < len(tensor_names) else f"tensor {bad_tensor}"
    lines = [
        f"training diverged: {tensor} is not finite at step {bad_step}",
        f"  tensor:   {tensor}",
        f"  step:     {bad_step}",
        f"  key:      run key uint32 [{key}]; the step's random streams are fold_in(fold_in(key, stream), {bad_step})",
    ]
    if checkpoints is not None:
        checkpoints.wait()
        steps = checkpoints.steps()
        saved = f"step {steps[-1]}, in {checkpoints.directory}" if steps else "none"
        lines.append(f"  saved:    {saved}; nothing later was written")
    lines.append("  fix:      lower the learning rate, or look at the tensor's inputs at that step")
    raise Diverged("\n".join(lines))


def _preempted(stop: StopSignal, step: int, total_steps: int, checkpoints: Checkpoints | None) -> Preempted:
    where = f"stopped by {stop.reason} at step {step} of {total_steps}"
    if checkpoints is None:
        return Preempted(f"{where}; nothing was saved, because there is no run folder")
    checkpoints.wait()
    saved = checkpoints.directory / str(step)
    return Preempted(f"{where}; the checkpoint is {saved}\nrun the same command again to go on from there")
