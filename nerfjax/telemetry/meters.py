"""The training clock and the numbers of one log interval.

A report is a flat dict of host numbers: ``step``, the mean of every metric of the step function over the interval
(``loss``, ``loss/color``, ``psnr``, ``samples_per_ray``, …; the last value for a schedule such as
``learning_rate``), and what the host measured: ``rays_per_step``, ``rays_per_second``, ``samples_per_second`` (of the
main field), ``step_seconds`` (wall time of a step beside compilation and evaluation), ``data_wait`` (share of the time
in which the host waited for data), ``seconds`` (training clock), ``eta_seconds``, ``flops_per_step`` where it is known,
and ``compile_seconds`` where it compiled (``compile_ahead_seconds``: in the background, at no cost). The loop adds the
``stage`` of the curriculum and the ``rung`` of the ray-count ladder, ``telemetry.monitor`` what it reads.

``time/PART`` are seconds of the interval's wall time, which they add up to: what the host was at (what the device was
at cannot be asked without waiting for it). ``device``: waiting for the device (nearly all, where the device sets the
pace); ``dispatch``: handing over work; ``data``: waiting for data; ``checkpoint``: blocked by a save; ``evaluation``;
``compilation``, with the first dispatch of what was compiled; ``other``: writing reports, and what the loop itself
costs. A report is written before what is saved and evaluated at its step: they count in the next one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

LAST_VALUE = ("learning_rate", "sample_budget", "occupancy")
PARTS = ("device", "dispatch", "data", "checkpoint", "evaluation", "compilation")
# What tells of the machine and of the moment, not of the run: it differs between two runs of one seed.
_MEASURED = frozenset({
    "rays_per_second", "samples_per_second", "step_seconds", "data_wait", "seconds", "eta_seconds", "compile_seconds",
    "compile_ahead_seconds", "flops_per_second", "matmul_share", "device_memory_bytes", "host_memory_bytes",
    "cpu_cores", "device_hours", "cost",
})  # fmt: skip


def is_measured(name: str) -> bool:
    """Whether a number of a report tells of the machine and the moment, so that equal runs differ in it."""
    return name in _MEASURED or name.startswith("time/") or name.endswith(("_seconds", "/seconds"))


class Clock:
    """Seconds spent training: continues over restarts, stands still while ``paused`` (evaluation).

    Args:
      seconds: what the clock showed when the run was saved.
      now: monotonic time source, seconds.
    """

    def __init__(self, seconds: float | int = 0.0, *, now: Callable[[], float | int] = time.perf_counter):
        self.now = now
        self._done, self._since = float(seconds), None

    @property
    def seconds(self) -> float:
        """What the clock shows."""
        return self._done + (0.0 if self._since is None else self.now() - self._since)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The clock runs inside this context."""
        self._since = self.now()
        try:
            yield
        finally:
            self._done, self._since = self.seconds, None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The clock stands still inside this context, which lies within ``running``."""
        self._done, self._since = self.seconds, None
        try:
            yield
        finally:
            self._since = self.now()


class Before(NamedTuple):
    """What an interval that a stop has cut in two took with it: its sums, and every value of its metrics."""

    steps: int
    rays: int
    flops: float | None
    metrics: Mapping[str, Any]


NOTHING = Before(0, 0, 0.0, {})


class Interval:
    """Gathers what happens between two reports; reads the device only in ``report`` and ``pending``.

    Args:
      clock: the training clock.
      pending: what ``pending`` returned before the run was stopped: the first report is that of the whole interval.

    Attributes:
      longest_compilation: seconds, 0 before the first.
    """

    def __init__(self, clock: Clock, pending: Mapping[str, Any] | None = None):
        self._clock, self.longest_compilation = clock, 0.0
        self._seconds_per_step: float | None = None
        self._restart()
        self._before = Before(**pending) if pending else NOTHING

    def _restart(self) -> None:
        self._start, self._steps, self._metrics = self._clock.seconds, 0, []
        self._began, self._parts = self._clock.now(), dict.fromkeys(PARTS, 0.0)
        self._compiled_steps, self._compiled_ahead = 0, 0.0
        self._rays, self._compiled_rays, self._compiles = 0, 0, False
        self._flops: float | None = 0.0
        self._before = NOTHING

    def add(
        self, steps: int, metrics: Mapping[str, Any], rays_per_step: int, *, flops_per_step: float | None = None
    ) -> None:
        """Adds a dispatch: its number of steps, its metrics, still on the device, each [steps], and its rays a step."""
        self._flops = None if self._flops is None or flops_per_step is None else self._flops + steps * flops_per_step
        self._steps += steps
        self._rays += steps * rays_per_step
        self._compiled_rays += steps * rays_per_step if self._compiles else 0
        self._metrics.append(metrics)
        self._compiles = False

    @contextlib.contextmanager
    def compiling(self, steps: int) -> Iterator[None]:
        """Time inside, a compilation and its first dispatch, is reported by itself and kept out of the rates.

        So are the rays of the dispatch that is added next.
        """
        start = self._clock.now()
        yield
        seconds = self._clock.now() - start
        self._parts["compilation"] += seconds
        self.longest_compilation = max(self.longest_compilation, seconds)
        self._compiled_steps += steps
        self._compiles = True

    @contextlib.contextmanager
    def spending(self, part: str) -> Iterator[None]:
        """Time inside counts as spent on one of ``PARTS``."""
        start = self._clock.now()
        try:
            yield
        finally:
            self._parts[part] += self._clock.now() - start

    def waiting_for_data(self) -> contextlib.AbstractContextManager[None]:
        """Time inside counts as waiting for data."""
        return self.spending("data")

    def compiled_ahead(self, seconds: float | int) -> None:
        """Adds the time of a compilation in the background, which nobody waited for."""
        self._compiled_ahead += seconds

    def expected_seconds(self, steps: int) -> float:
        """Returns how long so many steps take; 0 before the first report."""
        return steps * (self._seconds_per_step or 0.0)

    def pending(self) -> dict[str, Any] | None:
        """Returns what the next report needs of the steps since the last one, for the checkpoint; None: there are none.

        Reads the metrics (waits for the device).
        """
        before, flops = self._before, self._flops
        if not self._steps + before.steps:
            return None
        metrics = interval_series([before.metrics, *jax.device_get(self._metrics)])
        flops = None if flops is None or before.flops is None else flops + before.flops
        now = Before(self._steps + before.steps, self._rays + before.rays, flops, {})
        return {**now._asdict(), "metrics": {name: values.tolist() for name, values in metrics.items()}}

    def report(self, step: int, total_steps: int) -> dict[str, float | int]:
        """Reads the metrics (waits for the device), returns the report of the interval and begins the next one."""
        with self.spending("device"):
            values = jax.device_get(self._metrics)
        report: dict[str, float | int] = {"step": step, **interval_means([self._before.metrics, *values])}
        compiling = self._parts["compilation"]
        seconds, steps, rays = self._clock.seconds, self._steps - self._compiled_steps, self._rays - self._compiled_rays
        busy = seconds - self._start - compiling
        if steps:
            latest, before = max(busy, 1e-9) / steps, self._seconds_per_step
            self._seconds_per_step = latest if before is None else 0.5 * (latest + before)
        elif self._steps:  # nothing but a compilation: a rate that is too low is better than none
            busy, rays = busy + compiling, self._rays
            latest = max(busy, 1e-9) / self._steps
        if self._steps:
            all_steps = self._steps + self._before.steps
            report["rays_per_step"] = (self._rays + self._before.rays) / all_steps
            report["rays_per_second"] = rays / max(busy, 1e-9)
            if "samples_per_ray" in report:
                report["samples_per_second"] = report["rays_per_second"] * report["samples_per_ray"]
            report["step_seconds"] = latest
            if self._flops and self._before.flops is not None:
                report["flops_per_step"] = (self._flops + self._before.flops) / all_steps
            report["data_wait"] = min(self._parts["data"] / max(busy, 1e-9), 1.0)
            report["eta_seconds"] = max(total_steps - step, 0) * (self._seconds_per_step or latest)
        report["seconds"] = seconds
        if self._compiled_steps:
            report["compile_seconds"] = compiling
        if self._compiled_ahead:
            report["compile_ahead_seconds"] = self._compiled_ahead
        report |= {f"time/{part}": seconds for part, seconds in self._parts.items()}
        report["time/other"] = max(self._clock.now() - self._began - sum(self._parts.values()), 0.0)
        self._restart()
        return report


def interval_means(dispatches: list[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the mean over all steps of each metric (the last value for ``LAST_VALUE``).

    Args:
      dispatches: metrics of each dispatch, each [steps of the dispatch] on the host.
    """
    series = interval_series(dispatches)
    return {name: float(v[-1] if name in LAST_VALUE else np.mean(v)) for name, v in series.items() if v.size}


def interval_series(dispatches: list[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Returns the values of each metric at all steps, float64, of the dispatches of ``interval_means``."""
    values: dict[str, list] = {}
    for metrics in dispatches:
        for name, value in metrics.items():
            values.setdefault(name, []).append(np.atleast_1d(np.asarray(value, np.float64)))
    return {name: np.concatenate(parts) for name, parts in values.items()}
