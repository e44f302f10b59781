"""``nerfjax prepare``: a capture becomes a fingerprinted TensorFlow Datasets data set on disk."""

from __future__ import annotations

import argparse
import pathlib

EPILOG = """\
Given again, an interrupted command goes on where it stopped. Without --out the
data set goes to the cache ($NERFJAX_CACHE), where training finds it.

example:
  nerfjax prepare captures/fox --out=prepared/fox --downscale=4
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("source", metavar="SOURCE", help="a capture: a folder or a file")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="the data set's folder")
    parser.add_argument("--format", default="auto", metavar="NAME", help="the capture's format (default: auto)")
    parser.add_argument(
        "--convention",
        default="auto",
        choices=("auto", "opengl", "opencv"),
        metavar="NAME",
        help="the cameras' axes: opengl or opencv",
    )
    parser.add_argument("--options", default="", metavar="KEY=VALUE,…", help="what the format's reader is told")
    parser.add_argument("--downscale", type=float, default=1, metavar="N", help="make images smaller")
    parser.add_argument("--holdout", type=int, default=8, metavar="N", help="test on every n-th image")
    parser.add_argument("--layout", default="views", choices=("views", "rays"), help="rays: shuffled pixels as well")
    parser.add_argument("--no-depth", action="store_true", help="leave depths out")
    parser.add_argument("--overwrite", action="store_true", help="replace another data set in the folder")


def run(arguments: argparse.Namespace) -> int:
    """Prepares, and says what and where."""
    from nerfjax.data.prepared import prepare

    prepare(
        arguments.source,
        arguments.out,
        layout=arguments.layout,
        depth=not arguments.no_depth,
        overwrite=arguments.overwrite,
        say=print,
        format=arguments.format,
        downscale=arguments.downscale,
        holdout=arguments.holdout,
        convention=arguments.convention,
        options=arguments.options,
    )
    return 0
