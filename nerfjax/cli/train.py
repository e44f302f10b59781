"""``nerfjax train``: trains, or goes on with, a run; then evaluates its test views and writes its report."""

from __future__ import annotations

import argparse
import pathlib

from nerfjax.errors import Diverged, UserError

EPILOG = """\
Any value of the config can be set: --config.KEY=VALUE. The same command goes on
with a run that was stopped.

example:
  nerfjax train --config=nerfjax --config.scene.source=captures/fox \\
    --config.scene.downscale=8 --config.sampler.name=stratified --workdir=runs/fox
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("--config", metavar="NAME", help="a config file, or a shipped one's name")
    parser.add_argument("--workdir", metavar="RUN", type=pathlib.Path, help="the run's folder")
    parser.add_argument("--retries", metavar="N", type=int, default=0, help="restarts after crashes; 0: none")
    parser.add_argument(
        "--allow-config-change", action="store_true", help="go on with another config or scene; the manifest records it"
    )
    parser.add_argument("--profile", metavar="START:STOP", help="trace these steps with JAX's profiler: RUN/profile")
    parser.add_argument("--replay", metavar="FILE", type=pathlib.Path, help="do a step that diverged again")
    parser.add_argument("--source", metavar="PATH", help="of --replay: where the capture is now")


def run(arguments: argparse.Namespace) -> int:
    """Trains, evaluates, reports."""
    if arguments.replay is not None:
        return replay_step(arguments)
    missing = [f"--{name}" for name in ("config", "workdir") if getattr(arguments, name) is None]
    if missing:
        raise UserError(f"nerfjax train needs {' and '.join(missing)}.", fix="nerfjax train --help shows the arguments")
    if arguments.retries:
        from nerfjax.cli.supervise import Supervisor, child_command

        return Supervisor(child_command(arguments.given), arguments.workdir, retries=arguments.retries).run()
    from nerfjax.cli.config_flags_parser import parse_config
    from nerfjax.train.cluster import is_first_process, join_cluster

    join_cluster()

    config = parse_config(arguments.config, arguments.config_flags)

    from nerfjax.telemetry.profile import parse_steps

    profile = None if arguments.profile is None else parse_steps(arguments.profile)

    from nerfjax.evaluate import evaluate_run, print_table, render_along, score_views
    from nerfjax.runs.report import write_report
    from nerfjax.scenes.doctor import how_to_hold_out
    from nerfjax.telemetry.tensorboard_events import write_final_metrics
    from nerfjax.train.resume import earlier_manifest
    from nerfjax.train.run import load_run, train

    before = earlier_manifest(arguments.workdir)
    try:
        train(
            config, arguments.workdir, score=score_views, profile=profile,
            allow_config_change=arguments.allow_config_change,
        )  # fmt: skip
    except Diverged:
        if is_first_process():
            write_report(arguments.workdir)
        raise
    if before and before == earlier_manifest(arguments.workdir) and (before["end"] or {}).get("evaluations"):
        return 0  # the run was done and evaluated: nothing is touched
    trained = load_run(arguments.workdir)
    scene = trained.experiment.scene
    if not is_first_process():
        render_along(trained, split="test")
        return 0
    if scene.indices("test"):
        evaluation = evaluate_run(trained, split="test")
        print_table(evaluation)
        final = {f"test/{metric}": value for metric, value in evaluation["mean"].items()}
        write_final_metrics(arguments.workdir / "tensorboard", final, step=evaluation["step"])
    else:
        print(f"no test frames: nothing to evaluate. To have some, {how_to_hold_out(scene)}")
    print(f"report  {write_report(arguments.workdir)}")
    return 0


def replay_step(arguments: argparse.Namespace) -> int:
    """Does a step that diverged again; 3 where it diverges again, too."""
    from nerfjax.train.replay import replay

    if arguments.config is not None or arguments.workdir is not None or arguments.config_flags:
        raise UserError("A replay file holds its config.", field="--replay", fix="give --replay (and --source) alone")
    return Diverged.exit_code if replay(arguments.replay, source=arguments.source) else 0
