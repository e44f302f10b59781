"""Prepared data sets: the scene comes back, is found by content, and survives interruption."""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys

import jax
import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from nerfjax.data import prepared, shards, shuffled
from nerfjax.data.prepared import prepare
from nerfjax.errors import UserError
from nerfjax.scenes import ImageReference, read_scene
from nerfjax.scenes.depths import DepthReference
from nerfjax.scenes.prepared import METADATA, read_metadata, split_records
from nerfjax.scenes.records import parse_record

BLOCK = 50


def made_scene(count: int = 5, size=(9, 7), *, channels=(3, 4), dtypes=(np.uint8,), masks=True, depth=True, seed=0):
    """A scene of noise with masks and depths on some frames; the last one is for testing."""
    random_ = np.random.default_rng(seed)
    base = read_scene(f"analytic:boxes?views={count}&size=8&test=0&val=0")
    frames = []
    for i, frame in enumerate(base.frames):
        dtype = dtypes[i % len(dtypes)]
        shape = (size[1], size[0], channels[i % len(channels)])
        array = random_.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
        mask = np.repeat(255 * random_.integers(0, 2, (*shape[:2], 1), np.uint8), 3, axis=-1)
        length = random_.uniform(0, 5, shape[:2]).astype(np.float32) * (random_.random(shape[:2]) > 0.3)
        references = [
            ImageReference(None, size, lambda a=a: a, identity=f"{seed} {i} {k}") for k, a in enumerate((array, mask))
        ]
        frames.append(
            dataclasses.replace(
                frame, image=references[0], split="test" if i == count - 1 else "train",
                mask=references[1] if masks and i % 2 else None,
                depth=DepthReference(None, 1.0, "z" if i % 2 else "ray", loader=lambda d=length: d, identity=f"d{i}")
                if depth and i != 1 else None,
            )
        )  # fmt: skip
    points = random_.normal(size=(6, 3)).astype(np.float32)
    cameras = base.cameras.replace(size=np.tile(np.array(size, np.int32), (count, 1)))
    geometry = base.geometry.replace(cameras=cameras[np.arange(count - 1)])
    return dataclasses.replace(
        base, frames=tuple(frames), points=points, camera_digest=f"{seed}", cameras=cameras, geometry=geometry
    )


def contents(folder) -> dict[str, list[bytes]]:
    """Every record of a data set, by its name."""
    records = split_records(folder, read_metadata(folder))
    return {split: [rows[i] for i in range(len(rows))] for split, rows in records.items()}


def save_capture(folder, *, pixel: int = 0, pose: float = 0.0, test=(0,)):
    """A small transforms.json capture on disk."""
    (folder / "images").mkdir(parents=True)
    frames = []
    for i in range(4):
        array = np.full((6, 8, 3), 40 * i, np.uint8)
        array[2, 3, 1] += pixel if i == 2 else 0
        Image.fromarray(array).save(folder / "images" / f"{i}.png")
        angle = 0.3 * i
        matrix = np.eye(4)
        matrix[:3, :3] = [[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]]
        matrix[:3, 3] = matrix[:3, 2] * 3 + (pose if i == 1 else 0)
        frames.append({"file_path": f"images/{i}.png", "transform_matrix": matrix.tolist()})
    names = [frame["file_path"] for frame in frames]
    document = {"fl_x": 10.0, "frames": frames, "test_filenames": [names[i] for i in test]}
    document["train_filenames"] = [name for i, name in enumerate(names) if i not in test]
    (folder / "transforms.json").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize(
    "form",
    [
        dict(channels=(3,), masks=False, depth=False),
        dict(channels=(3, 4)),
        dict(dtypes=(np.uint8, np.uint16)),
        dict(channels=(4,), dtypes=(np.uint16,), depth=False),
    ],
)
def test_the_scene_comes_back(tmp_path, form):
    scene = made_scene(**form)
    prepare(scene, tmp_path / "set")
    back = read_scene(str(tmp_path / "set"))
    assert back.fingerprint() == scene.fingerprint() and back.split_names() == scene.split_names()
    jax.tree.map(np.testing.assert_array_equal, (back.cameras, back.geometry), (scene.cameras, scene.geometry))
    np.testing.assert_array_equal(back.points, scene.points)
    np.testing.assert_array_equal(back.to_scene, scene.to_scene)
    for frame, stored in zip(scene.frames, back.frames, strict=True):
        image, read = frame.image.read(), stored.image.read()
        unit = np.iinfo(read.dtype).max // np.iinfo(image.dtype).max
        np.testing.assert_array_equal(read[..., : image.shape[-1]], image.astype(read.dtype) * unit)
        assert (read[..., image.shape[-1] :] == np.iinfo(read.dtype).max).all()
        if frame.mask is not None:
            np.testing.assert_array_equal(stored.valid(), frame.valid())
        assert (stored.mask is None) == (frame.mask is None) and (stored.depth is None) == (frame.depth is None)
        if frame.depth is not None:
            assert stored.depth.kind == frame.depth.kind
            np.testing.assert_array_equal(stored.depth.read(stored.image.size), frame.depth.read(frame.image.size))


def test_rays_are_all_valid_training_pixels_once_in_an_order_that_no_buffer_size_changes(tmp_path, monkeypatch):
    scene = made_scene(channels=(4,))
    prepare(scene, tmp_path / "one", layout="rays", block=BLOCK)
    monkeypatch.setattr(shuffled, "CHUNK_PIXELS", 70)
    monkeypatch.setattr(shuffled, "FILE_PIXELS", 2 * BLOCK)
    prepare(scene, tmp_path / "two", layout="rays", block=BLOCK)
    one, two = (contents(tmp_path / name / "rays")["train"] for name in ("one", "two"))
    assert one == two and len(list((tmp_path / "two" / "rays").glob("*.array_record*"))) > 1
    pixels = [parse_record(block) for block in one]
    image = np.concatenate([np.frombuffer(block["image"], np.int32) for block in pixels])
    offset = np.concatenate([np.frombuffer(block["offset"], np.int32) for block in pixels])
    color = np.concatenate([np.frombuffer(block["color"], np.uint8).reshape(-1, 4) for block in pixels])
    depth = np.concatenate([np.frombuffer(block["depth"], np.float32) for block in pixels])
    frames = scene.subset("train").frames
    valid = [np.arange(63) if frame.mask is None else np.flatnonzero(frame.valid()) for frame in frames]
    expected = {(i, int(o)) for i, offsets in enumerate(valid) for o in offsets}
    assert len(image) == len(expected) and set(zip(image.tolist(), offset.tolist(), strict=True)) == expected
    for i, frame in enumerate(frames):
        here = image == i
        np.testing.assert_array_equal(color[here], frame.image.read().reshape(-1, 4)[offset[here]])
        known = frame.depth.read(frame.image.size).ravel() if frame.depth else np.zeros(63)
        np.testing.assert_array_equal(depth[here], known[offset[here]])
    # Shuffled: the images of neighbours in the order are not sorted.
    assert 0.3 < np.mean(np.diff(image) != 0)


def test_tensorflow_datasets_opens_it_and_nothing_needs_tensorflow(tmp_path):
    """In a process in which tensorflow cannot be imported: written, opened, trained from."""
    code = f"""
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_others(name, path=None, target=None):
    return None if name.split(".")[0] == "tensorflow" else find(name, path, target)
PathFinder.find_spec = find_others
from nerfjax.data.prepared import prepare
from nerfjax.data.resident import load_resident
from nerfjax.scenes import read_scene
import tensorflow_datasets as tfds
out = prepare("analytic:boxes?views=3&size=8&test=1&val=1", {str(tmp_path / "set")!r}, layout="rays")
views = tfds.builder_from_directory(out).as_data_source()
assert {{name: len(split) for name, split in views.items()}} == {{"train": 3, "val": 1, "test": 1}}
example = views["train"][2]
frame = read_scene(str(out)).subset("train").frames[2]
assert example["name"].decode() == frame.name and (example["image"] == frame.image.read()).all()
rays = tfds.builder_from_directory(out / "rays").as_data_source("train")
assert len(rays) == 1 and rays[0]["color"].shape == (192, 4)
assert load_resident(read_scene(str(out))).pages.shape[-1] == 4
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    builder = tfds.builder_from_directory(tmp_path / "set")
    assert builder.info.metadata["fingerprint"] == read_scene(str(tmp_path / "set")).fingerprint()


def test_the_fingerprint_is_of_content_alone(tmp_path):
    def key(name, **changes):
        scene = read_scene(str(save_capture(tmp_path / name, **changes)))
        document = prepared.describe(scene)
        assert document["fingerprint"] == scene.fingerprint()
        return document["fingerprint"], document["key"]

    first = key("a")
    assert key("another place") == first
    others = [key("b", pixel=1), key("c", pose=1e-9), key("d", test=(1,)), key("e", test=(0, 3))]
    assert len({first, *others}) == 5 and len({fingerprint for fingerprint, _ in [first, *others]}) == 5


def test_the_same_capture_is_found_again_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("NERFJAX_CACHE", str(tmp_path / "cache"))
    said = []
    first = prepare(str(save_capture(tmp_path / "a")), say=said.append)
    monkeypatch.setattr(prepared, "write_views", None)  # nothing is written again
    assert prepare(str(save_capture(tmp_path / "b")), say=said.append) == first
    assert first.parent == tmp_path / "cache" / "prepared"
    assert said[0].startswith("prepared 4 images") and said[1].startswith("already prepared")
    assert prepared.prepare_cached(read_scene(str(first)), layout="views") == first


def test_rays_are_added_to_views_that_are_there(tmp_path, monkeypatch):
    scene = made_scene()
    prepare(scene, tmp_path / "set")
    monkeypatch.setattr(prepared, "write_views", None)
    prepare(scene, tmp_path / "set", layout="rays", block=BLOCK)
    monkeypatch.setattr(shuffled, "add_rays", None)
    prepare(scene, tmp_path / "set", layout="rays", block=BLOCK)


class Killed(BaseException):
    """Stands for the end of the process: nothing cleans up after it."""


def test_killed_at_any_moment_it_leaves_nothing_half_done_and_goes_on(tmp_path, monkeypatch):
    """Ten times killed at a random write or rename, again and again, it ends with the records of a quiet run."""
    monkeypatch.setattr(shuffled, "CHUNK_PIXELS", 70)
    monkeypatch.setattr(shuffled, "FILE_PIXELS", 2 * BLOCK)
    monkeypatch.setattr("nerfjax.data.views.SHARD_BYTES", 4 * 63 * 2)
    scene, countdown, counted = made_scene(), [0], [0]

    def fragile(function):
        def call(*arguments, **options):
            counted[0] += 1
            countdown[0] -= 1
            if countdown[0] == 0:
                raise Killed
            return function(*arguments, **options)

        return call

    for module, name in ((shards.os, "replace"), (shards.os, "rename"), (shards.os, "fsync"), (shards, "sha256_of")):
        monkeypatch.setattr(module, name, fragile(getattr(module, name)))
    prepare(scene, tmp_path / "quiet", layout="rays", block=BLOCK)
    total, out = counted[0], tmp_path / "set"
    moments, kills = random.Random(0), 0
    for _ in range(10):
        countdown[0] = moments.randrange(1, total)
        try:
            prepare(scene, out, layout="rays", block=BLOCK)
        except Killed:
            kills += 1
            assert not out.exists()
        else:
            shards.remove(out)
    countdown[0] = 0
    prepare(scene, out, layout="rays", block=BLOCK)
    assert kills >= 5
    assert read_scene(str(out)).fingerprint() == scene.fingerprint()
    assert contents(out) == contents(tmp_path / "quiet")
    assert contents(out / "rays") == contents(tmp_path / "quiet" / "rays")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["quiet", "set"]
    assert sorted(p.name for p in out.rglob("*") if p.name.startswith(".")) == []


def test_going_on_keeps_whole_files_and_replaces_damaged_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("nerfjax.data.views.SHARD_BYTES", 4 * 63 * 2)
    scene, out = made_scene(7, depth=False), tmp_path / "set"
    monkeypatch.setattr(shards.Staging, "finish", lambda self, place: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        prepare(scene, out)
    monkeypatch.undo()
    files = sorted((tmp_path / ".set.partial").glob("*.array_record*"))
    assert len(files) == 4
    files[0].write_bytes(files[0].read_bytes()[:-1] + b"!")
    files[1].unlink()
    monkeypatch.setattr("nerfjax.data.views.SHARD_BYTES", 4 * 63 * 2)
    written, original = [], shards.array_record_module

    def recording():
        module = original()
        return type(
            "Module", (), {"ArrayRecordWriter": lambda *a: written.append(a[0]) or module.ArrayRecordWriter(*a)}
        )

    monkeypatch.setattr(shards, "array_record_module", recording)
    prepare(scene, out)
    assert {path.split("/")[-1].removesuffix(".partial") for path in written} == {file.name for file in files[:2]}
    assert read_scene(str(out)).frames[0].image.read().shape == (7, 9, 4)


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), RuntimeError("write() failed: No space left on device; at byte 0")],
)
def test_a_full_disk_is_a_message_and_the_next_call_goes_on(tmp_path, monkeypatch, error):
    class Full:
        def ArrayRecordWriter(self, *arguments):  # noqa: N802
            raise error

    monkeypatch.setattr(shards, "array_record_module", Full)
    with pytest.raises(UserError, match=r"disk is full.*\n.*\n.*MB free\n.*goes on"):
        prepare(made_scene(), tmp_path / "set")
    assert not (tmp_path / "set").exists()
    monkeypatch.undo()
    prepare(made_scene(), tmp_path / "set")


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.txt").write_text("mine")
    with pytest.raises(UserError, match="something else"):
        prepare(made_scene(), tmp_path / "photos", overwrite=True)
    prepare(made_scene(seed=1), tmp_path / "set")
    with pytest.raises(UserError, match="another data set"):
        prepare(made_scene(seed=2), tmp_path / "set")
    prepare(made_scene(seed=2), tmp_path / "set", overwrite=True)
    assert read_scene(str(tmp_path / "set")).fingerprint() == made_scene(seed=2).fingerprint()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "set"]


def test_damage_is_a_message(tmp_path):
    out = prepare(made_scene(), tmp_path / "set")
    shard = next(out.glob("*train.array_record*"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="bytes instead of"):
        read_scene(str(out))
    shard.write_bytes(b"\0" * len(whole))
    with pytest.raises(UserError, match="cannot be read"):
        read_scene(str(out)).frames[0].image.read()
    shard.write_bytes(whole)
    document = json.loads((out / METADATA).read_text())
    for key in ("frames", "geometry", "files", "format", "points", "to_scene"):
        (out / METADATA).write_text(json.dumps({name: value for name, value in document.items() if name != key}))
        with pytest.raises(UserError, match="metadata"):
            read_scene(str(out))
    (out / METADATA).write_text(json.dumps(document))
    with pytest.raises(UserError, match="another downscale"):
        read_scene(str(out), downscale=2)


def test_masks_that_leave_nothing_are_named(tmp_path):
    scene = made_scene(2)
    black = ImageReference(None, (9, 7), lambda: np.zeros((7, 9, 3), np.uint8), identity="black")
    scene = dataclasses.replace(scene, frames=tuple(dataclasses.replace(f, mask=black) for f in scene.frames))
    with pytest.raises(UserError, match="no training pixel"):
        prepare(scene, tmp_path / "set", layout="rays")
    with pytest.raises(UserError, match="Unknown layout"):
        prepare(scene, tmp_path / "set", layout="ray")
