"""``nerfjax train --retries=N``: runs the command as a child, and again where it crashes.

A crash is an exit code that the program does not choose (see ``cli.main``), or a signal: a lost device, a full host
memory, a kill -9. The child goes on from the last checkpoint; the wait before it doubles with every crash in a row that
brought no new one. The child has a session of its own, so that Ctrl-C reaches it once, by way of this process.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from etils import epath

from nerfjax.errors import UserError
from nerfjax.runs.manifest import ATTEMPT_VARIABLE
from nerfjax.train.checkpoint_hashes import HASH_LIST

DONE, WRONG_INPUT, DIVERGED, PREEMPTED, INTERRUPTED = 0, 2, 3, 75, 130
FINAL = (DONE, WRONG_INPUT, DIVERGED, PREEMPTED, INTERRUPTED)
WAIT_MAX = 60.0  # seconds
POLL = 0.05


def child_command(arguments: Sequence[str]) -> list[str]:
    """Returns the command of a child from the arguments of ``nerfjax train``: the same, but for ``--retries``."""
    kept, waiting = [], iter(arguments)
    for argument in waiting:
        if argument == "--retries":
            next(waiting, None)
        elif not argument.startswith("--retries="):
            kept.append(argument)
    return [sys.executable, "-m", "nerfjax.cli.main", "train", *kept]


class Supervisor:
    """Runs a training command until it ends by itself, or restarts are of no use.

    Args:
      command: of the child.
      workdir: the run folder, whose checkpoints say whether there is progress.
      retries: restarts in a row that may bring no new checkpoint; 1 or more.
      first_wait: seconds before the first restart; the wait doubles each time, and up to a half of it is chance.
      say: takes messages for the user.

    Raises:
      UserError: ``retries`` is not positive.
    """

    def __init__(
        self,
        command: Sequence[str],
        workdir: str | os.PathLike,
        *,
        retries: int,
        first_wait: float = 1.0,
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
    ):
        if retries < 1:
            raise UserError("--retries must be positive.", field="--retries", found=retries)
        self._command, self._checkpoints = list(command), epath.Path(workdir) / "checkpoints"
        self._retries, self._first_wait, self._say = retries, first_wait, say
        self._child: subprocess.Popen | None = None
        self._stopping: int | None = None
        self._ends: list[str] = []

    def run(self) -> int:
        """Returns the exit code of the last child; 128 + its number where that was a signal."""
        before = {number: signal.signal(number, self._pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            return self._run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run(self) -> int:
        saved, in_vain, start = self._newest(), 0, time.monotonic()
        while True:
            code = self._run_child(attempt=len(self._ends) + 1)
            if code in FINAL or self._stopping is not None:
                return code if code >= 0 else 128 - code
            self._ends.append(_name_of(code))
            newest = self._newest()
            in_vain = 0 if newest != saved else in_vain + (len(self._ends) > 1)  # the first attempt is no restart
            saved = newest
            if in_vain >= self._retries:
                self._say(self._summary(time.monotonic() - start))
                return code if code >= 0 else 128 - code
            seconds = min(self._first_wait * 2.0**in_vain, WAIT_MAX) * random.uniform(0.5, 1.0)
            self._say(
                f"the training crashed ({self._ends[-1]}); attempt {len(self._ends) + 1} begins in {seconds:.1f} s, "
                f"from {self._place()}"
            )
            if not self._wait(seconds):
                return PREEMPTED

    def _run_child(self, attempt: int) -> int:
        environment = {**os.environ, ATTEMPT_VARIABLE: str(attempt)}
        self._child = subprocess.Popen(self._command, env=environment, start_new_session=True)
        if self._stopping is not None:  # it came while the child began
            self._child.send_signal(self._stopping)
        code = self._child.wait()
        self._child = None
        return code

    def _pass_on(self, number: int, frame: object) -> None:
        self._stopping = number
        if self._child is not None:
            self._child.send_signal(number)

    def _wait(self, seconds: float) -> bool:
        """Waits; returns whether to go on."""
        end = time.monotonic() + seconds
        while self._stopping is None and time.monotonic() < end:
            time.sleep(min(POLL, max(end - time.monotonic(), 0.0)))
        return self._stopping is None

    def _newest(self) -> tuple[int, float]:
        """Returns the step and the time of the newest finished checkpoint; (-1, 0) where there is none."""
        folders = self._checkpoints.iterdir() if self._checkpoints.is_dir() else ()
        lists = [(int(folder.name), folder / HASH_LIST) for folder in folders if folder.name.isdigit()]
        return max(((step, float(file.stat().mtime)) for step, file in lists if file.exists()), default=(-1, 0.0))

    def _place(self) -> str:
        step = self._newest()[0]
        return f"step {step}" if step >= 0 else "the beginning"

    def _summary(self, seconds: float) -> str:
        ends = ", ".join(self._ends[-10:])
        return (
            f"given up: {self._retries} restarts in a row brought no new checkpoint\n"
            f"  attempts: {len(self._ends)} in {seconds:,.0f} s\n"
            f"  ended:    {'…, ' if len(self._ends) > 10 else ''}{ends}\n"
            f"  saved:    {self._place()}, in {self._checkpoints}\n"
            "  fix:      what the last attempt said stands above; the same command goes on once that is mended"
        )


def _name_of(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
