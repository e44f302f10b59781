"""What ScanNet++ adds to transforms.json: frames for testing, bad frames, and images in folders beside the file's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nerfjax.scenes.base import shorten
from nerfjax.scenes.image_files import ImageFiles, normal_path


def with_test_frames(content: dict) -> tuple[dict, list[str]]:
    """Returns the content with ScanNet++'s ``test_frames`` among its frames, without those marked ``is_bad``; notes."""
    frames, test = content.get("frames"), content.get("test_frames")
    if not isinstance(frames, list) or not (isinstance(test, list) or any(_is_bad(frame) for frame in frames)):
        return content, []
    test = test if isinstance(test, list) else []
    good = [frame for frame in [*frames, *test] if not _is_bad(frame)]
    dropped = [frame for frame in [*frames, *test] if _is_bad(frame)]
    names = [frame.get("file_path") for frame in test if isinstance(frame, dict) and not _is_bad(frame)]
    lists = {"test_filenames": [*(content.get("test_filenames") or []), *names]} if names else {}
    labels = [str(frame.get("file_path")) for frame in dropped]
    notes = [f"{len(dropped)} frames are marked as bad and were left out: {shorten(labels, 3)}."] if dropped else []
    return {**content, **lists, "frames": good}, notes


def _is_bad(frame: Any) -> bool:
    return isinstance(frame, dict) and frame.get("is_bad") is True


def image_and_side_files(path: Path, entries: list[dict]) -> tuple[ImageFiles, ImageFiles]:
    """Returns where the images are, and where masks and depths are: the JSON file's folder, or folders beside it.

    ScanNet++ keeps transforms.json in a folder of its own and bare file names in it; transforms_undistorted.json there
    belongs to the folders of undistorted images.
    """
    here = ImageFiles(path.parent)
    names = [normal_path(entry["file_path"]) for entry in entries]
    if any("/" in name for name in names) or here.listing:
        return here, here
    around = path.parent.resolve().parent
    folders = [f for f in sorted(around.iterdir()) if f.is_dir() and not f.name.startswith(".")]
    same = [f for f in folders if ("undistorted" in f.name) == ("undistorted" in path.stem)]

    def best(wanted: list[str]) -> Path | None:
        counts = [(sum((folder / name).is_file() for name in wanted), folder) for folder in [*same, *folders]]
        count, folder = max(counts, key=lambda item: item[0], default=(0, None))
        return folder if count else None

    images = best(names)
    masks = best([str(entry["mask_path"]) for entry in entries if entry.get("mask_path")])
    files = here if images is None else ImageFiles(images)
    return files, files if masks is None else ImageFiles(masks)
