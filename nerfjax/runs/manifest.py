"""``RUN/manifest.json``: what made a run, so that it can be trusted, repeated and compared.

Written before step 0 (``write_manifest``), appended at each restart with what differs by then
(``append_restart``), sealed at the end with the final metrics (``seal``, ``record_evaluation``); always whole, since it
is written beside and renamed. ``claim`` makes the run folder and keeps a second run out of it. Only process 0 writes.

``schemas/manifest.schema.json`` describes it. Its ``schema`` is raised when a key changes its meaning. Any version
reads the manifest of any other: unknown keys are kept, also by a later write, and missing ones have defaults.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from etils import epath

import nerfjax
from nerfjax.errors import UserError

SCHEMA = 1
MANIFEST = "manifest.json"
METRICS = "metrics.jsonl"
ATTEMPT_VARIABLE = "NERFJAX_ATTEMPT"  # of a process that is supervised (``cli.supervise``): 1, 2, …
_PACKAGES = (
    *("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "ml-collections", "tensorflow-cpu", "tensorflow-datasets"),
    *("numpy", "pillow", "dm-pix", "etils", "tensorstore", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin"),
)


def write_manifest(
    workdir: str | os.PathLike,
    *,
    config: Mapping[str, Any],
    config_hash: str,
    scene_fingerprint: str,
    split: Mapping[str, Any],
    precision: str,
    seeds: Mapping[str, Any],
    render: Mapping[str, Any] | None = None,
    curriculum: Any = None,
    **more: Any,
) -> dict:
    """Writes the manifest of a new run.

    Args:
      workdir: the run folder.
      config: the resolved configuration, as JSON.
      config_hash: hash of what in it decides the result.
      scene_fingerprint: hash of the scene's images, cameras and splits.
      split: names of the frames of each split.
      precision: of the networks' matrix products.
      seeds: every seed by its use.
      render: settings of full-image rendering (chunk, background, evaluation sampling, …).
      curriculum: the stages, if there are any.
      **more: further JSON entries.

    Returns:
      What was written.
    """
    manifest = dict(
        schema=SCHEMA, status="running", created=_now(), config=config, config_hash=config_hash, **environment()
    )
    manifest.update(precision=precision, seeds=seeds, scene_fingerprint=scene_fingerprint, split=split)
    manifest.update(render=render or {}, curriculum=curriculum, **more, restarts=[], end=None)
    return _write(workdir, manifest)


def read_manifest(workdir: str | os.PathLike) -> dict:
    """Reads a run's manifest; keys that the version which wrote it did not know are None or empty.

    Raises:
      UserError: there is none, or it is damaged.
    """
    path = epath.Path(workdir) / MANIFEST
    try:
        manifest = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            "this is no run folder", file=path, found="no such file", fix="name the --workdir of a training run"
        ) from None
    except (ValueError, OSError) as error:
        raise UserError("the run's manifest is damaged", file=path, found=error, expected="a JSON object") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("config"), dict) or "config_hash" not in manifest:
        raise UserError("the run's manifest is damaged", file=path, expected="an object with config and config_hash")
    return _with_defaults(manifest)


def _with_defaults(manifest: dict) -> dict:
    sections = {name: {} for name in ("code", "packages", "devices", "seeds", "split", "render")}
    unknown = dict.fromkeys(("created", "precision", "scene_fingerprint", "curriculum", "end"))
    return {"schema": 0, "status": "running", **unknown, **sections, "restarts": [], **manifest}


def append_restart(
    workdir: str | os.PathLike,
    *,
    step: int,
    config: Mapping[str, Any] | None = None,
    allowed: Mapping[str, Any] | None = None,
    **entries: Any,
) -> dict:
    """Records that the run goes on, and what differs from its beginning (code, packages, devices, configuration).

    Args:
      workdir: the run folder.
      step: the step restored.
      config: the configuration of now, where it may differ (paths, devices).
      allowed: what differs in configuration and scene, where the user allowed it (``--allow-config-change``).
      **entries: other entries of the manifest as they are now, e.g. ``scene_fingerprint=…``.

    Returns:
      The manifest with the restart.
    """
    manifest = read_manifest(workdir)
    surroundings = environment()
    now = {**surroundings, **entries}
    if config is not None:
        now["config"] = config
    differs = differences({k: manifest.get(k) for k in now}, _plain(now))
    restart: dict[str, Any] = dict(time=_now(), step=step, differs=differs)
    if manifest.get("end") is not None:
        restart["previous_end"] = manifest["end"]
    manifest.setdefault("restarts", []).append(restart)
    manifest.update(status="running", end=None)
    if allowed:
        restart["allowed_changes"] = allowed
    if os.environ.get(ATTEMPT_VARIABLE, "").isdigit():
        restart["attempt"] = int(os.environ[ATTEMPT_VARIABLE])
    # What they were before stands in the restart's differences; code, packages and devices are those of the beginning.
    manifest.update({key: value for key, value in now.items() if key not in surroundings})
    return _write(workdir, manifest)


def append_rollback(workdir: str | os.PathLike, entry: Mapping[str, Any]) -> dict:
    """Records that the run diverged and went back.

    Args:
      workdir: the run folder.
      entry: ``step`` that diverged, ``tensor``, ``restored_step`` and the ``rate_scale`` from there on.

    Returns:
      The manifest with the rollback.
    """
    manifest = read_manifest(workdir)
    manifest["rollbacks"] = [*(manifest.get("rollbacks") or []), {"time": _now(), **entry}]
    return _write(workdir, manifest)


def seal(workdir: str | os.PathLike, *, status: str, step: int, seconds: float | int, **more: Any) -> dict:
    """Records how the run ended.

    Args:
      workdir: the run folder.
      status: ``done``, ``preempted``, ``diverged``, ``interrupted`` or ``failed``.
      step: number of steps done.
      seconds: training clock.
      **more: further JSON entries (the error's message); ``metrics`` is the last report of metrics.jsonl by default.

    Returns:
      The sealed manifest.
    """
    manifest = read_manifest(workdir)
    end = dict(time=_now(), status=status, step=step, seconds=seconds, metrics=_last_report(workdir, step))
    manifest.update(status=status, end={**end, **more})
    return _write(workdir, manifest)


def record_costs(workdir: str | os.PathLike, *, flops_per_step: float | int) -> None:
    """Records what a step of the run's first stage costs, unless that is known already."""
    manifest = read_manifest(workdir)
    if manifest.get("flops_per_step") is None:
        _write(workdir, {**manifest, "flops_per_step": flops_per_step})


def record_evaluation(workdir: str | os.PathLike, evaluation: Mapping[str, Any]) -> None:
    """Adds the means of an evaluation to the seal; of a run that is not sealed, or goes on right now, nothing.

    Args:
      workdir: the run folder.
      evaluation: the document of ``schemas/eval.schema.json``.
    """
    folder = epath.Path(workdir)
    if not (folder / MANIFEST).exists() or (folder / ".lock").exists():
        return
    manifest = read_manifest(folder)
    if manifest["end"] is None:
        return
    result = {key: evaluation[key] for key in ("step", "n", "mean", "protocol")}
    known = manifest["end"].get("evaluations") or {}
    manifest["end"]["evaluations"] = {**known, evaluation["split"]: result}
    _write(folder, manifest)


def _last_report(workdir: str | os.PathLike, step: int) -> dict | None:
    """The last report of training up to a step: the loss, its terms, the rates."""
    path = epath.Path(workdir) / METRICS
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            report = json.loads(line)
            if isinstance(report, dict) and "loss" in report and report.get("step", 0) <= step:
                return report
    return None


def refuse_other_config(manifest: Mapping[str, Any], workdir: str | os.PathLike, config: Any, config_hash: str) -> None:
    """Raises UserError, naming the keys that differ, where the run folder holds a run of another configuration."""
    if manifest["config_hash"] == config_hash:
        return
    # The choices first; the options of a member that is not chosen on both sides say nothing.
    changes = differences(manifest["config"], _plain(config))
    changes = dict(sorted(changes.items(), key=lambda item: (None in item[1], not item[0].endswith(".name"), item[0])))
    shown = "; ".join(f"{key}: {old!r} there, {new!r} now" for key, (old, new) in list(changes.items())[:5])
    more = f"; and {len(changes) - 5} more" if len(changes) > 5 else ""
    raise UserError(
        "the run folder holds a run of another configuration",
        file=epath.Path(workdir) / MANIFEST,
        found=(shown + more) or f"config hash {manifest['config_hash']}",
        fix="choose another --workdir, or give the configuration that the run was started with; or give "
        "--allow-config-change to go on all the same, which the manifest records",
    )


def differences(old: Any, new: Any, prefix: str = "") -> dict[str, list]:
    """Returns ``{dotted key: [old, new]}`` for the leaves that differ between two JSON trees."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found: dict[str, list] = {}
        for key in [*old, *(k for k in new if k not in old)]:
            found |= differences(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else str(key))
        return found
    return {} if old == new else {prefix: [old, new]}


def environment() -> dict[str, Any]:
    """Returns the code's version, the packages' versions and the devices, as they are now."""
    versions = {name: version for name in _PACKAGES if (version := _version(name))}
    devices = jax.devices()
    return dict(
        code=code_version(),
        packages={"python": platform.python_version(), **versions},
        devices=dict(
            platform=devices[0].platform,
            device_kind=devices[0].device_kind,
            device_count=len(devices),
            process_count=jax.process_count(),
            machine=f"{platform.system()} {platform.machine()}",
            cpu_count=os.cpu_count(),
        ),
    )


def code_version() -> dict[str, Any]:
    """Returns the git commit of the package's checkout (None outside of one) and a SHA-256 over its .py files."""
    package = pathlib.Path(nerfjax.__file__).resolve().parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    # An installed package may lie inside the checkout of some other project: ask whether git tracks this file.
    tracked = _git(package, "ls-files", "--error-unmatch", "__init__.py") is not None
    commit = _git(package, "rev-parse", "HEAD") if tracked else None
    dirty = None if commit is None else bool(_git(package, "status", "--porcelain", "--", "."))
    version = getattr(nerfjax, "__version__", None)
    return dict(version=version, commit=commit, dirty=dirty, sha256=digest.hexdigest())


@contextlib.contextmanager
def claim(workdir: str | os.PathLike) -> Iterator[None]:
    """Makes the run folder and holds it for this process: a second run there is refused until this one ends.

    The operating system frees the lock when the process dies, however it dies. Object stores have no locks.

    Raises:
      UserError: the folder can't be made or written, or another run holds it.
    """
    folder = epath.Path(workdir)
    if jax.process_index() != 0:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = None if "://" in str(folder) else _lock(folder / ".lock")
    except OSError as error:
        fix = "choose a --workdir where you may write"
        raise UserError("the run folder cannot be written", file=folder, found=error, fix=fix) from error
    try:
        yield
    finally:
        if lock is not None:
            (folder / ".lock").unlink(missing_ok=True)
            os.close(lock)


def _lock(path: epath.Path) -> int | None:
    try:
        import fcntl
    except ImportError:  # not on Windows
        return None
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 200).decode(errors="replace").strip()
            os.close(file)
            fix = "wait until it ends, stop it, or choose another --workdir"
            raise UserError(
                "another run is using this folder", file=path.parent, found=holder or None, fix=fix
            ) from None
        except OSError:  # a file system without locks
            os.close(file)
            return None
        # The holder before may have removed the file between our open and our lock: then we hold a ghost.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), os.stat(path)):
                os.ftruncate(file, 0)
                os.write(file, f"process {os.getpid()} on {platform.node()}, since {_now()}\n".encode())
                return file
        os.close(file)


def _write(workdir: str | os.PathLike, manifest: Mapping[str, Any]) -> dict:
    plain = _plain(manifest)
    if jax.process_index() == 0:
        path = epath.Path(workdir) / MANIFEST
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{MANIFEST}.partial")
            partial.write_text(json.dumps(plain, indent=2, allow_nan=False) + "\n")
            partial.replace(path)
        except OSError as error:
            fix = "choose a --workdir where you may write"
            raise UserError("the run's manifest cannot be written", file=path, found=error, fix=fix) from error
    return plain


def _plain(value: Any) -> Any:
    """Strict JSON: tuples become lists, paths and numbers that are not finite become text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return _plain(value.item())
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(folder: pathlib.Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
