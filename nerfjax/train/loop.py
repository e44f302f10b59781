"""The training loop: a story that takes its parts as arguments.

The device is always a dispatch ahead of the host: the loop waits for it only where it reads (reports, checkpoints,
evaluation), after a compilation, and to keep no more than ``IN_FLIGHT`` dispatches queued. A dispatch runs the steps
up to the next multiple of ``steps_per_dispatch`` (or to the end of the stage), so that a resumed run is cut into the
same dispatches as an uninterrupted one; what is due "every n steps" is done after the dispatch that reaches or passes
the multiple of n. A report never mixes two stages: one is written at the end of each.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from nerfjax.errors import Diverged, Preempted
from nerfjax.telemetry.meters import Clock, Interval
from nerfjax.telemetry.monitor import Monitor
from nerfjax.telemetry.profile import Profile
from nerfjax.telemetry.writers import Writer
from nerfjax.train.ahead import CompileAhead
from nerfjax.train.best_checkpoints import score_of
from nerfjax.train.checkpoint import Checkpoints
from nerfjax.train.cluster import reached_stop
from nerfjax.train.ladder import RungQueue

IN_FLIGHT = 2
AHEAD_DISPATCHES = 2  # left of a stage, for which a compilation in the background is still worth its while
AHEAD_COMPILATIONS = 2.0  # the time of so many, likewise, for a rung, which may never be reached


class StopSignal:
    """Turns SIGINT and SIGTERM into a request that the loop obeys after the dispatch in flight.

    A context manager: the handlers before it are restored at the end. A second Ctrl-C raises KeyboardInterrupt.
    Outside the main thread, where Python allows no handlers, only ``request`` works. Of several processes one that is
    asked is enough: all stop after the same dispatch.
    """

    def __init__(self, *, signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM)):
        self.reason: str | None = None
        self._several = jax.process_count() > 1
        # Of several processes SIGTERM is jax's: see ``train.cluster``.
        self._signals = tuple(number for number in signals if number != signal.SIGTERM or not self._several)
        self._before, self._polls = {}, itertools.count()

    @property
    def requested(self) -> bool:
        """Whether the run shall stop."""
        return self.reason is not None

    def request(self, reason: str) -> None:
        """Asks the loop to save and stop."""
        self.reason = self.reason or reason

    def poll(self) -> bool:
        """Whether the run shall stop after this dispatch; to be asked once after each. Several processes agree."""
        if not self._several:
            return self.requested
        if not reached_stop(next(self._polls)):
            return False
        self.request("a signal to one of the processes")
        return True

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
        if self._several:
            os.kill(os.getpid(), signal.SIGTERM)  # which jax tells all of


def fit(
    *,
    state: Any,
    stages: Sequence[Any],
    steps_per_dispatch: int,
    log_every: int,
    checkpoints: Checkpoints | None = None,
    checkpoint_every: int = 0,
    eval_every: int = 0,
    on_eval: Callable[[Any, int], Mapping[str, Any] | None] | None = None,
    writers: Sequence[Writer] = (),
    clock: Clock | None = None,
    stop: StopSignal | None = None,
    meta: Mapping[str, Any] | None = None,
    missed: Mapping[str, Any] | None = None,
    pending: Mapping[str, Any] | None = None,
    compile_ahead: bool = False,
    kept_programs: dict[int, dict] | None = None,
    monitor: Monitor | None = None,
    profile: Profile | None = None,
) -> Any:
    """Trains from ``state.step`` to the end of the last stage.

    Args:
      state: of the stage that its step belongs to (a state of a stage's last step is still of that stage); has scalar
        ``step``, ``first_bad_step`` (-1 while all is finite), ``bad_tensor``, key data ``key`` and ``rung`` [2]. It is
        donated to the first dispatch.
      stages: one after the other; each has what ``train.stage.Stage`` says of ``index``, ``begin``, ``end``, ``rays``,
        ``tensor_names``, ``dispatch_for``, ``compile``, ``feed`` and ``enter``. Of each stage, rung and number of steps
        one program is asked for.
      steps_per_dispatch: steps of one dispatch, K.
      log_every: steps between reports.
      checkpoints: where to save, every ``checkpoint_every`` steps, at a stop and at the end; None saves nothing.
      checkpoint_every: steps between checkpoints; 0 saves at a stop and at the end only.
      eval_every: steps between calls of ``on_eval``; 0 for none.
      on_eval: ``(state, step) -> report or None``; the training clock stands still meanwhile. It must not keep the
        state.
      writers: take the reports (see ``telemetry.meters``), each with the ``stage`` and the ``rung`` of its last step.
      clock: the training clock, continued from the checkpoint's ``seconds``.
      stop: obeyed after the dispatch in flight.
      meta: further entries of the checkpoints' JSON dict, beside ``step``, ``seconds``, ``evaluation``, which is the
        stage and the rung of an evaluation that was due at that step, or None, and ``interval``.
      missed: that of the state given, where its evaluation is not in the record; it is made up for first.
      pending: the ``interval`` of the state's meta, so that a stop between two reports leaves no trace in them.
      compile_ahead: whether the next stage and the next rung are compiled in the background.
      kept_programs: where the compiled programs of the stage at hand are kept, for a call after this one.
      monitor: adds what the machine says to the reports.
      profile: traces some of the steps.

    Returns:
      The state after the last step.

    Raises:
      Diverged: a loss or gradient was not finite; nothing later than that was saved.
      Preempted: ``stop`` was requested; a checkpoint was saved.
    """
    clock, monitor, profile, total_steps = clock or Clock(), monitor or Monitor(), profile or Profile(), stages[-1].end
    step = int(jax.device_get(state.step))
    with clock.running(), CompileAhead(compile_ahead) as ahead, profile:
        if missed is not None and on_eval is not None:
            with clock.paused():
                _evaluate(on_eval, state, step, missed, writers, checkpoints)
        interval = Interval(clock, pending)
        for stage, following in zip(stages, [*stages[1:], None], strict=True):
            if step >= stage.end:
                continue
            if step == stage.begin and stage is not stages[0]:
                state = stage.enter(stages[stages.index(stage) - 1], state)
            rungs, in_flight, programs = rungs_of(stage, state), deque(), programs_of(stage, kept_programs)
            while step < stage.end:
                begin, count, rung = step, dispatch_length(stage, step, steps_per_dispatch), rungs.next()
                profile.at(step, in_flight)
                with interval.waiting_for_data():
                    data = stage.feed(step, count)
                if (count, rung) not in programs:
                    with interval.spending("device"):
                        while in_flight:  # so that their time is not taken for the compilation's
                            jax.block_until_ready(in_flight.popleft())
                    with interval.compiling(count), jax.transfer_guard("disallow"):
                        key = (stage.index, count, rung)
                        program = ahead.take(key) or compiled(stage, count, rung, state, data)
                        interval.compiled_ahead(ahead.seconds(key))
                        programs[count, rung] = program, monitor.flops_per_step(program)
                        state, metrics = jax.block_until_ready(program(state, data))
                else:
                    with interval.spending("dispatch"), profile.step(step), jax.transfer_guard("disallow"):
                        state, metrics = programs[count, rung][0](state, data)
                rungs.add(metrics.pop("decided_rung", None))
                step += count
                interval.add(count, metrics, stage.rays[rung], flops_per_step=programs[count, rung][1])
                in_flight.append(metrics)
                with interval.spending("device"):
                    while len(in_flight) > IN_FLIGHT:
                        jax.block_until_ready(in_flight.popleft())
                submit_ahead(ahead, interval, stage, following, rung, step, steps_per_dispatch)

                last, log = step == total_steps, _due(log_every, begin, step) or step == stage.end
                stopping = stop is not None and stop.poll()
                evaluate, place = _due(eval_every, begin, step), {"stage": stage.index, "rung": rung}
                save = last or stopping or _due(checkpoint_every, begin, step) or _worth_keeping(checkpoints, evaluate)
                if log or last:
                    report = monitor.with_readings(interval.report(step, total_steps), checkpoints)
                    _write(writers, report | place)
                if log or last or stopping or save or evaluate:
                    with interval.spending("device"):
                        _check_finite(state, stage.tensor_names, checkpoints)
                if save and checkpoints is not None:
                    with interval.spending("checkpoint"):
                        about = {"step": step, "seconds": clock.seconds, "evaluation": place if evaluate else None}
                        about["interval"] = interval.pending()
                        checkpoints.save(step, state, {**(meta or {}), **about})
                if stopping:
                    raise _preempted(stop, step, total_steps, checkpoints)
                if evaluate and on_eval is not None:
                    with clock.paused(), interval.spending("evaluation"):
                        _evaluate(on_eval, state, step, place, writers, checkpoints)
        if checkpoints is not None:
            checkpoints.wait()
    return state


def dispatch_length(stage: Any, step: int, steps_per_dispatch: int) -> int:
    """Returns the steps of the dispatch that begins at a step: up to the next multiple, or to the stage's end."""
    return min(steps_per_dispatch - step % steps_per_dispatch, stage.end - step)


def programs_of(stage: Any, kept: dict[int, dict] | None) -> dict:
    """Returns the programs of a stage that are kept; those of other stages are dropped."""
    if kept is None:
        return {}
    for other in kept.keys() - {stage.index}:
        del kept[other]
    return kept.setdefault(stage.index, {})


def compiled(stage: Any, count: int, rung: int, state: Any, data: Any) -> Callable:
    """Returns a dispatch, compiled before it is called, so that it can be asked what it costs."""
    program = stage.dispatch_for(count, rung)
    return program.lower(state, data).compile() if hasattr(program, "lower") else program


def rungs_of(stage: Any, state: Any) -> RungQueue:
    """Returns the queue of the rungs to come."""
    return RungQueue(jax.device_get(state.rung) if len(stage.rays) > 1 else None)


def submit_ahead(
    ahead: CompileAhead, interval: Interval, stage: Any, following: Any, rung: int, step: int, steps_per_dispatch: int
) -> None:
    """Has the next stage's first program and the next rung's compiled, where that can still be of use."""
    left = stage.end - step
    wanted = []
    if following is not None and left >= AHEAD_DISPATCHES * steps_per_dispatch:
        wanted.append((following, dispatch_length(following, following.begin, steps_per_dispatch), 0))
    if rung + 1 < len(stage.rays):
        if interval.expected_seconds(left) > AHEAD_COMPILATIONS * interval.longest_compilation:
            wanted.append((stage, steps_per_dispatch, rung + 1))
    for where, count, which in wanted:
        ahead.submit((where.index, count, which), partial(where.compile, count, which))


def _evaluate(
    on_eval: Callable[[Any, int], Mapping[str, Any] | None],
    state: Any,
    step: int,
    place: Mapping[str, Any],
    writers: Sequence[Writer],
    checkpoints: Checkpoints | None,
) -> None:
    """Evaluates, reports, and tells the checkpoints how good this one is."""
    scores = on_eval(state, step)
    if not scores:
        return
    _write(writers, {"step": step, **place, **scores})
    score = score_of(scores)
    if checkpoints is not None and score is not None:
        checkpoints.scores[step] = score


def _worth_keeping(checkpoints: Checkpoints | None, evaluate: bool) -> bool:
    """Whether to save because the step is evaluated and may turn out to be one of the best."""
    return evaluate and checkpoints is not None and checkpoints.keep_best > 0


def _write(writers: Sequence[Writer], report: Mapping[str, Any]) -> None:
    for writer in writers:
        writer.write(report)


def _due(every: int, begin: int, end: int) -> bool:
    """Whether a multiple of ``every`` lies in (begin, end]."""
    return every > 0 and begin // every != end // every


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
    raise Diverged("\n".join(lines), step=bad_step, tensor=tensor, state=state)


def _preempted(stop: StopSignal, step: int, total_steps: int, checkpoints: Checkpoints | None) -> Preempted:
    where = f"stopped by {stop.reason} at step {step} of {total_steps}"
    if checkpoints is None:
        return Preempted(f"{where}; nothing was saved, because there is no run folder")
    checkpoints.wait()
    saved = checkpoints.directory / str(step)
    return Preempted(f"{where}; the checkpoint is {saved}\nrun the same command again to go on from there")
