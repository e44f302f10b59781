"""Streaming: the pipeline's batches are the pure function's, from any step, on any devices, in flat memory."""

from __future__ import annotations

import dataclasses
import gc

import jax
import numpy as np
import psutil
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from test_prepared import BLOCK, made_scene

from nerfjax.cli.main import main
from nerfjax.data.prepared import prepare
from nerfjax.data.resident import load_resident, targets_of
from nerfjax.data.shards import remove
from nerfjax.data.stream import StreamFeed, dispatches, local_lanes, open_source
from nerfjax.data.streamed import partition
from nerfjax.errors import UserError
from nerfjax.pixels import PIXELS, PixelSampler
from nerfjax.scenes import ImageReference, read_scene
from nerfjax.train.build import build_experiment
from nerfjax.train.configuration import config_hash, load_config

BATCH = 24
TINY = {
    "scene.source": "analytic:spheres?views=4&size=16&test=1",
    "train.batch_rays": 64,
    "train.steps": 25,
    "sampler.name": "stratified",
    "sampler.stratified.num_samples": 8,
    "field.instant_ngp.levels": 2,
    "field.instant_ngp.log2_size": 8,
    "data.source": "stream",
}


def mesh_of(count: int) -> Mesh:
    return jax.make_mesh((count,), ("data",), devices=jax.devices()[:count], axis_types=(AxisType.Auto,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return prepare(made_scene(6), tmp_path_factory.mktemp("stream") / "set", layout="rays", block=BLOCK)


def feed_of(folder, layout: str = "rays", devices: int = 1, total: int = 25, **options) -> StreamFeed:
    common = dict(batch=BATCH, seed=0, memory_bytes=2**20, depth=True)
    source = open_source(folder, layout=layout, **{**common, "images_per_batch": 3, **options})
    scene = read_scene(str(folder))
    return StreamFeed(source, scene, mesh=mesh_of(devices), axis="data", total_steps=total, steps_per_dispatch=10)


@pytest.mark.parametrize("layout", ["rays", "views"])
def test_the_pipeline_gives_the_batches_of_the_pure_function_from_any_step(folder, layout):
    feed = feed_of(folder, layout, devices=8)
    for step, count in [(0, 10), (10, 10), (20, 5), (7, 3), (10, 10), (20, 5)]:  # the second time, as if resumed
        batches = feed(step, count)
        assert batches.records.image.sharding.spec == PartitionSpec(None, "data")
        expected = [feed.source.batch(k, np.arange(BATCH)) for k in range(step, step + count)]
        for name in feed.source.columns:
            column = getattr(batches.records, name)
            np.testing.assert_array_equal(column, np.stack([getattr(records, name) for records in expected]))
    assert feed._worker is None  # the run is at its end, and no thread stays


def test_dispatches_are_cut_as_the_loop_cuts_them():
    assert list(dispatches(0, 10, 25, 10)) == [(0, 10), (10, 10), (20, 5)]
    assert list(dispatches(7, 3, 21, 10)) == [(7, 3), (10, 10), (20, 1)]


def test_a_host_holds_the_lanes_of_its_devices():
    sharding = NamedSharding(mesh_of(4), PartitionSpec(None, "data"))
    np.testing.assert_array_equal(local_lanes(sharding, BATCH), np.arange(BATCH))


def test_streamed_pixels_are_the_resident_ones(folder):
    """Unpacked on two devices, colour, mask and depth are what the resident images hold at the same pixels."""
    images = load_resident(read_scene(str(folder)), depth=True)
    mesh, feed = mesh_of(2), feed_of(folder, "views", devices=2, patch=2, images_per_batch=6)
    batches = feed(0, 10)

    def unpack(data):
        records = jax.tree.map(lambda leaf: leaf[3], data.records)
        drawn = data.draw(records, lambda images: None, axis="data")
        return drawn.mine, drawn.start[None]

    specs = dict(in_specs=(partition("data"),), out_specs=PartitionSpec("data"))
    mine, start = jax.jit(jax.shard_map(unpack, mesh=mesh, **specs))(batches)
    np.testing.assert_array_equal(start, [0, BATCH // 2])
    expected = targets_of(images, mine.pixels)
    jax.tree.map(np.testing.assert_array_equal, mine, expected)
    for values in (mine.valid, mine.depth > 0, mine.depth_is_z):  # both kinds occur
        assert 0 < np.mean(values) < 1


def test_a_file_that_is_damaged_while_it_streams_is_a_message(tmp_path):
    out = prepare(made_scene(3), tmp_path / "set", layout="rays", block=BLOCK)
    feed = feed_of(out)
    file = next((out / "rays").glob("*.array_record*"))
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(UserError, match="cannot be read"):
        feed(0, 10)
    feed.close()


@pytest.mark.parametrize("layout", ["rays", "views"])
def test_b88_memory_stays_flat_for_a_capture_four_times_the_budget(tmp_path, layout):
    budget, batch, side = 16 * 2**20, 2**14, 1024
    scene = made_scene(17, (side, side), channels=(4,), masks=False, depth=False)
    flat = [np.full((side, side, 4), i, np.uint8) for i in range(16)]  # 64 MB
    frames = tuple(
        dataclasses.replace(frame, image=ImageReference(None, (side, side), lambda i=i: flat[i % 16], identity=str(i)))
        for i, frame in enumerate(scene.frames)
    )
    out = prepare(dataclasses.replace(scene, frames=frames), tmp_path / "set", layout=layout)
    del scene, frames, flat
    gc.collect()
    feed = feed_of(out, layout, total=600, batch=batch, memory_bytes=budget, images_per_batch=2, reuse=4, depth=False)
    seen, memory = set(), []
    for step in range(0, 600, 10):
        records = feed(step, 10).records
        assert (np.asarray(records.color) == np.asarray(records.image)[..., None]).all()
        seen |= set(np.unique(records.image).tolist())
        memory.append(psutil.Process().memory_info().rss)
    feed.close()
    assert seen == set(range(16))
    assert max(memory[20:]) - memory[19] < budget
    remove(out)


def test_training_from_a_stream_learns_and_goes_on_from_any_step(tmp_path, monkeypatch):
    monkeypatch.setenv("NERFJAX_CACHE", str(tmp_path))
    said = []
    experiment = build_experiment(load_config("demo", {**TINY, "parallel.devices": 2}), say=said.append)
    assert said[0].startswith("prepared 7 images") and experiment.data is None
    dispatch, state, losses = experiment.dispatch_for(10), experiment.init_state(), []
    for step in (0, 10):
        state, metrics = dispatch(state, experiment.feed(step, 10))
        losses += np.asarray(metrics["loss/color"]).tolist()
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    again = build_experiment(load_config("demo", {**TINY, "parallel.devices": 2}), say=said.append)
    assert said[1].startswith("already prepared")
    resumed, _ = dispatch(experiment.init_state(), again.feed(0, 10))
    _, metrics = dispatch(resumed, again.feed(10, 10))
    np.testing.assert_array_equal(metrics["loss/color"], losses[10:])
    assert dispatch._cache_size() == 1


def test_sources_have_their_own_config_hash():
    def changed(**changes):
        config = load_config("demo", {f"data.{key}": value for key, value in changes.items()})
        return config_hash(config)

    assert changed() == changed(layout="views", prepare=True, memory_mb=9, patch=4)  # nothing of it concerns resident
    hashes = [changed(), changed(source="stream"), changed(source="stream", layout="views")]
    assert len({*hashes, changed(source="stream", layout="views", patch=4)}) == 4
    assert changed(source="stream", memory_mb=9) == hashes[1]


def learning(*, rate: float = 0.5) -> PixelSampler:
    """A pixel sampler with a state."""
    member = PIXELS["uniform"]()
    return member._replace(init=lambda images, content=None: {"errors": np.zeros(4, np.float32)})


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--config.pixels.name=learning"], ["learns from the errors of earlier steps", "data.source=resident"]),
        (["--config.pixels.uniform.replacement=true"], ["chooses its pixels itself"]),
        (["--config.data.layout=view"], ["unknown data layout", "views"]),
        (["--config.data.source=streams"], ["unknown data source", "stream"]),
        (["--config.train.depth_weight=0.1"], ["no depth to supervise"]),
        (["--config.data.layout=views", "--config.data.images_per_batch=7"], ["does not divide"]),
    ],
)
def test_what_does_not_go_with_a_stream_is_refused(tmp_path, monkeypatch, capsys, flags, words):
    monkeypatch.setitem(PIXELS, "learning", learning)
    monkeypatch.setenv("NERFJAX_CACHE", str(tmp_path))
    flags = [f"--config.scene.source={TINY['scene.source']}", "--config.data.source=stream", *flags]
    assert main(["train", "--config=demo", f"--workdir={tmp_path / 'run'}", *flags]) == 2
    message = capsys.readouterr().err
    assert all(word in message for word in words), message
    assert not (tmp_path / "run").exists()
