"""Whatever fails around a run, it ends as promised, nothing is lost, and the same command goes on to the same bits."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from small_runs import FLAGS, STEPS, assert_ends_alike, record, shared_programs, train_small

from nerfjax.cli.main import main
from nerfjax.train import loop
from nerfjax.train.checkpoint import HASH_LIST, Checkpoints
from nerfjax.train.checkpoint_hashes import checkpoint_fault
from nerfjax.train.replay import read_replay
from nerfjax.train.run import load_run
from nerfjax.train.stage import Stage
from nerfjax.train.state import named_leaves

# Threads of Orbax that a full disk has failed complain of each other when they end, at any time after that.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
PLACES = 12  # at which the newest checkpoint is damaged


@pytest.fixture(autouse=True, scope="module")
def programs():
    with shared_programs():
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that nothing happened to; it has the checkpoints of the steps 8 and 12."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train_small(folder)
    assert Checkpoints(folder).steps() == (8, STEPS)
    return folder


def status(folder) -> str:
    return json.loads((folder / "manifest.json").read_text())["status"]


def damage(checkpoint, place: int) -> str:
    """Flips a bit (even places) or cuts the end off (odd ones) somewhere; says where."""
    generator = random.Random(place)
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file() and path.stat().st_size)
    victim = files[generator.randrange(len(files))]
    content = bytearray(victim.read_bytes())
    at = generator.randrange(len(content))
    if place % 2:
        victim.write_bytes(content[:at])
        return f"{victim.relative_to(checkpoint)} cut at {at}"
    content[at] ^= 1 << generator.randrange(8)
    victim.write_bytes(content)
    return f"{victim.relative_to(checkpoint)}, bit of byte {at}"


def test_two_runs_of_one_seed_are_equal_but_for_times(finished, tmp_path):
    train_small(tmp_path / "again")
    assert_ends_alike(tmp_path / "again", finished)
    rows = record(finished)
    assert [row["step"] for row in rows] == list(range(2, STEPS + 1, 2)) and all("loss" in row for row in rows)


def test_a_checkpoint_damaged_anywhere_is_found_out(finished, tmp_path):
    whole = finished / "checkpoints" / str(STEPS)
    assert checkpoint_fault(epath.Path(whole)) is None
    for place in range(PLACES):
        copy = tmp_path / str(place)
        shutil.copytree(whole, copy)
        where = damage(copy, place)
        assert checkpoint_fault(epath.Path(copy)), where


@pytest.mark.parametrize("place", [0, 1])
def test_a_damaged_newest_checkpoint_costs_the_steps_since_the_one_before(place, finished, tmp_path):
    folder, messages = tmp_path / "run", []
    shutil.copytree(finished, folder)
    damage(folder / "checkpoints" / str(STEPS), place)
    train_small(folder, messages)
    assert any(f"checkpoint {STEPS}" in message and f"bad-{STEPS}" in message for message in messages), messages
    assert (folder / "checkpoints" / f"bad-{STEPS}").is_dir()
    assert json.loads((folder / "manifest.json").read_text())["restarts"][-1]["step"] == 8
    assert_ends_alike(folder, finished)


def test_a_first_checkpoint_that_a_kill_cut_short_is_as_good_as_none(finished, tmp_path):
    folder, messages = tmp_path / "run", []
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "checkpoints" / "8")
    (folder / "checkpoints" / str(STEPS) / HASH_LIST).unlink()
    train_small(folder, messages)
    assert any("not finished" in message for message in messages), messages
    assert json.loads((folder / "manifest.json").read_text())["restarts"][-1]["step"] == 0
    assert_ends_alike(folder, finished)


@contextlib.contextmanager
def small_disk(folder):
    """A file system of 4 MiB; skips where none can be mounted."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(folder) -> None:
    """Leaves no room on the file system of a folder."""
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def before_save_of(step: int, happens):
    """Returns a patch of ``Checkpoints.save`` under which something happens just before a save."""
    save = Checkpoints.save

    def patched(self, at, *arguments, **options):
        if at == step:
            self.wait()
            happens()
        return save(self, at, *arguments, **options)

    return patched


def refused(capsys, folder) -> str:
    """The message of a training that ends with exit code 2."""
    assert main(["train", *FLAGS, f"--workdir={folder}"]) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return captured.err


def test_a_disk_that_is_full_when_a_checkpoint_is_saved(finished, tmp_path, monkeypatch, capsys):
    with small_disk(tmp_path / "disk") as disk:
        folder = disk / "run"
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "save", before_save_of(8, lambda: fill(disk)))
            message = refused(capsys, folder)
        assert str(folder) in message and "No space left" in message, message
        message = refused(capsys, folder)  # still full
        assert str(folder) in message, message
        (disk / "filler").unlink()
        assert main(["train", *FLAGS, f"--workdir={folder}"]) == 0
        assert json.loads((folder / "manifest.json").read_text())["restarts"][-1]["step"] == 4
        assert_ends_alike(folder, finished)


@contextlib.contextmanager
def read_only(folder):
    """The folder cannot be written; skips where that cannot be arranged."""
    if os.geteuid():
        modes = {path: path.stat().st_mode for path in [folder, *folder.rglob("*")]}
        for path, mode in modes.items():
            path.chmod(mode & ~0o222)
        try:
            yield
        finally:
            for path, mode in modes.items():
                path.chmod(mode)
        return
    # Rights do not bind root.
    for options in (["--bind", folder, folder], ["-o", "remount,ro,bind", folder]):
        done = subprocess.run(["mount", *options], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"a folder cannot be mounted read-only: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def files(folder) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_folder_that_cannot_be_written(finished, tmp_path, monkeypatch, capsys):
    """A new run is refused before anything is trained, an old one is not touched; both can be read."""
    monkeypatch.setattr(Stage, "dispatch_for", lambda *arguments: pytest.fail("it began to train"))
    parent, folder = tmp_path / "parent", tmp_path / "run"
    parent.mkdir()
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "checkpoints" / str(STEPS))
    before = files(folder)
    with read_only(parent):
        message = refused(capsys, parent / "new")
        assert str(parent / "new") in message and "--workdir" in message, message
    with read_only(folder):
        message = refused(capsys, folder)
        assert str(folder) in message, message
        assert main(["status", str(folder)]) == 0 and load_run(folder).step == 8
    assert files(folder) == before


class LostLater:
    """A compiled program that finds its device gone at one of its calls."""

    def __init__(self, program, calls: int):
        self._program, self._left = program, calls

    def __call__(self, *arguments):
        self._left -= 1
        if self._left == 0:
            raise jax.errors.JaxRuntimeError("INTERNAL: the device is lost")
        return self._program(*arguments)

    def __getattr__(self, name):
        return getattr(self._program, name)


def test_a_lost_device_costs_the_steps_since_the_last_checkpoint(finished, tmp_path, monkeypatch):
    folder, compiled = tmp_path / "run", loop.compiled
    with monkeypatch.context() as patch:
        patch.setattr(loop, "compiled", lambda *arguments: LostLater(compiled(*arguments), calls=5))
        with pytest.raises(jax.errors.JaxRuntimeError, match="lost"):
            train_small(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "failed" and manifest["end"]["step"] == 8 and "lost" in manifest["end"]["error"]
    assert Checkpoints(folder).steps() == (4, 8)
    train_small(folder)
    assert_ends_alike(folder, finished)


def poison(folder, step: int) -> str:
    """Puts NaN into one row of a hash table of a checkpoint, as if it had been saved so; returns the table's name."""
    run = load_run(folder, step=step)
    leaves, structure = named_leaves(run.state), jax.tree.structure(run.state)
    table = next(name for name in leaves if name.startswith("params/field/tables/"))
    leaves[table] = leaves[table].at[7].set(jnp.nan)
    with Checkpoints(folder) as checkpoints:
        meta = checkpoints.meta(step)
        shutil.rmtree(folder / "checkpoints" / str(step))
    with Checkpoints(folder) as checkpoints:
        checkpoints.save(step, jax.tree.unflatten(structure, leaves.values()), meta)
    return table


def test_a_nan_in_one_row_of_a_hash_table_ends_the_run_by_name(finished, tmp_path, capsys):
    """It stops at the first step that meets the row, keeps the state of then for a replay, and saves nothing."""
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "checkpoints" / str(STEPS))
    table = poison(folder, 8)
    assert main(["train", *FLAGS, f"--workdir={folder}"]) == 3
    message = capsys.readouterr().err
    assert "at step 8" in message and "Traceback" not in message, message
    assert status(folder) == "diverged" and Checkpoints(folder).steps() == (8,)
    replay = folder / "replay" / "8.msgpack"
    assert str(replay) in message, message
    kept = read_replay(replay)
    assert kept.about["step"] == 8
    poisoned = {
        name: np.argwhere(np.isnan(leaf)).tolist() for name, leaf in kept.leaves.items() if leaf.dtype.kind == "f"
    }
    assert {name: rows for name, rows in poisoned.items() if rows} == {table: [[7, i] for i in range(4)]}

    # The row is in the checkpoint: going back to it, as told, does not help, and ends after two times.
    assert main(["train", *FLAGS, "--config.train.on_divergence=rollback", f"--workdir={folder}"]) == 3
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "diverged" and len(manifest["rollbacks"]) == 2
    assert [entry["restored_step"] for entry in manifest["rollbacks"]] == [8, 8]
