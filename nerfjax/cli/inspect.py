"""``nerfjax inspect``: the doctor. What a capture is, what is wrong with it, and what to do."""

from __future__ import annotations

import argparse
import json
import pathlib

EPILOG = """\
Exit code 0: fit for training, perhaps with warnings; 2: there are errors.

example:
  nerfjax inspect captures/fox --html=fox.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("source", metavar="SOURCE", help="a folder, a file, or analytic:NAME")
    parser.add_argument("--format", default="auto", metavar="NAME", help="the capture's format (default: auto)")
    parser.add_argument(
        "--convention",
        default="auto",
        choices=("auto", "opengl", "opencv"),
        help="the camera axes of the poses, where the files do not keep to their format",
    )
    parser.add_argument(
        "--options", default="", metavar="KEY=VALUE,…", help="what the format's reader is told: focal=1170,masks=off"
    )
    parser.add_argument("--holdout", type=int, default=8, metavar="N", help="test on every n-th image (default: 8)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_argument("--html", metavar="FILE", type=pathlib.Path, help="write a page with pictures and plots")


def run(arguments: argparse.Namespace) -> int:
    """Inspects, prints, and returns 2 where there are errors."""
    from nerfjax.scenes.doctor import count, inspect_source, print_findings
    from nerfjax.train.automatic import explain, recommended

    diagnosis = inspect_source(
        arguments.source,
        progress=True,
        format=arguments.format,
        convention=arguments.convention,
        holdout=arguments.holdout,
        options=arguments.options,
    )
    settings = recommended(diagnosis.scene) if diagnosis.scene and not count(diagnosis.findings)["error"] else []
    page = None
    if arguments.html is not None:
        from nerfjax.scenes.doctor.page import write_page

        page = write_page(diagnosis, arguments.html)
    if arguments.json:
        sampling = [setting.as_json() for setting in settings] or None
        print(json.dumps({**diagnosis.as_json(), "sampling": sampling}, allow_nan=False))
    else:
        from rich.console import Console

        console = Console()
        for line in _summary(diagnosis):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        print_findings(diagnosis.findings, console=console)
        for line in explain(settings) if settings else ():
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        console.print(_verdict(count(diagnosis.findings)), markup=False, highlight=False)
        if page is not None:
            console.print(f"page    {page}", markup=False, highlight=False, soft_wrap=True)
    return 2 if count(diagnosis.findings)["error"] else 0


def _summary(diagnosis) -> list[str]:
    scene = diagnosis.scene
    if scene is None:
        recognised = f" (as {diagnosis.format}: {diagnosis.reason})" if diagnosis.format else ""
        return [f"{diagnosis.source}: cannot be read{recognised}"]
    document = diagnosis.as_json()["scene"]
    sizes = document["sizes"]
    size = f"{sizes[0]['width']}x{sizes[0]['height']}" + (f" and {len(sizes) - 1} more sizes" if sizes[1:] else "")
    splits = ", ".join(f"{n} {split}" for split, n in document["splits"].items() if n)
    reason = f" ({diagnosis.reason})" if diagnosis.reason else ""
    lines = [
        f"{diagnosis.source}",
        f"format  {diagnosis.format}{reason}",
        f"images  {document['images']} of {size}: {splits}; {document['registered']:.0%} registered",
        f"cameras {', '.join(document['camera_models'])}; near {document['near']:.3g}, far {document['far']:.4g}",
    ]
    residuals = document["convention"] and document["convention"]["residuals_px"]
    if residuals:
        lines.append(
            f"matches {residuals['as read']:.2f} px median epipolar residual, read as {document['convention']['axes']}"
        )
    return lines


def _verdict(counts: dict[str, int]) -> str:
    parts = [f"{n} {name}{'s' if n != 1 and name != 'info' else ''}" for name, n in counts.items() if n]
    return ", ".join(parts) or "nothing to complain about"
