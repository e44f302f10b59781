"""What formats with one file per pose have in common: matrices in text files, images paired by name, raw frames.

Numbers are read as float64. A pose is given as camera-to-world or world-to-camera [3, 4] or [4, 4] in camera axes that
are "opencv" (x right, y down, z forward) or "opengl" (x right, y up, z backward) and becomes camera-to-world OpenGL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.base import shorten
from nerfjax.scenes.capture import RawFrame
from nerfjax.scenes.depths import DepthReference
from nerfjax.scenes.images import EXTENSIONS, ImageReference, only_photos, open_image
from nerfjax.scenes.json_frames import LARGEST, image_scale, is_plain, to_pose

_SKEW = 0.1  # pixels at the image's edge above which a skew is worth a word


class Intrinsics(NamedTuple):
    """A calibration: ``matrix`` [3, 3], the (width, height) that it belongs to or None, distortion and model."""

    matrix: np.ndarray
    size: tuple[float | int, float | int] | None = None
    distortion: Sequence = (0.0,) * 6
    model: str = "pinhole"


def natural_key(name: str) -> list:
    """Sort key that puts img2 before img10."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", name) if part]


def number_in(name: str) -> int | None:
    """Returns the last number in a name, or None."""
    numbers = re.findall(r"[0-9]+", name)
    return int(numbers[-1]) if numbers else None


def files_in(folder: Path, extensions: Iterable[str]) -> list[Path]:
    """Returns the visible files of a folder with one of the extensions (any case), in natural order; none there: []."""
    if not folder.is_dir():
        return []
    endings = tuple(extensions)
    found = [p for p in folder.iterdir() if not p.name.startswith(".") and p.suffix.lower() in endings and p.is_file()]
    return sorted(found, key=lambda p: natural_key(p.name))


def images_in(folder: Path) -> list[Path]:
    """Returns the visible image files of a folder in natural order."""
    return only_photos(files_in(folder, EXTENSIONS))


def folder_of(root: Path, names: Iterable[str]) -> Path | None:
    """Returns the first existing folder of these names, or None."""
    return next((root / name for name in names if (root / name).is_dir()), None)


def by_stem(files: Iterable[Path], *, suffix: str = "") -> dict[str, Path]:
    """Returns the files by their stem without ``suffix``.

    Raises:
      UserError: two files differ only by their extension.
    """
    named: dict[str, Path] = {}
    for file in files:
        stem = file.stem.removesuffix(suffix)
        other = named.setdefault(stem, file)
        if other != file:
            raise UserError(
                "Two files have one name.",
                file=file.parent,
                found=f"{other.name} and {file.name}",
                fix="keep one of them",
            )
    return named


def paired(
    poses: Mapping, images: Mapping, *, file: Path, pose_word: str = "poses", wanted: Iterable | None = None
) -> tuple[list, list[str]]:
    """Pairs poses and images by their keys.

    Args:
      poses, images: by name or number.
      file: the folder (or file) of the poses, for messages.
      pose_word: what the poses are called in messages.
      wanted: keys of images that should have a pose; by default all of them.

    Returns:
      (keys that occur in both, in the order of ``images``; notes that count and name the rest).

    Raises:
      UserError: no key occurs in both.
    """
    both = [key for key in images if key in poses]
    without_pose = [str(key) for key in (images if wanted is None else wanted) if key not in poses]
    without_image = [str(key) for key in poses if key not in images]
    if not both:
        raise UserError(
            f"No image belongs to one of the {pose_word}.",
            file=file,
            found=f"{len(poses)} {pose_word} ({shorten(without_image, 2) or 'none'}) and "
            f"{len(images)} images ({shorten(without_pose, 2) or 'none'})",
            expected="the same names (without extension) or numbers",
        )
    notes = []
    if without_image:
        notes.append(f"{len(without_image)} of {len(poses)} {pose_word} have no image: {shorten(without_image)}.")
    if without_pose:
        notes.append(f"{len(without_pose)} of {len(images)} images have none of the {pose_word}, left out: "
                     f"{shorten(without_pose)}.")  # fmt: skip
    return both, notes


def read_numbers(path: Path) -> list[list[float]]:
    """Returns the numbers of a text file, line by line; blank lines and comments (#) are skipped.

    Raises:
      UserError: the file cannot be read or holds a word that is no number.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("The file cannot be read.", file=path, found=error) from error
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#")[0].replace(",", " ").split()
        try:
            if not is_plain("".join(words)):
                raise ValueError
            row = [float(word) for word in words]
        except ValueError as error:
            raise UserError(
                "The file holds something that is no number.",
                file=path,
                field=f"line {number}",
                found=line.strip()[:80],
            ) from error
        rows += [row] if row else []
    return rows


def read_matrix(path: Path, shapes: Sequence[tuple[int, int]], *, finite: bool = True) -> np.ndarray:
    """Reads a matrix of one of the shapes from a text file (in rows, or all numbers in one line).

    Raises:
      UserError: another number of numbers, or one that is not finite.
    """
    rows = read_numbers(path)
    flat = [value for row in rows for value in row]
    shape = next((s for s in shapes if len(flat) == s[0] * s[1] and len(rows) in (1, s[0])), None)
    if shape is None:
        raise UserError(
            "The file does not hold the matrix that belongs there.",
            file=path,
            found=f"{len(flat)} numbers in {len(rows)} lines",
            expected=" or ".join(f"{a}x{b}" for a, b in shapes),
        )
    matrix = np.array(flat, np.float64).reshape(shape)
    if finite and not np.isfinite(matrix).all():
        raise UserError("The matrix holds a number that is not finite.", file=path, found=matrix.tolist())
    return matrix


def read_intrinsics_matrix(path: Path) -> np.ndarray:
    """Reads a calibration matrix (3x3, 3x4 or 4x4) and returns its [3, 3] part, checked."""
    return check_intrinsics(read_matrix(path, ((3, 3), (4, 4), (3, 4)))[:3, :3], file=path, field="K")


def check_intrinsics(matrix, *, file, field: str = "K") -> np.ndarray:
    """Returns a calibration matrix [3, 3] scaled to K[2, 2] = 1.

    Raises:
      UserError: not a calibration: not finite, no positive focal lengths, or transposed.
    """
    matrix = np.asarray(matrix, np.float64)
    below = [matrix[1, 0], matrix[2, 0], matrix[2, 1]] if matrix.shape == (3, 3) else []
    good = matrix.shape == (3, 3) and np.isfinite(matrix).all() and matrix[2, 2] > 0
    matrix = matrix / matrix[2, 2] if good and np.abs(matrix).max() <= LARGEST * min(1.0, matrix[2, 2]) else matrix
    good = good and np.abs(matrix).max() <= LARGEST and matrix[2, 2] == 1
    good = good and matrix[0, 0] > 0 and matrix[1, 1] > 0 and np.abs(below).max() <= 1e-6 * matrix[0, 0]
    if not good:
        raise UserError(
            "The calibration matrix is none.",
            file=file,
            field=field,
            found=matrix.tolist(),
            expected="[[fx, s, cx], [0, fy, cy], [0, 0, 1]] with positive focal lengths",
        )
    return matrix


def camera_matrix(fx: float | int, fy: float | int, cx: float | int, cy: float | int) -> np.ndarray:
    """Returns [[fx, 0, cx], [0, fy, cy], [0, 0, 1]]."""
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]], np.float64)


def raw_frame(
    name: str,
    image: Path,
    intrinsics: Intrinsics,
    pose: np.ndarray,
    *,
    split: str,
    file: Path,
    axes: str,
    mask: ImageReference | None = None,
    depth: DepthReference | None = None,
    inverse: bool = False,
) -> RawFrame:
    """Builds a frame; intrinsics are scaled to the image on disk.

    Args:
      name: relative path with forward slashes.
      image: the file.
      intrinsics: of the camera.
      pose: [3, 4] or [4, 4] in ``axes``: camera-to-world, or world-to-camera where ``inverse``.
      split: "train", "val" or "test".
      file: where the pose stands, for messages.
      axes: "opencv" or "opengl".
      mask, depth: see ``RawFrame``.
      inverse: whether the pose is world-to-camera.
    """
    pose = to_pose(pose, file=file, name=name, axes=axes, inverse=inverse)
    reference = open_image(image, expected=intrinsics.size)
    scale = image_scale(reference.size, intrinsics.size, file=file, name=name)
    matrix = intrinsics.matrix
    return RawFrame(
        name=name,
        image=reference,
        split=split,
        pose=pose,
        focal=np.array([matrix[0, 0], matrix[1, 1]]) * scale,
        center=np.array([matrix[0, 2], matrix[1, 2]]) * scale,
        distortion=np.array(intrinsics.distortion, np.float64),
        model=intrinsics.model,
        mask=None if mask is None else mask.resized(reference.size),
        depth=depth,
    )


def size_notes(frames: Sequence[RawFrame], sizes: Sequence[tuple[float | int, float | int] | None]) -> list[str]:
    """Returns a note that counts the images whose intrinsics were scaled to another size."""
    pairs = zip(frames, sizes, strict=True)
    other = [(f, s) for f, s in pairs if s is not None and tuple(f.image.size) != (round(s[0]), round(s[1]))]
    if not other:
        return []
    frame, size = other[0]
    return [
        f"{len(other)} of {len(frames)} images have another size than their camera ({frame.name}: "
        f"{frame.image.size[0]}x{frame.image.size[1]} for {size[0]:g}x{size[1]:g}); the intrinsics were scaled."
    ]


def skew_notes(matrices: Iterable[np.ndarray]) -> list[str]:
    """Returns a note where axes of the pixel grid are skewed by more than a tenth of a pixel at the image's edge."""
    worst = max((abs(m[0, 1] / m[1, 1] * m[1, 2]) for m in matrices), default=0.0)
    return [f"Cameras have a skew of up to {worst:.2g} pixels, which is ignored."] if worst > _SKEW else []
