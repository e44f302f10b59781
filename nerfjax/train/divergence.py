"""What happens when a run diverges: the step is kept for a replay, and the run stops or goes back.

With ``train.on_divergence="rollback"`` the run returns to its last checkpoint (or to step 0), with a learning rate
lowered by ``train.rollback_factor``, at most ``ROLLBACKS`` times in its life. Each is in the manifest's ``rollbacks``
and a row of metrics.jsonl. A run that is restarted before it has saved the lower rate takes it from the manifest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from nerfjax.errors import Diverged, UserError, did_you_mean
from nerfjax.runs import manifest as manifests
from nerfjax.train.replay import write_replay

ROLLBACKS = 2
CHOICES = ("stop", "rollback")


def check_options(config: ConfigDict) -> None:
    """Checks ``train.on_divergence`` and ``train.rollback_factor``.

    Raises:
      UserError: a choice does not exist, or the factor does not lower the rate.
    """
    choice, factor = config.train.on_divergence, config.train.rollback_factor
    if choice not in CHOICES:
        raise UserError(
            "unknown choice", field="config.train.on_divergence", found=repr(choice), fix=did_you_mean(choice, CHOICES)
        )
    if not 0.0 < factor < 1.0:
        raise UserError(
            "a rollback must lower the learning rate", field="config.train.rollback_factor", found=factor,
            expected="above 0 and below 1",
        )  # fmt: skip


class Divergence:
    """Trains through divergence as a run's config wants it.

    Args:
      experiment: the run, a ``train.build.Experiment``.
      workdir: its folder.
      fingerprint: the scene's.
      earlier: the manifest of a run that is continued; None for a new one.
      say: takes messages for the user.
    """

    def __init__(
        self,
        experiment: Any,
        workdir: str | os.PathLike,
        *,
        fingerprint: str,
        earlier: Mapping[str, Any] | None,
        say: Callable[[str], None],
    ):
        self._experiment, self._workdir, self._fingerprint, self._say = experiment, workdir, fingerprint, say
        self._rollbacks: list[dict[str, Any]] = list((earlier or {}).get("rollbacks") or [])

    def with_rate(self, state: Any) -> Any:
        """Returns a restored state with the lowest rate that the run was ever lowered to."""
        if not self._rollbacks:
            return state
        scale = np.minimum(jax.device_get(state.rate_scale), np.float32(self._rollbacks[-1]["rate_scale"]))
        return state.replace(rate_scale=jax.device_put(scale, state.rate_scale.sharding))

    def fit(self, go_on: Callable[..., Any], restore: Callable[[], tuple], state: Any) -> Any:
        """Trains to the end.

        Args:
          go_on: ``(state, row) -> state`` trains from a state to the end; the row, unless None, goes to the record.
          restore: ``() -> (state, meta)`` of the last checkpoint, or of step 0.
          state: where to begin; it is given away.

        Raises:
          Diverged: the run diverged and shall stop, or was rolled back too often.
        """
        row = None
        while True:
            try:
                return go_on(state, row)
            except Diverged as error:
                fault = self._keep(error)
                if self._experiment.config.train.on_divergence != "rollback":
                    raise fault from None
                if len(self._rollbacks) >= ROLLBACKS:
                    raise fault.with_line("rollback", f"not again: {len(self._rollbacks)} did not help") from None
            state, row = self._roll_back(fault, restore)

    def _keep(self, error: Diverged) -> Diverged:
        """Writes the replay file and names it in the error, which drops the state that it carries."""
        try:
            path = write_replay(
                self._workdir, self._experiment, error.state, step=error.step, tensor=error.tensor,
                fingerprint=self._fingerprint,
            )  # fmt: skip
        except OSError as refused:  # the divergence is still the news
            return error.with_line("replay", f"could not be written: {refused}")
        return error.with_line("replay", f"nerfjax train --replay={path}")

    def _roll_back(self, fault: Diverged, restore: Callable[[], tuple]) -> tuple[Any, dict[str, Any]]:
        before = float(jax.device_get(fault.state.rate_scale))
        scale = float(np.float32(before * self._experiment.config.train.rollback_factor))
        state, _ = restore()
        step = int(jax.device_get(state.step))
        entry = dict(step=fault.step, tensor=fault.tensor, restored_step=step, rate_scale=scale)
        self._rollbacks.append(entry)
        manifests.append_rollback(self._workdir, entry)
        self._say(f"{fault}\nrolled back to step {step}; the learning rate is now {scale:.3g} of what was given")
        return self.with_rate(state), {"step": step, "rollback_from_step": fault.step, "rate_scale": scale}
