"""Batch k is a function of (fingerprint, seed, k): every pixel once an epoch, the same for every host."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from test_prepared import BLOCK, made_scene

from nerfjax.data import shuffled
from nerfjax.data.orders import BoundedCache, RayBlocks, ViewBatches
from nerfjax.data.prepared import prepare
from nerfjax.errors import UserError

BATCH = 24
LANES = np.arange(BATCH)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setattr(shuffled, "FILE_PIXELS", 2 * BLOCK)
    out = prepare(made_scene(6), tmp_path_factory.mktemp("orders") / "set", layout="rays", block=BLOCK)
    patch.undo()
    return out


def rays(folder, **options):
    return RayBlocks(folder, **{"batch": BATCH, "seed": 0, "memory_bytes": 2**20, "depth": True, **options})


def views(folder, **options):
    common = {"batch": BATCH, "seed": 0, "memory_bytes": 2**20, "depth": True, "images_per_batch": 3}
    return ViewBatches(folder, **{**common, **options})


def places(records):
    return list(zip(records.image.tolist(), records.offset.tolist(), strict=True))


def test_every_pixel_comes_once_an_epoch_and_each_epoch_has_its_own_order(folder):
    source = rays(folder)
    assert source.total % BLOCK and source.total % BATCH  # a shorter last block, and a last batch that wraps
    batches = -(-source.total // BATCH)
    epochs = [
        sum((places(source.batch(epoch * batches + k, LANES)) for k in range(batches)), [])[: source.total]
        for epoch in range(3)
    ]
    scene = made_scene(6)
    valid = sum(63 if f.mask is None else int(f.valid().sum()) for f in scene.subset("train").frames)
    assert [len(set(epoch)) for epoch in epochs] == [valid] * 3 and source.total == valid
    assert epochs[0] != epochs[1] != epochs[2]
    # Blocks and the pixels in them are permuted: neighbours in one epoch are not neighbours in the next.
    following = [dict(zip(epoch, epoch[1:], strict=False)) for epoch in epochs]
    assert np.mean([following[1].get(a) == b for a, b in following[0].items()]) < 0.1


def test_the_records_are_those_of_the_images(folder):
    frames = made_scene(6).subset("train").frames
    for source in (rays(folder), views(folder), views(folder, patch=2)):
        for step in (0, 3, 1001):
            records = source.batch(step, LANES)
            for j in range(BATCH):
                frame, offset = frames[records.image[j]], records.offset[j]
                image = frame.image.read().reshape(63, -1)
                np.testing.assert_array_equal(records.color[j, : image.shape[-1]], image[offset])
                depth = frame.depth.read(frame.image.size).ravel()[offset] if frame.depth else 0.0
                assert records.depth[j] == np.float32(depth)
                valid = frame.mask is None or frame.valid().ravel()[offset]
                assert (records.valid is None and valid) or records.valid[j] == valid


@pytest.mark.parametrize("make", [rays, views, lambda folder, **o: views(folder, patch=2, **o)])
def test_a_batch_depends_on_nothing_but_its_number_and_the_seed(folder, make):
    source, small = make(folder), make(folder, memory_bytes=1)
    steps = (7, 0, 123, 8, 7)
    batches = [places(source.batch(step, LANES)) for step in steps]
    assert batches[0] == batches[-1] and len({tuple(batch) for batch in batches}) == 4
    assert batches == [places(small.batch(step, LANES)) for step in steps]
    assert places(make(folder, seed=1).batch(7, LANES)) != batches[0]
    # Hosts: each asks for its lanes of the same global batch.
    for parts in (2, 3):
        lanes = np.split(LANES, parts)
        assert sum((places(make(folder).batch(7, part)) for part in lanes), []) == batches[0]


def test_views_take_a_few_images_for_some_batches_and_cover_them(folder):
    source = views(folder, reuse=2)
    groups = [[set(source.batch(2 * g + r, LANES).image.tolist()) for r in range(2)] for g in range(5)]
    assert all(len(first) <= 3 and first == again for first, again in groups)
    order = [source.batch(2 * g, LANES).image[::8].tolist() for g in range(5)]
    flat = sum(order, [])
    assert [sorted(flat[i : i + 5]) for i in (0, 5, 10)] == [[0, 1, 2, 3, 4]] * 3
    seen = {}
    for step in range(200):
        for image, offset in places(source.batch(step, LANES)):
            seen.setdefault(image, []).append(offset)
    for i, frame in enumerate(made_scene(6).subset("train").frames):
        valid = np.arange(63) if frame.mask is None else np.flatnonzero(frame.valid())
        times = np.bincount(seen[i], minlength=63)
        assert set(np.flatnonzero(times)) == set(valid) and np.ptp(times[valid]) <= 1  # without replacement


def test_patches_are_squares_inside_the_image(folder):
    records = views(folder, patch=2, images_per_batch=2).batch(5, LANES)
    squares = records.offset.reshape(-1, 4)
    np.testing.assert_array_equal(squares - squares[:, :1], np.tile([0, 1, 9, 10], (6, 1)))
    assert (squares[:, 0] % 9 < 8).all() and (squares[:, 3] < 63).all()
    assert (np.ptp(records.image.reshape(-1, 4), axis=1) == 0).all()


def test_shares_that_do_not_fit_are_refused(folder):
    for options, word in (
        (dict(images_per_batch=5), "does not divide"),
        (dict(patch=8, batch=64 * 3), "smaller than a patch"),
        (dict(reuse=0), "positive"),
    ):
        with pytest.raises(UserError, match=word):
            views(folder, **options)


def test_the_cache_keeps_its_budget_and_makes_each_value_once():
    cache, made, gate = BoundedCache(100), [], threading.Event()

    def make(key):
        made.append(key)
        gate.wait(5)
        return np.zeros(40, np.uint8)

    def size_of(array):
        return array.nbytes

    threads = [threading.Thread(target=cache.get, args=(0, lambda: make(0), size_of)) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join()
    assert made == [0]
    for key in (1, 2, 1, 3, 1):
        cache.get(key, lambda key=key: make(key), size_of)
        assert cache.bytes <= 100
    assert made == [0, 1, 2, 3]  # 1 was used last each time, and stayed
    with pytest.raises(KeyError):
        cache.get(9, lambda: {}["missing"], size_of)
    assert cache.get(9, lambda: np.zeros(500, np.uint8), size_of).nbytes == 500 and cache.bytes == 500
