"""How fast each source of training data gives batches, against what the training step needs.

Resident data are chosen and looked up on the device; streamed data are timed until they lie there. A rate is batches
per second; its bytes are those of the compact records (place and colour of each pixel). The step's rate is that of a
compiled dispatch on resident data, everything included: a source below it makes the step wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict
from rich.console import Console
from rich.table import Table

from nerfjax.data.resident import targets_of
from nerfjax.train.build import Experiment, build_experiment
from nerfjax.train.configuration import config_from_json, config_to_json
from nerfjax.train.step import PIXELS


def bench_data(config: ConfigDict, *, seconds: float | int = 2.0, say: Callable[[str], None] | None = None) -> dict:
    """Times the sources of a config's data.

    Args:
      config: as from ``load_config``; its ``data.source`` and ``data.layout`` are tried in turn.
      seconds: time spent on each.
      say: takes a line about a data set that was prepared.

    Returns:
      The document of ``schemas/bench_data.schema.json``.
    """
    resident = build_experiment(_changed(config, "resident", "views"), say=say)
    record = 8 + resident.data.pages.dtype.itemsize * resident.data.channels
    batch_bytes = record * config.train.batch_rays
    rates = {"resident": _rate_resident(resident, seconds), "step": _rate_step(resident, seconds)}
    for layout in ("views", "rays"):
        experiment = build_experiment(_changed(config, "stream", layout), scene=resident.scene, say=say)
        rates[f"stream-{layout}"] = _rate_stream(experiment, seconds)
    need = rates.pop("step")
    return dict(
        bench="data",
        device=str(jax.devices()[0].device_kind),
        devices=resident.mesh.size,
        batch_rays=config.train.batch_rays,
        bytes_per_batch=batch_bytes,
        images=len(resident.scene.indices("train")),
        need_batches_per_second=need,
        sources=[
            dict(
                name=name,
                batches_per_second=rate,
                megabytes_per_second=rate * batch_bytes / 1e6,
                share_of_need=rate / need,
            )
            for name, rate in rates.items()
        ],
    )


def _changed(config: ConfigDict, source: str, layout: str) -> ConfigDict:
    document = config_to_json(config)
    document["data"].update(source=source, layout=layout)
    document["train"]["steps"] = 10**9  # a stream has no end while it is timed
    return config_from_json(document)


def _rate_resident(experiment: Experiment, seconds: float | int) -> float:
    parts, state = experiment.parts, experiment.init_state()
    size = parts.batch_rays

    @jax.jit
    def draw(data, pixel_state, step):
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), PIXELS)
        return targets_of(data, parts.pixels.select(key, pixel_state, data.table, step=step, size=size))

    def once(step: int) -> int:
        jax.block_until_ready(draw(experiment.data, state.pixel_state, jnp.int32(step)))
        return 1

    return _rate(once, seconds)


def _rate_step(experiment: Experiment, seconds: float | int) -> float:
    count = experiment.config.train.steps_per_dispatch
    dispatch, state = experiment.dispatch_for(count), experiment.init_state()

    def once(step: int) -> int:
        nonlocal state
        state, metrics = dispatch(state, experiment.data)
        jax.block_until_ready(metrics)
        return count

    return _rate(once, seconds)


def _rate_stream(experiment: Experiment, seconds: float | int) -> float:
    count, feed = experiment.config.train.steps_per_dispatch, experiment.feed
    assert feed is not None

    def once(step: int) -> int:
        jax.block_until_ready(feed(step, count))
        return count

    try:
        return _rate(once, seconds)
    finally:
        feed.close()


def _rate(once: Callable[[int], int], seconds: float | int) -> float:
    """Returns steps per second, after a first call that is not counted (it compiles, or fills buffers)."""
    step, start = once(0), time.perf_counter()
    first = step
    while time.perf_counter() - start < seconds:
        step += once(step)
    return (step - first) / (time.perf_counter() - start)


def print_data(result: dict[str, Any]) -> None:
    """Prints the rates as a table."""
    table = Table(title=f"{result['batch_rays']} rays a batch · {result['images']} images · {result['device']}")
    table.add_column("source")
    for heading in ("batches/s", "MB/s", "of the need"):
        table.add_column(heading, justify="right")
    for source in result["sources"]:
        table.add_row(
            source["name"], f"{source['batches_per_second']:.1f}", f"{source['megabytes_per_second']:.2f}",
            f"{source['share_of_need']:.1f} x",
        )  # fmt: skip
    table.add_section()
    need = result["need_batches_per_second"]
    table.add_row("the step's need", f"{need:.1f}", f"{need * result['bytes_per_batch'] / 1e6:.2f}", "")
    Console().print(table)
