"""Reader of COLMAP reconstructions (also of the layouts of 3-D Gaussian splatting): a sparse model beside its images.

Poses are world-to-camera in OpenCV axes (see ``colmap_files.py``). The model may lie in sparse/0, sparse,
colmap/sparse/0 or any folder down to three levels, in the folder of the images, or be given itself. Of several models
the one with most registered images is read; among equals the first in the order of ``_USUAL``, then by depth and name.
Images are found by their names, which are relative paths. Frames are put in lexicographic order of their names, as the
published splits are, and every ``holdout``-th of them is a test frame, unless files beside them list the splits
(``split_lists.py``).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from nerfjax.errors import UserError, did_you_mean
from nerfjax.geometry.poses import rotation_from_quaternion
from nerfjax.scenes.assemble import assemble, capture_name
from nerfjax.scenes.base import Scene, SceneReader, holdout_splits, shorten
from nerfjax.scenes.capture import Capture, RawFrame
from nerfjax.scenes.colmap_files import model_files, read_model, registered_count
from nerfjax.scenes.colmap_model import LENS_MODELS, ColmapImage, ColmapModel, is_rotation, reprojection
from nerfjax.scenes.image_files import normal_path
from nerfjax.scenes.images import EXTENSIONS, ImageReference, open_image
from nerfjax.scenes.json_frames import LARGEST, image_scale, to_pose
from nerfjax.scenes.masks import open_mask, with_masks
from nerfjax.scenes.numbers_in_text import starts_with
from nerfjax.scenes.options import how_to_give
from nerfjax.scenes.photo_folders import extra_photos, find_photos, reduced_photos
from nerfjax.scenes.ply import read_ply_points
from nerfjax.scenes.split_lists import listed_splits

_USUAL = (
    "sparse", "colmap/sparse", "colmap_sparse", ".", "colmap", "sfm", "colmap_text", "reconstruction",
    "colmap_ground_truth",
)  # fmt: skip
_OTHER_IMAGES = {"distorted", "undistorted", "dense"}  # models of other versions of the images
_DEPTH = 3


def sniff(source: str) -> str | None:
    """Recognises a folder with a COLMAP model in it, or the model's own folder."""
    path = Path(source)
    if not path.is_dir():
        return None
    models = find_models(path)
    if models:
        return f"holds a COLMAP model ({_relative(models[0], path)})"
    parts = _parts(path)
    return f"holds a part of a COLMAP model ({_relative(parts[0], path)})" if parts else None


def read(
    source: str, *, downscale: float | int = 1, holdout: int = 8, axes: str = "opencv", model: str | None = None,
    masks: str = "ignore",
) -> Scene:  # fmt: skip
    """Reads a COLMAP reconstruction and its images.

    Args:
      source: the capture's folder, or the model's.
      downscale: factor by which images become smaller; a complete folder images_N beside images serves the factor N.
      holdout: every holdout-th frame is for testing; 0 = none.
      axes: "opencv" (what the format means) or "opengl", for files that were written wrongly.
      model: folder of the model below the source, e.g. "sparse/1"; by default the one with most images.
      masks: what masked pixels are: see ``with_masks``.

    Raises:
      UserError: no whole model, a malformed file, or no image of it.
    """
    root = Path(source)
    folder, notes = choose_model(root, model)
    capture, remaining = colmap_capture(source, folder, downscale=downscale, holdout=holdout, axes=axes)
    frames, notes = with_masks(capture.frames, masks), (*notes, *capture.notes)
    scene = assemble(replace(capture, frames=frames, notes=notes), downscale=remaining)
    return replace(scene, downscale=downscale)


READER = SceneReader(sniff, read)


def find_models(root: Path) -> list[Path]:
    """Returns the folders at or below ``root`` that hold a whole model, the likeliest first."""
    level, found = [root], []
    for depth in range(_DEPTH + 1):
        found += [folder for folder in level if model_files(folder)]
        if depth < _DEPTH:
            level = [e for f in level for e in sorted(f.iterdir()) if e.is_dir() and not e.name.startswith(".")]
    return sorted(found, key=lambda folder: _rank(folder.relative_to(root)))


def _parts(root: Path) -> list[Path]:
    """Returns files of cameras in COLMAP's form below a folder."""
    depths = ["*/" * depth for depth in range(_DEPTH + 1)]
    binary = [path for depth in depths for path in sorted(root.glob(f"{depth}cameras.bin"))]
    text = [path for depth in depths for path in sorted(root.glob(f"{depth}cameras.txt"))]
    return binary + [path for path in text if any(f" {name} " in starts_with(path) for name in LENS_MODELS)]


def _rank(relative: Path) -> tuple:
    group = relative.parent if relative.name.isdecimal() else relative
    usual = _USUAL.index(group.as_posix()) if group.as_posix() in _USUAL else len(_USUAL)
    number = int(relative.name) if relative.name.isdecimal() else -1
    return bool(_OTHER_IMAGES & set(relative.parts)), usual, len(relative.parts), group.as_posix(), number


def choose_model(root: Path, model: str | None = None) -> tuple[Path, list[str]]:
    """Returns the folder of the model to read, and notes where there was a choice.

    Args:
      root: the capture's folder, or the model's.
      model: the folder below it that is wanted.

    Raises:
      UserError: there is none.
    """
    if model is not None:
        if not (root / model).is_dir():
            known = [_relative(folder, root) for folder in find_models(root)]
            raise UserError(
                "There is no such model.", file=root, field="scene.options: model", found=model,
                fix=did_you_mean(model, known),
            )  # fmt: skip
        return root / model, []
    models = find_models(root) if root.is_dir() else []
    if not models:
        parts = _parts(root) if root.is_dir() else []
        raise UserError(
            "There is no whole COLMAP model.",
            file=root,
            found=f"{_relative(parts[0], root)} without images{parts[0].suffix}" if parts else "none of its files",
            expected="cameras and images, both .bin or both .txt, in sparse/0 or another folder",
        )
    counts = {folder: registered_count(folder) for folder in models}
    main = [f for f in models if not _OTHER_IMAGES & set(f.relative_to(root).parts)] or models
    best = max(main, key=lambda folder: counts[folder])  # the first of equals
    siblings = [f"{_relative(f, root)}: {counts[f]}" for f in models if f != best and f.parent == best.parent]
    notes = []
    if siblings and best.name.isdecimal():
        notes.append(
            f"{len(siblings) + 1} COLMAP models; took {_relative(best, root)} with {counts[best]} images, not "
            f"{shorten(siblings)}. For another: {how_to_give('model=…')}"
        )
    return best, notes


def colmap_capture(
    source: str, folder: Path, *, downscale: float | int, holdout: int, axes: str, images: Path | None = None
) -> tuple[Capture, float | int]:
    """States what a model and its images hold.

    Args:
      source: what the user gave.
      folder: of the model.
      downscale, holdout, axes: see ``read``.
      images: folder of the images, where it is known.

    Returns:
      (the capture; the factor by which its images remain to be made smaller).
    """
    model = read_model(folder)
    registered = _images_by_name(model, folder)
    root = _capture_root(Path(source), folder) if images is None else images
    deep = root == Path(source) or images is not None
    base, files = find_photos(root, list(registered), file=folder, deep=deep)
    notes = _pairing_notes(registered, files, base)
    listed = listed_splits([root, folder, base], list(files))
    if listed is not None:
        files = {name: path for name, path in files.items() if name in listed.split}
        notes += listed.notes
    splits = holdout_splits(list(files), holdout) if listed is None else [listed.split[name] for name in files]
    files, remaining, more = reduced_photos(base, files, downscale)
    frames, resized = [], []
    for (name, path), split in zip(files.items(), splits, strict=True):
        frame, scaled = _raw_frame(
            name, path, registered[name], model, split=split, base=base, folder=folder, axes=axes
        )
        frames.append(frame)
        resized += [name] if scaled and not more else []
    if resized:
        notes.append(
            f"{len(resized)} images have another size than their camera ({shorten(resized, 2)}): "
            "the intrinsics were scaled to them."
        )
    fit = reprojection(model)
    # JSON knows no infinity.
    odd = {name: min(error, 1e6) for name, error in fit.outliers().items() if name in files}
    provenance = {
        "model": _relative(folder, root),
        "images_registered": len(registered),
        "frames_found": len(files),
        "points": len(model.positions),
        "reprojection_error_px": fit.median,
        "reprojection_outliers_px": odd,
        "axes": axes,
    }
    capture = Capture(
        capture_name(root), "colmap", source, tuple(frames), (*notes, *more), provenance, points=_points(model, folder)
    )
    return capture, remaining


def _capture_root(source: Path, folder: Path) -> Path:
    """Returns the folder of the capture: the source, or what lies around it where the source holds a model only."""
    if any(p.suffix.lower() in EXTENSIONS for p in source.rglob("*")):
        return source
    around = source.resolve()
    around = around.parent if around == folder.resolve() else around
    named = ("sparse", "colmap", "colmap_sparse", "distorted")
    while (around.name in named or around.name.isdecimal()) and around != around.parent:
        around = around.parent
    return around


def registered_names(folder: Path) -> list[str]:
    """Returns the names of a model's registered images, in lexicographic order."""
    return list(_images_by_name(read_model(folder), folder))


def _images_by_name(model: ColmapModel, folder: Path) -> dict[str, ColmapImage]:
    """Returns the registered images by name, in lexicographic order."""
    if not model.images:
        raise UserError("The COLMAP model has no registered image.", file=folder)
    images: dict[str, ColmapImage] = {}
    for image in model.images.values():
        name = normal_path(image.name)
        if max(len(os.fsencode(part)) for part in name.split("/")) > 255:
            raise UserError("The name of an image is none.", file=folder, field="NAME", found=f"{name[:60]} …")
        if name in images:
            raise UserError("Two images of the model have one name.", file=folder, field="images", found=name)
        if image.camera not in model.cameras:
            raise UserError(
                f"Image {name} has a camera that the model lacks.", file=folder, field="CAMERA_ID",
                found=image.camera, expected=f"one of {shorten([str(i) for i in model.cameras])}",
            )  # fmt: skip
        images[name] = image
    return dict(sorted(images.items()))


def _pairing_notes(images: dict[str, ColmapImage], files: dict[str, Path], base: Path) -> list[str]:
    notes = []
    missing = [name for name in images if name not in files]
    if missing:
        notes.append(f"{len(missing)} of {len(images)} images are missing and were left out: {shorten(missing)}")
    extra = extra_photos(base, files.values())
    if extra:
        total = len(extra) + len(files)
        notes.append(f"{len(extra)} of {total} images were not registered and were left out: {shorten(extra)}")
    return notes


def _raw_frame(
    name: str, path: Path, image: ColmapImage, model: ColmapModel, *, split: str, base: Path, folder: Path, axes: str
) -> tuple[RawFrame, bool]:
    """Returns the frame, and whether its intrinsics were scaled."""
    world_to_camera = np.eye(4)
    if not is_rotation(image.quaternion):
        raise UserError(
            f"Image {name} has no rotation.", file=folder, field="QW QX QY QZ", found=image.quaternion.tolist(),
            expected="a unit quaternion",
        )  # fmt: skip
    world_to_camera[:3, :3] = rotation_from_quaternion(image.quaternion)
    world_to_camera[:3, 3] = image.translation
    pose = to_pose(world_to_camera, file=folder, name=name, axes=axes, inverse=True, field="TX TY TZ")
    camera = model.cameras[image.camera]
    calibration = camera.calibration()
    reference = open_image(path, expected=camera.size)
    scale = image_scale(reference.size, camera.size, file=path, name=name)
    frame = RawFrame(
        name=name,
        image=reference,
        split=split,
        pose=pose,
        focal=calibration.focal if calibration.model == "equirectangular" else calibration.focal * scale,
        center=calibration.center * scale,
        distortion=calibration.distortion,
        model=calibration.model,
        mask=_mask(base, name, reference.size),
    )
    return frame, bool((scale != 1).any())


def _mask(base: Path, name: str, size: tuple[int, int]) -> ImageReference | None:
    """Returns COLMAP's mask of an image: masks/NAME.png beside the images' folder, black = ignored."""
    for file in (f"{name}.png", str(Path(name).with_suffix(".png"))):
        path = base.parent / "masks" / file
        if path.is_file():
            return open_mask(path, size)
    return None


def _points(model: ColmapModel, folder: Path) -> np.ndarray | None:
    points = model.positions
    if not len(points) and (folder / "points3D.ply").is_file():
        points = read_ply_points(folder / "points3D.ply")
    points = points[(np.abs(points) < LARGEST).all(axis=-1)]
    return points if len(points) else None


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
