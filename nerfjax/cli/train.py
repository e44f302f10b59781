"""``nerfjax train``: trains, or goes on with, a run; then evaluates its test views and writes its report."""

from __future__ import annotations

import argparse
import pathlib

EPILOG = """\
Any value of the config can be set: --config.KEY=VALUE. The same command goes on
with a run that was stopped.

example:
  nerfjax train --config=nerfjax --config.scene.source=captures/fox \\
    --config.scene.downscale=8 --config.sampler.name=stratified --workdir=runs/fox
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("--config", required=True, metavar="NAME", help="a config file, or a shipped one's name")
    parser.add_argument("--workdir", required=True, metavar="RUN", type=pathlib.Path, help="the run's folder")


def run(arguments: argparse.Namespace) -> int:
    """Trains, evaluates, reports."""
    from nerfjax.cli.config_flags_parser import parse_config

    config = parse_config(arguments.config, arguments.config_flags)

    from nerfjax.errors import Diverged
    from nerfjax.evaluate import evaluate_run, print_table, score_views
    from nerfjax.runs.report import write_report
    from nerfjax.scenes.doctor import how_to_hold_out
    from nerfjax.train.run import load_run, train

    try:
        train(config, arguments.workdir, score=score_views)
    except Diverged:
        write_report(arguments.workdir)
        raise
    trained = load_run(arguments.workdir)
    scene = trained.experiment.scene
    if scene.indices("test"):
        print_table(evaluate_run(trained, split="test"))
    else:
        print(f"no test frames: nothing to evaluate. To have some, {how_to_hold_out(scene)}")
    print(f"report  {write_report(arguments.workdir)}")
    return 0
