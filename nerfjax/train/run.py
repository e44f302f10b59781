"""A run from its config to its sealed folder, and a run folder back to something that renders."""

from __future__ import annotations

import dataclasses
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from etils import epath
from ml_collections import ConfigDict

from nerfjax.errors import Diverged, Preempted, UserError
from nerfjax.image_metrics import SSIM_WINDOW
from nerfjax.renderer import RenderedImage
from nerfjax.runs import manifest as manifests
from nerfjax.scenes import Scene
from nerfjax.scenes.doctor import error_from_findings, examine, print_findings
from nerfjax.telemetry.meters import Clock
from nerfjax.telemetry.writers import open_writers
from nerfjax.train import configuration
from nerfjax.train.automatic import resolve_as_before, resolve_auto
from nerfjax.train.build import Experiment, build_experiment, check, read_config_scene
from nerfjax.train.checkpoint import Checkpoints
from nerfjax.train.loop import StopSignal, fit
from nerfjax.train.stage import Stage
from nerfjax.train.state import TrainState
from nerfjax.types import Cameras

NO_CHECKPOINT = "the run has no checkpoint yet"


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained run, loaded from its folder.

    Attributes:
      workdir: the run folder.
      manifest: its manifest.
      config: the config that it was trained with.
      experiment: what the config builds (without training images).
      state: the restored state.
      step: steps done.
    """

    workdir: epath.Path
    manifest: dict[str, Any]
    config: ConfigDict
    experiment: Experiment
    state: TrainState
    step: int

    def render_view(self, camera: Cameras, *, camera_index: int = -1) -> RenderedImage:
        """Renders the whole image of one camera (one row, NumPy leaves, scene coordinates)."""
        return self.experiment.render_image(self.state, camera, camera_index)


def train(
    config: ConfigDict,
    workdir: str | os.PathLike,
    *,
    score: Callable[[Experiment, TrainState], dict[str, float]] | None = None,
    say: Callable[[str], None] | None = None,
) -> TrainState:
    """Trains, or goes on with, the run of a config in a folder.

    Args:
      config: as from ``load_config``.
      workdir: the run folder; made where absent. A folder with a run of the same config is continued.
      score: ``(experiment, state) -> {name: number}``, reported every ``train.eval_every`` steps.
      say: takes messages for the user; standard error by default.

    Returns:
      The final state.

    Raises:
      UserError: the input is wrong, or the folder holds a run of another config or scene.
      Diverged: a loss or gradient was not finite.
      Preempted: a signal asked to stop; a checkpoint was written.
    """
    say = say or (lambda text: print(text, file=sys.stderr))
    workdir = epath.Path(workdir)
    earlier = earlier_manifest(workdir)
    if earlier is not None:
        config = resolve_as_before(keep_schedule(config, earlier, say), earlier["config"])
        manifests.refuse_other_config(
            {**earlier, "config": configuration.bound_config(configuration.config_from_json(earlier["config"]))},
            workdir, configuration.bound_config(config), configuration.config_hash(config),
        )  # fmt: skip
    config = with_absolute_source(config)
    check(config)
    scene = read_config_scene(config)
    config = resolve_auto(config, scene, say=say)
    check_test_sizes(scene)
    if earlier is None and config.scene.examine:
        consult_doctor(scene)
    with Checkpoints(workdir, read_only=True) as saved:
        newest = max(saved.steps(), default=0)
    experiment = build_experiment(config, scene=scene, say=say, step=newest)
    fingerprint = scene.fingerprint()
    if earlier is not None and earlier["scene_fingerprint"] != fingerprint:
        raise UserError(
            "the run folder holds a run on another scene", file=workdir / manifests.MANIFEST, field="scene_fingerprint",
            found=earlier["scene_fingerprint"], expected=fingerprint, fix="choose another --workdir",
        )  # fmt: skip
    with manifests.claim(workdir), Checkpoints(workdir) as checkpoints, StopSignal() as stop:
        state, meta = restore_or_init(experiment, checkpoints)
        for warning in checkpoints.warnings:
            say(f"warning: {warning}")
        step = int(meta.get("step", 0))
        if step >= config.train.steps:
            say(f"the run is done: {step} steps; raise config.train.steps to go on")
            return state
        record_start(workdir, earlier, experiment, fingerprint, step)
        clock = Clock(meta.get("seconds", 0.0))
        writers = open_writers(workdir, total_steps=config.train.steps, resume_step=step)
        try:
            state = fit(
                state=state,
                stages=experiment.stages,
                steps_per_dispatch=config.train.steps_per_dispatch,
                log_every=config.train.log_every,
                checkpoints=checkpoints,
                checkpoint_every=config.train.checkpoint_every,
                eval_every=config.train.eval_every,
                on_eval=None if score is None else lambda state, step: score(experiment, state),
                writers=writers,
                clock=clock,
                stop=stop,
                meta={"config_hash": configuration.config_hash(config), "scene_fingerprint": fingerprint},
                compile_ahead=config.train.compile_ahead,
            )
        except (Exception, KeyboardInterrupt) as error:
            seal_failure(workdir, error, checkpoints, clock)
            if "RESOURCE_EXHAUSTED" in str(error):
                raise out_of_memory(config, error) from error
            raise
        finally:
            for writer in writers:
                writer.close()
        manifests.seal(
            workdir, status="done", step=config.train.steps, seconds=clock.seconds, peak_memory_bytes=peak_memory()
        )
    return state


def consult_doctor(scene: Scene) -> None:
    """Prints what the doctor warns of.

    Raises:
      UserError: the capture has a fault that training cannot do without mending.
    """
    findings = examine(scene, quick=True)
    print_findings(findings, severities=("warning",))
    error = error_from_findings(findings, scene.source)
    if error is not None:
        raise error


def with_absolute_source(config: ConfigDict) -> ConfigDict:
    """Makes the path of the capture absolute, so that the run folder can be read from anywhere."""
    if not os.path.exists(config.scene.source):
        return config
    config = configuration.config_from_json(configuration.config_to_json(config))
    config.scene.source = os.path.abspath(config.scene.source)
    return config


def check_test_sizes(scene: Scene) -> None:
    """Refuses test images that could not be measured after the training.

    Raises:
      UserError: an image is smaller than the window of SSIM.
    """
    small = [frame for frame in scene.subset("test").frames if min(frame.image.size) < SSIM_WINDOW]
    if small:
        width, height = small[0].image.size
        raise UserError(
            "a test image is too small to be measured", file=scene.source, field=small[0].name,
            found=f"{width}x{height} pixels", expected=f"at least {SSIM_WINDOW} pixels a side",
            fix="lower config.scene.downscale, or give config.scene.holdout=0",
        )  # fmt: skip


def earlier_manifest(workdir: epath.Path) -> dict[str, Any] | None:
    """Returns the manifest of the run that the folder holds, or None."""
    return manifests.read_manifest(workdir) if (workdir / manifests.MANIFEST).exists() else None


def keep_schedule(config: ConfigDict, earlier: dict[str, Any], say: Callable[[str], None]) -> ConfigDict:
    """When a run is given more steps, its learning-rate schedule keeps the length that it began with, and says so."""
    before = configuration.config_from_json(earlier["config"])
    name = config.schedule.name
    if before.schedule.name != name or config.schedule[name].steps or config.train.steps == before.train.steps:
        return config
    kept = configuration.config_from_json(configuration.config_to_json(config))
    length = configuration.schedule_section(before)[name]["steps"]
    kept.schedule[name].steps = length
    if config.train.steps > before.train.steps:
        say(f"note: the learning-rate schedule keeps its length of {length} steps (config.schedule.{name}.steps)")
    return kept


def restore_or_init(experiment: Experiment, checkpoints: Checkpoints) -> tuple[TrainState, dict[str, Any]]:
    """Returns the newest checkpoint's state, that of the stage its step belongs to, and meta; or those of step 0."""
    step = checkpoints.latest_step()
    if step is None:
        return experiment.init_state(), {}
    return checkpoints.restore(experiment.stage_of(step).abstract_state)


def record_start(workdir: epath.Path, earlier, experiment: Experiment, fingerprint: str, step: int) -> None:
    """Writes the manifest before step 0, or appends a restart to it."""
    config = experiment.config
    document = configuration.config_to_json(config)
    if earlier is not None:
        manifests.append_restart(workdir, step=step, config=document, scene_fingerprint=fingerprint)
        return
    manifests.write_manifest(
        workdir,
        config=document,
        config_hash=configuration.config_hash(config),
        scene_fingerprint=fingerprint,
        split=experiment.scene.split_names(),
        precision=config.precision,
        seeds={"run": config.train.seed},
        curriculum=[describe_stage(stage, last=stage is experiment.stages[-1]) for stage in experiment.stages],
        render=dict(sampler="deterministic", background=experiment.scene.background, **config.render.to_dict()),
        parameters=sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(experiment.abstract_state.params)),
        scene=dict(
            name=experiment.scene.name, format=experiment.scene.format, notes=list(experiment.scene.notes),
            bounded=experiment.scene.geometry.bounded, spacing=experiment.scene.geometry.spacing,
            provenance=experiment.scene.provenance, cameras=experiment.scene.camera_digest,
        ),
    )  # fmt: skip


def describe_stage(stage: Stage, *, last: bool) -> dict[str, Any]:
    """Returns what the manifest says of one stage: when, with what, and how many rays at each rung."""
    description = dict(
        stage=stage.index, begin=stage.begin, until=None if last else stage.end, rays_by_rung=list(stage.rays),
        downscale=stage.config.scene.downscale,
    )  # fmt: skip
    for family in ("sampler", "pixels"):
        name, options = configuration.chosen(family, stage.config)
        description[family] = {"name": name, **options}
    return description


def seal_failure(workdir: epath.Path, error: BaseException, checkpoints: Checkpoints, clock: Clock) -> None:
    """Records in the manifest how a run was cut short."""
    status = {Diverged: "diverged", Preempted: "preempted", KeyboardInterrupt: "interrupted"}.get(type(error), "failed")
    saved = checkpoints.steps()
    manifests.seal(
        workdir, status=status, step=saved[-1] if saved else 0, seconds=clock.seconds, error=str(error),
        peak_memory_bytes=peak_memory(),
    )  # fmt: skip


def out_of_memory(config: ConfigDict, error: Exception) -> UserError:
    """Returns what to say when a step does not fit into the devices' memory."""
    return UserError(
        "a training step does not fit into memory", field="config.train.batch_rays", found=config.train.batch_rays,
        expected=str(error).splitlines()[0], fix="lower config.train.batch_rays, or the sampler's number of samples",
    )  # fmt: skip


def peak_memory() -> int:
    """Returns the largest resident size of this process so far, bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def load_run(
    workdir: str | os.PathLike, *, step: int | None = None, source: str | None = None, with_data: bool = False
) -> Run:
    """Loads a run folder.

    Args:
      workdir: the run folder.
      step: the checkpoint's step; the newest usable one by default.
      source: where the capture is now, if it was moved.
      with_data: whether to put the training images on the devices too.

    Raises:
      UserError: the folder holds no run, no checkpoint, or not that one.
    """
    workdir = epath.Path(workdir)
    manifest = manifests.read_manifest(workdir)
    config = configuration.config_from_json(manifest["config"])
    if source is not None:
        config.scene.source = os.fspath(source)
    elif not config.scene.source.startswith("analytic:") and not os.path.exists(config.scene.source):
        raise UserError(
            "the run's capture is not where it was", file=config.scene.source, fix="give --source=PATH, where it is now"
        )
    with Checkpoints(workdir, read_only=True) as checkpoints:
        newest = checkpoints.latest_step()
        if newest is None:
            raise UserError(NO_CHECKPOINT, file=workdir, fix="train first, or wait for its first checkpoint")
        done = newest if step is None else step
        experiment = build_experiment(config, with_data=with_data, step=done).at(done)
        state, meta = checkpoints.restore(experiment.abstract_state, step=step)
    return Run(workdir, manifest, experiment.config, experiment, state, int(meta["step"]))
