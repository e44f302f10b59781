"""From photos as photogrammetry software registers them (a name, a pose, a lens) to a capture.

Photos are paired with files by name (``photo_files.py``), never by position. Photos whose file is missing, photos that
were not registered and files that no photo names are left out, counted and named. Frames stand in natural order of
their files.

``axes`` says what the camera axes of a pose mean: "opencv" (x right, y down, looks along +z) or "opengl" (y up, looks
along -z). Lenses are stated in pixels with the centre of the top-left pixel at (0.5, 0.5), for the size that the
software saw, and are scaled per axis where the file has another size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nerfjax.errors import UserError, did_you_mean
from nerfjax.scenes.assemble import assemble, capture_name
from nerfjax.scenes.base import Scene, SceneReader, holdout_splits, shorten
from nerfjax.scenes.capture import Capture, RawFrame
from nerfjax.scenes.images import open_image
from nerfjax.scenes.json_frames import AXES, LARGEST, image_scale, to_pose
from nerfjax.scenes.photo_files import FileIndex, find_descriptor, only_descriptor
from nerfjax.scenes.transforms_json import natural_key
from nerfjax.types import DISTORTION

Vector = np.ndarray | Sequence[float | int]


@dataclass(frozen=True)
class Lens:
    """Intrinsics of a photo.

    Attributes:
      model: a name of ``types.CAMERA_MODELS``.
      focal, center: [2] pixels.
      distortion: [12] in the order of ``types.DISTORTION``.
    """

    model: str
    focal: np.ndarray
    center: np.ndarray
    distortion: np.ndarray


class Photo(NamedTuple):
    """A registered photo.

    Attributes:
      name: label or path, as the software wrote it.
      pose: [4, 4] or [3, 4] camera-to-world, in the file's camera axes.
      lens: gives the lens, from the file's (width, height) where ``size`` is None, else in pixels of ``size``.
      size: (width, height) that the software saw, where it says so.
    """

    name: str
    pose: np.ndarray
    lens: Callable[[tuple[int, int]], Lens]
    size: tuple[float | int, float | int] | None = None


@dataclass
class Registration:
    """What a file of photogrammetry software holds.

    Attributes:
      format: name of the reader.
      path: the file.
      root: folder below which the photos are.
      photos: the registered ones.
      unregistered: names of those that have no pose.
      points: [P, 3] sparse points, or None.
      region: [8, 3] corners of a box around what is of interest, or None.
      notes, provenance: as in ``Capture``.
    """

    format: str
    path: Path
    root: Path
    photos: list[Photo]
    unregistered: list[str] = field(default_factory=list)
    points: np.ndarray | None = None
    region: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)


def photo_reader(
    registration: Callable[[Path, Path], Registration],
    *,
    accept: Callable[[Path], bool],
    says: str,
    expected: str,
    axes: str,
) -> SceneReader:
    """Makes the reader of a format that keeps all cameras in one file.

    Args:
      registration: ``(file, folder of the photos) -> Registration``.
      accept: whether a file is of the format.
      says: what ``sniff`` says of the file, after its name.
      expected: the file that is looked for, for the message when there is none.
      axes: what the camera axes of the format mean, "opencv" or "opengl"; a file may have been written wrongly.
    """
    usual = axes

    def sniff(source: str) -> str | None:
        found = find_descriptor(source, accept)
        return f"{found[0].name} {says}" if found else None

    def read(source: str, *, downscale: float | int = 1, holdout: int = 8, axes: str = usual) -> Scene:
        path, root = only_descriptor(source, accept, expected)
        return assemble(to_capture(registration(path, root), source, holdout=holdout, axes=axes), downscale=downscale)

    return SceneReader(sniff, read)


def to_capture(found: Registration, source: str, *, holdout: int, axes: str) -> Capture:
    """Pairs photos with their files and states the capture.

    Args:
      found: what the file holds.
      source: what the user gave.
      holdout: every holdout-th frame is for testing; 0 = none.
      axes: of the poses' cameras, "opencv" or "opengl".

    Raises:
      UserError: no photo has a file, or a pose, lens or image is bad.
    """
    if axes not in AXES:
        raise UserError("Unknown camera axes.", field="axes", found=axes, fix=did_you_mean(axes, AXES))
    pairs, notes = pair_photos(found)
    names = [file.relative_to(found.root).as_posix() for _, file in pairs]
    frames, resized = [], []
    for (photo, file), name, split in zip(pairs, names, holdout_splits(names, holdout), strict=True):
        frame, scaled = _raw_frame(photo, file, name, split, found.path, axes)
        frames.append(frame)
        resized += [name] if scaled else []
    if resized:
        notes.append(
            f"{len(resized)} images have another size than their camera ({shorten(resized, 2)}): "
            "the intrinsics were scaled to them."
        )
    points = found.points
    if points is not None:
        good = (np.abs(points) <= LARGEST).all(axis=-1)
        if not good.all():
            notes.append(f"{int((~good).sum())} of {len(points)} sparse points are no points and were left out.")
        points = points[good] if good.any() else None
    provenance = {
        "file": found.path.name,
        "photos_registered": len(found.photos),
        "photos_unregistered": len(found.unregistered),
        "frames_found": len(frames),
        "axes": axes,
        **found.provenance,
    }
    return Capture(
        capture_name(found.root),
        found.format,
        source,
        tuple(frames),
        (*found.notes, *notes),
        provenance,
        points=points,
        region=found.region,
    )


def pair_photos(found: Registration) -> tuple[list[tuple[Photo, Path]], list[str]]:
    """Returns (photo, file) in natural order of the files, and notes on all that was left out.

    Raises:
      UserError: nothing registered, no pair at all, two photos of one name, or a name that fits several files.
    """
    if not found.photos:
        count = len(found.unregistered)
        raise UserError("No photo is registered.", file=found.path, found=f"{count} photos, none with a pose")
    twice = [name for name, count in Counter(photo.name for photo in found.photos).items() if count > 1]
    if twice:
        raise UserError(
            "Several cameras have one name.",
            file=found.path,
            found=shorten(twice, 2),
            fix="give each photo its own name",
        )
    files = FileIndex(found.root)
    fits = [files.find(photo.name) for photo in found.photos]
    # Of photos that fit one file, the one whose path agrees further owns it.
    best: dict[Path, int] = {}
    for fit in fits:
        if fit is not None:
            best[fit.file] = max(best.get(fit.file, 0), fit.parts)
    pairs = [
        (photo, fit.file)
        for photo, fit in zip(found.photos, fits, strict=True)
        if fit is not None and fit.parts == best[fit.file]
    ]
    shared = [file for file, count in Counter(file for _, file in pairs).items() if count > 1]
    if shared:
        rivals = [photo.name for photo, file in pairs if file == shared[0]]
        raise UserError(
            "Several cameras fit one image.",
            file=found.path,
            found=shorten(rivals, 3),
            expected=f"one for {shared[0].name}",
        )
    owners = {photo.name for photo, _ in pairs}
    missing = [photo.name for photo in found.photos if photo.name not in owners]
    if not pairs:
        here = [path.relative_to(found.root).as_posix() for path in files.paths]
        raise UserError(
            "No camera has an image here.",
            file=found.path,
            found=f"{len(missing)} cameras such as {shorten(missing, 2)}",
            expected=f"{len(here)} images such as {shorten(here, 2)}" if here else f"image files in {found.root}",
            fix="keep the photos' names, or put them beside the file",
        )
    notes = []
    if missing:
        notes.append(
            f"{len(missing)} of {len(found.photos)} cameras have no image and were left out: {shorten(missing)}"
        )
    if found.unregistered:
        total = len(found.photos) + len(found.unregistered)
        notes.append(
            f"{len(found.unregistered)} of {total} photos were not registered and were left out: "
            f"{shorten(found.unregistered)}"
        )
    used = {file for _, file in pairs} | {fit.file for fit in map(files.find_any, found.unregistered) if fit}
    extra = [path.relative_to(found.root).as_posix() for path in files.photos if path not in used]
    if extra:
        notes.append(f"{len(extra)} images have no camera and were left out: {shorten(extra)}")
    return sorted(pairs, key=lambda pair: natural_key(pair[1].relative_to(found.root).as_posix())), notes


def _raw_frame(photo: Photo, file: Path, name: str, split: str, path: Path, axes: str) -> tuple[RawFrame, bool]:
    """Returns the frame, and whether its intrinsics were scaled."""
    pose = to_pose(np.asarray(photo.pose, np.float64), file=path, name=photo.name, axes=axes, field="pose")
    if photo.size is not None and not all(1 <= side <= 1e6 for side in photo.size):
        raise UserError("The size of a photo is no size.", file=path, field=photo.name, found=photo.size)
    image = open_image(file, expected=photo.size)
    scale = image_scale(image.size, photo.size, file=path, name=photo.name)
    lens = photo.lens(image.size)
    numbers = np.concatenate([lens.focal, lens.center, lens.distortion])
    if not (np.abs(numbers) <= LARGEST).all() or (lens.model != "equirectangular" and (lens.focal <= 0).any()):
        raise UserError(
            f"The lens of {photo.name} holds a bad number.",
            file=path,
            field="intrinsics",
            found=f"focal {lens.focal.tolist()}, centre {lens.center.tolist()}, distortion {lens.distortion.tolist()}",
            expected="finite numbers, and a positive focal length",
            code="intrinsics-bad",
        )
    frame = RawFrame(
        name=name,
        image=image,
        split=split,
        pose=pose,
        focal=lens.focal * scale,
        center=lens.center * scale,
        distortion=lens.distortion,
        model=lens.model,
    )
    return frame, bool((scale != 1).any())


def lens_of(model: str, focal: Vector, center: Vector, **coefficients: float | int) -> Lens:
    """Builds a lens; ``coefficients`` are named as in ``types.DISTORTION``. "opencv" without any is "pinhole"."""
    distortion = np.array([coefficients.pop(name, 0.0) for name in DISTORTION], np.float64)
    if coefficients:
        raise TypeError(f"no such coefficients: {', '.join(coefficients)}")
    if model == "opencv" and not distortion.any():
        model = "pinhole"
    return Lens(model, np.array(focal, np.float64), np.array(center, np.float64), distortion)


def world_from_camera(rotation: np.ndarray, translation: np.ndarray) -> np.ndarray:
    """Returns the [3, 4] camera-to-world pose of x_camera = rotation @ x_world + translation."""
    rotation, translation = np.asarray(rotation, np.float64), np.asarray(translation, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # bad numbers are refused where their photo is known
        return np.concatenate([rotation.T, -rotation.T @ translation[:, None]], axis=1)
