"""Reader of ``transforms.json``: the instant-ngp and nerfstudio dialects.

Frames are put in natural order of their paths (2 before 10); frames whose image is missing are left out and counted.
The split is the file's own (``train_filenames`` …) where it has one, else every ``holdout``-th of the sorted, existing
frames is a test frame (index % holdout == 0).
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from nerfjax.errors import UserError
from nerfjax.scenes.assemble import assemble, capture_name
from nerfjax.scenes.base import SPLITS, Scene, SceneReader, holdout_splits, shorten
from nerfjax.scenes.capture import Capture, RawFrame, corners_of
from nerfjax.scenes.folders import natural_key, size_notes
from nerfjax.scenes.image_files import ImageFiles, normal_path
from nerfjax.scenes.images import open_image
from nerfjax.scenes.json_frames import (
    Lookup,
    camera_size,
    frames_of,
    is_path,
    load_json,
    parse_intrinsics,
    parse_pose,
    with_camera_model,
)
from nerfjax.scenes.json_sides import (
    SideFiles,
    applied_similarity,
    box_of,
    leftover_notes,
    points_of,
    recorded,
    setting_notes,
)
from nerfjax.scenes.masks import with_masks
from nerfjax.scenes.numbers_in_text import starts_with
from nerfjax.scenes.scannetpp import image_and_side_files, with_test_frames

FILE = "transforms.json"


def sniff(source: str) -> str | None:
    """Recognises a transforms.json (under any name), or a folder that holds one."""
    path = Path(source)
    if path.is_dir():
        return f"holds {FILE}" if (path / FILE).is_file() else None
    if path.suffix.lower() != ".json" or not path.is_file():
        return None
    named = path.stem.startswith("transforms")
    return "is a .json file with poses" if named or '"transform_matrix"' in starts_with(path, 1 << 20) else None


def read(
    source: str, *, downscale: float | int = 1, holdout: int = 8, axes: str = "opengl", masks: str = "ignore",
    camera_model: str | None = None,
) -> Scene:  # fmt: skip
    """Reads a folder with a transforms.json, or the file itself.

    Args:
      source: folder or file; all relative paths start at the file's folder.
      downscale: factor by which images become smaller.
      holdout: every holdout-th frame is for testing, unless the file names its splits; 0 = none.
      axes: "opengl" (what the format means) or "opencv", for files that were written wrongly.
      masks: what masked pixels are: see ``with_masks``.
      camera_model: the lens model of all frames, where the file names none or a wrong one.
    """
    path = Path(source)
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise UserError("There is no such file.", file=path)
    content, bad = with_test_frames(with_camera_model(load_json(path), camera_model))
    entries = sorted(frames_of(content, path), key=lambda entry: natural_key(normal_path(entry["file_path"])))
    files, beside = image_and_side_files(path, entries)
    sides = SideFiles(content, beside, path, masks=masks != "off")
    found, notes = locate(entries, files, path)
    notes += bad
    if files.folder != path.parent:
        notes.append(f"The images are those of {files.folder.name}, beside {path.parent.name}.")
    names = [normal_path(entry["file_path"]) for entry, _ in found]
    splits = _named_splits(content, names, path) or holdout_splits(names, holdout)
    frames = [
        raw_frame(entry, content, image, split, path, axes=axes, sides=sides)
        for (entry, image), split in zip(found, splits, strict=True)
    ]
    points, point_notes = points_of(content, path)
    applied, applied_notes = applied_similarity(content, path)
    notes += [
        *files.notes,
        *size_notes(frames, [camera_size_of(entry, content, path) for entry, _ in found]),
        *sides.notes(),
        *setting_notes(content, entries),
        *leftover_notes(files, {image for _, image in found}, sides.used),
        *point_notes,
        *applied_notes,
    ]
    provenance = {
        "file": path.name,
        "frames_listed": len(entries),
        "frames_found": len(found),
        "axes": axes,
        "applied_transform": content.get("applied_transform"),
        "applied_scale": content.get("applied_scale"),
        **recorded(content, entries, path),
    }
    capture = Capture(
        capture_name(path.parent),
        "transforms_json",
        source,
        with_masks(frames, masks),
        tuple(notes),
        provenance,
        points=points,
        is_object=True if content.get("white_transparent") else None,
        region=corners_of(box_of(content, path)),
        applied=applied,
    )
    return assemble(capture, downscale=downscale)


READER = SceneReader(sniff, read)


def locate(
    entries: list[dict], files: ImageFiles, path: Path, owned: Collection[Path] = ()
) -> tuple[list[tuple[dict, Path]], list[str]]:
    """Pairs frames with their image files.

    Args:
      entries: the frames.
      files: finds the files.
      path: the JSON file.
      owned: files of other splits' frames, which no moved path may claim.

    Returns:
      (pairs of frame and file, notes); frames without a file are left out and named in a note.

    Raises:
      UserError: no frame has a file.
    """
    exact = [files.exact(entry["file_path"]) for entry in entries]
    taken = {file for file in exact if file is not None} | set(owned)
    found, missing, moved = [], [], []
    for entry, file in zip(entries, exact, strict=True):
        if file is None:
            file = files.elsewhere(entry["file_path"], taken)
            if file is None:
                missing.append(normal_path(entry["file_path"]))
                continue
            moved.append(normal_path(entry["file_path"]))
            taken.add(file)
        found.append((entry, file))
    if not found:
        here = sorted(p.relative_to(files.folder).as_posix() for paths in files.listing.values() for p in paths)
        raise UserError(
            "None of the images exists.",
            file=path,
            field="file_path",
            found=f"{len(missing)} missing: {shorten(missing, 3)}",
            expected=f"files such as {shorten(here, 3)}" if here else f"image files in {files.folder}",
            code="images-missing",
        )
    notes = []
    if missing:
        notes.append(f"{len(missing)} of {len(entries)} images are missing and were left out: {shorten(missing)}")
    if moved:
        notes.append(f"{len(moved)} images were found by name in another folder: {shorten(moved, 3)}")
    return found, notes


def raw_frame(
    entry: dict,
    content: dict,
    image: Path,
    split: str,
    path: Path,
    *,
    axes: str = "opengl",
    sides: SideFiles | None = None,
) -> RawFrame:
    """Parses one frame whose image file is known."""
    name = normal_path(entry["file_path"])
    values = Lookup(entry, content, file=path, name=name)
    pose = parse_pose(entry, file=path, name=name, axes=axes)
    reference = open_image(image, expected=camera_size(values))
    intrinsics = parse_intrinsics(values, reference.size)
    intrinsics.pop("scale")
    sides = SideFiles(content, ImageFiles(path.parent), path) if sides is None else sides
    return RawFrame(
        name=name,
        image=reference,
        split=split,
        pose=pose,
        mask=sides.mask(entry, image, reference.size),
        depth=sides.depth(entry),
        **intrinsics,
    )


def camera_size_of(entry: dict, content: dict, path: Path) -> tuple[float | int, float | int] | None:
    """Returns the (width, height) of a frame's camera, or None where the file does not say."""
    return camera_size(Lookup(entry, content, file=path, name=normal_path(entry["file_path"])))


def _named_splits(content: dict, names: list[str], path: Path) -> list[str] | None:
    """Returns the splits that the file itself names (``train_filenames`` …), or None."""
    listed = {split: content.get(f"{split}_filenames") for split in SPLITS}
    if not any(listed.values()):
        return None
    by_name = {}
    for split, members in listed.items():
        field = f"{split}_filenames"
        if members is not None and not (isinstance(members, list) and all(map(is_path, members))):
            raise UserError("A list of file names is none.", file=path, field=field, found=members)
        for member in members or ():
            if by_name.setdefault(normal_path(member), split) != split:
                raise UserError("A frame is in two splits.", file=path, field=field, found=member)
    unlisted = [name for name in names if name not in by_name]
    if unlisted and (listed["train"] or len(unlisted) == len(names)):
        raise UserError(
            "Frames are in no split.",
            file=path,
            field="train_filenames",
            found=shorten(unlisted, 3),
            expected=f"names such as {shorten(list(by_name), 2)}",
        )
    return [by_name.get(name, "train") for name in names]
