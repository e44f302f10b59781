"""The ways in which nerfjax stops, each with its exit code.

``UserError`` is for everything that a user can fix: the command line prints its one message and
exits with 2, without a traceback. ``Diverged`` (3) and ``Preempted`` (75) end a training run.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NerfjaxError(Exception):
    """Base of the errors that end a command with an exit code and a message instead of a traceback."""

    exit_code = 1


class UserError(NerfjaxError):
    """Input that the user can fix.

    Args:
      problem: one sentence that says what is wrong.
      file: the file (or folder) where it was found.
      field: the field, key or flag inside it.
      found: what stands there.
      expected: what should stand there.
      fix: what to do, in the imperative.
      code: the doctor's code for it (``scenes/doctor/findings.py``); not printed.
    """

    exit_code = 2

    def __init__(self, problem: str, *, file=None, field=None, found=None, expected=None, fix=None, code=None):
        self.problem, self.file, self.field = problem, file, field
        self.found, self.expected, self.fix, self.code = found, expected, fix, code
        details = dict(file=file, field=field, found=found, expected=expected, fix=fix)
        lines = [f"  {name + ':':<10}{value}" for name, value in details.items() if value is not None]
        super().__init__("\n".join([problem, *lines]))


class Diverged(NerfjaxError):
    """Training met a non-finite loss or gradient; the message names the tensor, the step and the key.

    Args:
      message: what to print.
      step: the step that diverged.
      tensor: the name of the first tensor that was not finite.
      state: the state before that step.
    """

    exit_code = 3

    def __init__(self, message: str, *, step: int = -1, tensor: str = "", state: object = None):
        self.step, self.tensor, self.state = step, tensor, state
        super().__init__(message)

    def with_line(self, name: str, value: object) -> Diverged:
        """Returns the same error with one more line of details."""
        return Diverged(f"{self}\n  {name + ':':<10}{value}", step=self.step, tensor=self.tensor, state=self.state)


class Preempted(NerfjaxError):
    """Training was asked to stop and wrote a checkpoint; the same command goes on."""

    exit_code = 75


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Returns the fix for a misspelt name: the nearest valid one, or the list of them."""
    valid = sorted(valid)
    near = difflib.get_close_matches(str(name), valid, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"use one of: {', '.join(valid)}"
