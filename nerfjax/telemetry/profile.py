"""A trace of some steps by JAX's profiler, to be looked at with Perfetto, XProf or TensorBoard's profile plugin."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from typing import Any

import jax
from etils import epath

from nerfjax.errors import UserError


class Profile:
    """Traces the dispatches between two steps; a context manager, at whose end a trace in progress is written.

    Without a folder it does nothing. A dispatch is traced as a whole: the trace begins with the first one that starts
    at or after ``start``, and ends with the first that ends at or after ``stop``.

    Args:
      folder: where the trace goes.
      start: first step.
      stop: step before which it ends.
    """

    def __init__(self, folder: str | os.PathLike | None = None, *, start: int = 0, stop: int = 0):
        self._folder = None if folder is None else epath.Path(folder)
        self._start, self._stop, self._tracing = start, stop, False

    def at(self, step: int, in_flight: Iterable[Any] = ()) -> None:
        """Begins or ends the trace where it is due; waits for the dispatches in flight then.

        Args:
          step: at which the next dispatch starts.
          in_flight: what dispatches have returned that may not be done yet.
        """
        if self._folder is None:
            return
        if self._tracing and step >= self._stop:
            jax.block_until_ready(list(in_flight))
            self.close()
        elif not self._tracing and self._start <= step < self._stop:
            jax.block_until_ready(list(in_flight))
            jax.profiler.start_trace(os.fspath(self._folder))
            self._tracing = True

    def step(self, step: int) -> contextlib.AbstractContextManager[Any]:
        """Names the dispatch inside by its first step."""
        return jax.profiler.StepTraceAnnotation("train", step_num=step) if self._tracing else contextlib.nullcontext()

    def close(self) -> None:
        """Writes the trace in progress."""
        if self._tracing:
            self._tracing = False
            jax.profiler.stop_trace()

    def __enter__(self) -> Profile:
        return self

    def __exit__(self, *exception) -> None:
        self.close()


def parse_steps(text: str, *, flag: str = "--profile") -> tuple[int, int]:
    """Returns the two steps of "START:STOP".

    Raises:
      UserError: it is something else.
    """
    found = re.fullmatch(r"(\d+):(\d+)", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise UserError(
            "These are no steps to trace.", field=flag, found=text, expected="START:STOP, two steps, the first smaller",
            fix="e.g. --profile=100:120; the first steps of a run compile",
        )  # fmt: skip
    return int(found[1]), int(found[2])
