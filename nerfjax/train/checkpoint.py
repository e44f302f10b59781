"""Checkpoints of a run: everything that the next step depends on, under ``RUN/checkpoints/STEP/``.

A checkpoint is an Orbax composite of two items: ``state``, the leaves of the training state by name
(``params/mlp/kernel``; the tree's structure comes from the abstract state at restore, so that ``None``, empty
containers and NamedTuples need no file), and ``meta``, a small JSON dict. Once the save is committed the SHA-256
of each of its files is listed in ``STEP/SHA256SUMS`` (``sha256sum -c`` reads it). A checkpoint without that list,
or that differs from it, is passed over in favour of the one before.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from nerfjax.errors import UserError

HASH_LIST = "SHA256SUMS"
_CHUNK = 1 << 20


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
      keep_every: keep every checkpoint whose step is a multiple of this, too.
      read_only: change nothing on disk (for evaluation beside a run in progress).

    Attributes:
      warnings: messages about checkpoints that were passed over; the caller shows them.
    """

    def __init__(
        self, workdir: str | os.PathLike, *, keep: int = 2, keep_every: int | None = None, read_only: bool = False
    ):
        # Orbax wants absolute paths.
        local = "://" not in os.fspath(workdir)
        self.directory = epath.Path(os.path.abspath(workdir) if local else workdir) / "checkpoints"
        self.read_only = read_only
        self.warnings: list[str] = []
        self._keep, self._keep_every = max(keep, 2), keep_every
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
        """Returns the step of the newest usable checkpoint (verified), or None where no checkpoint exists.

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
        return None if step == _NO_CHECKPOINT else step

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
        self.wait()
        manager = self._manager
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
        self._pending = self._background.submit(self._finish, step)

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
        _check_leaves(about["leaves"], _leaf_types(wanted), self.directory / str(step))
        targets = {name: _with_sharding(leaf) for name, leaf in wanted.items()}
        arrays = {name: leaf for name, leaf in targets.items() if leaf.size}
        items = ocp.args.Composite(state=ocp.args.StandardRestore(arrays))
        found = dict(self._manager.restore(step, args=items)["state"])
        for name, leaf in targets.items():
            if not leaf.size:
                found[name] = jax.device_put(np.zeros(leaf.shape, leaf.dtype), leaf.sharding)
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

    def _finish(self, step: int) -> None:
        self._manager.wait_until_finished()
        if jax.process_index() == 0:
            write_hash_list(self.directory / str(step))
            self._verified.add(step)

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
        return next((s for s in reversed(steps) if self._fault(s) is None), _NONE_USABLE if steps else _NO_CHECKPOINT)

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


def write_hash_list(folder: epath.Path) -> None:
    """Lists the SHA-256 of every file of a committed checkpoint, in the format of ``sha256sum``."""
    lines = [f"{_sha256(folder / name)}  {name}\n" for name in _files(folder)]
    partial = folder / f".{HASH_LIST}.partial"
    partial.write_text("".join(lines))
    partial.replace(folder / HASH_LIST)


def checkpoint_fault(folder: epath.Path) -> str | None:
    """Returns what is wrong with a checkpoint's files, or None where all match the list of hashes."""
    try:
        if not (folder / HASH_LIST).exists():
            return f"it has no {HASH_LIST} (the run was killed while it was written)"
        rows = [line.split("  ", 1) for line in (folder / HASH_LIST).read_text().splitlines()]
        if not rows or any(len(row) != 2 for row in rows):
            return f"its {HASH_LIST} is damaged"
        listed, present = {name: digest for digest, name in rows}, _files(folder)
        for name in listed.keys() - set(present):
            return f"{name} is missing"
        for name in present:
            if name not in listed:
                return f"{name} is not in {HASH_LIST}"
            if _sha256(folder / name) != listed[name]:
                return f"{name} differs from its SHA-256"
    except (OSError, UnicodeDecodeError) as error:
        return f"it cannot be read ({error})"
    return None


def _files(folder: epath.Path, prefix: str = "") -> list[str]:
    names = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            names += _files(path, f"{prefix}{path.name}/")
        elif path.name != HASH_LIST and not path.name.startswith("."):
            names.append(prefix + path.name)
    return names


def _sha256(path: epath.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


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
