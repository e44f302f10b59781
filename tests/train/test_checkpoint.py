"""Checkpoints come back bit for bit, and a damaged one never does."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import struct
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from nerfjax.errors import UserError
from nerfjax.train.checkpoint import HASH_LIST, Checkpoints, abstract_from_state


@struct.dataclass
class ToyState:
    step: Any
    params: Any
    aux: Any
    opt_state: Any
    key: Any


def make_state(seed: int = 0) -> ToyState:
    kernel = jax.random.normal(jax.random.key(seed), (33, 5))
    kernel = kernel.at[0, :4].set(jnp.array([jnp.nan, -0.0, 1e-42, jnp.inf]))
    params = {"mlp": {"kernel": kernel, "half": kernel.astype(jnp.bfloat16)}, "empty": {}, "none": None}
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.exponential_decay(1e-2, 10, 0.1)))
    aux = ((), [], {"grid": jnp.arange(7, dtype=jnp.uint8), "nothing": jnp.zeros((0, 3), jnp.int32)}, jnp.array(True))
    key = jax.random.key_data(jax.random.key(seed))
    return ToyState(jnp.int32(seed), params, aux, optimizer.init(params["mlp"]), key)


def assert_same_bits(got: Any, want: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, path
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), path


def save_steps(folder, *steps: int, **options) -> None:
    with Checkpoints(folder, **options) as checkpoints:
        for step in steps:
            checkpoints.save(step, make_state(step), {"step": step})


def damage(folder, step: int, how: str) -> None:
    directory = folder / "checkpoints" / str(step)
    victim = max((p for p in directory.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    if how == "flipped":
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 1
        victim.write_bytes(data)
    elif how == "truncated":
        os.truncate(victim, victim.stat().st_size // 2)
    elif how == "missing":
        victim.unlink()
    elif how == "no list":
        (directory / HASH_LIST).unlink()
    elif how == "empty list":
        (directory / HASH_LIST).write_text("")
    elif how == "short list":
        (directory / HASH_LIST).write_text("".join((directory / HASH_LIST).read_text().splitlines(True)[:-1]))


def test_every_leaf_comes_back_bit_for_bit(tmp_path):
    state, meta = make_state(3), {"step": 3, "config_hash": "abc", "seconds": 1.5, "nested": {"a": [1, None]}}
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest_step() is None
        checkpoints.save(3, state, meta)
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest_step() == 3 and checkpoints.meta() == meta
        restored, found = checkpoints.restore(abstract_from_state(state))
    assert found == meta and checkpoints.warnings == []
    assert_same_bits(restored, state)


def test_the_saved_state_may_be_donated_at_once(tmp_path):
    state = {"big": jnp.arange(1 << 20, dtype=jnp.float32), "step": jnp.int32(0)}
    want = jax.tree.map(lambda x: np.array(x, copy=True), state)
    advance = jax.jit(lambda s: jax.tree.map(lambda x: x * 3 + 1, s), donate_argnums=0)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, state, {})
        abstract = abstract_from_state(state)
        for _ in range(3):
            state = advance(state)
        jax.block_until_ready(state)
        checkpoints.wait()
        assert_same_bits(checkpoints.restore(abstract)[0], want)


def test_shardings_are_those_of_the_abstract_state(tmp_path):
    save_steps(tmp_path, 1)
    replicated = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec())
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=replicated), abstract_from_state(make_state())
    )
    with Checkpoints(tmp_path) as checkpoints:
        restored, _ = checkpoints.restore(abstract)
        assert {leaf.sharding for leaf in jax.tree.leaves(restored)} == {replicated}
        assert_same_bits(restored, make_state(1))
        bare = jax.eval_shape(make_state)  # no shardings at all
        assert_same_bits(checkpoints.restore(bare)[0], make_state(1))


def test_keeps_the_newest_and_every_mth(tmp_path):
    save_steps(tmp_path, 5, 10, 15, 20, 25, 30, keep=2, keep_every=10)
    assert Checkpoints(tmp_path).steps() == (10, 20, 25, 30)


def test_the_list_is_what_sha256sum_writes(tmp_path):
    save_steps(tmp_path, 1)
    directory = tmp_path / "checkpoints" / "1"
    rows = [line.split("  ") for line in (directory / HASH_LIST).read_text().splitlines()]
    for digest, name in rows:
        assert hashlib.sha256((directory / name).read_bytes()).hexdigest() == digest
    assert {name for _, name in rows} == {
        str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file() and p.name != HASH_LIST
    }


@pytest.mark.parametrize("how", ["flipped", "truncated", "missing", "no list", "empty list", "short list"])
def test_a_bad_newest_checkpoint_is_passed_over_step_by_step(tmp_path, how):
    save_steps(tmp_path, 1, 2, 3, keep=3)
    damage(tmp_path, 3, how)
    damage(tmp_path, 2, "flipped")
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        restored, meta = checkpoints.restore(abstract_from_state(make_state()))
        assert meta == {"step": 1} and len(checkpoints.warnings) == 2
        assert checkpoints.steps() == (1, 2, 3)  # a reader changes nothing
        assert_same_bits(restored, make_state(1))
    with Checkpoints(tmp_path, keep=3) as checkpoints:
        _, meta = checkpoints.restore(abstract_from_state(make_state()))
        assert meta == {"step": 1} and checkpoints.steps() == (1,)
        assert "bad-3" in checkpoints.warnings[0] and "bad-2" in checkpoints.warnings[1]
        checkpoints.save(2, make_state(2), {"step": 2})  # the steps that were bad are free again
        checkpoints.wait()
        assert checkpoints.latest_step() == 2


def test_no_usable_checkpoint_is_an_error_that_names_the_folder(tmp_path):
    save_steps(tmp_path, 1, 2)
    damage(tmp_path, 1, "missing")
    damage(tmp_path, 2, "no list")
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(UserError) as caught:
        checkpoints.restore(abstract_from_state(make_state()))
    assert str(tmp_path / "checkpoints") in str(caught.value)
    assert Checkpoints(tmp_path).steps() == (1, 2)  # nothing was thrown away


def test_restoring_nothing_or_a_damaged_step_by_name(tmp_path):
    with pytest.raises(UserError, match="no checkpoint"):
        Checkpoints(tmp_path).restore(abstract_from_state(make_state()))
    save_steps(tmp_path, 1, 2)
    damage(tmp_path, 1, "flipped")
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        with pytest.raises(UserError, match="damaged"):
            checkpoints.restore(abstract_from_state(make_state()), step=1)
        assert checkpoints.restore(abstract_from_state(make_state()), step=2)[1] == {"step": 2}
        with pytest.raises(UserError, match="step 7"):
            checkpoints.meta(7)


def test_another_kind_of_state_is_refused_by_leaf(tmp_path):
    save_steps(tmp_path, 1)
    state = make_state(1)
    wider = state.replace(params={**state.params, "mlp": {**state.params["mlp"], "kernel": jnp.zeros((33, 6))}})
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(UserError) as caught:
        checkpoints.restore(abstract_from_state(wider))
    assert caught.value.field == "params/mlp/kernel"
    assert (caught.value.found, caught.value.expected) == ("float32[33,5]", "float32[33,6]")


def test_meta_must_be_json(tmp_path):
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(TypeError):
        checkpoints.save(1, make_state(), {"array": np.zeros(3)})
    assert Checkpoints(tmp_path).steps() == ()


def test_saving_the_same_step_twice_keeps_the_first(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(1), {"which": 1})
        checkpoints.save(1, make_state(2), {"which": 2})
        checkpoints.wait()
        assert checkpoints.meta() == {"which": 1}


def test_a_folder_that_cannot_be_written_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not be written"):
        Checkpoints(tmp_path / "file").save(1, make_state(), {})


def test_a_full_disk_is_a_user_error_and_the_checkpoint_before_stays(tmp_path):
    save_steps(tmp_path, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    noise = {"noise": jax.random.bits(jax.random.key(0), (1 << 18,))}
    try:
        with pytest.raises(UserError, match="could not be written"), Checkpoints(tmp_path) as checkpoints:
            checkpoints.steps()
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
            checkpoints.save(2, noise, {})
            checkpoints.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest_step() == 1


def test_a_kill_at_any_moment_leaves_a_usable_checkpoint(tmp_path):
    program = """
        import sys, jax, jax.numpy as jnp
        from nerfjax.train.checkpoint import Checkpoints
        state = {"noise": jax.random.bits(jax.random.key(0), (1 << 20,)), "step": jnp.int32(0)}
        with Checkpoints(sys.argv[1], keep=2) as checkpoints:
            for step in range(1, 10_000):
                state["step"] = jnp.int32(step)
                checkpoints.save(step, state, {"step": step})
                if step >= 3:
                    print(step, flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        for _ in range(4):
            assert process.stdout.readline()  # three or more saves were started: the first two are complete
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    abstract = {"noise": jax.ShapeDtypeStruct((1 << 20,), jnp.uint32), "step": jax.ShapeDtypeStruct((), jnp.int32)}
    with Checkpoints(tmp_path) as checkpoints:
        restored, meta = checkpoints.restore(abstract)
        assert int(restored["step"]) == meta["step"] >= 2
        checkpoints.save(meta["step"] + 1, restored, {})
    leftovers = [p.name for p in (tmp_path / "checkpoints").iterdir() if "tmp" in p.name]
    assert leftovers == []


def test_keeps_the_best_and_the_newest(tmp_path):
    with Checkpoints(tmp_path, keep=2, keep_best=2) as checkpoints:
        for step, score in {1: 3.0, 2: 9.0, 3: 5.0, 4: None, 5: 5.0, 6: 1.0, 7: None}.items():
            checkpoints.save(step, make_state(step), {"step": step})
            if score is not None:
                checkpoints.scores[step] = score  # known after the save
        checkpoints.wait()
        assert checkpoints.steps() == (2, 5, 6, 7)  # of equals the newer one
        assert checkpoints.best_step() == 2
    damage(tmp_path, 2, "flipped")
    again = Checkpoints(tmp_path, read_only=True)
    assert again.best_step() is None
    again.scores.update({2: 9.0, 5: 5.0, 99: 100.0})
    assert again.best_step() == 5


def test_how_long_each_save_took_is_told(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, make_state(step), {})
        checkpoints.wait()
        times = checkpoints.take_times()
        assert checkpoints.take_times() == []
    assert [each.step for each in times] == [1, 2]
    assert all(0 <= each.waited <= each.blocked and each.background > 0 for each in times)


def test_a_checkpoint_from_before_the_rate_scale_is_read(tmp_path):
    old = {"params": jnp.ones(3)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, old, {})
        checkpoints.wait()
        new = {**old, "rate_scale": jnp.float32(0.0)}
        restored, _ = checkpoints.restore(abstract_from_state(new))
        assert_same_bits(restored, {**old, "rate_scale": jnp.float32(1.0)})
