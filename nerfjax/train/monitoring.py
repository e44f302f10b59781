"""What watches a run: the monitor of its machine and the writers of its reports, as its config wants them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from ml_collections import ConfigDict

from nerfjax.errors import UserError
from nerfjax.runs.manifest import read_manifest, record_costs
from nerfjax.telemetry.costs import matmul_peak
from nerfjax.telemetry.loggers import check_logger, open_logger
from nerfjax.telemetry.monitor import Monitor
from nerfjax.telemetry.profile import Profile
from nerfjax.telemetry.writers import Writer, open_writers
from nerfjax.train import configuration
from nerfjax.train.build import Experiment


class CostRecorder:
    """A writer that puts the first report's operations per step into the manifest, for comparisons.

    Args:
      workdir: the run folder.
    """

    def __init__(self, workdir: str | os.PathLike):
        self._workdir, self._done = workdir, False

    def write(self, report: Mapping[str, Any]) -> None:
        """Takes a report."""
        if not self._done and report.get("flops_per_step"):
            record_costs(self._workdir, flops_per_step=report["flops_per_step"])
            self._done = True

    def close(self) -> None:
        """Does nothing."""


def check_monitoring(config: ConfigDict) -> None:
    """Checks what a config says of monitoring, before anything is trained.

    Raises:
      UserError: there is no such logger, its package is missing, or the price is negative.
    """
    check_logger(config.train.logger)
    if config.train.price_per_device_hour < 0:
        raise UserError(
            "a price cannot be negative", field="config.train.price_per_device_hour",
            found=config.train.price_per_device_hour,
        )  # fmt: skip


def run_monitor(experiment: Experiment) -> Monitor:
    """Returns the monitor of a run's devices; measures how fast they are, which takes a fraction of a second."""
    devices = tuple(experiment.mesh.devices.flat)
    peak = matmul_peak(devices, precision=experiment.config.precision)
    return Monitor(devices=devices, peak=peak, price_per_device_hour=experiment.config.train.price_per_device_hour)


def run_writers(config: ConfigDict, workdir: str | os.PathLike, *, resume_step: int) -> tuple[Writer, ...]:
    """Returns the writers of a run that has its manifest: record, TensorBoard, terminal, and the config's logger.

    Only process 0 writes.

    Raises:
      UserError: the folder cannot be written, or the logger cannot be had.
    """
    if jax.process_index() != 0:  # the manifest may not even be there yet
        return ()
    manifest, document = read_manifest(workdir), configuration.config_to_json(config)
    # The folder may be moved and another one made in its place: what began a run is its own.
    identity = f"{manifest['created']} {manifest['config_hash']} {manifest['seeds']}"
    logger = open_logger(config.train.logger, workdir, config=document, identity=identity)
    flat = configuration.bound_config(config)
    opened = open_writers(workdir, total_steps=config.train.steps, resume_step=resume_step, hparams=flat)
    return (*opened, *logger, CostRecorder(workdir))


def run_profile(workdir: str | os.PathLike, steps: Sequence[Any] | None) -> Profile:
    """Returns the profile of the steps ``(start, stop)``, in RUN/profile; of none where there are none."""
    if steps is None:
        return Profile()
    return Profile(os.path.join(os.fspath(workdir), "profile"), start=steps[0], stop=steps[1])
