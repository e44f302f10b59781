"""Where a stage's training data come from: resident on the devices or streamed, and whether they serve its choices."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from ml_collections import ConfigDict

from nerfjax.data.pixel_maps import pixel_content
from nerfjax.data.prepared import prepare_cached, read_prepared
from nerfjax.data.resident import ResidentImages, frame_table, load_resident
from nerfjax.errors import UserError
from nerfjax.scenes import Scene
from nerfjax.train import configuration
from nerfjax.train.step import AXIS, StepParts


class ResidentFeed:
    """Training images that live on the devices; they are loaded when they are first asked for, by any thread.

    Args:
      load: reads the images and puts them on the devices.
    """

    def __init__(self, load: Callable[[], Any]):
        self._load, self._images, self._lock = load, None, threading.Lock()

    @property
    def images(self) -> Any:
        """The ``ResidentImages``."""
        with self._lock:
            if self._images is None:
                self._images = self._load()
            return self._images

    def __call__(self, step: int, count: int) -> Any:
        """Returns the data of a dispatch."""
        return self.images

    def abstract(self, count: int) -> Any:
        """Returns something of the shapes of a dispatch's data."""
        return self.images

    def close(self) -> None:
        """Forgets the images."""
        self._images = None


def resident_data(config: ConfigDict, scene: Scene, sharding: NamedSharding, say, *, depth: bool) -> ResidentImages:
    """Puts the training images on the devices, read from the capture or, with ``data.prepare``, from a prepared one."""
    if config.data.prepare:
        scene = read_prepared(prepare_cached(scene, layout="views", depth=depth, say=say))
    return load_resident(scene, "train", sharding=sharding, depth=depth)


def stream_feed(config: ConfigDict, scene: Scene, mesh: Mesh, say, *, end: int, depth: bool) -> Any:
    """Prepares the capture where it is not yet, and opens it for streaming up to the step ``end``."""
    from nerfjax.data.stream import StreamFeed, open_source

    options = config.data
    source = open_source(
        prepare_cached(scene, layout=options.layout, depth=depth, say=say), layout=options.layout,
        batch=config.train.batch_rays, seed=config.train.seed, memory_bytes=options.memory_mb * 2**20, depth=depth,
        images_per_batch=options.images_per_batch, patch=options.patch, reuse=options.reuse,
    )  # fmt: skip
    return StreamFeed(
        source, scene, mesh=mesh, axis=AXIS, total_steps=end,
        steps_per_dispatch=config.train.steps_per_dispatch,
    )  # fmt: skip


def check_pixels(config: ConfigDict, parts: StepParts, scene: Scene) -> None:
    """Checks that the pixel sampler goes with the data's source, and that there is depth where it is wanted.

    Raises:
      UserError: it does not.
    """
    frames = scene.subset("train").frames
    if config.train.depth_weight and all(frame.depth is None for frame in frames):
        raise UserError(
            "the capture has no depth to supervise", file=scene.source, field="config.train.depth_weight",
            found=config.train.depth_weight, expected="0",
        )  # fmt: skip
    if config.data.source != "stream" or not frames:
        return
    name, options = configuration.chosen("pixels", config)
    problem = None
    content = pixel_content(scene, parts.pixels.wants, decode=False)
    if jax.tree.leaves(parts.pixels.init(frame_table(frames), content)):
        problem = (
            "it looks at whole images or learns from the errors of earlier steps, but a stream's batches are fixed "
            "before any step"
        )
    elif name != "uniform" or options.get("replacement"):
        problem = "a stream chooses its pixels itself: see config.data.layout, images_per_batch and patch"
    if problem:
        raise UserError(
            f"the pixel sampler does not go with streamed data: {problem}", field="config.pixels.name", found=name,
            fix="give --config.data.source=resident, or --config.pixels.name=uniform",
        )  # fmt: skip


def wants_depth_prior(config: ConfigDict, scene: Scene) -> bool:
    """Whether the sampler is told the measured distances: its option ``depth_share`` is above 0, and there are some."""
    share = configuration.chosen("sampler", config)[1].get("depth_share", 0.0)
    return share > 0 and any(frame.depth is not None for frame in scene.subset("train").frames)
