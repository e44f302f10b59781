"""``nerfjax eval``: renders whole views of a run's split, measures them, writes pictures and metrics.json."""

from __future__ import annotations

import argparse
import json
import pathlib

EPILOG = """\
Writes RUN/eval/STEP/: metrics.json, predictions, error and depth maps; renews
RUN/report.html.

example:
  nerfjax eval runs/fox --split=test
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("run", metavar="RUN", type=pathlib.Path, help="the run's folder")
    parser.add_argument("--split", default="test", choices=("train", "val", "test"), help="the views (default: test)")
    parser.add_argument("--step", type=step_or_best, help="a checkpoint's step, or best (default: the latest)")
    parser.add_argument("--source", metavar="PATH", help="where the capture is now, if it was moved")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def step_or_best(text: str) -> int | str:
    """Returns the step that a flag names: a number, or "best"."""
    return text if text == "best" else int(text)


def run(arguments: argparse.Namespace) -> int:
    """Evaluates and reports."""
    from nerfjax.evaluate import evaluate_run, print_table
    from nerfjax.runs.report import write_report
    from nerfjax.train.run import load_run

    result = evaluate_run(load_run(arguments.run, step=arguments.step, source=arguments.source), split=arguments.split)
    write_report(arguments.run)
    if arguments.json:
        print(json.dumps(result, allow_nan=False))
    else:
        print_table(result)
    return 0
