"""Runs of several processes: how they find each other, and how they stop together.

Processes join where the environment describes a cluster: by ``JAX_COORDINATOR_ADDRESS`` (host:port),
``JAX_NUM_PROCESSES`` and ``JAX_PROCESS_ID``, or by Slurm, or on the hosts of a Cloud TPU, as jax detects them. All
share the run folder.

A signal to stop is jax's preemption service's, then: it tells all processes, and they agree on the dispatch after which
they save. It counts on one poll for each number, 0, 1, 2, …, at the same place in every process (so steps, of which
there are K to a dispatch, will not do), and on SIGTERM being its own: a Python handler that is installed after it would
take the signal away.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import sys
from collections.abc import Mapping

import jax

from nerfjax.errors import UserError

ADDRESS, COUNT, INDEX = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
SLURM = frozenset({"SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID", "SLURM_LOCALID"})
TPU_DEVICES = ("/dev/accel*", "/dev/vfio/[0-9]*")


def join_cluster(environment: Mapping[str, str] = os.environ) -> None:
    """Joins the other processes, where the environment describes any; before anything asks for a device.

    Raises:
      UserError: what it says by hand is incomplete.
    """
    if jax.distributed.is_initialized():
        return
    if ADDRESS in environment:
        jax.distributed.initialize(**described_by_hand(environment))
    elif int(environment.get("SLURM_NTASKS", 1)) > 1 and SLURM <= environment.keys():
        jax.distributed.initialize()
    elif on_tpu_host(environment):
        try:
            jax.distributed.initialize()
        except (ValueError, RuntimeError, ImportError, OSError) as error:  # a TPU outside of Google's cloud
            print(f"note: this process trains alone; jax found no cluster ({error})", file=sys.stderr)


def described_by_hand(environment: Mapping[str, str]) -> dict[str, str | int]:
    """Returns the arguments of ``jax.distributed.initialize`` that three variables give.

    Raises:
      UserError: one is missing, or is no number that makes sense.
    """
    numbers = {}
    for name in (COUNT, INDEX):
        if not environment.get(name, "").isdigit():
            raise UserError(
                "The environment describes a cluster only in part.", field=name, found=environment.get(name),
                expected=f"a number, as {ADDRESS} is given", fix=f"set it, or unset {ADDRESS}",
            )  # fmt: skip
        numbers[name] = int(environment[name])
    if numbers[INDEX] >= numbers[COUNT]:
        raise UserError(
            "A process has a number that its cluster does not.", field=INDEX, found=numbers[INDEX],
            expected=f"0 to {numbers[COUNT] - 1}, as {COUNT} is {numbers[COUNT]}",
        )  # fmt: skip
    return dict(coordinator_address=environment[ADDRESS], num_processes=numbers[COUNT], process_id=numbers[INDEX])


def on_tpu_host(environment: Mapping[str, str]) -> bool:
    """Whether jax would train on the TPU of this host."""
    wanted = environment.get("JAX_PLATFORMS", "tpu")
    has_library = importlib.util.find_spec("libtpu") is not None
    return "tpu" in wanted and has_library and any(glob.glob(pattern) for pattern in TPU_DEVICES)


def is_first_process() -> bool:
    """Whether this is the process that writes and prints."""
    return jax.process_index() == 0


def reached_stop(dispatch: int) -> bool:
    """Whether all processes are to save and stop after this dispatch; each asks after each of its dispatches."""
    from jax.experimental import multihost_utils

    return multihost_utils.reached_preemption_sync_point(dispatch)


def wait_for_all(name: str) -> None:
    """Waits until all processes are here; at once where there is one."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)
