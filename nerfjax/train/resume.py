"""Going on with a run: what must be as it was, what may differ when told so, and what becomes of the schedule.

A run goes on only with the configuration and the scene that it was started with, because its numbers would otherwise be
those of neither. Who wants it all the same says so (``--allow-config-change``); what differs is then in the manifest's
restarts, and ``nerfjax compare`` tells of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from nerfjax.errors import UserError
from nerfjax.runs import manifest as manifests
from nerfjax.scenes import Scene
from nerfjax.train import configuration
from nerfjax.train.automatic import resolve_as_before
from nerfjax.train.recorded import complete_config

ALLOW = "give --allow-config-change to go on all the same, which the manifest records"


def earlier_manifest(workdir: str | os.PathLike) -> dict[str, Any] | None:
    """Returns the manifest of the run that the folder holds, or None."""
    return manifests.read_manifest(workdir) if (epath.Path(workdir) / manifests.MANIFEST).exists() else None


def config_to_go_on(
    config: ConfigDict,
    earlier: Mapping[str, Any],
    workdir: str | os.PathLike,
    *,
    allow: bool,
    say: Callable[[str], None],
) -> ConfigDict:
    """Returns the config that a run goes on with: its schedule and its automatic choices are those of its beginning.

    Args:
      config: as given now.
      earlier: the run's manifest.
      workdir: the run folder.
      allow: whether another configuration is allowed.
      say: takes messages for the user.

    Raises:
      UserError: the configuration is another one, and that is not allowed; all that differs is named.
    """
    before = complete_config(earlier["config"])
    config = keep_schedule(config, before, say)
    try:
        config = resolve_as_before(config, earlier["config"])
    except UserError:
        if not allow:
            raise
    if allow:
        return config
    hashes = [configuration.config_hash(each) for each in (before, config)]
    manifest = {**earlier, "config": configuration.bound_config(before), "config_hash": hashes[0]}
    manifests.refuse_other_config(manifest, workdir, configuration.bound_config(config), hashes[1])
    return config


def allowed_changes(
    config: ConfigDict, scene: Scene, earlier: Mapping[str, Any], workdir: str | os.PathLike, *, allow: bool
) -> dict[str, list]:
    """Returns {key: [before, now]} of what differs in the configuration and in the scene; {} where nothing does.

    Args:
      config: as it goes on, explicit.
      scene: the capture as it is now.
      earlier: the run's manifest.
      workdir: the run folder.
      allow: whether it may differ.

    Raises:
      UserError: the scene is another one, and that is not allowed.
    """
    of_scene = scene_changes(scene, earlier)
    if of_scene and not allow:
        raise UserError(
            "the run folder holds a run on another scene", file=epath.Path(workdir) / manifests.MANIFEST,
            field="scene_fingerprint", found=told(of_scene),
            fix=f"choose another --workdir, or bring the capture into the state of then; or {ALLOW}",
        )  # fmt: skip
    before = complete_config(earlier["config"])
    changes = manifests.differences(*(_as_json(configuration.bound_config(each)) for each in (before, config)))
    return {f"config.{key}": values for key, values in changes.items()} | of_scene


def scene_changes(scene: Scene, earlier: Mapping[str, Any]) -> dict[str, list]:
    """Returns {key: [before, now]} of what differs in a scene; the images themselves only by their fingerprint."""
    before, now = earlier.get("scene_fingerprint"), scene.fingerprint()
    if before in (None, now):
        return {}
    changes: dict[str, list] = {"scene_fingerprint": [before, now]}
    for split, names in scene.split_names().items():
        old = (earlier.get("split") or {}).get(split)
        if old is not None and list(old) != list(names):
            moved = sorted(set(old) ^ set(names))
            changes[f"split.{split}"] = [f"{len(old)} frames", f"{len(names)} frames, {len(moved)} of them other ones"]
    cameras = (earlier.get("scene") or {}).get("cameras")
    if cameras is not None and cameras != scene.camera_digest:
        changes["scene.cameras"] = [cameras, scene.camera_digest]
    return changes


def check_checkpoint(
    meta: Mapping[str, Any], config: ConfigDict, fingerprint: str, earlier: Mapping[str, Any] | None, *, allow: bool
) -> None:
    """Checks that a checkpoint was written by the run that goes on: each holds the hashes of its time.

    Raises:
      UserError: it is another run's, or the manifest that it belongs to was lost or changed by hand.
    """
    for key, now in {"config_hash": configuration.config_hash(config), "scene_fingerprint": fingerprint}.items():
        known = {now, None, (earlier or {}).get(key)}
        for restart in (earlier or {}).get("restarts") or ():
            known.update((restart.get("differs") or {}).get(key) or ())
        if not allow and meta.get(key) not in known:
            raise UserError(
                "the checkpoint is of another run than the folder's manifest", field=key, found=meta[key],
                expected=" or ".join(sorted(known - {None})), fix=f"choose another --workdir; or {ALLOW}",
            )  # fmt: skip


def is_finished(step: int, steps: int, earlier: Mapping[str, Any] | None) -> bool:
    """Whether nothing is left to do; a run that was killed after its last step has its evaluation and its seal left."""
    return step > steps or (step == steps and (earlier or {}).get("status") == "done")


def told(changes: Mapping[str, list]) -> str:
    """Returns changes as one line."""
    return "; ".join(f"{key}: {before!r} there, {now!r} now" for key, (before, now) in changes.items())


def keep_schedule(config: ConfigDict, before: ConfigDict, say: Callable[[str], None]) -> ConfigDict:
    """When a run is given more steps, its learning-rate schedule keeps the length that it began with, and says so.

    Args:
      config: as given now.
      before: what the run began with.
      say: takes the message.
    """
    name = config.schedule.name
    if before.schedule.name != name or config.schedule[name].steps:
        return config
    length = configuration.schedule_section(before)[name]["steps"]
    if length == config.train.steps:
        return config
    kept = config.copy_and_resolve_references()
    kept.schedule[name].steps = length
    if config.train.steps > before.train.steps:
        schedule = configuration.bind("schedule", kept)
        first, last = (float(schedule(step)) for step in (before.train.steps, config.train.steps))
        say(
            f"note: the learning-rate schedule keeps its length of {length} steps (config.schedule.{name}.steps): "
            f"from step {before.train.steps} to {config.train.steps} the rate goes from {first:.3g} to {last:.3g}"
            + ("; the further steps learn next to nothing" if first <= 1e-12 else "")
        )
    return kept


def _as_json(flat: Mapping[str, Any]) -> dict[str, Any]:
    return configuration.config_to_json(flat)
