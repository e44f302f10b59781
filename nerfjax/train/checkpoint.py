"""Checkpoints of a run: everything that the next step depends on, under ``RUN/checkpoints/STEP/``.

A checkpoint is an Orbax composite of two items: ``state``, the leaves of the training state by name
(``params/mlp/kernel``; the tree's structure comes from the abstract state at restore, so that ``None``, empty
containers and NamedTuples need no file), and ``meta``, a small JSON dict. Once the save is committed the SHA-256
of each of its files is listed in ``STEP/SHA256SUMS`` (``sha256sum -c`` reads it). A checkpoint without that list,
or that differs from it, is passed over in favour of the one before.
"""

from __future__ import annotations

import json
import os
import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from nerfjax.errors import UserError
from nerfjax.train.best_checkpoints import best_policy
from nerfjax.train.checkpoint_hashes import HASH_LIST, checkpoint_fault, write_hash_list


class SaveTimes(NamedTuple):
    """How long one save took, seconds.

    Attributes:
      step: of the checkpoint.
      blocked: ``save`` held its caller: the wait for the save before, and the copy from the devices to the host.
      waited: of that, the wait for the save before.
      background: from then on, until the checkpoint was committed, thinned out and hashed.
    """

    step: int
    blocked: float
    waited: float
    background: float


def abstract_from_state(state: Any) -> Any:
    """Returns the ``ShapeDtypeStruct``s of a state, with its shardings: what ``Checkpoints.restore`` wants."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=getattr(x, "sharding", None)), state)


class Checkpoints:
    """The checkpoints of one run folder.

    Saving is asynchronous: ``save`` returns when the state is copied to the host (it may be donated then), and
    writing, committing, thinning out and hashing go on in the background. Use it as a context manager, or call
    ``close``: a save in progress is finished there even when an error or Ctrl-C ends the run.

    Args:
      workdir: the run folder, local or ``gs://``.
      keep: number of newest checkpoints to keep; at least 2, because an old one may go before the new one's
        hashes are written.
      keep_every: keep every checkpoint whose step is a multiple of this, too; 0 for none.
      keep_best: keep so many of those with the highest score (``scores``), too.
      read_only: change nothing on disk (for evaluation beside a run in progress).

    Attributes:
      warnings: messages about checkpoints that were passed over; the caller shows them.
      scores: {step: how good its state is}, of the steps that were evaluated; the caller fills it in, also after the
        step was saved.
    """

    def __init__(
        self,
        workdir: str | os.PathLike,
        *,
        keep: int = 2,
        keep_every: int = 0,
        keep_best: int = 0,
        read_only: bool = False,
    ):
        # Orbax wants absolute paths.
        local = "://" not in os.fspath(workdir)
        self.directory = epath.Path(os.path.abspath(workdir) if local else workdir) / "checkpoints"
        self.read_only = read_only
        self.warnings: list[str] = []
        self._keep, self._keep_every, self.keep_best = max(keep, 2), keep_every, keep_best
        self.scores: dict[int, float] = {}
        self._times: list[SaveTimes] = []
        self._verified: set[int] = set()
        self._manager_or_none: Any = None
        self._background = ThreadPoolExecutor(1, thread_name_prefix="checkpoint_hashes")
        self._pending: Future | None = None

    @property
    def _manager(self) -> Any:
        # Made on first use: Orbax takes seconds to import, and a run folder is often looked at without it.
        if self._manager_or_none is None:
            import orbax.checkpoint as ocp
            from orbax.checkpoint import checkpoint_managers

            policies = [checkpoint_managers.LatestN(self._keep)]
            if self._keep_every:
                policies.append(checkpoint_managers.EveryNSteps(self._keep_every))
            if self.keep_best:
                policies.append(best_policy(self.keep_best, self.scores))
            options = ocp.CheckpointManagerOptions(
                preservation_policy=checkpoint_managers.AnyPreservationPolicy(policies),
                cleanup_tmp_directories=not self.read_only,
                save_root_metadata=False,
                create=not self.read_only,
                read_only=self.read_only,
            )
            try:
                self._manager_or_none = ocp.CheckpointManager(self.directory, options=options)
            except OSError as error:
                raise _unwritable(self.directory, error) from error
        return self._manager_or_none

    def steps(self) -> tuple[int, ...]:
        """Returns the steps that have a committed checkpoint on disk, oldest first, whether usable or not."""
        if not self.directory.is_dir():
            return ()
        return tuple(sorted(int(path.name) for path in self.directory.iterdir() if path.name.isdigit()))

    def latest_step(self) -> int | None:
        """Returns the step of the newest usable checkpoint (verified), or None where none was ever finished.

        Raises:
          UserError: checkpoints exist, but none is usable.
        """
        step = _from_process_0(self._newest_usable)
        if step == _NONE_USABLE:
            reasons = "; ".join(f"{step}: {self._fault(step)}" for step in reversed(self.steps()))
            raise UserError(
                "none of the run's checkpoints is usable",
                file=self.directory,
                found=reasons or None,
                expected=f"at least one whose files match its {HASH_LIST}",
                fix="restore the folder from a copy, or delete it (or choose another --workdir) to start anew",
            )
        if step == _NO_CHECKPOINT and self.steps():
            unfinished = f"checkpoint {self.steps()[0]} in {self.directory} was the first and is not finished: not used"
            self.warnings += [] if unfinished in self.warnings else [unfinished]
        return None if step == _NO_CHECKPOINT else step

    def best_step(self) -> int | None:
        """Returns the usable checkpoint of the highest score (the newer of equals); None where none has a score."""

        def best() -> int:
            found = sorted(((self.scores[step], step) for step in self.steps() if step in self.scores), reverse=True)
            return next((step for _, step in found if self._fault(step) is None), _NO_CHECKPOINT)

        step = _from_process_0(best)
        return None if step == _NO_CHECKPOINT else step

    def take_times(self) -> list[SaveTimes]:
        """Returns the times of the saves that were finished since the last call, and forgets them."""
        times, self._times = self._times, []
        return times

    def meta(self, step: int | None = None) -> dict:
        """Returns the JSON dict saved with a checkpoint (the newest usable one unless ``step`` is given)."""
        return self._read_meta(self._chosen(step))["meta"]

    def save(self, step: int, state: Any, meta: dict) -> None:
        """Starts to save a state; waits for the save before it.

        Args:
          step: number of steps done.
          state: any pytree of arrays.
          meta: small JSON dict (step, config hash, scene fingerprint, clock, …).

        Raises:
          UserError: the disk refused this save or the one before.
        """
        import orbax.checkpoint as ocp

        if self.read_only:
            raise ValueError("these checkpoints were opened read-only")
        begin = time.perf_counter()
        self.wait()
        waited, manager = time.perf_counter() - begin, self._manager
        if step in self.steps():
            if self._agreed_fault(step) is None:
                return
            self._set_aside(step)
            _barrier()
            manager.reload()
        leaves = _named_leaves(state)
        # Orbax refuses arrays without elements; their shape is in the list of leaves, which is all there is to them.
        arrays = {name: leaf for name, leaf in leaves.items() if leaf.size}
        about = json.loads(json.dumps({"meta": meta, "leaves": _leaf_types(leaves)}))
        items = ocp.args.Composite(state=ocp.args.StandardSave(arrays), meta=ocp.args.JsonSave(about))
        try:
            manager.save(step, args=items, force=True)
        except (OSError, ValueError) as error:
            raise _unwritable(self.directory, error) from error
        self._pending = self._background.submit(self._finish, step, begin, waited, time.perf_counter())

    def restore(self, abstract_state: Any, *, step: int | None = None) -> tuple[Any, dict]:
        """Restores the newest usable checkpoint.

        Bad checkpoints newer than it are named in ``warnings`` and (unless read-only) set aside as ``bad-STEP``.

        Args:
          abstract_state: ``ShapeDtypeStruct``s with the shardings that the restored state shall have.
          step: restore this one instead.

        Returns:
          The state, bit for bit as saved, and the JSON dict saved with it.

        Raises:
          UserError: there is no checkpoint, none is usable, or it holds another kind of state.
        """
        import orbax.checkpoint as ocp

        newest = step is None
        step = self._chosen(step)
        if newest:
            self._pass_over_after(step)
        wanted, about = _named_leaves(abstract_state), self._read_meta(step)
        targets = {name: _with_sharding(leaf) for name, leaf in wanted.items()}
        absent = {name for name in _ADDED_LATER.keys() & targets.keys() if name not in about["leaves"]}
        types = _leaf_types({name: leaf for name, leaf in wanted.items() if name not in absent})
        _check_leaves(about["leaves"], types, self.directory / str(step))
        arrays = {name: leaf for name, leaf in targets.items() if leaf.size and name not in absent}
        items = ocp.args.Composite(state=ocp.args.StandardRestore(arrays))
        found = dict(self._manager.restore(step, args=items)["state"])
        for name in targets.keys() - arrays.keys():
            leaf = targets[name]
            found[name] = jax.device_put(np.full(leaf.shape, _ADDED_LATER.get(name, 0), leaf.dtype), leaf.sharding)
        structure = jax.tree.structure(abstract_state)
        return jax.tree.unflatten(structure, [found[name] for name in wanted]), about["meta"]

    def wait(self) -> None:
        """Waits until the last save is committed and hashed; raises UserError where the disk refused it."""
        if self._pending is not None:
            try:
                self._pending.result()
            except (OSError, ValueError) as error:
                raise _unwritable(self.directory, error) from error

    def close(self) -> None:
        """Finishes the save in progress and frees Orbax's threads."""
        try:
            self.wait()
        finally:
            self._background.shutdown()
            manager, self._manager_or_none = self._manager_or_none, None
            if manager is not None and (self._pending is None or self._pending.exception() is None):
                manager.close()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def _finish(self, step: int, begin: float, waited: float, returned: float) -> None:
        self._manager.wait_until_finished()
        if jax.process_index() == 0:
            write_hash_list(self.directory / str(step))
            self._verified.add(step)
        self._times.append(SaveTimes(step, returned - begin, waited, time.perf_counter() - returned))

    def _fault(self, step: int) -> str | None:
        if step in self._verified:
            return None
        fault = checkpoint_fault(self.directory / str(step))
        if fault is None:
            self._verified.add(step)
        return fault

    def _agreed_fault(self, step: int) -> str | None:
        return "bad" if _from_process_0(lambda: int(self._fault(step) is not None)) else None

    def _newest_usable(self) -> int:
        steps = self.steps()
        # A save waits for the hashes of the one before: a lone checkpoint without them is a first one cut short.
        if not steps or (len(steps) == 1 and not (self.directory / str(steps[0]) / HASH_LIST).exists()):
            return _NO_CHECKPOINT
        return next((s for s in reversed(steps) if self._fault(s) is None), _NONE_USABLE)

    def _chosen(self, step: int | None) -> int:
        chosen = self.latest_step() if step is None else step
        if chosen is None or chosen not in self.steps():
            found = ", ".join(map(str, self.steps())) or "no checkpoint"
            problem = "there is no checkpoint" + ("" if step is None else f" of step {step}")
            raise UserError(problem, file=self.directory, found=found, fix="train first, or name another run folder")
        if step is not None and self._agreed_fault(step):
            raise UserError(f"the checkpoint of step {step} is damaged", file=self.directory, found=self._fault(step))
        return chosen

    def _read_meta(self, step: int) -> dict:
        import orbax.checkpoint as ocp

        return dict(self._manager.restore(step, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))["meta"])

    def _pass_over_after(self, step: int) -> None:
        bad = [newer for newer in self.steps() if newer > step]
        _barrier()
        for newer in reversed(bad):
            aside = "" if self.read_only else f"; it is kept as bad-{newer}"
            self.warnings.append(f"checkpoint {newer} in {self.directory} is not used: {self._fault(newer)}{aside}")
        _barrier()
        if bad and not self.read_only:
            for newer in bad:
                self._set_aside(newer)
            _barrier()
            self._manager.reload()

    def _set_aside(self, step: int) -> None:
        if jax.process_index() == 0:
            target = self.directory / f"bad-{step}"
            if target.exists():
                target.rmtree()
            (self.directory / str(step)).rename(target)
        self._verified.discard(step)


_NO_CHECKPOINT, _NONE_USABLE = -1, -2
_ADDED_LATER = {"rate_scale": 1.0}  # leaves that older checkpoints do not have, and what they were then


def _named_leaves(tree: Any) -> dict[str, Any]:
    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    leaves = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in pairs}
    if len(leaves) != len(pairs):
        raise ValueError("two leaves of the state have the same name")
    return leaves


def _leaf_types(leaves: dict[str, Any]) -> dict[str, str]:
    return {name: f"{jnp.dtype(leaf.dtype).name}[{','.join(map(str, leaf.shape))}]" for name, leaf in leaves.items()}


def _with_sharding(leaf: Any) -> jax.ShapeDtypeStruct:
    sharding = getattr(leaf, "sharding", None) or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _check_leaves(saved: dict[str, str], wanted: dict[str, str], folder: epath.Path) -> None:
    for name in [*wanted, *saved]:
        if saved.get(name) != wanted.get(name):
            raise UserError(
                "the checkpoint holds another state than this configuration makes",
                file=folder,
                field=name,
                found=saved.get(name, "nothing"),
                expected=wanted.get(name, "nothing"),
                fix="go on with the configuration in the run's manifest.json, or choose another --workdir",
            )


def _unwritable(directory: epath.Path, error: Exception) -> Exception:
    # TensorStore reports the operating system's refusals as ValueError; any other ValueError is a fault of the code.
    if not isinstance(error, OSError) and not re.search("os_error_code|OS error|PERMISSION_DENIED", str(error)):
        return error
    return UserError(
        "a checkpoint could not be written",
        file=directory,
        found=f"{type(error).__name__}: {str(error).strip()[:500]}",
        fix="make room there (or give the right to write), then run the same command again: it goes on from the "
        "checkpoint before",
    )


def _barrier() -> None:
    _from_process_0(lambda: 0)


def _from_process_0(decide) -> int:
    """Process 0 looks at the disk and decides; every process gets its answer, so that all take the same branch."""
    value = decide() if jax.process_index() == 0 else 0
    if jax.process_count() == 1:
        return value
    from jax.experimental import multihost_utils

    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))
