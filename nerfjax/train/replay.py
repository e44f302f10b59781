"""The step at which a run diverged, kept in one file, and done again with every tensor in sight.

``RUN/replay/STEP.msgpack`` holds the state before the fault (from which a step is a function of the seed and its own
number) and the config; what it needs besides is the capture. The file is msgpack: a SHA-256, and the bytes of a second
msgpack document that it is of. Nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import serialization
from jax.sharding import NamedSharding, PartitionSpec

from nerfjax.errors import UserError
from nerfjax.runs import manifest as manifests
from nerfjax.train import configuration
from nerfjax.train.build import Experiment, build_experiment, read_config_scene
from nerfjax.train.fault_trace import FaultTrace, TensorReport
from nerfjax.train.loop import dispatch_length
from nerfjax.train.stage import Stage
from nerfjax.train.state import TrainState, named_leaves, parameter_names
from nerfjax.train.step import AXIS, StepParts, TrainingData, batch_loss, draw_batch, step_keys

FORMAT = 1
SHOWN = 60  # rows of the table


class Replay(NamedTuple):
    """A file's contents: ``about`` (step, tensor, config, …) and the state's leaves by path."""

    about: dict[str, Any]
    leaves: dict[str, np.ndarray]


def write_replay(
    workdir: str | os.PathLike, experiment: Experiment, state: TrainState, *, step: int, tensor: str, fingerprint: str
) -> epath.Path:
    """Writes the state before a fault to ``RUN/replay/STEP.msgpack``, on process 0.

    Args:
      workdir: the run folder.
      experiment: the run.
      state: as the fault left it, which is as it was before.
      step: the step that diverged.
      tensor: what was found not to be finite.
      fingerprint: the scene's.

    Returns:
      The file.

    Raises:
      OSError: the disk refused.
    """
    path = epath.Path(workdir) / "replay" / f"{step}.msgpack"
    about = dict(
        format=FORMAT, step=step, tensor=tensor, scene_fingerprint=fingerprint, processes=jax.process_count(),
        devices=experiment.mesh.size, config=configuration.config_to_json(experiment.config),
        **{key: value for key, value in manifests.environment().items() if key in ("code", "packages")},
    )  # fmt: skip
    leaves = {name: np.asarray(jax.device_get(leaf)) for name, leaf in named_leaves(state).items()}
    if jax.process_index() != 0:
        return path
    document = serialization.msgpack_serialize({"about": json.dumps(about), "leaves": leaves})
    digest = hashlib.sha256(document).hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    # As an array of bytes, which flax cuts where msgpack's own limit of 4 GB would be met.
    partial.write_bytes(
        serialization.msgpack_serialize({"sha256": digest, "document": np.frombuffer(document, np.uint8)})
    )
    partial.replace(path)
    return path


def read_replay(path: str | os.PathLike) -> Replay:
    """Reads a replay file.

    Raises:
      UserError: there is none, it is damaged, or a newer version of nerfjax wrote it.
    """
    file = epath.Path(path)
    try:
        envelope = serialization.msgpack_restore(file.read_bytes())
        document = np.asarray(envelope["document"]).tobytes()
        if hashlib.sha256(document).hexdigest() != envelope["sha256"]:
            raise ValueError("it differs from its SHA-256")
        content = serialization.msgpack_restore(document)
        about = json.loads(content["about"])
    except FileNotFoundError:
        raise UserError("there is no such replay file", file=file, fix="look into the run's replay folder") from None
    except Exception as error:  # what msgpack raises on a damaged file is of many kinds
        raise UserError(
            "the replay file is damaged", file=file, found=f"{type(error).__name__}: {error}",
            fix="train once more: the run writes it anew where it diverges",
        ) from error  # fmt: skip
    if about["format"] > FORMAT:
        raise UserError(
            "a newer version of nerfjax wrote the replay file", file=file, found=f"format {about['format']}",
            expected=f"at most {FORMAT}", fix="update nerfjax",
        )  # fmt: skip
    return Replay(about, content["leaves"])


def replay(path: str | os.PathLike, *, source: str | None = None, say: Callable[[str], None] = print) -> bool:
    """Does the step of a replay file again, and says what of it is not finite, and why.

    The step is first done by the program that trains; then, where that diverges, one operation at a time.

    Args:
      path: the file.
      source: where the capture is now, if it was moved.
      say: takes the lines.

    Returns:
      Whether the step diverges again.

    Raises:
      UserError: the file or the capture is not what it was.
    """
    kept = read_replay(path)
    step, experiment = kept.about["step"], _experiment(kept, path, source, say)
    stage = next((stage for stage in experiment.stages if step < stage.end), experiment.stages[-1])
    state = _restored(kept, stage, path)
    rung = int(state.rung[0]) if len(stage.rays) > 1 else 0
    if not diverges(stage, state, rung, experiment.config.train.steps_per_dispatch):
        say(f"step {step} does not diverge here: the loss and all gradients are finite")
        say(f"  recorded: {kept.about['tensor']} was not finite")
        _say_differences(kept, say)
        return False
    say(f"step {step} diverges again")
    for line in describe(trace_step(stage, state, rung)):
        say(line)
    return True


def diverges(stage: Stage, state: TrainState, rung: int, steps_per_dispatch: int) -> bool:
    """Whether the compiled step that a state stands before meets a number that is not finite."""
    step = int(state.step)
    # The very program in which it happened, where the data allow that: another number of steps may round otherwise.
    count = dispatch_length(stage, step, steps_per_dispatch)
    if stage.config.data.source == "resident":
        count = dispatch_length(stage, step - step % steps_per_dispatch, steps_per_dispatch)
    copied = jax.tree.map(jnp.copy, state)  # it is donated
    after, _ = stage.dispatch_for(count, rung)(copied, stage.feed(step, count))
    return int(after.first_bad_step) == step


def trace_step(stage: Stage, state: TrainState, rung: int) -> FaultTrace:
    """Does the step that a state stands before, one operation at a time, on one device."""
    parts, data = stage.rungs[rung], stage.feed(int(state.step), 1)
    records = jax.tree.map(lambda leaf: leaf[0, : parts.rays], data.records)
    inputs = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), (state, data.replace(**_without(data)), records))
    program = jax.make_jaxpr(lambda state, data, records: _loss_and_gradient(parts, state, data, records))(*inputs)
    names = [f"{tree}/{name}" for tree, part in zip(("state", "data", "records"), inputs, strict=True)
             for name in named_leaves(part)]  # fmt: skip
    outputs = ("loss", *(f"gradient of {name}" for name in parameter_names(state.params)))
    return FaultTrace(program, jax.tree.leaves(inputs), names, outputs)


def _without(data: TrainingData) -> dict[str, None]:
    """A stream's records are given by themselves."""
    return {} if data.records is None else {"records": None}


def _loss_and_gradient(parts: StepParts, state: TrainState, data: TrainingData, records) -> Any:
    def on_one_device(_):
        keys = step_keys(state)
        drawn, weights, index = draw_batch(parts, state, data, records, keys)
        return jax.value_and_grad(
            lambda params: batch_loss(parts, params, state, data.cameras, drawn.mine, weights, index, keys)[0]
        )(state.params)

    # A batch of one stands for a mesh of one: then the program has no operation that needs the mesh.
    found = jax.vmap(on_one_device, axis_name=AXIS)(jnp.zeros((1,)))
    return jax.tree.map(lambda leaf: leaf[0], found)


def describe(trace: FaultTrace) -> list[str]:
    """Returns what a trace has found, line by line: the first tensor, its origin, and the table of all."""
    first = trace.first
    if first is None:
        return ["  found:    nothing, when it is done one operation at a time: it overflows only as it is compiled"]
    lines = [
        f"  first:    {first.name} {list(first.shape)}",
        f"  found:    {_counts(first)}; {'no other' if first.least is None else f'the others {_range(first)}'}",
        f"  made by:  {first.origin}",
        "in the order of computation (! is not finite):",
    ]
    # All that is not finite, and what stands before the first of it: the gradients that are fine are of no use.
    place = trace.tensors.index(first)
    rows = [row for number, row in enumerate(trace.tensors) if number <= place or not row.finite]
    width = max(len(row.name) for row in rows)
    lines += [
        f"  {' ' if row.finite else '!'} {row.name:<{width}}  {_range(row) if row.finite else _counts(row)}"
        for row in rows[-SHOWN:]
    ]
    return lines


def _counts(row: TensorReport) -> str:
    named = {"NaN": row.nan, "+inf": row.above, "-inf": row.below}
    return ", ".join(f"{count:,} {name}" for name, count in named.items() if count) + f" of {np.prod(row.shape):,.0f}"


def _range(row: TensorReport) -> str:
    return "nothing" if row.least is None else f"from {row.least:.4g} to {row.largest:.4g}"


def _experiment(kept: Replay, path: str | os.PathLike, source: str | None, say) -> Experiment:
    config = configuration.config_from_json(kept.about["config"])
    if source is not None:
        config.scene.source = os.fspath(source)
    config.parallel.devices = min(kept.about["devices"], len(jax.devices()))
    scene = read_config_scene(config)
    if scene.fingerprint() != kept.about["scene_fingerprint"]:
        raise UserError(
            "the capture is not the one that the step was done on", file=config.scene.source,
            field="scene_fingerprint", found=scene.fingerprint(), expected=kept.about["scene_fingerprint"],
            fix="give --source=PATH, where the capture is now",
        )  # fmt: skip
    return build_experiment(config, scene=scene, say=say, step=kept.about["step"])


def _restored(kept: Replay, stage: Stage, path: str | os.PathLike) -> TrainState:
    wanted, sharding = named_leaves(stage.abstract_state), NamedSharding(stage.mesh, PartitionSpec())
    for name in [*wanted, *kept.leaves]:
        there, here = kept.leaves.get(name), wanted.get(name)
        if there is None or here is None or (there.shape, there.dtype) != (here.shape, here.dtype):
            raise UserError(
                "the replay file holds another state than its config makes: the code has changed", file=path,
                field=name, found=None if there is None else f"{there.dtype}{list(there.shape)}",
                expected=None if here is None else f"{here.dtype}{list(here.shape)}",
                fix="replay with the version of nerfjax that wrote it, "
                f"{kept.about['code'].get('commit') or kept.about['code'].get('version')}",
            )  # fmt: skip
    leaves = [jax.device_put(kept.leaves[name], sharding) for name in wanted]
    state = jax.tree.unflatten(jax.tree.structure(stage.abstract_state), leaves)
    none = jax.device_put(np.int32(-1), sharding)
    return state.replace(first_bad_step=none, bad_tensor=none)


def _say_differences(kept: Replay, say: Callable[[str], None]) -> None:
    now = manifests.environment()
    then = {key: kept.about[key] for key in ("code", "packages")}
    for key, (before, after) in manifests.differences(then, {key: now[key] for key in then}).items():
        say(f"  differs:  {key}: {before} there, {after} here")
