"""Structure from motion by pycolmap (extra ``[sfm]``): features, matches, incremental mapping, with progress."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nerfjax.errors import UserError

SEQUENTIAL_ABOVE = 120  # images, above which neighbours only are matched by default
Say = Callable[[str], None]


class SfmOptions(NamedTuple):
    """How images are matched and solved.

    Attributes:
      matching: "exhaustive", "sequential" (neighbours in the order of names: videos), or "auto".
      lens: COLMAP's camera model.
      single_camera: whether all images share one camera.
      max_size: longer side, pixels, to which images are reduced to find features.
    """

    matching: str = "auto"
    lens: str = "SIMPLE_RADIAL"
    single_camera: bool = True
    max_size: int = 1600


def load_pycolmap() -> Any:
    """Returns the package.

    Raises:
      UserError: it is not installed.
    """
    try:
        import pycolmap
    except ImportError as error:
        raise UserError(
            "Photos without poses need structure from motion, and pycolmap is not installed.",
            found=str(error),
            fix="pip install 'nerfjax[sfm]', or run COLMAP yourself and put its model into sparse/0 beside the images",
        ) from error
    return pycolmap


def solve(images: Path, names: Sequence[str], work: Path, options: SfmOptions, say: Say | None = None) -> int:
    """Finds cameras and points; the models are written to ``work``/sparse/0, 1, ….

    Args:
      images: folder of the images.
      names: relative paths of the images to use.
      work: an empty folder.
      options: how.
      say: takes one line of progress at a time; None prints to standard error.

    Returns:
      The number of images of the largest model; 0 where there is none.
    """
    colmap = load_pycolmap()
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    colmap.logging.minloglevel = 2
    colmap.set_random_seed(0)
    database, sparse = work / "database.db", work / "sparse"
    sparse.mkdir(parents=True)
    sequential = options.matching == "sequential" or (options.matching == "auto" and len(names) > SEQUENTIAL_ABOVE)
    with _Progress(database, "keypoints", "finding features", len(names), say):
        _extract(colmap, database, images, names, options)
    pairs = 0 if sequential else len(names) * (len(names) - 1) // 2
    with _Progress(database, "two_view_geometries", "matching pairs", pairs, say):
        (colmap.match_sequential if sequential else colmap.match_exhaustive)(database)
    solved = [0]

    def another() -> None:
        solved[0] += 1
        if solved[0] % max(1, len(names) // 10) == 0:
            say(f"structure from motion: placing cameras, step {solved[0]} of about {len(names)}")

    how = colmap.IncrementalPipelineOptions()
    how.min_model_size = 3
    models = colmap.incremental_mapping(database, images, sparse, how, next_image_callback=another)
    return max((model.num_reg_images() for model in models.values()), default=0)


def _extract(colmap, database: Path, images: Path, names: Sequence[str], options: SfmOptions) -> None:
    reader = colmap.ImageReaderOptions()
    reader.camera_model = options.lens
    mode = colmap.CameraMode.SINGLE if options.single_camera else colmap.CameraMode.AUTO
    # Names of versions before and after 3.12.
    newer = hasattr(colmap, "FeatureExtractionOptions")
    extraction = colmap.FeatureExtractionOptions() if newer else colmap.SiftExtractionOptions()
    extraction.max_image_size = options.max_size
    listed = {"image_names" if "image_names" in (colmap.extract_features.__doc__ or "") else "image_list": list(names)}
    how = {"extraction_options" if newer else "sift_options": extraction}
    colmap.extract_features(database, images, camera_mode=mode, reader_options=reader, **listed, **how)


class _Progress:
    """Counts the rows of a table of the database while pycolmap fills it, and says so every two seconds."""

    def __init__(self, database: Path, table: str, what: str, total: int, say: Say):
        self.database, self.table, self.what, self.total, self.say = database, table, what, total, say
        self.stop, self.last = threading.Event(), -1

    def __enter__(self) -> _Progress:
        self.say(f"structure from motion: {self.what}")
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *error) -> None:
        self.stop.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.stop.wait(2.0):
            try:
                connection = sqlite3.connect(f"{self.database.resolve().as_uri()}?mode=ro", uri=True, timeout=0.5)
                try:
                    count = connection.execute(f"SELECT COUNT(*) FROM {self.table}").fetchone()[0]
                finally:
                    connection.close()
            except sqlite3.Error:  # not there yet, or being written
                continue
            if count != self.last:
                self.last = count
                self.say(f"structure from motion: {self.what}, {count}" + (f" of {self.total}" if self.total else ""))
