"""``nerfjax bench``: ``data`` times the sources of training data, ``samplers`` measures every sampler at equal cost."""

from __future__ import annotations

import argparse
import json
import sys

EPILOG = """\
nerfjax bench SUBJECT --help explains a subject.

example:
  nerfjax bench samplers --scenes=wires,landscape --budgets=16,32,64 --out=plots
"""
SUBJECTS = {
    "data": (
        "the sources of training data against the step's need",
        "Batches and megabytes per second of resident images, streamed views and streamed\n"
        "rays, and what the training step of the config (--config.KEY=VALUE …) needs.",
    ),
    "samplers": (
        "every sampler at equal cost, against exact integrals",
        "On the procedural scenes, whose integrals are known exactly: error of colour, bias\n"
        "and deviation over keys, where the points lie, evaluations, time and memory of every\n"
        "sampler at every budget. Minutes on two CPU cores; less with fewer scenes, samplers\n"
        "or budgets.",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's subjects and their arguments."""
    subjects = parser.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    made = {name: subjects.add_parser(name, help=line, description=text) for name, (line, text) in SUBJECTS.items()}
    for subject in made.values():
        subject.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    data, samplers = made["data"], made["samplers"]
    data.add_argument("--config", default="nerfjax", metavar="NAME", help="a config file, or a shipped one's name")
    data.add_argument("--seconds", type=float, default=2.0, help="time for each measurement (default: 2)")
    samplers.add_argument("--scenes", type=_names, metavar="A,B", help="procedural scenes (default: all)")
    samplers.add_argument("--samplers", type=_names, metavar="A,B", help="samplers (default: all)")
    samplers.add_argument(
        "--budgets", type=_numbers, metavar="N,M", help="main-field evaluations per ray (default: 8,16,32,64,128,256)"
    )
    samplers.add_argument("--rays", type=int, default=256, help="rays of each scene (default: 256)")
    samplers.add_argument("--keys", type=int, default=4, help="repetitions with other random numbers (default: 4)")
    samplers.add_argument("--no-timing", action="store_true", help="leave time and memory out")
    samplers.add_argument("--out", metavar="DIR", help="a folder for plots")


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints."""
    return {"data": _data, "samplers": _samplers}[arguments.subject](arguments)


def _data(arguments: argparse.Namespace) -> int:
    from nerfjax.bench.data import bench_data, print_data
    from nerfjax.cli.config_flags_parser import parse_config

    config = parse_config(arguments.config, arguments.config_flags)
    result = bench_data(config, seconds=arguments.seconds, say=_say)
    if arguments.json:
        print(json.dumps(result, allow_nan=False))
    else:
        print_data(result)
    return 0


def _samplers(arguments: argparse.Namespace) -> int:
    from nerfjax.bench.laboratory import FULL
    from nerfjax.bench.sampler_plots import plot_samplers
    from nerfjax.bench.sampler_tables import print_samplers
    from nerfjax.bench.samplers import bench_samplers

    chosen = {name: getattr(arguments, name) for name in ("scenes", "samplers", "budgets")}
    sizes = FULL._replace(rays=arguments.rays, keys=arguments.keys)
    if arguments.no_timing:
        sizes = sizes._replace(repeats=0)
    result = bench_samplers(**{name: value for name, value in chosen.items() if value}, sizes=sizes, say=_say)
    if arguments.out:
        for file in plot_samplers(result, arguments.out):
            _say(f"wrote {file}")
    if arguments.json:
        print(json.dumps(result, allow_nan=False))
    else:
        print_samplers(result)
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in _names(text)]
