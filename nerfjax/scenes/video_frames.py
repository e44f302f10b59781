"""Still frames of a video: evenly spread over it, and of each few neighbours the sharpest."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
from PIL import Image

from nerfjax.errors import UserError

VIDEO_EXTENSIONS = (".mp4", ".mov", ".m4v", ".avi", ".mkv", ".webm")
_CHOICES = 3  # neighbours of which the sharpest is kept


def is_video(path: Path) -> bool:
    """Says whether the path is a video file, by its name."""
    return path.suffix.lower() in VIDEO_EXTENSIONS and path.is_file()


def extract_frames(video: Path, folder: Path, count: int) -> list[Path]:
    """Writes about ``count`` frames into a folder as 000000.png, 000001.png, ….

    Args:
      video: the file; its rotation is applied.
      folder: is made where it does not exist.
      count: number of frames wanted; a short video gives all that it has.

    Raises:
      UserError: the file is no video that ffmpeg can read.
    """
    import imageio_ffmpeg

    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    folder.mkdir(parents=True, exist_ok=True)
    # ffmpeg is called directly: a fork with Python code in it is forbidden beside JAX's threads.
    about = subprocess.run([ffmpeg, "-hide_banner", "-i", str(video)], capture_output=True, text=True, errors="replace")
    length = re.search(r"Duration: (\d+):(\d+):([\d.]+)", about.stderr)
    if length is None or "Video:" not in about.stderr:
        raise UserError("The file is no video that can be read.", file=video, found=about.stderr.strip()[-200:])
    seconds = max(int(length[1]) * 3600 + int(length[2]) * 60 + float(length[3]), 1e-3)
    shown = re.search(r"([\d.]+) fps", about.stderr)
    rate = _CHOICES * count / seconds
    rate = min(rate, float(shown[1])) if shown else rate
    pattern = str(folder / "candidate_%06d.png")
    command = [ffmpeg, "-v", "error", "-y", "-i", str(video), "-vf", f"fps={rate:.6f}", pattern]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    candidates = sorted(folder.glob("candidate_*.png"))
    if not candidates:
        raise UserError("The video has no frame that can be read.", file=video, found=done.stderr.strip()[-200:])
    group = max(1, min(_CHOICES, len(candidates) // count))
    kept = []
    for begin in range(0, len(candidates), group):
        neighbours = candidates[begin : begin + group]
        best = max(neighbours, key=_sharpness) if len(neighbours) > 1 else neighbours[0]
        kept.append(best.replace(folder / f"{len(kept):06d}.png"))
        for other in neighbours:
            other.unlink(missing_ok=True)
    return kept


def _sharpness(path: Path) -> float:
    """Returns the variance of the Laplacian of a picture reduced to 640 pixels."""
    with Image.open(path) as image:
        image = image.convert("L")
        image.thumbnail((640, 640))
        grey = np.asarray(image, np.float32)
    laplacian = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:] - 4 * grey[1:-1, 1:-1]
    return float(laplacian.var())
