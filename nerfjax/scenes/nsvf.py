"""Reader of NSVF folders and of the trajectories of Tanks and Temples.

NSVF: ``intrinsics.txt`` (a 3x3 or 4x4 matrix, or "f cx cy …" in the first line), ``pose/NAME.txt`` (4x4
camera-to-world, OpenCV axes), ``rgb/NAME.png``, and perhaps ``bbox.txt`` (lower and upper corner, voxel size) and
``near_and_far.txt``. Names begin with their split: ``0_`` train, ``1_`` val, ``2_`` test; without any ``2_``, ``1_``
is the test split. Images show an object on nothing: transparent, or on white.

Tanks and Temples: ``NAME.log`` with a line of three integers and a 4x4 camera-to-world matrix (OpenCV axes) for each
image in turn: pose i belongs to the image with the number i + 1, or to number i where images are numbered from 0.
Intrinsics are not part of it: ``intrinsics.txt`` beside it, or ``focal``.

Principal points are taken as they stand; where there is none, it is the image's centre.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.assemble import assemble, capture_name
from nerfjax.scenes.base import Scene, SceneReader, holdout_splits
from nerfjax.scenes.capture import Capture, corners_of
from nerfjax.scenes.folders import (
    Intrinsics,
    by_stem,
    camera_matrix,
    check_intrinsics,
    files_in,
    folder_of,
    images_in,
    number_in,
    paired,
    raw_frame,
    read_matrix,
    read_numbers,
    skew_notes,
)
from nerfjax.scenes.images import open_image
from nerfjax.scenes.numbers_in_text import starts_with
from nerfjax.scenes.options import how_to_give

INTRINSICS = "intrinsics.txt"
SPLIT_OF = {"0": "train", "1": "val", "2": "test"}
POSE_FOLDERS, IMAGE_FOLDERS = ("pose", "poses"), ("rgb", "images", "image")
USUAL_FOCAL = 0.7  # of the width, for the cameras of Tanks and Temples
_WHITE = 250
_OTHERS = ("sparse", "colmap", "database.db")  # a COLMAP model says more than a trajectory beside it


def sniff(source: str) -> str | None:
    """Recognises a folder with intrinsics.txt, pose/ and rgb/, or a .log trajectory (or the folder that holds it)."""
    path = Path(source)
    if (path / INTRINSICS).is_file() and folder_of(path, POSE_FOLDERS) and folder_of(path, IMAGE_FOLDERS):
        return f"holds {INTRINSICS}, poses and images"
    logs = [] if any((path / name).exists() for name in _OTHERS) else _logs(path)
    return f"{logs[0].name} is a camera trajectory" if logs else None


def read(
    source: str,
    *,
    downscale: float | int = 1,
    holdout: int = 8,
    axes: str = "opencv",
    focal: float | int | None = None,
) -> Scene:
    """Reads an NSVF folder, or a trajectory with its images.

    Args:
      source: the folder, or the .log file.
      downscale: factor by which images become smaller.
      holdout: every holdout-th frame is for testing where names don't say their split; 0 = none.
      axes: of the cameras, "opencv" (what the formats mean) or "opengl".
      focal: focal length in pixels of the images on disk, where no file says it.
    """
    if focal is not None and not 0 < focal < 1e6:
        raise UserError("The focal length is none.", field="scene.options: focal", found=focal, expected="pixels")
    path = Path(source)
    poses_in = folder_of(path, POSE_FOLDERS) if path.is_dir() else None
    capture = (
        _folder(path, source, poses_in, holdout, axes, focal) if poses_in else _log(path, source, holdout, axes, focal)
    )
    return assemble(capture, downscale=downscale)


READER = SceneReader(sniff, read)


def _folder(path: Path, source: str, poses_in: Path, holdout: int, axes: str, focal: float | int | None) -> Capture:
    images_in_folder = folder_of(path, IMAGE_FOLDERS)
    images = by_stem(images_in(images_in_folder) if images_in_folder else [])
    poses = by_stem(files_in(poses_in, (".txt",)))
    keys, notes = paired(poses, images, file=poses_in)
    matrix = _intrinsics(path / INTRINSICS, focal, open_image(images[keys[0]]).size)
    names = [images[key].relative_to(path).as_posix() for key in keys]
    splits = _prefix_splits(keys) or holdout_splits(names, holdout)
    frames = [
        raw_frame(
            name, images[key], Intrinsics(matrix), read_matrix(poses[key], ((4, 4), (3, 4))),
            split=split, file=poses[key], axes=axes,
        )
        for key, name, split in zip(keys, names, splits, strict=True)
    ]  # fmt: skip
    sizes = sorted({frame.image.size for frame in frames})
    if len(sizes) > 1:
        raise UserError("Images differ in size and share one calibration.", file=path, found=sizes)
    notes += skew_notes([matrix])
    box = _box(path / "bbox.txt")
    provenance = {"frames_found": len(frames), "axes": axes, "near_and_far": _near_far(path / "near_and_far.txt")}
    return Capture(
        capture_name(path),
        "nsvf",
        source,
        tuple(frames),
        tuple(notes),
        provenance,
        is_object=True if box is not None and _on_white(images[keys[0]]) else None,
        region=corners_of(box),
        near_far=provenance["near_and_far"],
    )


def _log(path: Path, source: str, holdout: int, axes: str, focal: float | int | None) -> Capture:
    logs = _logs(path)
    if len(logs) != 1:
        raise UserError(
            "There is not one camera trajectory.",
            file=source,
            found=", ".join(log.name for log in logs) or "no .log file with poses",
            expected=f"one .log file, or {INTRINSICS} with pose/ and rgb/",
        )
    log = logs[0]
    poses = _trajectory(log)
    images, folder = _numbered_images(log)
    if not images:
        raise UserError(
            "The trajectory has no images.",
            file=log,
            expected=f"images numbered from 1 in {log.stem.split('_')[0]}/ or images/ beside it",
        )
    first = 0 if 0 in images else 1
    keys, notes = paired({index + first: pose for index, pose in poses.items()}, images, file=log)
    notes.append(f"Pose 0 is taken to belong to image number {first}, and so on.")
    matrix = _intrinsics(log.parent / INTRINSICS, focal, open_image(images[keys[0]]).size)
    names = [images[key].relative_to(folder).as_posix() for key in keys]
    frames = [
        raw_frame(name, images[key], Intrinsics(matrix), poses[key - first], split=split, file=log, axes=axes)
        for key, name, split in zip(keys, names, holdout_splits(names, holdout), strict=True)
    ]
    provenance = {"file": log.name, "poses": len(poses), "frames_found": len(frames), "axes": axes}
    return Capture(capture_name(log.parent), "nsvf", source, tuple(frames), tuple(notes), provenance, is_object=False)


def _intrinsics(path: Path, focal: float | int | None, size: tuple[int, int]) -> np.ndarray:
    """Returns K [3, 3] from ``focal``, else from a file."""
    center, usual = (size[0] / 2, size[1] / 2), USUAL_FOCAL * size[0]
    if focal is not None:
        return camera_matrix(focal, focal, *center)
    if not path.is_file():
        raise UserError(
            "The intrinsics are missing: the format does not say them.",
            file=path.parent,
            field="focal",
            found=f"no {path.name}",
            expected=f"{path.name}, or a focal length in pixels",
            fix=f'write "F CX CY" in pixels into {path.name} there, or give {how_to_give(f"focal={usual:.0f}")}, '
            "which is about what the cameras of Tanks and Temples have at this size",
        )
    rows = read_numbers(path)
    shape = [len(row) for row in rows]
    if shape in ([4] * 4, [3] * 3, [4] * 3):
        return check_intrinsics(np.array([row[:3] for row in rows[:3]]), file=path, field="K")
    if rows and len(rows[0]) in (1, 3, 4):
        cx, cy = rows[0][1:3] if len(rows[0]) > 1 else center
        return check_intrinsics(camera_matrix(rows[0][0], rows[0][0], cx, cy), file=path, field="f cx cy")
    raise UserError("The intrinsics cannot be read.", file=path, found=f"rows of {shape} numbers",
                    expected='a 3x3 or 4x4 matrix, or "f cx cy" in the first line')  # fmt: skip


def _prefix_splits(keys: list[str]) -> list[str] | None:
    """Returns the splits that all names begin with, or None."""
    heads = [key.split("_")[0] for key in keys]
    if any(head not in SPLIT_OF for head in heads) or "0" not in heads or any("_" not in key for key in keys):
        return None
    split_of = SPLIT_OF if "2" in heads else {**SPLIT_OF, "1": "test"}
    return [split_of[head] for head in heads]


def _box(path: Path) -> np.ndarray | None:
    if not path.is_file():
        return None
    values = [value for row in read_numbers(path) for value in row]
    box = np.array(values[:6], np.float64)
    if len(values) not in (6, 7) or not np.isfinite(box).all() or not (box[:3] < box[3:]).all():
        raise UserError("The box makes no sense.", file=path, found=values, expected="lower < upper corner, voxel size")
    return box.reshape(2, 3)


def _near_far(path: Path) -> tuple[float, float] | None:
    if not path.is_file():
        return None
    values = [value for row in read_numbers(path) for value in row]
    if len(values) != 2 or not 0 <= values[0] < values[1] < np.inf:
        raise UserError("Near and far make no sense.", file=path, found=values, expected="0 <= near < far")
    return values[0], values[1]


def _on_white(path: Path) -> bool:
    """Says whether the image's border is white: the format's objects stand on white."""
    image = open_image(path).read()
    if image.shape[-1] == 4 or image.dtype != np.uint8:
        return False
    edge = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
    return bool((edge.min(axis=-1) >= _WHITE).mean() > 0.95)


def _logs(path: Path) -> list[Path]:
    files = [path] if path.is_file() else files_in(path, (".log",))
    return [file for file in files if file.suffix.lower() == ".log" and _is_trajectory(file)]


def _is_trajectory(path: Path) -> bool:
    lines = starts_with(path, 1000).split("\n")[:5]
    counts = [len(line.split()) for line in lines]
    return counts == [3, 4, 4, 4, 4] and all(word.lstrip("-").isdecimal() for word in lines[0].split())


def _trajectory(path: Path) -> dict[int, np.ndarray]:
    """Returns the poses [4, 4] by their number."""
    rows = read_numbers(path)
    poses: dict[int, np.ndarray] = {}
    for start in range(0, len(rows), 5):
        block = rows[start : start + 5]
        good = [len(row) for row in block] == [3, 4, 4, 4, 4] and float(block[0][0]).is_integer()
        if not good or not np.isfinite(block[1:]).all() or int(block[0][0]) in poses:
            raise UserError(
                "The trajectory has a bad entry.",
                file=path,
                field=f"entry {start // 5}",
                found=block[0] if block else "nothing",
                expected="three integers, the first one new, and a 4x4 matrix of finite numbers",
            )
        poses[int(block[0][0])] = np.array(block[1:], np.float64)
    return poses


def _numbered_images(log: Path) -> tuple[dict[int, Path], Path]:
    """Returns the images by number, and the folder to which their names are relative."""
    root = log.parent
    names = (log.stem, log.stem.split("_")[0], *IMAGE_FOLDERS)
    folder = next((f for name in names if images_in(f := root / name)), root)
    files = images_in(folder)
    numbered = {number_in(file.stem): file for file in files if number_in(file.stem) is not None}
    if len(numbered) < len(files):
        raise UserError(
            "The images' numbers are missing or not unique.",
            file=folder,
            found=f"{len(files)} images, {len(numbered)} numbers",
            expected="000001.jpg, 000002.jpg, …",
        )
    return numbered, root
