"""Reader of folders of text poses: 7-Scenes, ScanNet and sets like it (MobileBrick).

7-Scenes: ``seq-01/frame-000000.color.png``, ``.depth.png`` (16-bit millimetres along the axis; 0 and 65535 unknown) and
``.pose.txt`` (4x4 camera-to-world, OpenCV axes). ``TrainSplit.txt`` and ``TestSplit.txt`` list sequences
("sequence1"). It has no calibration: the customary one of its Kinect at 640x480 is focal length 585, principal point
(320, 240), unless ``intrinsics.txt`` (3x3) stands beside.

ScanNet-like: ``color/`` (or ``image/``, ``images/``, ``rgb/``) with ``pose/NAME.txt`` and ``intrinsic/``, either one
``intrinsic_color.txt`` or a file per frame; perhaps ``depth/NAME.png`` in millimetres. Poses of frames that lost their
track are -inf, and are left out.

Either kind of folder may occur once for each split: ``train/``, ``validation/`` and ``test/`` with ``rgb/``, ``pose/``
and ``intrinsics/`` in each (NeRF++, NeRF-OSR), a 4x4 matrix a file, in one line or in four.

Principal points are taken as they stand.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.assemble import assemble, capture_name
from nerfjax.scenes.base import Scene, SceneReader, holdout_splits, shorten
from nerfjax.scenes.capture import Capture, RawFrame
from nerfjax.scenes.depths import DepthReference, decode_depth
from nerfjax.scenes.folders import (
    Intrinsics,
    by_stem,
    camera_matrix,
    files_in,
    folder_of,
    images_in,
    number_in,
    paired,
    raw_frame,
    read_intrinsics_matrix,
    read_matrix,
    size_notes,
)

MILLIMETRE = 1e-3
UNKNOWN = 65535  # as is 0
POSE_FOLDERS, IMAGE_FOLDERS = ("pose", "poses"), ("color", "image", "images", "rgb")
INTRINSIC_FOLDERS = ("intrinsic", "intrinsics")
SHARED = ("intrinsic_color.txt", "intrinsics_color.txt", "intrinsic.txt", "intrinsics.txt", "K.txt")
KINECT = Intrinsics(camera_matrix(585.0, 585.0, 320.0, 240.0), (640, 480))
SPLIT_FOLDERS = {"train": "train", "validation": "val", "val": "val", "test": "test"}
SPLIT_FILES = {"train": "TrainSplit.txt", "test": "TestSplit.txt"}
_COLOR, _DEPTH, _POSE = ".color", ".depth", ".pose"
_POSE_SHAPES = ((4, 4), (3, 4))


def sniff(source: str) -> str | None:
    """Recognises seq-*/frame-*.pose.txt, or pose/*.txt with intrinsics and images."""
    path = Path(source)
    if _sequences(path):
        return "holds frame-*.pose.txt beside the images"
    split_folders = _split_folders(path)
    for folder in [path, *split_folders]:
        poses, images = folder_of(folder, POSE_FOLDERS), folder_of(folder, IMAGE_FOLDERS)
        if poses and images and files_in(poses, (".txt",)) and (_has_intrinsics(folder) or folder in split_folders):
            where = "" if folder == path else f"{folder.name}/ with "
            return f"holds {where}{images.name}/, {poses.name}/ and intrinsics in text files"
    return None


def read(source: str, *, downscale: float | int = 1, holdout: int = 8, axes: str = "opencv") -> Scene:
    """Reads a 7-Scenes or ScanNet-like folder.

    Args:
      source: the folder, or one sequence of 7-Scenes.
      downscale: factor by which images become smaller.
      holdout: every holdout-th frame is for testing where no file lists the splits; 0 = none.
      axes: of the cameras, "opencv" (what the formats mean) or "opengl".
    """
    path = Path(source)
    sequences = _sequences(path)
    capture = (
        _seven_scenes(path, source, sequences, holdout, axes) if sequences else _scannet(path, source, holdout, axes)
    )
    return assemble(capture, downscale=downscale)


READER = SceneReader(sniff, read)


def _sequences(path: Path) -> list[Path]:
    folders = [path, *sorted(path.glob("seq*"))] if path.is_dir() else []
    return [folder for folder in folders if any(p.name.endswith(f"{_POSE}.txt") for p in files_in(folder, (".txt",)))]


def _seven_scenes(path: Path, source: str, sequences: list[Path], holdout: int, axes: str) -> Capture:
    images, poses, depths = {}, {}, {}
    for folder in sequences:
        prefix = "" if folder == path else f"{folder.name}/"

        def named(files, ending, prefix=prefix):
            found = by_stem([file for file in files if file.stem.endswith(ending)], suffix=ending)
            return {prefix + key: file for key, file in found.items()}

        images |= named(images_in(folder), _COLOR)
        depths |= named(images_in(folder), _DEPTH)
        poses |= named(files_in(folder, (".txt",)), _POSE)
    keys, notes = paired(poses, images, file=path)
    keys, matrices, lost = _tracked(keys, poses)
    names = [images[key].relative_to(path).as_posix() for key in keys]
    splits = _listed_splits(path, keys) or holdout_splits(names, holdout)
    lens, lens_notes = _shared_lens(path)
    frames = [
        raw_frame(
            name, images[key], lens, matrix,
            split=split, file=poses[key], axes=axes, depth=_depth(depths.get(key)),
        )
        for key, name, split, matrix in zip(keys, names, splits, matrices, strict=True)
    ]  # fmt: skip
    notes += [*lost, *lens_notes, *size_notes(frames, [lens.size] * len(frames))]
    if any(frame.depth is not None for frame in frames):
        notes.append("The depth camera of 7-Scenes stands beside the colour camera: depths are shifted a little.")
    provenance = {"layout": "7-Scenes", "sequences": len(sequences), "frames_found": len(frames), "axes": axes}
    return Capture(capture_name(path), "scannet", source, tuple(frames), tuple(notes), provenance, is_object=False)


def _split_folders(path: Path) -> dict[Path, str]:
    """Returns the folders of splits that hold poses and images, with their splits; {} where there is none to train."""
    found = {path / name: split for name, split in SPLIT_FOLDERS.items() if (path / name).is_dir()}
    found = {f: s for f, s in found.items() if folder_of(f, POSE_FOLDERS) and folder_of(f, IMAGE_FOLDERS)}
    return found if "train" in found.values() else {}


def _scannet(path: Path, source: str, holdout: int, axes: str) -> Capture:
    parts = _split_folders(path) if folder_of(path, POSE_FOLDERS) is None else {}
    frames, notes, count = [], [], 0
    for folder, split in (parts or {path: None}).items():
        found, more, poses = _folder_frames(path, folder, split, holdout, axes)
        frames, notes, count = [*frames, *found], [*notes, *more], count + poses
    layout = "a folder for each split" if parts else "pose and intrinsic folders"
    provenance = {"layout": layout, "poses": count, "frames_found": len(frames), "axes": axes}
    return Capture(capture_name(path), "scannet", source, tuple(frames), tuple(notes), provenance, is_object=False)


def _folder_frames(
    root: Path, path: Path, split: str | None, holdout: int, axes: str
) -> tuple[list[RawFrame], list[str], int]:
    """Returns the frames of one folder (of ``split``, or with splits held out), notes, and the number of poses."""
    pose_folder, image_folder = folder_of(path, POSE_FOLDERS), folder_of(path, IMAGE_FOLDERS)
    if pose_folder is None or image_folder is None:
        raise UserError("Poses or images are missing.", file=path, expected="pose/*.txt, color/ or image/, intrinsic/")
    poses, images = by_stem(files_in(pose_folder, (".txt",))), by_stem(images_in(image_folder))
    depth_folder = folder_of(path, ("depth", "depths"))
    depths = by_stem(images_in(depth_folder)) if depth_folder else {}
    keys, notes = paired(poses, images, file=pose_folder)
    keys, matrices, lost = _tracked(keys, poses)
    lenses, lens_notes = _lenses(path, keys)
    names = [images[key].relative_to(root).as_posix() for key in keys]
    splits = holdout_splits(names, holdout) if split is None else [split] * len(names)
    frames = [
        raw_frame(
            name, images[key], lens, matrix,
            split=own, file=poses[key], axes=axes, depth=_depth(depths.get(key)),
        )
        for key, name, own, lens, matrix in zip(keys, names, splits, lenses, matrices, strict=True)
    ]  # fmt: skip
    return frames, [*notes, *lost, *lens_notes], len(poses)


def _tracked(keys: list[str], poses: dict[str, Path]) -> tuple[list[str], list[np.ndarray], list[str]]:
    """Returns keys and poses of the frames that have one, and a note on those that lost their track (-inf)."""
    matrices = {key: read_matrix(poses[key], _POSE_SHAPES, finite=False) for key in keys}
    lost = [key for key in keys if np.isinf(matrices[key]).any()]
    kept = [key for key in keys if key not in set(lost)]
    if not kept:
        raise UserError("No frame has a pose: all are infinite.", file=poses[keys[0]].parent, found=shorten(lost, 2))
    notes = [f"{len(lost)} of {len(keys)} frames lost their track (-inf), left out: {shorten(lost)}."] if lost else []
    return kept, [matrices[key] for key in kept], notes


def _depth(file: Path | None) -> DepthReference | None:
    return None if file is None else DepthReference(file, MILLIMETRE, loader=partial(_decode, file))


def _decode(file: Path) -> np.ndarray:
    depth = decode_depth(file)
    return np.where(depth == UNKNOWN, 0, depth)


def _shared_lens(path: Path) -> tuple[Intrinsics, list[str]]:
    for folder in (path, path.parent):
        file = next((folder / name for name in SHARED if (folder / name).is_file()), None)
        if file is not None:
            return Intrinsics(read_intrinsics_matrix(file)), []
    note = "There is no calibration: took the customary one of 7-Scenes (focal length 585, principal point 320, 240)."
    return KINECT, [note]


def _has_intrinsics(path: Path) -> bool:
    folder = folder_of(path, INTRINSIC_FOLDERS)
    return bool(folder and files_in(folder, (".txt",))) or any((path / name).is_file() for name in SHARED)


def _lenses(path: Path, keys: list[str]) -> tuple[list[Intrinsics], list[str]]:
    """Returns the calibration of every frame: its own, else the shared one."""
    folder = folder_of(path, INTRINSIC_FOLDERS)
    each = by_stem(files_in(folder, (".txt",))) if folder else {}
    shared = next((f / name for f in (folder, path) if f for name in SHARED if (f / name).is_file()), None)
    without = [key for key in keys if key not in each]
    if without and shared is None:
        raise UserError(
            "Frames have no calibration.",
            file=folder or path,
            found=f"{len(without)} of {len(keys)} frames, such as {shorten(without, 2)}",
            expected=f"{without[0]}.txt in intrinsic/, or {SHARED[0]} for all",
        )
    common = Intrinsics(read_intrinsics_matrix(shared)) if shared is not None else KINECT
    own = len(keys) - len(without)
    notes = [f"{own} frames have a calibration of their own, {len(without)} the shared one."] if own and without else []
    return [Intrinsics(read_intrinsics_matrix(each[key])) if key in each else common for key in keys], notes


def _listed_splits(path: Path, keys: list[str]) -> list[str] | None:
    """Returns the splits that TrainSplit.txt and TestSplit.txt say, or None where neither is there."""
    listed: dict[int | None, str] = {}
    for split, name in SPLIT_FILES.items():
        file = path / name
        if not file.is_file():
            continue
        try:
            words = file.read_text(encoding="utf-8-sig").split()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError("The file cannot be read.", file=file, found=error) from error
        for word in words:
            number = number_in(word) if re.fullmatch(r"(sequence|seq)[-_ ]?[0-9]+", word) else None
            if number is None:
                raise UserError("A line names no sequence.", file=file, found=word, expected="sequence1")
            if listed.setdefault(number, split) != split:
                raise UserError("A sequence is in two splits.", file=file, found=word)
    if not listed or not any("/" in key for key in keys):
        return None
    splits = [listed.get(number_in(key.split("/")[0])) for key in keys]
    unlisted = sorted({key.split("/")[0] for key, split in zip(keys, splits, strict=True) if split is None})
    if unlisted:
        raise UserError("Sequences are in no split.", file=path / SPLIT_FILES["train"], found=shorten(unlisted))
    return [split or "train" for split in splits]
