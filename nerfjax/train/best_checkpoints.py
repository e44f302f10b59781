"""Which checkpoints are the best: by the score of each evaluated step, kept beside the newest ones.

A step is saved before it is evaluated, so that a signal during a long evaluation loses nothing. Its score is known when
the next one is saved, which is when old checkpoints go. (Orbax's own best-of-N wants it with the save, and with
``max_to_keep`` deletes the newest checkpoint where it is not among the best.)
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping
from typing import Any

from etils import epath

from nerfjax.errors import UserError

SCORE = "eval/psnr"


def recorded_scores(workdir: str | os.PathLike) -> dict[int, float]:
    """Returns {step: score} of the evaluations in RUN/metrics.jsonl; {} where there is no record."""
    scores = {row["step"]: score_of(row) for row in _rows(workdir)}
    return {step: score for step, score in scores.items() if score is not None}


def _rows(workdir: str | os.PathLike) -> list[dict[str, Any]]:
    """The reports of evaluations in the record."""
    rows: list[dict[str, Any]] = []
    try:
        lines = (epath.Path(workdir) / "metrics.jsonl").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return rows
    for line in lines:
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("step"), int) and any(k.startswith("eval/") for k in row):
                rows.append(row)
    return rows


def best_step(checkpoints: Any, workdir: str | os.PathLike) -> int:
    """Returns the step of the usable checkpoint with the highest recorded score.

    Args:
      checkpoints: of the run.
      workdir: its folder.

    Raises:
      UserError: none was evaluated.
    """
    checkpoints.scores.update(recorded_scores(workdir))
    step = checkpoints.best_step()
    if step is None:
        raise UserError(
            "none of the run's checkpoints was evaluated while it trained", file=workdir, field=SCORE,
            found=", ".join(map(str, checkpoints.steps())),
            fix="train with --config.train.eval_every=N and --config.train.keep_best=1, or give a step",
        )  # fmt: skip
    return step


def missed_evaluation(workdir: str | os.PathLike, checkpoints: Any, step: int) -> dict[str, Any] | None:
    """Returns the stage and the rung of an evaluation that was due at a saved step but is not in the record, or None.

    Args:
      workdir: the run folder.
      checkpoints: its checkpoints.
      step: where the run goes on.
    """
    due = checkpoints.meta(step).get("evaluation") if step in checkpoints.steps() else None
    return None if any(row["step"] == step for row in _rows(workdir)) else due


def score_of(report: Mapping[str, Any] | None) -> float | None:
    """Returns the score of an evaluation's report; None where it has none that can be compared."""
    score = (report or {}).get(SCORE)
    return float(score) if isinstance(score, (int, float)) and not math.isnan(score) else None


def best_policy(count: int, scores: Mapping[int, float]) -> Any:
    """Returns the Orbax preservation policy that keeps the steps with the highest scores, the newer of equals.

    Args:
      count: how many.
      scores: by step; looked at anew each time.
    """
    from orbax.checkpoint import checkpoint_managers

    class Best(checkpoint_managers.PreservationPolicy):
        def should_preserve(self, checkpoints, *, context):
            rated = sorted((scores[info.step], info.step) for info in checkpoints if info.step in scores)
            best = {step for _, step in rated[-count:]}
            return [info.step in best for info in checkpoints]

    return Best()
