"""The training clock and the numbers of one log interval.

A report is a flat dict of host numbers: ``step``, the mean of every metric of the step function over the interval
(``loss``, ``loss/color``, ``psnr``, ``samples_per_ray``, …; the last value for a schedule such as
``learning_rate``), and what the host measured: ``rays_per_step``, ``rays_per_second``, ``data_wait`` (share of the time
in which the host waited for data), ``seconds`` (training clock), ``eta_seconds``, and ``compile_seconds`` where it
compiled. The loop adds the ``stage`` of the curriculum and the ``rung`` of the ray-count ladder.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

LAST_VALUE = ("learning_rate", "sample_budget")


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


class Interval:
    """Gathers what happens between two reports; reads the device only in ``report``.

    Args:
      clock: the training clock.

    Attributes:
      longest_compilation: seconds, 0 before the first.
    """

    def __init__(self, clock: Clock):
        self._clock, self.longest_compilation = clock, 0.0
        self._seconds_per_step: float | None = None
        self._restart()

    def _restart(self) -> None:
        self._start, self._steps, self._metrics = self._clock.seconds, 0, []
        self._compiling, self._compiled_steps, self._waiting = 0.0, 0, 0.0
        self._rays, self._compiled_rays, self._compiles = 0, 0, False

    def add(self, steps: int, metrics: Mapping[str, Any], rays_per_step: int) -> None:
        """Adds a dispatch: its number of steps, its metrics, still on the device, each [steps], and its rays a step."""
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
        self._compiling += seconds
        self.longest_compilation = max(self.longest_compilation, seconds)
        self._compiled_steps += steps
        self._compiles = True

    @contextlib.contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        """Time inside counts as waiting for data."""
        start = self._clock.now()
        yield
        self._waiting += self._clock.now() - start

    def expected_seconds(self, steps: int) -> float:
        """Returns how long so many steps take; 0 before the first report."""
        return steps * (self._seconds_per_step or 0.0)

    def report(self, step: int, total_steps: int) -> dict[str, float | int]:
        """Reads the metrics (waits for the device), returns the report of the interval and begins the next one."""
        report: dict[str, float | int] = {"step": step, **interval_means(jax.device_get(self._metrics))}
        seconds, steps, rays = self._clock.seconds, self._steps - self._compiled_steps, self._rays - self._compiled_rays
        busy = seconds - self._start - self._compiling
        if steps:
            latest, before = max(busy, 1e-9) / steps, self._seconds_per_step
            self._seconds_per_step = latest if before is None else 0.5 * (latest + before)
        elif self._steps:  # nothing but a compilation: a rate that is too low is better than none
            busy, rays = busy + self._compiling, self._rays
            latest = max(busy, 1e-9) / self._steps
        if self._steps:
            report["rays_per_step"] = self._rays / self._steps
            report["rays_per_second"] = rays / max(busy, 1e-9)
            report["data_wait"] = min(self._waiting / max(busy, 1e-9), 1.0)
            report["eta_seconds"] = max(total_steps - step, 0) * (self._seconds_per_step or latest)
        report["seconds"] = seconds
        if self._compiled_steps:
            report["compile_seconds"] = self._compiling
        self._restart()
        return report


def interval_means(dispatches: list[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the mean over all steps of each metric (the last value for ``LAST_VALUE``).

    Args:
      dispatches: metrics of each dispatch, each [steps of the dispatch] on the host.
    """
    values: dict[str, list] = {}
    for metrics in dispatches:
        for name, value in metrics.items():
            values.setdefault(name, []).append(np.atleast_1d(np.asarray(value, np.float64)))
    series = {name: np.concatenate(parts) for name, parts in values.items()}
    return {name: float(v[-1] if name in LAST_VALUE else np.mean(v)) for name, v in series.items() if v.size}
