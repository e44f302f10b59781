"""``nerfjax render``: a camera path through a trained run, as a video."""

from __future__ import annotations

import argparse
import pathlib

from nerfjax.errors import UserError

EPILOG = """\
FILE.json is a camera path in the capture's own coordinates, written like a
transforms.json: {"frames": [{"transform_matrix": ...}, ...]}, one frame each.

example:
  nerfjax render runs/fox --path=orbit --out=fox.mp4 --frames=90
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("run", metavar="RUN", type=pathlib.Path, help="the run's folder")
    parser.add_argument(
        "--path", default="orbit", metavar="PATH", help="orbit, spiral, interpolate or FILE.json (default: orbit)"
    )
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="default: RUN/renders/PATH.mp4")
    parser.add_argument("--frames", type=int, default=60, metavar="N", help="number of frames (default: 60)")
    parser.add_argument("--fps", type=float, default=30.0, help="frames a second (default: 30)")
    parser.add_argument("--size", metavar="WxH", help="such as 640x480 (default: the capture's)")
    parser.add_argument("--step", type=int, help="a checkpoint's step (default: the latest)")
    parser.add_argument("--source", metavar="PATH", help="where the capture is now, if it was moved")


def run(arguments: argparse.Namespace) -> int:
    """Renders the path and prints where the video is."""
    size = _parse_size(arguments.size)
    out = arguments.out or arguments.run / "renders" / f"{pathlib.Path(arguments.path).stem}.mp4"
    if out.suffix != ".mp4":
        raise UserError("A video is written as mp4.", field="--out", found=out, fix=f"use {out.with_suffix('.mp4')}")
    for name, value in (("--frames", arguments.frames), ("--fps", arguments.fps)):
        if not value > 0:
            raise UserError("A video needs a positive number.", field=name, found=value)

    from nerfjax.train.run import load_run
    from nerfjax.trajectory import path_cameras, render_path

    loaded = load_run(arguments.run, step=arguments.step, source=arguments.source)
    cameras = path_cameras(loaded.experiment.scene, arguments.path, frames=arguments.frames, size=size)
    print(f"video   {render_path(loaded.render_view, cameras, out, fps=arguments.fps)}")
    return 0


def _parse_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UserError("The size is not one.", field="--size", found=text, expected="WIDTHxHEIGHT, such as 640x480")
    return int(parts[0]), int(parts[1])
