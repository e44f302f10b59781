"""Captures of formats that no reader reads: what they are, and how they become one that is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nerfjax.scenes.numbers_in_text import starts_with

_POSES = "write transforms.json (camera-to-world, OpenGL axes, fl_x fl_y cx cy w h) from its trajectory and calibration"
_COLMAP = "export or convert to COLMAP (sparse/0 with cameras, images, points3D)"


def _has(*patterns: str) -> Callable[[Path], bool]:
    return lambda folder: any(next(folder.glob(pattern), None) is not None for pattern in patterns)


def _both(one: str, other: str) -> Callable[[Path], bool]:
    return lambda folder: _has(one)(folder) and _has(other)(folder)


def _holds_poses_in_xmp(folder: Path) -> bool:
    # Other programs write XMP files without poses beside photos.
    file = next((file for pattern in ("*.xmp", "*/*.xmp") for file in folder.glob(pattern)), None)
    return file is not None and "xcr:Position" in starts_with(file, 1 << 16)


# (what it is, how it is told, what to do), in the order in which they are asked.
_LAYOUTS: tuple[tuple[str, Callable[[Path], bool], str], ...] = (
    ("cameras of MVSNet (DTU, BlendedMVS)", _has("cams/*_cam.txt", "*/cams/*_cam.txt", "*_cam.txt"), _POSES),
    ("a sequence of Replica or NICE-SLAM (traj.txt)", _both("traj.txt", "results"), _POSES),
    ("a TUM RGB-D sequence (groundtruth.txt)", _both("groundtruth.txt", "rgb.txt"), _POSES),
    ("an EuRoC sequence (mav0)", _has("mav0/cam0", "cam0/sensor.yaml"), _POSES),
    ("a recording of Stray Scanner (odometry.csv)", _both("odometry.csv", "camera_matrix.csv"), _POSES),
    ("a scan of ARKitScenes (*.traj)", _has("*.traj", "lowres_wide.traj"), _POSES),
    ("a kapture data set", _has("sensors/sensors.txt", "kapture/sensors/sensors.txt"),
     f"{_COLMAP}: kapture_export_colmap"),
    ("a Meshroom (AliceVision) project", _has("*.sfm", "*.mg", "*.abc"), f"{_COLMAP}: its node ExportColmap"),
    ("a BlocksExchange file of ContextCapture", _has("*[Bb]locks*.xml"), _COLMAP),
    ("RealityCapture's XMP files", _holds_poses_in_xmp,
     "export Alignment > Registration > Internal/External camera parameters (CSV) beside the photos"),
    ("the output of a Gaussian splatting run (cameras.json)", _both("cameras.json", "point_cloud"),
     "give the capture that it was trained on"),
    ("poses in a text file beside an OpenCV calibration", _both("*pose*.txt", "*.yml"), _POSES),
)  # fmt: skip
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar")


def layout_of(folder: Path) -> tuple[str, str] | None:
    """Returns (what a folder with poses seems to be, what to do about it), or None."""
    return next(((what, fix) for what, told, fix in _LAYOUTS if told(folder)), None)


def advice(source: str | Path) -> tuple[str, str] | None:
    """Returns (what a source seems to be, what to do about it), or None where it is nothing that is known."""
    path = Path(source)
    files = [path] if path.is_file() else path.iterdir()
    archived = any(file.suffix.lower() in _ARCHIVES for file in files)
    return (layout_of(path) if path.is_dir() else None) or (("an archive", "unpack it") if archived else None)


def describe(source: str | Path, limit: int = 6) -> str:
    """Returns in words what a folder holds, for the message that nothing in it is recognised."""
    path = Path(source)
    if not path.is_dir():
        return f"a file {path.name}"
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    names = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries]
    return (", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")) or "nothing"
