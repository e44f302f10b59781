"""One stage of a run, ready to go: what the training loop runs, what a checkpoint of it holds, what renders it.

A run without a curriculum is one stage. What is costly is made when it is first asked for, so that a stage that a run
does not reach, or has left behind, costs nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from nerfjax.data.streamed import partition
from nerfjax.renderer import RenderedImage
from nerfjax.train.resampling import resample_field
from nerfjax.train.state import TrainState, named_leaves, parameter_names, shared_leaves
from nerfjax.train.step import AXIS, StepParts, make_dispatch
from nerfjax.types import Cameras


@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
    """One stage.

    Attributes:
      index: its place in the curriculum, from 0.
      begin: the step at which it begins.
      end: the step at which it ends, at most the run's last.
      config: the config of this stage, without a curriculum.
      rungs: what a step is made of, for each rung of the ladder, by ascending number of rays.
      mesh: the devices.
      feed: ``(step, count) -> data`` of a dispatch, with ``abstract(count)`` and ``close()``; None where only rendering
        is wanted. Stages on the same data share it.
      initial: ``(*, decode) -> TrainState`` of step 0, not compiled, a function of the seed. Without ``decode`` only
        its shapes are right, and no image is read.
      identity: of the sampler and of the pixel sampler: where they are those of the stage before, state carries over.
      image_renderer: makes ``render(params, aux, camera, camera_index, step)``.
    """

    index: int
    begin: int
    end: int
    config: ConfigDict
    rungs: tuple[StepParts, ...]
    mesh: Mesh
    feed: Any
    initial: Callable[..., TrainState]
    identity: tuple[Any, Any]
    image_renderer: Callable[[], Callable[..., RenderedImage]]

    @property
    def parts(self) -> StepParts:
        """What a step of the largest rung is made of."""
        return self.rungs[-1]

    @property
    def rays(self) -> tuple[int, ...]:
        """Rays of one step, by rung."""
        return tuple(parts.rays for parts in self.rungs)

    @functools.cached_property
    def init_state(self) -> Callable[[], TrainState]:
        """Compiled ``() -> TrainState`` of step 0."""
        return jax.jit(functools.partial(self.initial, decode=True), out_shardings=self._replicated)

    @functools.cached_property
    def abstract_state(self) -> TrainState:
        """Shapes and shardings of the state."""
        shapes = jax.eval_shape(functools.partial(self.initial, decode=False))
        sharding = self._replicated
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), shapes)

    @functools.cached_property
    def tensor_names(self) -> tuple[str, ...]:
        """What ``state.bad_tensor`` counts."""
        return (*(f"gradient of {name}" for name in parameter_names(self.abstract_state.params)), "loss")

    def dispatch_for(self, count: int, rung: int = -1) -> Callable:
        """Returns the compiled ``(state, data) -> (state, metrics)`` of ``count`` steps; see ``train.step``."""
        specs = partition(AXIS) if self.config.data.source == "stream" else PartitionSpec()
        return make_dispatch(self.rungs[rung], self.mesh, count, specs)

    def compile(self, count: int, rung: int) -> Callable:
        """Does the same, and compiles it before it is called; for a thread in the background."""
        return self.dispatch_for(count, rung).lower(self.abstract_state, self.feed.abstract(count)).compile()

    def enter(self, before: Stage, state: TrainState) -> TrainState:
        """Turns the last state of the stage before into the first one of this stage.

        What is shared stays (``state.shared_leaves``), a field of another resolution is resampled
        (``resampling.resample_field``), the rest is made anew.
        """
        same_sampler, same_pixels = (a == b for a, b in zip(before.identity, self.identity, strict=True))
        shared = shared_leaves(
            before.abstract_state, self.abstract_state, same_sampler=same_sampler, same_pixels=same_pixels
        )

        names = named_leaves(self.abstract_state)
        decode = any(name.startswith("pixel_state/") for name in names if name not in shared)
        resample = functools.partial(resample_field, self.parts.renderer.field, new=self.abstract_state)
        resampled = jax.jit(resample, out_shardings=self._replicated)(state)

        def anew() -> dict[str, Any]:
            leaves = named_leaves(self.initial(decode=decode))
            return {name: leaf for name, leaf in leaves.items() if name not in {*shared, *resampled}}

        made = jax.jit(anew, out_shardings=self._replicated)()
        found = {**named_leaves(state), **made, **resampled}
        if before.feed is not self.feed and before.feed is not None:
            before.feed.close()
        return jax.tree.unflatten(jax.tree.structure(self.abstract_state), [found[name] for name in names])

    def render_image(self, state: TrainState, camera: Cameras, camera_index: int = -1) -> RenderedImage:
        """Renders a whole image with the deterministic sampler."""
        return self._render(state.render_params, state.sampler_aux, camera, camera_index, state.step)

    @functools.cached_property
    def _render(self) -> Callable[..., RenderedImage]:
        return self.image_renderer()

    @property
    def _replicated(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec())
