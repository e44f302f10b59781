"""Reader of the IDR layout of DTU and others (IDR, VolSDF, NeuS): ``image/``, ``mask/`` and ``cameras*.npz``.

``world_mat_i`` [4, 4] projects the world to pixels, P = K [R | t] (OpenCV axes), and ``scale_mat_i`` leads from
coordinates in which the object lies in the unit sphere to the world. P = world_mat_i @ scale_mat_i is decomposed: the
capture's coordinates are those of the unit sphere, and exports lead back to the world. Where ``world_mat_i`` is [R | t]
only, ``camera_mat_i`` holds K (in pixels, or of an image that spans -1 to 1). The principal point is taken as it
stands: nobody says where a pixel's centre is.

Several files differ in the size of the sphere only: ``cameras_sphere.npz`` goes before ``cameras.npz`` and
``cameras_large.npz``, and the rough ``cameras_linear_init.npz`` comes last. Image i is the one with the number i in
its name, whatever its digits. Masks are black where pixels are ignored.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nerfjax.errors import UserError
from nerfjax.geometry.poses import invert_similarity
from nerfjax.scenes.assemble import assemble, capture_name
from nerfjax.scenes.base import Scene, SceneReader, holdout_splits, shorten
from nerfjax.scenes.capture import Capture, corners_of
from nerfjax.scenes.folders import (
    Intrinsics,
    check_intrinsics,
    files_in,
    folder_of,
    images_in,
    number_in,
    paired,
    raw_frame,
    skew_notes,
)
from nerfjax.scenes.images import open_image
from nerfjax.scenes.json_frames import LARGEST
from nerfjax.scenes.masks import open_mask, with_masks
from nerfjax.scenes.numbers_in_text import real_numbers

PREFERENCE = ("cameras_sphere.npz", "cameras.npz", "cameras_large.npz", "cameras_linear_init.npz")
IMAGE_FOLDERS = ("image", "images", "rgb")
MASK_FOLDERS = ("mask", "masks")
UNIT_BOX = np.array([[-1.0] * 3, [1.0] * 3])
# What numpy and zipfile raise on damaged archives.
_BROKEN = (
    OSError, ValueError, TypeError, EOFError, KeyError, AttributeError, RuntimeError, MemoryError, OverflowError,
    zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip
_KEY = re.compile(r"(world|scale|camera)_mat_?([0-9]+)")


class ProjectiveCamera(NamedTuple):
    """K [3, 3] and the world-to-camera [3, 4]."""

    intrinsics: np.ndarray
    pose: np.ndarray


def sniff(source: str) -> str | None:
    """Recognises a folder with cameras*.npz, or such a file."""
    files = _candidates(Path(source))
    return f"holds {files[0].name}" if files else None


def read(
    source: str, *, downscale: float | int = 1, holdout: int = 8, axes: str = "opencv", masks: str = "ignore"
) -> Scene:
    """Reads a folder in the IDR layout.

    Args:
      source: the folder, or one of its npz files to choose it.
      downscale: factor by which images become smaller.
      holdout: every holdout-th frame (by number) is for testing; 0 = none.
      axes: of the cameras, "opencv" (what the format means) or "opengl".
      masks: what pixels outside of the masks are: see ``with_masks``.
    """
    candidates = _candidates(Path(source))
    if not candidates:
        raise UserError("There are no cameras.", file=source, expected=" or ".join(PREFERENCE))
    path = candidates[0]
    root = path.parent
    world, scale, calibration = _matrices(path)
    image_folder = folder_of(root, IMAGE_FOLDERS)
    files = images_in(image_folder) if image_folder else []
    if not files:
        raise UserError("There are no images.", file=root, expected="image/000000.png, image/000001.png, …")
    images, notes = _indexed(files, world, path)
    keys, more = paired(world, images, file=path, pose_word="cameras")
    if len(candidates) > 1:
        others = shorten([other.name for other in candidates[1:]])
        notes.append(f"Cameras are those of {path.name}; {others} differ in the unit sphere or are rough. "
                     "Give another file as the source to choose it.")  # fmt: skip
    applied, scale_notes = _unit_sphere(scale, keys, path)
    mask_folder = folder_of(root, MASK_FOLDERS) if masks != "off" else None
    mask_files, mask_notes = _mask_files(mask_folder, keys, images)
    frames, matrices = [], []
    names = [images[key].relative_to(root).as_posix() for key in keys]
    for key, name, split in zip(keys, names, holdout_splits(names, holdout), strict=True):
        size = open_image(images[key]).size
        camera = decompose(_projection(world[key], calibration.get(key), size) @ invert_similarity(applied), path, key)
        mask = open_mask(mask_files[key], size) if key in mask_files else None
        frames.append(
            raw_frame(
                name, images[key], Intrinsics(camera.intrinsics), camera.pose,
                split=split, file=path, axes=axes, inverse=True, mask=mask,
            )
        )  # fmt: skip
        matrices.append(camera.intrinsics)
    notes += [*more, *scale_notes, *mask_notes, *skew_notes(matrices)]
    provenance = {"file": path.name, "cameras": len(world), "frames_found": len(frames), "axes": axes}
    capture = Capture(
        capture_name(root),
        "idr",
        source,
        with_masks(frames, masks),
        tuple(notes),
        provenance,
        region=corners_of(UNIT_BOX),
        applied=applied,
    )
    return assemble(capture, downscale=downscale)


READER = SceneReader(sniff, read)


def decompose(projection: np.ndarray, path: Path, index: int) -> ProjectiveCamera:
    """Splits P [3, 4] into K [R | t], with K upper triangular, positive focal lengths and det R = 1.

    Raises:
      UserError: P is singular or not finite.
    """
    field = f"world_mat_{index}"
    with np.errstate(all="ignore"):
        size = np.linalg.norm(projection[2, :3]) if np.isfinite(projection).all() else 0.0
        projection = projection / (size if size > 0 else 1.0)
        determinant = np.linalg.det(projection[:, :3]) if size > 0 else 0.0
    if not (size > 0 and np.isfinite(determinant) and abs(determinant) > 1e-12):
        raise UserError("A projection matrix is singular.", file=path, field=field, found=projection.tolist())
    projection = projection * np.sign(determinant)  # P and -P are one camera; this one has the scene in front
    # RQ by QR of the matrix turned upside down.
    turn = np.eye(3)[::-1]
    q, r = np.linalg.qr((turn @ projection[:, :3]).T)
    upper, rotation = turn @ r.T @ turn, turn @ q.T
    signs = np.diag(np.sign(np.diag(upper)))
    upper, rotation = upper @ signs, signs @ rotation
    translation = np.linalg.solve(upper, projection[:, 3])
    upper = check_intrinsics(np.triu(upper), file=path, field=field)
    return ProjectiveCamera(upper, np.concatenate([rotation, translation[:, None]], axis=1))


def _candidates(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix.lower() == ".npz" else []
    found = [file for file in files_in(path, (".npz",)) if file.name.lower().startswith("cameras")]
    rank = {name: i for i, name in enumerate(PREFERENCE)}
    return sorted(found, key=lambda file: (rank.get(file.name.lower(), len(rank)), file.name))


def _matrices(path: Path) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Returns world_mat, scale_mat and camera_mat by number."""
    found: dict[str, dict[int, np.ndarray]] = {"world": {}, "scale": {}, "camera": {}}
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            keys = list(archive.keys())
            for key in keys:
                match = _KEY.fullmatch(key)
                if match:
                    matrix = real_numbers(archive[key])
                    if matrix.shape not in ((4, 4), (3, 4)) and not (match[1] == "camera" and matrix.shape == (3, 3)):
                        raise UserError("A matrix has a wrong shape.", file=path, field=key, found=matrix.shape,
                                        expected="(4, 4)")  # fmt: skip
                    if not (np.abs(matrix) <= LARGEST).all():
                        raise UserError("A matrix is not finite.", file=path, field=key, found=matrix.tolist())
                    found[match[1]][int(match[2])] = matrix
    except _BROKEN as error:
        raise UserError(
            "The file cannot be read.", file=path, found=error, expected="an npz file of matrices"
        ) from error
    if not found["world"]:
        raise UserError(
            "The file holds no cameras of this layout.",
            file=path,
            field="world_mat_0",
            found=f"keys {shorten(sorted(keys))}",
            expected="world_mat_i and scale_mat_i for every image i",
            fix="write world_mat_i = K [R | t] from whatever the file holds",
        )
    return found["world"], found["scale"], found["camera"]


def _indexed(files: list[Path], world: dict[int, np.ndarray], path: Path) -> tuple[dict[int, Path], list[str]]:
    """Returns the images by the number of their camera: the number in their names, else their place in the order."""
    listed = [number_in(file.stem) for file in files]
    if None not in listed and len(set(listed)) == len(files) and set(listed) <= set(world):
        return dict(zip(listed, files, strict=True)), []
    if len(files) == len(world):
        note = f"The numbers in the images' names are not the cameras': paired in order, {files[0].name} first."
        return dict(zip(sorted(world), files, strict=True)), [note]
    if None in listed or len(set(listed)) < len(files) or not set(listed) & set(world):
        raise UserError(
            "Images and cameras cannot be paired.",
            file=path,
            found=f"{len(world)} cameras ({shorten([f'world_mat_{i}' for i in sorted(world)], 2)}), "
            f"{len(files)} images ({shorten([file.name for file in files], 2)})",
            expected="images numbered as the cameras are, or as many of them",
        )
    return dict(zip(listed, files, strict=True)), []


def _projection(world: np.ndarray, calibration: np.ndarray | None, size: tuple[int, int]) -> np.ndarray:
    """Returns P [3, 4], world to pixels."""
    rotation = world[:3, :3]
    if calibration is None or np.abs(rotation @ rotation.T - np.eye(3)).max() > 1e-3:
        return world[:3]
    matrix = calibration[:3, :3]
    if abs(matrix[0, 0]) < 20:  # an image from -1 to 1
        half = np.array(size) / 2
        matrix = np.array([[half[0], 0, half[0]], [0, half[1], half[1]], [0, 0, 1]]) @ matrix
    return matrix @ world[:3]


def _unit_sphere(scale: dict[int, np.ndarray], keys: list[int], path: Path) -> tuple[np.ndarray, list[str]]:
    """Returns the similarity from the world to the unit sphere's coordinates, and notes."""
    present = [key for key in keys if key in scale]
    if not present:
        return np.eye(4), ["There is no scale_mat_i: the unit sphere is taken to be the world's."]
    matrix = np.eye(4)
    matrix[:3] = scale[present[0]][:3]
    linear = matrix[:3, :3]
    size = np.cbrt(abs(np.linalg.det(linear)))
    if not (size > 0 and np.abs(linear / size - np.eye(3)).max() < 1e-3):
        raise UserError(
            "A scale matrix is none.",
            file=path,
            field=f"scale_mat_{present[0]}",
            found=matrix.tolist(),
            expected="a positive scale and a shift, without rotation",
        )
    matrix[:3, :3] = size * np.eye(3)
    other = [key for key in present if np.abs(scale[key][:3] - scale[present[0]][:3]).max() > 1e-3 * size]
    notes = [f"scale_mat_i differs between cameras ({len(other)} of {len(present)}); took the first."] if other else []
    return invert_similarity(matrix), notes


def _mask_files(folder: Path | None, keys: list[int], images: dict[int, Path]) -> tuple[dict[int, Path], list[str]]:
    """Returns the masks by number, paired by name or, where digits differ, by number."""
    if folder is None:
        return {}, []
    files = images_in(folder)
    stems, by_number = {file.stem: file for file in files}, {number_in(file.stem): file for file in files}
    found = {}
    for key in keys:
        file = stems.get(images[key].stem) or by_number.get(number_in(images[key].stem))
        if file is not None:
            found[key] = file
    notes = []
    if len(found) < len(keys):
        notes.append(f"{len(keys) - len(found)} of {len(keys)} images have no mask in {folder.name}/.")
    return found, notes
