"""Loggers of experiment trackers: ``config.train.logger`` names one. Another one is a class and a row of ``LOGGERS``.

A logger is a writer (``telemetry.writers``) that is made for a run: it takes every report, and at the end ``close``.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from nerfjax.errors import UserError, did_you_mean


class WandbLogger:
    """Weights & Biases: numbers as curves, pictures as images, the configuration as the run's.

    Its run has the same id whenever ours is resumed, wherever the folder lies by then. What is logged a second time,
    because a kill undid some steps, is dropped by the service, which takes steps in ascending order only. Project,
    account and mode are set by its environment variables (``WANDB_PROJECT``, ``WANDB_MODE=offline``, ...).

    Args:
      workdir: the run folder.
      config: the resolved configuration.
      identity: what tells this run from every other one and never changes.
    """

    def __init__(self, workdir: str | os.PathLike, *, config: Mapping[str, Any], identity: str):
        self._wandb = _imported("wandb", extra="wandb")
        self._run = self._wandb.init(
            id=hashlib.sha256(identity.encode()).hexdigest()[:16],
            resume="allow",
            project=os.environ.get("WANDB_PROJECT", "nerfjax"),
            name=pathlib.PurePath(workdir).name,
            dir=os.fspath(workdir),
            config=dict(config),
        )

    def write(self, report: Mapping[str, Any]) -> None:
        """Logs a report."""
        values = {
            name: self._wandb.Image(value) if isinstance(value, np.ndarray) else value
            for name, value in report.items()
            if name != "step"
        }
        self._run.log(values, step=int(report["step"]))

    def close(self) -> None:
        """Sends what is left."""
        self._run.finish()


LOGGERS: dict[str, Callable[..., Any]] = {"wandb": WandbLogger}


def check_logger(name: str) -> None:
    """Refuses a logger that does not exist or whose package is missing, before anything is trained.

    Raises:
      UserError: as it says.
    """
    if name and name not in LOGGERS:
        raise UserError(
            f"there is no logger {name!r}", field="config.train.logger", found=repr(name),
            expected="'' (none) or one of: " + ", ".join(LOGGERS), fix=did_you_mean(name, LOGGERS),
        )  # fmt: skip
    if name == "wandb":
        _imported("wandb", extra="wandb")


def open_logger(name: str, workdir: str | os.PathLike, *, config: Mapping[str, Any], identity: str) -> tuple[Any, ...]:
    """Returns the logger of a name, on process 0, and nothing elsewhere or where the name is empty.

    Args:
      name: a key of ``LOGGERS``, or "".
      workdir: the run folder.
      config: the resolved configuration, as JSON.
      identity: what tells this run from every other one and never changes.

    Raises:
      UserError: there is no such logger, or its package is missing.
    """
    check_logger(name)
    if not name or jax.process_index() != 0:
        return ()
    return (LOGGERS[name](workdir, config=config, identity=identity),)


def _imported(package: str, *, extra: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise UserError(
            f"the logger {package!r} needs a package that is not installed", field="config.train.logger", found=error,
            fix=f"pip install 'nerfjax[{extra}]', or give --config.train.logger=''",
        ) from error  # fmt: skip
