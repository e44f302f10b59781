"""COLMAP's model files, .bin and .txt: cameras, images, points3D.

Poses are world-to-camera: a quaternion (w, x, y, z) and a translation in OpenCV camera axes. The centre of the top-left
pixel is (0.5, 0.5). Binary files are little-endian:

  cameras.bin   count u64; each: id i32, model i32, width u64, height u64, parameters f64…
  images.bin    count u64; each: id i32, quaternion and translation 7 f64, camera id i32, name to a zero byte,
                count u64 of (x f64, y f64, point id i64)
  points3D.bin  count u64; each: id u64, position 3 f64, colour 3 u8, error f64, count u64 of (image i32, index i32)

In images.txt the NAME is everything after the ninth field, so it may hold spaces; the second line of an image (its 2-D
points) may be empty or absent. Fields may be separated by commas (as kapture writes them). The rigs and frames files
of COLMAP 3.12 and later repeat what images holds and are not needed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from nerfjax.errors import UserError, did_you_mean
from nerfjax.scenes.colmap_model import (
    BY_NUMBER,
    LENS_MODELS,
    ColmapCamera,
    ColmapImage,
    ColmapModel,
    checked_camera,
)
from nerfjax.scenes.json_frames import is_plain

OBSERVATION = np.dtype([("xy", "<f8", 2), ("point", "<i8")])


def model_files(folder: Path) -> str | None:
    """Returns ".bin" or ".txt" where the folder holds cameras and images in that form (.bin first), else None."""
    return next(
        (e for e in (".bin", ".txt") if all((folder / f"{n}{e}").is_file() for n in ("cameras", "images"))), None
    )


def registered_count(folder: Path) -> int:
    """Returns the number of images in a folder's model, without reading all of it where it is binary."""
    if model_files(folder) == ".bin":
        return _Bytes(folder / "images.bin", 8).take("<Q", "number of images")[0]
    return len(_read_images_text(folder / "images.txt"))


def read_model(folder: Path) -> ColmapModel:
    """Reads a model; an absent points3D is an empty one.

    Raises:
      UserError: the model is not there, or a file is truncated, malformed or names an unknown lens model.
    """
    form = model_files(folder)
    if form is None:
        here = sorted(p.name for p in folder.iterdir() if p.stem in ("cameras", "images", "points3D"))
        raise UserError(
            "The COLMAP model is incomplete.",
            file=folder,
            found=", ".join(here) or "none of its files",
            expected="cameras and images, both .bin or both .txt",
        )
    cameras, images, points = (folder / f"{name}{form}" for name in ("cameras", "images", "points3D"))
    binary = form == ".bin"
    found = (_read_points_binary if binary else _read_points_text)(points) if points.is_file() else _no_points()
    return ColmapModel(
        cameras=_read_cameras_binary(cameras) if binary else _read_cameras_text(cameras),
        images=_read_images_binary(images) if binary else _read_images_text(images),
        point_ids=found[0],
        positions=found[1],
    )


def _no_points() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(0, np.int64), np.zeros((0, 3))


def _add(table: dict, number: int, entry, *, file: Path) -> None:
    if number in table:
        raise UserError("An id occurs twice.", file=file, found=number, expected="one entry each")
    table[number] = entry


# --- text ------------------------------------------------------------------------------------------------------------


def _lines(path: Path) -> list[tuple[int, str]]:
    """Returns the numbered lines that are no comments; blank ones stay."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise UserError("The file cannot be read.", file=path, found=error) from error
    return [(n, line) for n, line in enumerate(text.splitlines(), start=1) if not line.lstrip().startswith("#")]


def _malformed(path: Path, number: int, line: str, expected: str) -> UserError:
    return UserError("A line cannot be read.", file=path, field=f"line {number}", found=line[:80], expected=expected)


def _check_plain(words: Iterable[str]) -> None:
    """Raises ValueError for what Python takes as a number and no other program would (1_0, other scripts' digits)."""
    if not all(map(is_plain, words)):
        raise ValueError("not a plain number")


def _read_cameras_text(path: Path) -> dict[int, ColmapCamera]:
    cameras: dict[int, ColmapCamera] = {}
    for number, line in _lines(path):
        words = line.replace(",", " ").split()
        if not words:
            continue
        try:
            _check_plain([words[0], *words[2:]])
            identity, model, width, height = int(words[0]), words[1], int(float(words[2])), int(float(words[3]))
            parameters = np.array(words[4:], np.float64)
        except (ValueError, IndexError, OverflowError):
            raise _malformed(path, number, line, "CAMERA_ID MODEL WIDTH HEIGHT PARAMS…") from None
        if model not in LENS_MODELS:
            fix = did_you_mean(model, LENS_MODELS)
            raise UserError("Unknown camera model.", file=path, field=f"line {number}", found=model, fix=fix)
        camera = checked_camera(model, width, height, parameters, file=path, label=f"Camera {identity}")
        _add(cameras, identity, camera, file=path)
    return cameras


_IMAGE_LINE = re.compile(r"\s*" + r"([^\s,]+)[\s,]+" * 9 + r"(\S.*)")


def _read_images_text(path: Path) -> dict[int, ColmapImage]:
    images: dict[int, ColmapImage] = {}
    lines = _lines(path)
    at = 0
    while at < len(lines):
        number, line = lines[at]
        at += 1
        if not line.strip():
            continue
        match = _IMAGE_LINE.match(line)
        try:
            _check_plain(match.groups()[:9] if match else ())
            identity, camera = int(match[1]), int(match[9])
            pose = np.array(match.groups()[1:8], np.float64)
        except (ValueError, TypeError, OverflowError):
            expected = "IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME"
            raise _malformed(path, number, line, expected) from None
        observed = _observations(lines[at][1]) if at < len(lines) else None
        if observed is not None:
            at += 1
        pixels, points = observed or (np.zeros((0, 2)), np.zeros(0, np.int64))
        image = ColmapImage(match[10].strip(), camera, pose[:4], pose[4:], pixels, points)
        _add(images, identity, image, file=path)
    return images


def _observations(line: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the 2-D points of an image's second line, or None where the line is another image's first one."""
    words = line.replace(",", " ").split()
    if len(words) % 3:
        return None
    try:
        table = np.array(words, np.float64).reshape(-1, 3)
    except ValueError:
        return None
    return table[:, :2], np.where(np.abs(table[:, 2]) < 2**53, table[:, 2], -1).astype(np.int64)


def _read_points_text(path: Path) -> tuple[np.ndarray, np.ndarray]:
    identities, positions = [], []
    for number, line in _lines(path):
        words = line.replace(",", " ").split(maxsplit=4)
        if not words:
            continue
        try:
            _check_plain(words[:4])
            identities.append(int(words[0]))
            positions.append((float(words[1]), float(words[2]), float(words[3])))
        except (ValueError, IndexError):
            raise _malformed(path, number, line, "POINT3D_ID X Y Z R G B ERROR TRACK…") from None
    return np.array(identities, np.int64), np.array(positions, np.float64).reshape(-1, 3)


# --- binary ----------------------------------------------------------------------------------------------------------


class _Bytes:
    """A binary file (or its first ``size`` bytes), read from its beginning to its end."""

    def __init__(self, path: Path, size: int = -1):
        self.path, self.at = path, 0
        try:
            with open(path, "rb") as file:
                self.content = file.read(size)
        except OSError as error:
            raise UserError("The file cannot be read.", file=path, found=error) from error

    def skip(self, size: int, what: str) -> int:
        """Steps over ``size`` bytes and returns where they begin."""
        begin = self.at
        if begin + size > len(self.content):
            raise UserError(
                "The file ends early.", file=self.path, field=what, found=f"{len(self.content)} bytes",
                expected=f"at least {begin + size}",
            )  # fmt: skip
        self.at += size
        return begin

    def take(self, form: str, what: str) -> tuple:
        """Returns the next numbers."""
        return struct.unpack_from(form, self.content, self.skip(struct.calcsize(form), what))

    def rows(self, dtype: np.dtype, what: str) -> np.ndarray:
        """Returns a counted array."""
        count = self.take("<Q", what)[0]
        return np.frombuffer(self.content, dtype, count, self.skip(count * dtype.itemsize, what))

    def text(self, what: str) -> str:
        """Returns the text up to a zero byte."""
        end = self.content.find(b"\0", self.at)
        begin = self.skip((end if end >= 0 else len(self.content)) + 1 - self.at, what)
        return self.content[begin:end].decode("utf-8", errors="surrogateescape")


def _read_cameras_binary(path: Path) -> dict[int, ColmapCamera]:
    data, cameras = _Bytes(path), {}
    for index in range(data.take("<Q", "number of cameras")[0]):
        identity, number, width, height = data.take("<iiQQ", f"camera {index}")
        if number not in BY_NUMBER:
            raise UserError(
                "Unknown camera model.", file=path, field=f"camera {identity}", found=number,
                expected=f"a number from 0 to {max(BY_NUMBER)}", fix="is the file from a newer COLMAP, or damaged?",
            )  # fmt: skip
        model = BY_NUMBER[number]
        parameters = data.take(f"<{len(LENS_MODELS[model].parameters)}d", f"camera {identity}")
        camera = checked_camera(model, width, height, parameters, file=path, label=f"Camera {identity}")
        _add(cameras, identity, camera, file=path)
    return cameras


def _read_images_binary(path: Path) -> dict[int, ColmapImage]:
    data, images = _Bytes(path), {}
    for index in range(data.take("<Q", "number of images")[0]):
        identity, *pose, camera = data.take("<i7di", f"image {index}")
        name = data.text(f"name of image {identity}")
        observed = data.rows(OBSERVATION, f"points of {name}")
        pose = np.array(pose)
        image = ColmapImage(name, camera, pose[:4], pose[4:], observed["xy"], observed["point"])
        _add(images, identity, image, file=path)
    return images


def _read_points_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    data, identities, positions = _Bytes(path), [], []
    for index in range(data.take("<Q", "number of points")[0]):
        identity, x, y, z, *_, length = data.take("<Q3d3BdQ", f"point {index}")
        data.skip(8 * length, f"track of point {identity}")
        identities.append(identity)
        positions.append((x, y, z))
    return np.array(identities, np.uint64).astype(np.int64), np.array(positions, np.float64).reshape(-1, 3)
