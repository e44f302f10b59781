"""Compiles in the background, while the device trains, what will be run later: the next stage and the next rung."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax


class CompileAhead:
    """One thread that compiles; a context manager, at whose end what has not begun is dropped.

    A program is the same whichever thread compiles it. A compilation that has begun cannot be stopped; nothing waits
    for it at the end but Python itself, when it exits. Runs of several processes do without, because their processes
    must compile in one order.

    Args:
      wanted: whether to do anything.
    """

    def __init__(self, wanted: bool = True):
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="compile_ahead") if wanted else None
        if jax.process_count() > 1:
            self._worker = None
        self._programs: dict[Any, Future] = {}
        self._seconds: dict[Any, float] = {}

    def submit(self, key: Any, compile: Callable[[], Callable]) -> None:
        """Begins to compile the program of a key, unless that was asked for before."""
        if self._worker is not None and key not in self._programs:
            self._programs[key] = self._worker.submit(self._timed, key, compile)

    def _timed(self, key: Any, compile: Callable[[], Callable]) -> Callable:
        start = time.perf_counter()
        program = compile()
        self._seconds[key] = time.perf_counter() - start
        return program

    def take(self, key: Any) -> Callable | None:
        """Returns the program of a key, after it is compiled; None where that was not begun."""
        future = self._programs.get(key)
        if future is None or future.cancel():
            return None
        return future.result()

    def seconds(self, key: Any) -> float:
        """Returns how long the program of a key was compiled in the background; 0 where it was not."""
        return self._seconds.get(key, 0.0)

    def __enter__(self) -> CompileAhead:
        return self

    def __exit__(self, *exception) -> None:
        if self._worker is not None:
            self._worker.shutdown(wait=False, cancel_futures=True)
