"""``nerfjax compare``: runs side by side; what tells them apart, what they reached, what it took, who is better."""

from __future__ import annotations

import argparse
import json
import pathlib

EPILOG = """\
Seeds are replicates. A ranking is refused (exit code 2) where anything but the
method differs: scene, split, resolution, background, protocol, precision,
steps, rays, code, curriculum.

example:
  nerfjax compare runs/stratified runs/proposal --rank --html=compare.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("runs", metavar="RUN", nargs="+", type=pathlib.Path, help="the runs' folders, two or more")
    parser.add_argument("--rank", action="store_true", help="rank the methods, if the runs are comparable")
    parser.add_argument("--force", action="store_true", help="rank them anyway, and stamp the output")
    parser.add_argument(
        "--subject", metavar="KEY", action="append", default=[], help="a confounder that is studied, e.g. precision"
    )
    parser.add_argument("--split", default="test", choices=("train", "val", "test"), help="the views (default: test)")
    parser.add_argument("--metric", default="psnr", metavar="NAME", help="what ranks (default: psnr)")
    parser.add_argument("--html", metavar="FILE", type=pathlib.Path, help="write a page with curves and crops")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def run(arguments: argparse.Namespace) -> int:
    """Compares, prints, and refuses a ranking after everything else was shown."""
    from nerfjax.errors import UserError
    from nerfjax.runs.compare import compare
    from nerfjax.runs.ranking import objections_to, rank
    from nerfjax.train.recorded import recorded_options

    if arguments.force and not arguments.rank:
        raise UserError("--force has no effect without --rank.", fix="give --rank --force")
    comparison = compare(
        arguments.runs,
        split=arguments.split,
        metric=arguments.metric,
        subjects=arguments.subject,
        flat_config=recorded_options,
    )
    ranking, refusal = None, None
    if arguments.rank:
        try:
            ranking = rank(comparison, force=arguments.force)
        except UserError as error:
            refusal = error
    if arguments.html is not None:
        from nerfjax.runs.compare_report import write_page

        write_page(comparison, ranking, arguments.html)
    if arguments.json:
        from nerfjax.runs.compare_document import document_of

        refused = None if refusal is None else objections_to(comparison) or [str(refusal)]
        print(json.dumps(document_of(comparison, ranking, refusal=refused), allow_nan=False))
    else:
        from nerfjax.runs.compare_table import print_comparison

        print_comparison(comparison, ranking)
        if arguments.html is not None:
            print(f"page    {arguments.html}")
    if refusal is not None:
        raise refusal
    return 0
