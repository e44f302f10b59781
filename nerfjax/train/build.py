"""From a config to the compiled parts of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from nerfjax.data.prepared import LAYOUTS, prepare_cached, read_prepared
from nerfjax.data.resident import ResidentImages, frame_table, load_resident
from nerfjax.data.streamed import partition
from nerfjax.errors import UserError, did_you_mean
from nerfjax.renderer import RenderedImage, Renderer, make_image_renderer, make_renderer
from nerfjax.samplers import SAMPLERS
from nerfjax.scenes import Scene, read_scene
from nerfjax.train import configuration
from nerfjax.train.state import TrainState, parameter_names
from nerfjax.train.step import AXIS, Objective, StepParts, make_dispatch
from nerfjax.types import Cameras, SceneGeometry


class Experiment(NamedTuple):
    """A run, ready to go: nothing here has been trained.

    Attributes:
      config: the config.
      scene: the capture.
      parts: what the training step is made of.
      mesh: the devices.
      data: the training images on the devices; None where they are streamed, or where only rendering is wanted.
      feed: ``(step, count) -> data`` of a dispatch, for the loop; None where only rendering is wanted.
      dispatch_for: ``(num_steps) -> compiled (state, data) -> (state, metrics)``.
      init_state: ``() -> TrainState`` of step 0.
      abstract_state: shapes and shardings of the state.
      tensor_names: what ``state.bad_tensor`` counts.
      render_image: ``(state, camera, camera_index=-1) -> RenderedImage`` with the deterministic sampler.
    """

    config: ConfigDict
    scene: Scene
    parts: StepParts
    mesh: Mesh
    data: ResidentImages | None
    feed: Callable[[int, int], Any] | None
    dispatch_for: Callable[[int], Callable]
    init_state: Callable[[], TrainState]
    abstract_state: TrainState
    tensor_names: tuple[str, ...]
    render_image: Callable[..., RenderedImage]


def build_experiment(
    config: ConfigDict,
    *,
    scene: Scene | None = None,
    with_data: bool = True,
    say: Callable[[str], None] | None = None,
) -> Experiment:
    """Binds every choice of a config and builds what a run needs.

    Args:
      config: as from ``load_config``.
      scene: the capture, if it has been read already.
      with_data: whether training data are wanted.
      say: takes a line about a data set that was prepared.

    Raises:
      UserError: a choice, an option or the capture is wrong.
    """
    check(config)
    scene = read_config_scene(config) if scene is None else scene
    geometry = jax.tree.map(lambda leaf: np.asarray(leaf), scene.geometry)
    mesh = make_mesh(config.parallel.devices)
    if config.train.batch_rays % mesh.size:
        raise UserError(
            "the global batch does not divide among the devices", field="config.train.batch_rays",
            found=f"{config.train.batch_rays} rays, {mesh.size} devices", expected=f"a multiple of {mesh.size}",
        )  # fmt: skip
    parts = step_parts(config, geometry)
    replicated = NamedSharding(mesh, PartitionSpec())
    streamed = config.data.source == "stream"
    check_pixels(config, parts, scene)
    data = resident_data(config, scene, replicated, say) if with_data and not streamed else None
    feed = (lambda step, count: data) if data is not None else None
    if with_data and streamed:
        feed = stream_feed(config, scene, mesh, say)
    specs = partition(AXIS) if streamed else PartitionSpec()
    init = jax.jit(lambda: initial_state(config, parts, geometry, scene), out_shardings=replicated)
    shapes = jax.eval_shape(init)
    abstract_state = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=replicated), shapes
    )
    names = (*(f"gradient of {name}" for name in parameter_names(shapes.params)), "loss")

    evaluation_renderer = build_renderer(config, geometry, deterministic=True)
    memory = config.evaluation.memory_mb * 2**20
    render = make_image_renderer(evaluation_renderer, geometry, memory_bytes=memory)

    def render_image(state: TrainState, camera: Cameras, camera_index: int = -1) -> RenderedImage:
        return render(state.params, state.sampler_aux, camera, camera_index, state.step)

    return Experiment(
        config, scene, parts, mesh, data, feed, lambda steps: make_dispatch(parts, mesh, steps, specs), init,
        abstract_state, names, render_image,
    )  # fmt: skip


def read_config_scene(config: ConfigDict) -> Scene:
    """Reads the capture that a config names."""
    section = config.scene
    return read_scene(
        section.source, format=section.format, convention=section.convention, downscale=section.downscale,
        holdout=section.holdout,
    )  # fmt: skip


def resident_data(config: ConfigDict, scene: Scene, sharding: NamedSharding, say) -> ResidentImages:
    """Puts the training images on the devices, read from the capture or, with ``data.prepare``, from a prepared one."""
    depth = config.train.depth_weight > 0
    if config.data.prepare:
        scene = read_prepared(prepare_cached(scene, layout="views", depth=depth, say=say))
    return load_resident(scene, "train", sharding=sharding, depth=depth)


def stream_feed(config: ConfigDict, scene: Scene, mesh: Mesh, say) -> Callable[[int, int], Any]:
    """Prepares the capture where it is not yet, and opens it for streaming."""
    from nerfjax.data.stream import StreamFeed, open_source

    options, depth = config.data, config.train.depth_weight > 0
    source = open_source(
        prepare_cached(scene, layout=options.layout, depth=depth, say=say), layout=options.layout,
        batch=config.train.batch_rays, seed=config.train.seed, memory_bytes=options.memory_mb * 2**20, depth=depth,
        images_per_batch=options.images_per_batch, patch=options.patch, reuse=options.reuse,
    )  # fmt: skip
    return StreamFeed(
        source, scene, mesh=mesh, axis=AXIS, total_steps=config.train.steps,
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
    if jax.tree.leaves(parts.pixels.init(frame_table(frames))):
        problem = "it learns from the errors of earlier steps, but a stream's batches are fixed before any step"
    elif name != "uniform" or options.get("replacement"):
        problem = "a stream chooses its pixels itself: see config.data.layout, images_per_batch and patch"
    if problem:
        raise UserError(
            f"the pixel sampler does not go with streamed data: {problem}", field="config.pixels.name", found=name,
            fix="give --config.data.source=resident, or --config.pixels.name=uniform",
        )  # fmt: skip


def check(config: ConfigDict) -> None:
    """Checks the choices that no factory checks.

    Raises:
      UserError: a choice does not exist, or a number is out of range.
    """
    for section in configuration.FAMILIES:
        configuration.chosen(section, config)
    for key in ("steps", "batch_rays", "log_every", "steps_per_dispatch", "checkpoint_every"):
        value = config.train[key]
        if value < 1:
            raise UserError(f"config.train.{key} must be positive", field=f"config.train.{key}", found=value)
    for key, known in {"source": ("resident", "stream"), "layout": LAYOUTS}.items():
        if config.data[key] not in known:
            raise UserError(
                f"unknown data {key}", field=f"config.data.{key}", found=config.data[key],
                fix=did_you_mean(config.data[key], known),
            )  # fmt: skip
    precisions = tuple(precision.name.lower() for precision in jax.lax.Precision)
    if config.precision not in precisions:
        raise UserError("unknown precision", field="config.precision", found=config.precision, expected=precisions)


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


def build_renderer(config: ConfigDict, geometry: SceneGeometry, *, deterministic: bool) -> Renderer:
    """Binds field, sampler, networks and background to a scene."""
    field = configuration.bind("field", config, geometry=geometry, precision=config.precision)
    background = configuration.bind("background", config)
    sampler = configuration.bind("sampler", resolve_spacing(config, geometry), deterministic=deterministic,
                                 networks=build_networks(config, geometry))  # fmt: skip
    return make_renderer(
        field, sampler, background, coarse_field=config.render.coarse_field, opaque_end=config.render.opaque_end
    )


def resolve_spacing(config: ConfigDict, geometry: SceneGeometry) -> dict[str, Any]:
    """Returns {"sampler": section} in which ``spacing="auto"`` has become the scene's spacing."""
    name, options = configuration.chosen("sampler", config)
    if options.get("spacing") == "auto":
        options["spacing"] = geometry.spacing
    return {"sampler": {"name": name, name: options}}


def build_networks(config: ConfigDict, geometry: SceneGeometry) -> tuple:
    """Returns the sampler's density networks, one per round; an option that is a tuple has a value for each round."""
    name, options = configuration.chosen("sampler", config)
    if "networks" not in inspect.signature(SAMPLERS[name]).parameters:
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


def step_parts(config: ConfigDict, geometry: SceneGeometry) -> StepParts:
    """Binds everything that the training step is made of."""
    schedule = configuration.bind("schedule", {"schedule": configuration.schedule_section(config)})
    name, options = configuration.chosen("loss", config)
    color = configuration.COLOR_LOSSES[name]
    objective = Objective(
        lambda prediction, target, weight: color(prediction, target, weight, **options),
        config.train.coarse_weight,
        config.train.distortion_weight,
        config.train.depth_weight,
    )
    return StepParts(
        renderer=build_renderer(config, geometry, deterministic=False),
        pixels=configuration.bind("pixels", config),
        optimizer=configuration.bind("optimizer", config, schedule=schedule),
        schedule=schedule,
        objective=objective,
        geometry=geometry,
        batch_rays=config.train.batch_rays,
    )


def initial_state(config: ConfigDict, parts: StepParts, geometry: SceneGeometry, scene: Scene) -> TrainState:
    """Returns the state of step 0, a function of the seed."""
    run_key = jax.random.key(config.train.seed)
    params, aux = parts.renderer.init(jax.random.fold_in(run_key, 2**31 - 1), geometry)
    table = frame_table(scene.subset("train").frames)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        sampler_aux=aux,
        pixel_state=parts.pixels.init(table),
        opt_state=parts.optimizer.init(params),
        key=jax.random.key_data(run_key),
        first_bad_step=jnp.full((), -1, jnp.int32),
        bad_tensor=jnp.full((), -1, jnp.int32),
    )
