"""The training step, as one XLA graph: pixel, ray, samples, field, colour, loss, gradient, all-reduce, update, refresh.

A dispatch runs K steps under ``lax.scan`` on the whole mesh: ``shard_map`` over the axis "data", state and images
replicated. Every device renders its own slice of the global batch, chosen on the device from resident images or
streamed from the host (``data/targets.py``); the gradient is summed where the replicated parameters are cast to
device-varying ones. Masked pixels have no weight, nor have rays that a packed sampler had no room to cover, and the
weights of the others make up for them. At a rung of the ladder (``train.ladder``) only the first rays of the batch are
shot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from nerfjax.data.resident import ResidentImages
from nerfjax.data.streamed import StreamedBatches
from nerfjax.data.targets import Drawn, Targets, mean_one
from nerfjax.geometry.warps import s_from_t
from nerfjax.image_metrics import psnr_from_mse
from nerfjax.losses import distortion, log_depth, packed_distortion
from nerfjax.numerics import named
from nerfjax.pixels.base import PixelSampler
from nerfjax.renderer import RenderedRays, Renderer, camera_rays
from nerfjax.samplers.occupancy_share import occupancy_share
from nerfjax.train.averages import update_average
from nerfjax.train.ladder import next_rung, rays_of_rungs
from nerfjax.train.state import TrainState
from nerfjax.types import Array, Cameras, Intervals, PackedIntervals, Rays, Rendering, SceneGeometry

AXIS = "data"
EVERYWHERE = PartitionSpec()
TrainingData = ResidentImages | StreamedBatches
# Names of the run's random streams: each is fold_in(run key, its number), and then fold_in(·, step).
PIXELS, BACKGROUND, SAMPLER, REFRESH = range(4)


class Objective(NamedTuple):
    """What is minimised.

    Attributes:
      color: ``(prediction [N, 3], target [N, 3], weight [N]) -> scalar``.
      coarse: factor on the colour loss of earlier levels.
      distortion: factor on the distortion loss of the final level; 0 is off.
      depth: factor on the relative error of the expected distance, where the capture has depth; 0 is off.
      penalties: {name: factor} on the penalties of parameters (``Renderer.regularize``), of those that are on.
    """

    color: Callable[..., Array]
    coarse: float
    distortion: float
    depth: float = 0.0
    penalties: Mapping[str, float] = MappingProxyType({})


class StepParts(NamedTuple):
    """What a training step is made of.

    Attributes:
      batch_rays: rays of the global batch at the largest rung.
      rung, rungs: which rung of the ladder this step is for, and how many there are.
      depth_prior: whether the sampler is told the measured distances.
      ema: decay of the running average of the parameters; 0 where there is none.
    """

    renderer: Renderer
    pixels: PixelSampler
    optimizer: optax.GradientTransformation
    schedule: Callable[[Array], Array]
    objective: Objective
    geometry: SceneGeometry
    batch_rays: int
    rung: int = 0
    rungs: int = 1
    depth_prior: bool = False
    ema: float = 0.0

    @property
    def rays(self) -> int:
        """Rays that a step shoots."""
        return rays_of_rungs(self.batch_rays, self.rungs)[self.rung]


def loss_terms(
    parts: StepParts, rendered: RenderedRays, rays: Rays, target: Array, weight: Array, covered: Array | None, *, step
):
    """Returns {name: weighted term}, averaged over the rays given."""
    final = rendered.final
    terms = {"color": parts.objective.color(final.color, target, weight)}
    for level in rendered.coarse:
        coarse = parts.objective.coarse * parts.objective.color(level.color, target, weight)
        terms["coarse"] = terms.get("coarse", 0.0) + coarse
    if parts.objective.distortion:
        spread = final_distortion(final, rays, covered, spacing=parts.geometry.spacing)
        terms["distortion"] = parts.objective.distortion * spread
    return {**terms, **parts.renderer.sampler.loss(rendered.info, final, step=step)}


def penalty_terms(parts: StepParts, params) -> dict[str, Array]:
    """Returns {name: weighted penalty} of the parameters, of those that are on."""
    weights = parts.objective.penalties
    penalties = parts.renderer.regularize(params) if weights else {}
    return {name: weights[name] * penalties[name] for name in weights}


def final_distortion(final: Rendering, rays: Rays, covered: Array | None, *, spacing: str) -> Array:
    """Returns the distortion loss of the final level; packed intervals are normalised by the scene's spacing."""
    if isinstance(final.intervals, Intervals) or covered is None:
        return distortion(final.intervals.s, final.weights)
    packed, of_slot = final.intervals, partial(jnp.take, indices=final.intervals.ray, mode="clip")
    ends = (of_slot(rays.near), of_slot(rays.far))
    s0, s1 = (jax.lax.stop_gradient(s_from_t(spacing, t[:, None], *ends)[:, 0]) for t in (packed.t0, packed.t1))
    share = mean_one(covered.astype(jnp.float32), AXIS)
    # Quadratic in the weights of a ray: with the root, each ray counts by its share.
    return packed_distortion(s0, s1, final.weights * jnp.sqrt(of_slot(share)), packed)


def composite_target(pixels: Array, background: Array) -> Array:
    """Returns [N, 3] colours of pixels [N, 3 or 4] with straight alpha over the background."""
    if pixels.shape[-1] == 3:
        return pixels
    alpha = pixels[:, 3:]
    return pixels[:, :3] * alpha + background * (1.0 - alpha)


class Weights(NamedTuple):
    """Weights of a device's pixels, each of mean 1 over the global batch.

    Attributes:
      color: [n] of the colour loss and of the reported error: the pixel sampler's, 0 where masked.
      depth: [n] of the depth loss: 0 where masked or unknown; None where no depth is wanted.
    """

    color: Array
    depth: Array | None


def weights_of(mine: Targets) -> Weights:
    """Returns the weights of this device's pixels; runs in ``shard_map``."""
    color, depth = mine.pixels.weight, None
    if mine.valid is not None:
        color = mean_one(mine.pixels.weight * mine.valid.astype(jnp.float32), AXIS)
    if mine.depth is not None:
        known = mine.depth > 0
        depth = mean_one((known if mine.valid is None else known & mine.valid).astype(jnp.float32), AXIS)
    return Weights(color, depth)


def without_cut(weights: Weights, covered: Array) -> Weights:
    """Takes the weight from rays that are not covered; that of the others makes up for them. Runs in ``shard_map``."""
    kept = covered.astype(jnp.float32)

    def taken(weight: Array) -> Array:
        # The mean stays what it was, to the bit where no ray is cut.
        before, after = jax.lax.psum(jnp.stack([jnp.sum(weight), jnp.sum(weight * kept)]), AXIS)
        return weight * kept * (before / jnp.maximum(after, 1e-6))

    return Weights(taken(weights.color), None if weights.depth is None else taken(weights.depth))


def covered_rays(rendered: RenderedRays, rays: Rays) -> Array | None:
    """Returns [n] whether the packed intervals reach the end of each ray; None where they are dense and always do."""
    if not isinstance(rendered.final.intervals, PackedIntervals):
        return None
    return jax.lax.stop_gradient(rendered.info.t_end) >= rays.far * (1.0 - 1e-5)


def budget_report(rendered: RenderedRays, covered: Array | None, num_rays: int) -> dict[str, Array]:
    """Returns what is reported of the samples: room for them, and of packed ones how it is used."""
    info, intervals = rendered.info, rendered.final.intervals
    if covered is None:
        return {"sample_budget": info.evaluations * num_rays}
    kept, room = jnp.sum(intervals.count).astype(jnp.float32), intervals.t0.shape[0]
    return {
        "sample_budget": jnp.asarray(room, jnp.float32),
        "samples_wanted": (kept + info.overflow.astype(jnp.float32)) / num_rays,
        "packed_fill": kept / room,
        "cut_rays": 1.0 - jnp.mean(covered.astype(jnp.float32)),
    }


def ray_distance(targets: Targets, cameras: Cameras, rays: Rays) -> Array:
    """Returns [n] measured distances along the rays: z-depth is divided by the cosine of the angle to the axis."""
    forward = -cameras.pose[targets.pixels.image, :, 2]
    cosine = jnp.maximum(jnp.sum(rays.directions * forward, axis=-1), 1e-3)
    return jnp.where(targets.depth_is_z, targets.depth / cosine, targets.depth)


def batch_loss(
    parts: StepParts, params, state: TrainState, cameras: Cameras, mine: Targets, weights: Weights, index: Array, keys
):
    """Returns the loss over some rays of the global batch, and what is reported of it."""
    rays = camera_rays(parts.geometry, cameras, mine.pixels.image, mine.pixels.row, mine.pixels.column, index)
    measured = None if mine.depth is None else ray_distance(mine, cameras, rays)
    if parts.depth_prior and measured is not None:
        rays = rays.replace(depth_prior=jnp.where(mine.depth > 0, measured, 0.0))
    rays = named("rays", rays)
    background = parts.renderer.background.train_color(keys[BACKGROUND], params["background"], rays)
    target = composite_target(mine.color, jax.lax.stop_gradient(background))
    target = named("target colors", target)
    rendered = parts.renderer.render(keys[SAMPLER], params, state.sampler_aux, rays, background, step=state.step)
    rendered = rendered._replace(final=rendered.final.replace(color=named("colors of rays", rendered.final.color)))
    covered = covered_rays(rendered, rays)
    seen = mine.valid
    if covered is not None:
        weights, seen = without_cut(weights, covered), covered if mine.valid is None else covered & mine.valid
    terms = loss_terms(parts, rendered, rays, target, weights.color, covered, step=state.step)
    terms |= penalty_terms(parts, params)
    if parts.objective.depth and measured is not None:
        error = log_depth(rendered.final.depth, measured, weights.depth)
        terms["depth"] = parts.objective.depth * error
    terms = {name: named(f"loss/{name}", term) for name, term in terms.items()}
    errors = jnp.mean((rendered.final.color - target) ** 2, axis=-1)
    report = {
        **{f"loss/{name}": value for name, value in terms.items()},
        "mse": jnp.mean(errors * weights.color),
        "samples_per_ray": rendered.info.evaluations,
        "proposal_samples_per_ray": rendered.info.proposal_evaluations,
        "overflow": rendered.info.overflow.astype(jnp.float32),
        **budget_report(rendered, covered, index.shape[0]),
    }
    return sum(terms.values()), (report, errors if seen is None else jnp.where(seen, errors, -1.0))


def step_keys(state: TrainState) -> tuple[Array, ...]:
    """Returns the step's keys, in the order of their names; the pixels' is the same at every step."""
    run_key = jax.random.wrap_key_data(state.key)
    streams = [jax.random.fold_in(run_key, number) for number in range(4)]
    return (streams[PIXELS], *(jax.random.fold_in(stream, state.step) for stream in streams[1:]))


def draw_batch(parts: StepParts, state: TrainState, data: TrainingData, records, keys) -> tuple[Drawn, Weights, Array]:
    """Returns the step's pixels, the weights of this device's, and their places in the global batch [n]."""

    def select(images):
        size = parts.batch_rays
        batch = parts.pixels.select(keys[PIXELS], state.pixel_state, images, step=state.step, size=size)
        return batch if parts.rays == size else jax.tree.map(lambda leaf: leaf[: parts.rays], batch)

    drawn: Drawn = data.draw(records, select, axis=AXIS)
    index = drawn.start + jnp.arange(parts.rays // jax.lax.axis_size(AXIS), dtype=jnp.int32)
    return drawn, weights_of(drawn.mine), index


def gradients(parts: StepParts, state: TrainState, data: TrainingData, records):
    """Returns the loss and gradient of the global batch, equal on all devices, and more; runs in ``shard_map``."""
    keys = step_keys(state)
    drawn, weights, index = draw_batch(parts, state, data, records, keys)
    devices = jax.lax.axis_size(AXIS)

    def local_loss(params):
        varying = jax.tree.map(lambda leaf: jax.lax.pcast(leaf, AXIS, to="varying"), params)
        loss, aux = batch_loss(parts, varying, state, data.cameras, drawn.mine, weights, index, keys)
        return loss / devices, aux

    (loss, (report, errors)), gradient = jax.value_and_grad(local_loss, has_aux=True)(state.params)
    loss = jax.lax.psum(loss, AXIS)
    one = jax.lax.pcast(jnp.ones(()), AXIS, to="varying")  # constants, too, must be cast before they are averaged
    report = jax.lax.pmean(jax.tree.map(lambda value: value * one, report), AXIS)
    report["overflow"] *= devices
    report["sample_budget"] *= devices
    return loss, gradient, report, drawn.batch, (errors, drawn.start)


def train_step(parts: StepParts, state: TrainState, data: TrainingData, records) -> tuple[TrainState, dict[str, Array]]:
    """Does one step; runs in ``shard_map``."""
    loss, gradient, report, batch, (errors, start) = gradients(parts, state, data, records)
    keys = step_keys(state)
    updates, opt_state = parts.optimizer.update(gradient, state.opt_state, state.params)
    updates = optax.tree.scale(state.rate_scale, updates)
    params = optax.apply_updates(state.params, updates)
    params, sampler_aux = parts.renderer.refresh(keys[REFRESH], params, state.sampler_aux, step=state.step)
    ema = update_average(state.ema, params, step=state.step, decay=parts.ema)
    pixel_state = state.pixel_state
    if jax.tree.leaves(pixel_state):
        spread = jax.lax.dynamic_update_slice_in_dim(jnp.zeros((parts.rays,)), errors, start, axis=0)
        pixel_state = parts.pixels.observe(pixel_state, batch, jax.lax.psum(spread, AXIS))

    # Which tensor is not finite: the gradient's leaves in order, then the loss.
    finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in [*jax.tree.leaves(gradient), loss]])
    good = jnp.all(finite) & (state.first_bad_step < 0)
    failed = ~jnp.all(finite) & (state.first_bad_step < 0)
    stepped = state.replace(
        step=state.step + 1, params=params, sampler_aux=sampler_aux, pixel_state=pixel_state, opt_state=opt_state,
        ema=ema,
    )  # fmt: skip
    kept = jax.tree.map(partial(jnp.where, good), stepped, state)
    kept = kept.replace(
        first_bad_step=jnp.where(failed, state.step, state.first_bad_step),
        bad_tensor=jnp.where(failed, jnp.argmin(finite).astype(jnp.int32), state.bad_tensor),
    )
    mse = report.pop("mse")
    metrics = {
        "loss": loss,
        **report,
        "psnr": psnr_from_mse(mse),
        "learning_rate": parts.schedule(state.step) * state.rate_scale,
        "grad_norm": optax.tree.norm(gradient),
    }
    return kept, metrics


def climb(parts: StepParts, state: TrainState, metrics: dict[str, Array]) -> tuple[TrainState, dict[str, Array]]:
    """Decides the rung of the dispatch after the next, from what this dispatch wanted."""
    rays = rays_of_rungs(parts.batch_rays, parts.rungs)
    wanted, budget = jnp.max(metrics["samples_wanted"]), metrics["sample_budget"][-1]
    decided = jnp.stack([state.rung[1], next_rung(state.rung[1], wanted, budget, rays=rays)])
    rung = jnp.where(state.first_bad_step < 0, decided, state.rung)
    return state.replace(rung=rung), {**metrics, "decided_rung": rung[1]}


def make_dispatch(parts: StepParts, mesh: Mesh, num_steps: int, data_specs=EVERYWHERE) -> Callable:
    """Returns the compiled ``(state, data) -> (state, {name: [num_steps]})``; the state is donated.

    Where there is a ladder, the metrics also hold ``decided_rung`` [], the rung of the dispatch after the next, and
    where the sampler has a grid, ``occupancy`` [], the share of it that is occupied after the last step.

    Args:
      parts: what the step is made of.
      mesh: the devices.
      num_steps: steps of a dispatch.
      data_specs: how the data lie on the mesh (``data.streamed.partition``); everywhere by default.
    """

    def steps(state: TrainState, data: TrainingData):
        state, metrics = jax.lax.scan(
            lambda carry, records: train_step(parts, carry, data, records), state, data.records, length=num_steps
        )
        occupancy = occupancy_share(state.sampler_aux)
        metrics = metrics if occupancy is None else {**metrics, "occupancy": occupancy}
        return climb(parts, state, metrics) if parts.rungs > 1 else (state, metrics)

    def train_dispatch(state: TrainState, data: TrainingData):
        if data.records is not None and parts.rays < parts.batch_rays:
            data = data.replace(records=jax.tree.map(lambda leaf: leaf[:, : parts.rays], data.records))
        return sharded(state, data)

    specs = (PartitionSpec(), data_specs)
    shardings = jax.tree.map(
        lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda leaf: isinstance(leaf, PartitionSpec)
    )
    sharded = jax.shard_map(steps, mesh=mesh, in_specs=specs, out_specs=PartitionSpec())
    return jax.jit(train_dispatch, donate_argnums=0, in_shardings=shardings, out_shardings=shardings[0])


def make_gradient(parts: StepParts, mesh: Mesh) -> Callable:
    """Returns the compiled ``(state, resident images) -> (loss, gradient)`` of one step, for tests and studies."""

    def gradient(state: TrainState, data: ResidentImages):
        return gradients(parts, state, data, data.records)[:2]

    return jax.jit(jax.shard_map(gradient, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec()))
