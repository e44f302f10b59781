"""``nerfjax bench``: measures speed; ``bench data`` the sources of training data against the step's need."""

from __future__ import annotations

import argparse
import json
import sys

EPILOG = """\
data: batches and megabytes per second of resident images, streamed views and
streamed rays, and what the training step of the config needs.

example:
  nerfjax bench data --config=nerfjax --config.scene.source=captures/fox \\
    --config.scene.downscale=4
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("subject", choices=("data",), help="what to measure")
    parser.add_argument("--config", default="nerfjax", metavar="NAME", help="a config file, or a shipped one's name")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each measurement (default: 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints."""
    from nerfjax.bench.data import bench_data, print_data
    from nerfjax.cli.config_flags_parser import parse_config

    config = parse_config(arguments.config, arguments.config_flags)
    result = bench_data(config, seconds=arguments.seconds, say=lambda text: print(text, file=sys.stderr))
    if arguments.json:
        print(json.dumps(result, allow_nan=False))
    else:
        print_data(result)
    return 0
