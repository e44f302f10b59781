"""Reader of LLFF captures: poses_bounds.npy beside images/.

Each of the N rows holds a 3x5 matrix (row-major) and two distances: a camera-to-world pose whose camera axes are (down,
right, backward), then height, width and focal length in pixels, then the near and far depth of what the image shows.
Rows belong to the images in plain lexicographic order (img10 before img2), the principal point is the middle, pixels
are square, and lens distortion was dropped. Rows can only be paired by position, so their number must be that of the
images.

A COLMAP model beside the file is what it was made from: it has the names, every camera's own focal length and the
distortion, so it is preferred, and the rows give near and far only. Forward-facing captures get the frame of
``forward_facing.py`` ("ndc"), all others stay metric.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.assemble import assemble, capture_name, scene_in_frame
from nerfjax.scenes.base import Scene, SceneReader, holdout_splits, shorten
from nerfjax.scenes.capture import Capture, RawFrame
from nerfjax.scenes.colmap import choose_model, colmap_capture, find_models, registered_names
from nerfjax.scenes.forward_facing import forward_frame, forward_geometry, is_forward_facing
from nerfjax.scenes.images import has_transparency, open_image
from nerfjax.scenes.json_frames import image_scale, to_pose
from nerfjax.scenes.photo_files import FileIndex
from nerfjax.scenes.photo_folders import main_folder, reduced_photos

FILE = "poses_bounds.npy"
LISTING = "view_imgs.txt"  # some scripts write the rows' names there
_AGREE = 0.02  # of the cameras' spread


def sniff(source: str) -> str | None:
    """Recognises a folder with poses_bounds.npy, or that file itself."""
    return f"holds {FILE}" if (_folder(source) / FILE).is_file() else None


def read(
    source: str, *, downscale: float | int = 1, holdout: int = 8, axes: str = "auto", ndc: bool | str = "auto",
    prefer: str = "colmap", model: str | None = None,
) -> Scene:  # fmt: skip
    """Reads an LLFF capture.

    Args:
      source: the folder (or its poses_bounds.npy).
      downscale: factor by which images become smaller; a complete folder images_N serves the factor N.
      holdout: every holdout-th frame is for testing; 0 = none.
      axes: camera axes of the poses after their columns are put into the order (right, up, backward): "opengl" (what
        the format means) or "opencv"; of a COLMAP model: "opencv" (what it means) or "opengl"; "auto" is the meaning.
      ndc: whether distance is measured in disparity around the cameras: True, False, or "auto" (if all look one way).
      prefer: "colmap" or "llff", where both are there.
      model: folder of the COLMAP model, where there are several.

    Raises:
      UserError: a file that is not in the format, or numbers of rows and images that differ.
    """
    folder = _folder(source)
    rows = load_rows(folder / FILE)
    if prefer not in ("colmap", "llff"):
        raise UserError("Unknown preference.", field="scene.options: prefer", found=prefer, expected="colmap or llff")
    if ndc not in (True, False, "auto"):
        raise UserError("Unknown kind of coordinates.", field="scene.options: ndc", found=ndc,
                        expected="True, False or auto")  # fmt: skip
    names, notes, near_far = None, [], _near_far(rows)
    if model is not None or find_models(folder):
        reconstruction, notes = choose_model(folder, model)
        names = registered_names(reconstruction)
        if prefer == "colmap":
            capture, remaining = colmap_capture(
                str(folder), reconstruction, downscale=downscale, holdout=holdout,
                axes="opencv" if axes == "auto" else axes,
            )  # fmt: skip
            capture = replace(capture, format="llff", provenance={**capture.provenance, "rows": len(rows)})
            more, fits = _compare(rows, names, capture)
            notes += more
            near_far = near_far if fits else None
    notes = [*notes, *_bounds_notes(rows)]
    if prefer == "llff" or names is None:
        capture, remaining = _rows_capture(folder, rows, names, downscale=downscale, holdout=holdout, axes=axes)
    capture = replace(capture, source=str(source), notes=(*notes, *capture.notes), near_far=near_far)
    return replace(_assemble(capture, remaining, ndc), downscale=downscale)


READER = SceneReader(sniff, read)


def _folder(source: str) -> Path:
    path = Path(source)
    return path.parent if path.name == FILE else path


def load_rows(path: Path) -> np.ndarray:
    """Reads the rows [N, 17] float64, checked to be finite.

    Raises:
      UserError: not such an array, or a row that holds something else than a camera.
    """
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError("The file cannot be read.", file=path, found=error, expected="a NumPy array") from error
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != 17 or rows.dtype.kind not in "fiu":
        found = f"shape {rows.shape} of {rows.dtype}" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise UserError("The array has another shape.", file=path, found=found, expected="[N, 17] numbers")
    if not len(rows):
        raise UserError("The file lists no cameras.", file=path, found=f"shape {rows.shape}")
    rows = rows.astype(np.float64)
    bad = ~np.isfinite(rows).all(axis=-1)
    if bad.any():
        first = int(np.argmax(bad))
        raise UserError("A row holds a number that is not finite.", file=path, field=f"row {first}",
                        found=rows[first].tolist())  # fmt: skip
    intrinsics = rows[:, :15].reshape(-1, 3, 5)[:, :, 4]
    bad = ~_is_hwf(intrinsics)
    if bad.any():
        first = int(np.argmax(bad))
        transposed = "the matrices are transposed: write each as 3 x 5" if _is_hwf(rows[:, 12:15]).all() else None
        raise UserError("A row holds no image size and focal length.", file=path, field=f"row {first}, last column",
                        found=intrinsics[first].tolist(), expected="height, width, focal, all in pixels",
                        fix=transposed)  # fmt: skip
    return rows


def _is_hwf(values: np.ndarray) -> np.ndarray:
    """Says of each (height, width, focal) [..., 3] whether it can be one."""
    return (values[..., :2] >= 1).all(axis=-1) & (values <= 1e6).all(axis=-1) & (values[..., 2] > 0)


def _poses_of(rows: np.ndarray) -> np.ndarray:
    """Returns [N, 3, 4] poses with columns (right, up, backward, position)."""
    matrix = rows[:, :15].reshape(-1, 3, 5)
    return np.stack([matrix[..., 1], -matrix[..., 0], matrix[..., 2], matrix[..., 3]], axis=-1)


def _near_far(rows: np.ndarray) -> tuple[float, float] | None:
    """Returns the smallest near and the largest far that the rows state, or None where they state none."""
    bounds = rows[:, 15:]
    good = (bounds[:, 0] > 0) & (bounds[:, 0] < bounds[:, 1])
    return (float(bounds[good, 0].min()), float(bounds[good, 1].max())) if good.mean() > 0.5 else None


def _bounds_notes(rows: np.ndarray) -> list[str]:
    near, far = rows[:, 15], rows[:, 16]
    bad = np.flatnonzero(~((near > 0) & (near < far)))
    if not len(bad):
        return []
    first = f"row {bad[0]}: {near[bad[0]]:g} and {far[bad[0]]:g}"
    return [f"{len(bad)} of {len(rows)} rows state no near > 0 that is less than far, and are left out ({first})."]


def _compare(rows: np.ndarray, names: list[str], capture: Capture) -> tuple[list[str], bool]:
    """Compares rows with the COLMAP model's poses; returns notes, and whether the rows belong to the model."""
    if len(rows) != len(names):
        return [f"{FILE} has {len(rows)} rows and the COLMAP model {len(names)} images: the model was taken."], False
    position = dict(zip(names, _poses_of(rows)[:, :, 3], strict=True))
    pairs = [(position[frame.name], frame.pose[:3, 3]) for frame in capture.frames if frame.name in position]
    stated, solved = (np.array(side) for side in zip(*pairs, strict=True))
    spread = float(np.median(np.linalg.norm(solved - np.median(solved, axis=0), axis=-1)))
    apart = float(np.median(np.linalg.norm(stated - solved, axis=-1)))
    if apart > _AGREE * max(spread, 1e-12):
        return [f"{FILE} has other poses than the COLMAP model beside it; the model was taken."], False
    return [f"Cameras and lenses are those of the COLMAP model; {FILE} has one focal length and no distortion."], True


def _rows_capture(
    folder: Path, rows: np.ndarray, names: list[str] | None, *, downscale: float | int, holdout: int, axes: str
) -> tuple[Capture, float | int]:
    """States what the rows hold, paired with the names (of a model or a listing), else with the sorted images."""
    path = folder / FILE
    base = main_folder(folder)
    files = {p.relative_to(base).as_posix(): p for p in FileIndex(base).photos}
    listing = folder / LISTING
    if names is None and listing.is_file():
        names = sorted(filter(None, map(str.strip, listing.read_text(encoding="utf-8-sig").splitlines())))
    labels = sorted(files) if names is None else names
    if len(labels) != len(rows):
        what = f"{len(labels)} images in {base.name}" if names is None else f"{len(labels)} names of registered images"
        raise UserError(
            "There are not as many cameras as images.",
            file=path,
            found=f"{len(rows)} rows and {what}",
            expected="one row per image, in the order of their names",
            fix="images that structure from motion did not register must go, or put its COLMAP model (sparse/0) here",
        )
    missing = [name for name in labels if name not in files]
    row_of = {name: row for name, row in zip(labels, rows, strict=True) if name in files}
    if not row_of:
        raise UserError(
            "None of the images exists.", file=path, found=shorten(labels, 2), expected=shorten(list(files), 2)
        )
    notes = ["All images have the focal length of the first camera and no distortion, as the format goes."]
    if missing:
        notes.append(f"{len(missing)} of {len(labels)} images are missing and were left out: {shorten(missing)}")
    paths, remaining, more = reduced_photos(base, {name: files[name] for name in row_of}, downscale)
    frames = []
    for (name, image), split in zip(paths.items(), holdout_splits(list(paths), holdout), strict=True):
        frames.append(_raw_frame(name, image, row_of[name], split, path, "opengl" if axes == "auto" else axes))
    provenance: dict[str, Any] = {"rows": len(rows), "frames_found": len(frames), "axes": axes}
    return Capture(capture_name(folder), "llff", str(folder), tuple(frames), (*notes, *more), provenance), remaining


def _raw_frame(name: str, image: Path, row: np.ndarray, split: str, path: Path, axes: str) -> RawFrame:
    height, width, focal = row[:15].reshape(3, 5)[:, 4]
    pose = to_pose(_poses_of(row[None])[0], file=path, name=name, axes=axes, field="columns 0-3")
    reference = open_image(image, expected=(width, height))
    scale = image_scale(reference.size, (width, height), file=path, name=name)
    return RawFrame(
        name=name,
        image=reference,
        split=split,
        pose=pose,
        focal=focal * scale,
        center=np.array([width, height]) / 2 * scale,
        distortion=np.zeros(12),
        model="pinhole",
    )


def _assemble(capture: Capture, downscale: float | int, ndc: bool | str) -> Scene:
    """Builds the scene, in the forward-facing frame where that is wanted and fits."""
    poses = np.stack([frame.pose for frame in capture.frames])
    forward = is_forward_facing(poses)
    notes = []
    if ndc is True and not forward:
        notes.append("NDC was asked for, but the cameras do not all look one way; the scene stays metric.")
    if ndc is True and forward and capture.near_far is None:
        notes.append(f"NDC was asked for, but {FILE} states no distances; the scene stays metric.")
    capture = replace(capture, notes=(*capture.notes, *notes))
    transparent = has_transparency(capture.frames[0].image)
    if ndc is False or not forward or capture.near_far is None or transparent:
        return assemble(capture, downscale=downscale)
    to_scene = forward_frame(poses, capture.near_far[0])
    near = capture.near_far[0] * float(np.cbrt(np.linalg.det(to_scene[:3, :3])))
    method = "forward-facing: the cameras' middle at the origin, the nearest content at distance 1"
    capture = replace(capture, provenance={**capture.provenance, "normalization": {"method": method, "ndc": True}})
    scene = scene_in_frame(capture, to_scene, is_object=False, downscale=downscale)
    return replace(scene, geometry=forward_geometry(scene.geometry.cameras, near))


def rows_from_poses(poses, size, focal, bounds) -> np.ndarray:
    """Returns the rows [N, 17] of poses_bounds.npy.

    Args:
      poses: [N, 3, 4] or [N, 4, 4] camera-to-world, OpenGL axes, in the order of the images' names.
      size: broadcastable to [N, 2] (width, height), pixels.
      focal: broadcastable to [N], pixels.
      bounds: broadcastable to [N, 2] (near, far).
    """
    poses = np.asarray(poses, np.float64)[:, :3]
    size = np.broadcast_to(np.asarray(size, np.float64), (len(poses), 2))
    focal = np.broadcast_to(np.asarray(focal, np.float64), (len(poses),))
    intrinsics = np.stack([size[:, 1], size[:, 0], focal], axis=-1)
    columns = [-poses[..., 1], poses[..., 0], poses[..., 2], poses[..., 3], intrinsics]
    bounds = np.broadcast_to(np.asarray(bounds, np.float64), (len(poses), 2))
    return np.concatenate([np.stack(columns, axis=-1).reshape(-1, 15), bounds], axis=-1)
