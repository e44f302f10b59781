"""A run from its config to its sealed folder, and a run folder back to something that renders."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import sys
from collections.abc import Callable, Sequence
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
from nerfjax.telemetry.writers import Writer
from nerfjax.train import configuration
from nerfjax.train.automatic import resolve_auto
from nerfjax.train.best_checkpoints import best_step, missed_evaluation, recorded_scores
from nerfjax.train.build import Experiment, build_experiment, check, read_config_scene
from nerfjax.train.checkpoint import Checkpoints
from nerfjax.train.cluster import wait_for_all
from nerfjax.train.divergence import Divergence, check_options
from nerfjax.train.loop import StopSignal, fit
from nerfjax.train.monitoring import check_monitoring, run_monitor, run_profile, run_writers
from nerfjax.train.recorded import complete_config
from nerfjax.train.resume import (
    allowed_changes,
    check_checkpoint,
    config_to_go_on,
    earlier_manifest,
    is_finished,
    told,
)
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
    score: Callable[[Experiment, TrainState], dict[str, Any]] | None = None,
    say: Callable[[str], None] | None = None,
    writers: Sequence[Writer] = (),
    profile: tuple[int, int] | None = None,
    allow_config_change: bool = False,
) -> TrainState:
    """Trains, or goes on with, the run of a config in a folder.

    Args:
      config: as from ``load_config``.
      workdir: the run folder; made where absent. A folder with a run of the same config is continued.
      score: ``(experiment, state) -> {name: number or picture}``, reported every ``train.eval_every`` steps.
      say: takes messages for the user; standard error by default.
      writers: take the reports, too (``telemetry.writers``); who made them closes them.
      profile: the steps between which JAX's profiler traces, into RUN/profile.
      allow_config_change: whether a run may go on with another config or scene than it began with.

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
    wait_for_all("all have looked for a manifest, before one is written")
    if earlier is not None:
        config = config_to_go_on(config, earlier, workdir, allow=allow_config_change, say=say)
    config = with_absolute_source(config)
    check(config)
    check_options(config)
    check_monitoring(config)
    scene = read_config_scene(config)
    config = resolve_auto(config, scene, say=say)
    check_test_sizes(scene)
    if earlier is None and config.scene.examine:
        consult_doctor(scene)
    with Checkpoints(workdir, read_only=True) as saved:
        newest = max(saved.steps(), default=0)
    experiment = build_experiment(config, scene=scene, say=say, step=newest)
    fingerprint = scene.fingerprint()
    changes = {} if earlier is None else allowed_changes(config, scene, earlier, workdir, allow=allow_config_change)
    with manifests.claim(workdir), open_checkpoints(config, workdir) as checkpoints, StopSignal() as stop:
        state, meta = restore_or_init(experiment, checkpoints)
        for warning in checkpoints.warnings:
            say(f"warning: {warning}")
        step = int(meta.get("step", 0))
        check_checkpoint(meta, config, fingerprint, earlier, allow=allow_config_change)
        if is_finished(step, config.train.steps, earlier):
            say(f"the run is done: {step} steps, nothing to do; raise config.train.steps to go on")
            return state
        if changes:
            say(f"warning: going on from step {step} with what was allowed to differ: {told(changes)}")
        record_start(workdir, earlier, experiment, fingerprint, step, changes)
        clock = Clock(meta.get("seconds", 0.0))
        divergence = Divergence(experiment, workdir, fingerprint=fingerprint, earlier=earlier, say=say)
        monitor = run_monitor(experiment)
        programs: dict[int, dict] = {}  # a rollback goes on with those that are compiled

        def go_on(state: TrainState, row: dict[str, Any] | None) -> TrainState:
            begin = int(jax.device_get(state.step))
            opened = run_writers(config, workdir, resume_step=begin)
            try:
                for writer in (*opened, *writers) if row else ():
                    writer.write(row)
                return fit(
                    state=state,
                    stages=experiment.stages,
                    steps_per_dispatch=config.train.steps_per_dispatch,
                    log_every=config.train.log_every,
                    checkpoints=checkpoints,
                    checkpoint_every=config.train.checkpoint_every,
                    eval_every=config.train.eval_every,
                    on_eval=None if score is None else lambda state, step: score(experiment, state),
                    writers=(*opened, *writers),
                    clock=clock,
                    stop=stop,
                    meta={"config_hash": configuration.config_hash(config), "scene_fingerprint": fingerprint},
                    pending=None if row else meta.get("interval"),
                    missed=missed_evaluation(workdir, checkpoints, begin),
                    compile_ahead=config.train.compile_ahead,
                    kept_programs=programs,
                    monitor=monitor,
                    profile=run_profile(workdir, profile),
                )
            finally:
                for writer in opened:
                    writer.close()

        try:
            state = divergence.fit(go_on, lambda: restore_or_init(experiment, checkpoints), divergence.with_rate(state))
        except (Exception, KeyboardInterrupt) as error:
            seal_failure(workdir, error, checkpoints, clock)
            if "RESOURCE_EXHAUSTED" in str(error) and not isinstance(error, UserError):  # a full disk is one
                raise out_of_memory(config, error) from error
            raise
        monitor.saved(checkpoints.take_times())
        manifests.seal(
            workdir, status="done", step=config.train.steps, seconds=clock.seconds, peak_memory_bytes=peak_memory(),
            **monitor.summary(),
        )  # fmt: skip
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


def open_checkpoints(config: ConfigDict, workdir: epath.Path) -> Checkpoints:
    """Returns the checkpoints of a run, to be kept as its config says, with the scores in its record."""
    kept = config.train
    checkpoints = Checkpoints(workdir, keep=kept.keep_latest, keep_every=kept.keep_every, keep_best=kept.keep_best)
    checkpoints.scores.update(recorded_scores(workdir))
    return checkpoints


def restore_or_init(experiment: Experiment, checkpoints: Checkpoints) -> tuple[TrainState, dict[str, Any]]:
    """Returns the newest checkpoint's state, that of the stage its step belongs to, and meta; or those of step 0."""
    step = checkpoints.latest_step()
    if step is None:
        return experiment.init_state(), {}
    return checkpoints.restore(experiment.stage_of(step).abstract_state)


def record_start(
    workdir: epath.Path, earlier, experiment: Experiment, fingerprint: str, step: int, changes: dict[str, list]
) -> None:
    """Writes the manifest before step 0, or appends a restart to it, with what was allowed to differ."""
    entries, document = describe_run(experiment, fingerprint), configuration.config_to_json(experiment.config)
    if earlier is None:
        manifests.write_manifest(workdir, config=document, **entries)
    else:
        manifests.append_restart(workdir, step=step, config=document, allowed=changes, **entries)


def describe_run(experiment: Experiment, fingerprint: str) -> dict[str, Any]:
    """Returns what the manifest says of a run beside its config."""
    config = experiment.config
    return dict(
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
    """Records in the manifest how a run was cut short; a disk that refuses that, too, leaves the error what it is."""
    status = {Diverged: "diverged", Preempted: "preempted", KeyboardInterrupt: "interrupted"}.get(type(error), "failed")
    with contextlib.suppress(UserError):
        checkpoints.wait()
    saved = checkpoints.steps()
    with contextlib.suppress(UserError):
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
    workdir: str | os.PathLike, *, step: int | str | None = None, source: str | None = None, with_data: bool = False
) -> Run:
    """Loads a run folder.

    Args:
      workdir: the run folder.
      step: the checkpoint's step, or "best", the one of the highest evaluated PSNR; the newest usable one by default.
      source: where the capture is now, if it was moved.
      with_data: whether to put the training images on the devices too.

    Raises:
      UserError: the folder holds no run, no checkpoint, or not that one.
    """
    workdir = epath.Path(workdir)
    manifest = manifests.read_manifest(workdir)
    config = complete_config(manifest["config"])
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
        if step == "best":
            step = best_step(checkpoints, workdir)
        done = newest if step is None else step
        experiment = build_experiment(config, with_data=with_data, step=done).at(done)
        state, meta = checkpoints.restore(experiment.abstract_state, step=step)
    return Run(workdir, manifest, experiment.config, experiment, state, int(meta["step"]))
