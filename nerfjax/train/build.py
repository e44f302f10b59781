"""From a config to the compiled parts of a run."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from nerfjax.data.pixel_maps import pixel_content
from nerfjax.data.prepared import LAYOUTS
from nerfjax.data.resident import ResidentImages, frame_table
from nerfjax.errors import UserError, did_you_mean
from nerfjax.precision import PRECISIONS
from nerfjax.renderer import RenderedImage, Renderer, camera_rays, is_packed, make_image_renderer, make_renderer
from nerfjax.scenes import Scene, read_scene
from nerfjax.train import configuration
from nerfjax.train.automatic import resolve_auto, with_bounds
from nerfjax.train.averages import start_average
from nerfjax.train.curriculum import StagePlan, stage_plans
from nerfjax.train.feeds import ResidentFeed, check_pixels, resident_data, stream_feed, wants_depth_prior
from nerfjax.train.ladder import check_ladder
from nerfjax.train.penalties import penalty_weights
from nerfjax.train.ranges import check_ranges
from nerfjax.train.resampling import check_resampling
from nerfjax.train.stage import Stage
from nerfjax.train.state import TrainState
from nerfjax.train.step import AXIS, Objective, StepParts
from nerfjax.types import GEOMETRY_POINTS, Cameras, SceneGeometry


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """A run, ready to go: nothing here has been trained.

    Attributes:
      config: the config, every choice explicit.
      scene: the capture.
      mesh: the devices.
      stages: the stages of the curriculum that the run reaches; one where there is no curriculum.
      stage: the one in which it stands, the first where nothing has been trained; what follows is that stage's.
    """

    config: ConfigDict
    scene: Scene
    mesh: Mesh
    stages: tuple[Stage, ...]
    stage: Stage

    @property
    def parts(self) -> StepParts:
        """What the training step is made of, at the largest rung of the ladder."""
        return self.stage.parts

    @property
    def data(self) -> ResidentImages | None:
        """The training images on the devices; None where they are streamed, or where only rendering is wanted."""
        return self.feed.images if isinstance(self.feed, ResidentFeed) else None

    @property
    def feed(self) -> Any:
        """``(step, count) -> data`` of a dispatch, for the loop; None where only rendering is wanted."""
        return self.stage.feed

    @property
    def dispatch_for(self) -> Callable[..., Callable]:
        """``(num_steps, rung=largest) -> compiled (state, data) -> (state, metrics)``."""
        return self.stage.dispatch_for

    @property
    def init_state(self) -> Callable[[], TrainState]:
        """``() -> TrainState`` of step 0."""
        return self.stage.init_state

    @property
    def abstract_state(self) -> TrainState:
        """Shapes and shardings of the state."""
        return self.stage.abstract_state

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """What ``state.bad_tensor`` counts."""
        return self.stage.tensor_names

    def stage_of(self, step: int) -> Stage:
        """Returns the stage that a state of so many steps belongs to; at a boundary, the one that ends there."""
        return next((stage for stage in self.stages if step <= stage.end), self.stages[-1])

    def at(self, step: int) -> Experiment:
        """Returns the experiment as it stands at a step."""
        return dataclasses.replace(self, stage=self.stage_of(step))

    def render_image(self, state: TrainState, camera: Cameras, camera_index: int = -1) -> RenderedImage:
        """Renders a whole image with the deterministic sampler of the stage that the state belongs to."""
        return self.stage_of(int(jax.device_get(state.step))).render_image(state, camera, camera_index)


def build_experiment(
    config: ConfigDict,
    *,
    scene: Scene | None = None,
    with_data: bool = True,
    say: Callable[[str], None] | None = None,
    step: int = 0,
) -> Experiment:
    """Binds every choice of a config and builds what a run needs.

    Args:
      config: as from ``load_config``.
      scene: the capture, if it has been read already.
      with_data: whether training data are wanted.
      say: takes a line about a data set that was prepared.
      step: where training begins: resident images of that stage are loaded at once, those of others when they are due.

    Raises:
      UserError: a choice, an option or the capture is wrong.
    """
    check(config)
    scene = read_config_scene(config) if scene is None else scene
    config = resolve_auto(config, scene)
    check(config)
    scene = with_bounds(scene, config.scene.near, config.scene.far)
    mesh = make_mesh(config.parallel.devices)
    builder = StageBuilder(config, scene, mesh, with_data, say)
    stages = tuple(builder.build(plan) for plan in stage_plans(config))
    stages = tuple(stage for stage in stages if stage.begin < stage.end) or stages[:1]
    check_fields(stages)
    experiment = Experiment(config, scene, mesh, stages, stages[0])
    if with_data and step < config.train.steps:
        due = next((stage for stage in stages if step < stage.end), stages[-1])
        if isinstance(due.feed, ResidentFeed):
            _ = due.feed.images
    return experiment


def check_fields(stages: tuple[Stage, ...]) -> None:
    """Checks that each stage can take the field over from the stage before it.

    Raises:
      UserError: it cannot.
    """
    for before, after in itertools.pairwise(stages):
        if before.config.field != after.config.field:
            check_resampling(after.parts.renderer.field, before.abstract_state, after.abstract_state, index=after.index)


class StageBuilder:
    """Builds the stages of a run, which share the scene's geometry and, where they can, the training images."""

    def __init__(self, config: ConfigDict, scene: Scene, mesh: Mesh, with_data: bool, say):
        self.config, self.scene, self.mesh, self.with_data, self.say = config, scene, mesh, with_data, say
        self.geometry = geometry_with_points(scene)
        self._scenes, self._resident = {1: scene}, {}

    def build(self, plan: StagePlan) -> Stage:
        """Builds one stage.

        Raises:
          UserError: a choice of it is wrong, or does not go with the capture.
        """
        config, scene = configuration.stage_config(self.config, plan), self._scene(plan)
        end = min(self.config.train.steps, self.config.train.steps if plan.until is None else plan.until)
        rungs = ladder_parts(config, self.geometry, self.mesh.size, depth_prior=wants_depth_prior(config, scene))
        check_pixels(config, rungs[-1], scene)
        evaluation = build_renderer(config, self.geometry, deterministic=True)
        return Stage(
            index=plan.index, begin=plan.begin, end=end, config=config, rungs=rungs, mesh=self.mesh,
            feed=self._feed(config, scene, plan, end) if self.with_data else None,
            initial=functools.partial(initial_state, config, rungs[-1], self.geometry, scene),
            identity=(sampler_identity(config), (*configuration.chosen("pixels", config), plan.downscale)),
            image_renderer=functools.partial(
                make_image_renderer, evaluation, self.geometry, memory_bytes=config.evaluation.memory_mb * 2**20
            ),
        )  # fmt: skip

    def _scene(self, plan: StagePlan) -> Scene:
        """The capture at the stage's resolution, for its training images."""
        if plan.downscale not in self._scenes:
            self._scenes[plan.downscale] = read_config_scene(configuration.stage_config(self.config, plan))
        return self._scenes[plan.downscale]

    def _feed(self, config: ConfigDict, scene: Scene, plan: StagePlan, end: int) -> Any:
        depth = config.train.depth_weight > 0 or wants_depth_prior(config, scene)
        if config.data.source == "stream":
            return stream_feed(config, scene, self.mesh, self.say, end=end, depth=depth)
        sharding = NamedSharding(self.mesh, PartitionSpec())
        load = functools.partial(resident_data, config, scene, sharding, self.say, depth=depth)
        return self._resident.setdefault((plan.downscale, depth), ResidentFeed(load))


def ladder_parts(config: ConfigDict, geometry: SceneGeometry, devices: int, *, depth_prior: bool) -> tuple:
    """Returns the parts of a step at each rung of the ladder; samplers that are not packed have one rung.

    Raises:
      UserError: the batch does not divide among the devices.
    """
    rungs = config.train.rungs if configuration.sampler_takes("ray_share", config) else 1
    check_ladder(config.train.batch_rays, rungs, devices)
    parts = [step_parts(config, geometry, rung=rung, rungs=rungs, depth_prior=depth_prior) for rung in range(rungs)]
    if rungs > 1 and not samples_packed(parts[0]):
        return ladder_parts(without_ladder(config), geometry, devices, depth_prior=depth_prior)
    return tuple(parts)


def without_ladder(config: ConfigDict) -> ConfigDict:
    """Returns the config with a ladder of one rung."""
    config = config.copy_and_resolve_references()
    config.train.rungs = 1
    return config


def samples_packed(parts: StepParts) -> bool:
    """Whether the final intervals are packed, from shapes alone."""

    def render():
        key, zeros = jax.random.key(0), jnp.zeros((parts.rays,), jnp.int32)
        params, aux = parts.renderer.init(key, parts.geometry)
        cameras = jax.tree.map(jnp.asarray, parts.geometry.cameras)
        rays = camera_rays(parts.geometry, cameras, zeros, zeros, zeros, zeros)
        return parts.renderer.render(key, params, aux, rays, jnp.zeros((parts.rays, 3)), step=zeros[0])

    return is_packed(jax.eval_shape(render))


def sampler_identity(config: ConfigDict) -> tuple:
    """Returns what must be equal in two stages for a sampler's state to carry over: its name and its networks."""
    name, _ = configuration.chosen("sampler", config)
    networks = configuration.chosen("network", config) if configuration.sampler_takes("networks", config) else None
    return name, networks


def geometry_with_points(scene: Scene) -> SceneGeometry:
    """Returns the scene's geometry on the host, with (an even choice of) the capture's sparse points."""
    geometry = jax.tree.map(lambda leaf: np.asarray(leaf), scene.geometry)
    if scene.points is None or not len(scene.points):
        return geometry
    return geometry.replace(points=scene.points[:: -(-len(scene.points) // GEOMETRY_POINTS)])


def read_config_scene(config: ConfigDict) -> Scene:
    """Reads the capture that a config names."""
    section = config.scene
    return read_scene(
        section.source, format=section.format, convention=section.convention, downscale=section.downscale,
        holdout=section.holdout, options=section.get("options", ""),
    )  # fmt: skip


def check(config: ConfigDict) -> None:
    """Checks the choices that no factory checks.

    Raises:
      UserError: a choice does not exist, or a number is out of range.
    """
    for plan in stage_plans(config):
        stage = configuration.stage_config(config, plan)
        for section in configuration.FAMILIES:
            configuration.chosen(section, stage)
    check_ranges(config)
    for key, known in {"source": ("resident", "stream"), "layout": LAYOUTS}.items():
        if config.data[key] not in known:
            raise UserError(
                f"unknown data {key}", field=f"config.data.{key}", found=config.data[key],
                fix=did_you_mean(config.data[key], known),
            )  # fmt: skip
    if config.precision not in PRECISIONS:
        raise UserError(
            "unknown precision", field="config.precision", found=config.precision, expected=", ".join(PRECISIONS),
            fix=did_you_mean(config.precision, PRECISIONS),
        )  # fmt: skip


def make_mesh(devices: int) -> Mesh:
    """Returns the one-axis mesh over the first ``devices`` devices; 0 means all.

    Raises:
      UserError: there are not so many.
    """
    available = jax.devices()
    if devices > len(available) or devices < 0:
        raise UserError(
            "there are not so many devices", field="config.parallel.devices", found=devices,
            expected=f"0 (all) to {len(available)}",
        )  # fmt: skip
    chosen = available[: devices or len(available)]
    return jax.make_mesh((len(chosen),), (AXIS,), devices=chosen, axis_types=(AxisType.Auto,))


def build_renderer(
    config: ConfigDict, geometry: SceneGeometry, *, deterministic: bool, ray_share: float = 1.0
) -> Renderer:
    """Binds field, sampler, networks and background to a scene; ``ray_share`` is the batch's share of the largest."""
    field = configuration.bind("field", config, geometry=geometry, precision=config.precision)
    background = configuration.bind("background", config)
    sampler = configuration.bind(
        "sampler", resolve_spacing(config, geometry), geometry=geometry, deterministic=deterministic,
        networks=build_networks(config, geometry), ray_share=ray_share,
    )  # fmt: skip
    return make_renderer(
        field, sampler, background, coarse_field=config.render.coarse_field, opaque_end=config.render.opaque_end,
        deterministic=deterministic,
    )  # fmt: skip


def resolve_spacing(config: ConfigDict, geometry: SceneGeometry) -> dict[str, Any]:
    """Returns {"sampler": section} in which ``spacing="auto"`` has become the scene's spacing."""
    name, options = configuration.chosen("sampler", config)
    if options.get("spacing") == "auto":
        options["spacing"] = geometry.spacing
    return {"sampler": {"name": name, name: options}}


def build_networks(config: ConfigDict, geometry: SceneGeometry) -> tuple:
    """Returns the sampler's density networks, one per round; an option that is a tuple has a value for each round."""
    name, options = configuration.chosen("sampler", config)
    if not configuration.sampler_takes("networks", config):
        return ()
    rounds = len(options["num_proposal"])
    member, options = configuration.chosen("network", config)
    for option, value in options.items():
        if isinstance(value, (tuple, list)) and len(value) != rounds:
            raise UserError(
                "a per-round option of the proposal networks needs one value for each round",
                field=f"config.network.{member}.{option}", found=value, expected=f"{rounds} values, or a single one",
            )  # fmt: skip
    networks = []
    for index in range(rounds):
        here = {key: value[index] if isinstance(value, (tuple, list)) else value for key, value in options.items()}
        section = {"network": {"name": member, member: here}}
        networks.append(configuration.bind("network", section, geometry=geometry, precision=config.precision))
    return tuple(networks)


def step_parts(
    config: ConfigDict, geometry: SceneGeometry, *, rung: int = 0, rungs: int = 1, depth_prior: bool = False
) -> StepParts:
    """Binds everything that the training step of one rung is made of."""
    renderer = build_renderer(config, geometry, deterministic=False, ray_share=0.5 ** (rungs - 1 - rung))
    schedule = configuration.bind("schedule", {"schedule": configuration.schedule_section(config)})
    name, options = configuration.chosen("loss", config)
    color = configuration.COLOR_LOSSES[name]
    objective = Objective(
        lambda prediction, target, weight: color(prediction, target, weight, **options),
        config.train.coarse_weight,
        config.train.distortion_weight,
        config.train.depth_weight,
        penalty_weights(config, renderer, geometry),
    )
    return StepParts(
        renderer=renderer,
        pixels=configuration.bind("pixels", config, batch_rays=config.train.batch_rays),
        optimizer=configuration.bind("optimizer", config, schedule=schedule),
        schedule=schedule,
        objective=objective,
        geometry=geometry,
        batch_rays=config.train.batch_rays,
        rung=rung,
        rungs=rungs,
        depth_prior=depth_prior,
        ema=config.train.ema,
    )


def initial_state(
    config: ConfigDict, parts: StepParts, geometry: SceneGeometry, scene: Scene, *, decode: bool = True
) -> TrainState:
    """Returns the state of step 0, a function of the seed; without ``decode`` no image is read for its pixels."""
    run_key = jax.random.key(config.train.seed)
    params, aux = parts.renderer.init(jax.random.fold_in(run_key, 2**31 - 1), geometry)
    table = frame_table(scene.subset("train").frames)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        sampler_aux=aux,
        pixel_state=parts.pixels.init(table, pixel_content(scene, parts.pixels.wants, decode=decode)),
        opt_state=parts.optimizer.init(params),
        key=jax.random.key_data(run_key),
        first_bad_step=jnp.full((), -1, jnp.int32),
        bad_tensor=jnp.full((), -1, jnp.int32),
        rung=jnp.zeros((2,), jnp.int32),
        rate_scale=jnp.ones((), jnp.float32),
        ema=start_average(params, config.train.ema),
    )
