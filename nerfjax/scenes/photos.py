"""Reader of photos or a video without poses: structure from motion, then the COLMAP reader.

Cameras are solved by pycolmap (extra ``[sfm]``) once per set of images and options and kept in the cache folder, so
that the next command finds them. A video is first taken apart into its sharpest frames. A result that registers less
than a stated share of the images is refused: what is trained on it would show a part of the scene only.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from nerfjax.cache import cache_folder
from nerfjax.errors import UserError
from nerfjax.scenes import unsupported
from nerfjax.scenes.assemble import assemble, capture_name
from nerfjax.scenes.base import Scene, SceneReader
from nerfjax.scenes.colmap import choose_model, colmap_capture
from nerfjax.scenes.colmap_files import model_files, registered_count
from nerfjax.scenes.colmap_model import LENS_MODELS
from nerfjax.scenes.images import needs_extra, open_image
from nerfjax.scenes.options import how_to_give
from nerfjax.scenes.photo_files import FileIndex
from nerfjax.scenes.photo_folders import main_folder
from nerfjax.scenes.structure_from_motion import Say, SfmOptions, load_pycolmap, solve
from nerfjax.scenes.video_frames import VIDEO_EXTENSIONS, extract_frames, is_video

FEWEST = 3
MANY_OF_ONE_SIZE = 30  # images, from which more lens parameters are solved for


# Files that may hold cameras; other text files are somebody's notes.
CAMERA_FILE = re.compile(
    r".*\.(json|xml|csv|np[yz]|out|nvm|bin|h5)|.*(camera|image|pose|intrinsic|extrinsic|calib|traj|_par).*\.(txt|log)",
    re.IGNORECASE,
)


def sniff(source: str) -> str | None:
    """Recognises a video, or a folder with images and nothing that may hold their cameras (asked last).

    A damaged capture must be mended, not solved anew behind its owner's back.
    """
    path = Path(source)
    if is_video(path):
        return "is a video without poses"
    if not path.is_dir() or any(CAMERA_FILE.fullmatch(entry.name) for entry in path.iterdir()):
        return None
    if unsupported.layout_of(path) is not None:
        return None
    count = len(FileIndex(main_folder(path)).photos)
    if count:
        return f"holds {count} images and no poses"
    return "holds a video without poses" if _videos(path) else None


def read(
    source: str, *, downscale: float | int = 1, holdout: int = 8, matching: str = "auto",
    least_share: float | int = 0.5, lens: str = "auto", video_frames: int = 150, max_size: int = 1600,
    say: Say | None = None,
) -> Scene:  # fmt: skip
    """Solves the cameras of photos (or finds them solved) and reads the result.

    Args:
      source: a folder of images (in it or in images/), a video, or a folder with one video.
      downscale: factor by which images become smaller.
      holdout: every holdout-th frame is for testing; 0 = none.
      matching: "exhaustive" (all pairs), "sequential" (neighbours: videos), or "auto" by their number.
      least_share: share of the images that must be registered.
      lens: COLMAP's camera model; "auto" is SIMPLE_RADIAL, or OPENCV for many images of one size.
      video_frames: number of frames taken from a video.
      max_size: longer side, pixels, to which images are reduced to find features.
      say: takes lines of progress; None prints to standard error.

    Raises:
      UserError: too few images, pycolmap is missing, or too few images could be registered.
    """
    if matching not in ("auto", "exhaustive", "sequential"):
        raise UserError("Unknown matching.", field="scene.options: matching", found=matching,
                        expected="exhaustive or sequential")  # fmt: skip
    if not 0 < least_share <= 1:
        raise UserError("The least share is none.", field="scene.options: least_share", found=least_share,
                        expected="above 0, up to 1")  # fmt: skip
    if lens != "auto" and lens not in LENS_MODELS:
        raise UserError("Unknown camera model.", field="scene.options: lens", found=lens,
                        expected=", ".join(LENS_MODELS))  # fmt: skip
    path = Path(source)
    if path.is_dir() and not FileIndex(main_folder(path)).photos and len(_videos(path)) == 1:
        path = _videos(path)[0]
    if is_video(path):
        matching = "sequential" if matching == "auto" else matching
        folder = _frames_of(path, video_frames)
    else:
        folder = main_folder(path) if path.is_dir() else path
    names = [photo.relative_to(folder).as_posix() for photo in FileIndex(folder).photos] if folder.is_dir() else []
    if len(names) < FEWEST:
        raise UserError(
            "There are too few images to solve for their cameras.", file=source, found=f"{len(names)} images",
            expected=f"at least {FEWEST} that overlap", fix="give more photos, or the poses of these",
        )  # fmt: skip
    sizes = {open_image(folder / name).size for name in names}
    if lens == "auto":
        lens = "OPENCV" if len(names) >= MANY_OF_ONE_SIZE and len(sizes) == 1 else "SIMPLE_RADIAL"
    solved = _solved(folder, names, SfmOptions(matching, lens, len(sizes) == 1, max_size), least_share, say)
    model, notes = choose_model(solved)
    count = registered_count(model)
    if count < least_share * len(names):
        raise _too_few(count, len(names), source, least_share)
    capture, remaining = colmap_capture(
        str(solved), model, downscale=downscale, holdout=holdout, axes="opencv", images=folder
    )
    capture = replace(
        capture, name=capture_name(path.with_suffix("") if is_video(path) else path), format="photos", source=source,
        notes=(f"Cameras were solved by structure from motion: {count} of {len(names)} images.", *notes,
               *capture.notes),
        provenance={**capture.provenance, "images_given": len(names), "matching": matching, "lens": lens},
    )  # fmt: skip
    return replace(assemble(capture, downscale=remaining), downscale=downscale)


READER = SceneReader(sniff, read)


def _videos(folder: Path) -> list[Path]:
    visible = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    return [entry for entry in visible if entry.suffix.lower() in VIDEO_EXTENSIONS and entry.is_file()]


def _too_few(count: int, total: int, source: str, least_share: float | int) -> UserError:
    return UserError(
        "Structure from motion could not place enough of the images.",
        file=source,
        found=f"{count} of {total} registered",
        expected=f"at least {least_share:.0%} (least_share)",
        fix="take photos that overlap by two thirds, of a still scene with texture; or give "
        f"{how_to_give('least_share=…')}",
    )


def _frames_of(video: Path, count: int) -> Path:
    """Returns the folder with a video's frames, from the cache where they are there."""
    with open(video, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(repr(count).encode())
    folder = cache_folder() / "frames" / digest.hexdigest()[:20]
    if not folder.is_dir():
        with _made(folder) as partial:
            extract_frames(video, partial, count)
    return folder


def _solved(folder: Path, names: list[str], options: SfmOptions, least_share: float | int, say: Say | None) -> Path:
    """Returns a folder with the solved models, from the cache where they are there."""
    with ThreadPoolExecutor() as pool:
        digests = list(pool.map(lambda name: open_image(folder / name).digest(), names))
    total = hashlib.sha256(repr((tuple(options), names)).encode())
    for digest in digests:
        total.update(digest)
    solved = cache_folder() / "cameras" / total.hexdigest()[:20]
    if not (solved / "sparse").is_dir():
        load_pycolmap()
        with _made(solved) as partial:
            solve(_readable(folder, names, partial / "images"), names, partial, options, say)
            (partial / "database.db").unlink(missing_ok=True)
            shutil.rmtree(partial / "images", ignore_errors=True)
            if not any(model_files(model) for model in (partial / "sparse").iterdir()):
                raise _too_few(0, len(names), str(folder), least_share)
    return solved


def _readable(folder: Path, names: list[str], work: Path) -> Path:
    """Returns a folder of images that pycolmap can read: the given one, or ``work`` with decoded copies.

    Copies keep their names, whatever they end in: pycolmap looks at the content.
    """
    if not any(needs_extra(folder / name) for name in names):
        return folder
    for name in names:
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if needs_extra(folder / name):
            image = open_image(folder / name).read()
            image = (image // 257).astype(np.uint8) if image.dtype == np.uint16 else image
            Image.fromarray(image[..., :3]).save(path, "PNG", compress_level=1)
        else:
            path.symlink_to((folder / name).resolve())
    return work


@contextmanager
def _made(folder: Path) -> Iterator[Path]:
    """Gives a folder to fill, which takes its name when it is complete and goes when it is not."""
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        if not folder.is_dir():  # else another process was first
            os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
