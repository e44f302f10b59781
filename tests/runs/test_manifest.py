"""The manifest says what made a run, through restarts, and a run folder has one run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from prepared_runs import schema_of, violations

import nerfjax
from nerfjax.errors import UserError
from nerfjax.runs import manifest as manifests
from nerfjax.runs.manifest import (
    append_restart,
    claim,
    code_version,
    differences,
    read_manifest,
    record_evaluation,
    refuse_other_config,
    seal,
    write_manifest,
)

CONFIG = {"train": {"steps": 100, "seed": 1}, "field": {"name": "nerf"}, "far": float("inf"), "sizes": (1, 2)}


def write(folder, **options) -> dict:
    known = dict(
        config=CONFIG,
        config_hash="abc",
        scene_fingerprint="f00d",
        split={"train": ["a.png"], "test": ["b.png"]},
        precision="float32",
        seeds={"run": np.int64(1)},
    )
    return write_manifest(folder, **{**known, **options})


def test_manifest_holds_what_made_the_run(tmp_path):
    written = write(tmp_path / "run", render={"chunk": 4096}, dataset="fox")
    text = (tmp_path / "run" / "manifest.json").read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found == written == read_manifest(tmp_path / "run")
    assert found["status"] == "running" and found["end"] is None and found["restarts"] == []
    assert found["config"] == {**CONFIG, "far": "inf", "sizes": [1, 2]} and found["seeds"] == {"run": 1}
    assert found["split"]["test"] == ["b.png"] and found["render"] == {"chunk": 4096} and found["dataset"] == "fox"
    assert found["packages"]["jax"] and found["packages"]["python"].startswith("3.")
    assert found["devices"]["platform"] == "cpu" and found["devices"]["process_count"] == 1
    assert len(found["code"]["sha256"]) == 64
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["manifest.json"]


def test_restart_says_what_differs_and_reopens(tmp_path):
    write(tmp_path)
    seal(tmp_path, status="preempted", step=40, seconds=12.5)
    assert read_manifest(tmp_path)["status"] == "preempted"
    now = {**CONFIG, "train": {"steps": 200, "seed": 1}}
    found = append_restart(tmp_path, step=40, config=now, scene_fingerprint="beef")
    (restart,) = found["restarts"]
    assert restart["step"] == 40 and restart["previous_end"]["step"] == 40
    assert restart["differs"] == {"scene_fingerprint": ["f00d", "beef"], "config.train.steps": [100, 200]}
    assert found["status"] == "running" and found["end"] is None
    append_restart(tmp_path, step=60, config=CONFIG)
    sealed = seal(tmp_path, status="done", step=100, seconds=31, psnr=30.5)
    # The manifest has the configuration of now, and each restart what it was before.
    assert sealed["restarts"][1]["differs"] == {"config.train.steps": [200, 100]} and sealed["end"]["psnr"] == 30.5
    assert sealed["status"] == "done" and sealed["config"]["train"]["steps"] == 100


def test_differences():
    assert differences({"a": {"b": 1, "c": [1]}, "d": 2}, {"a": {"b": 1, "c": [2]}, "e": 3}) == {
        **{"a.c": [[1], [2]], "d": [2, None], "e": [None, 3]}
    }
    assert differences(CONFIG, CONFIG) == {}


def test_another_configuration_is_refused_by_key(tmp_path):
    found = write(tmp_path)
    refuse_other_config(found, tmp_path, CONFIG, "abc")
    other = {**CONFIG, "field": {"name": "instant_ngp"}}
    with pytest.raises(UserError) as caught:
        refuse_other_config(found, tmp_path, other, "xyz")
    assert "field.name: 'nerf' there, 'instant_ngp' now" in str(caught.value) and "far" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"config": {}}'])
def test_a_damaged_manifest_is_a_user_error(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UserError, match="damaged"):
        read_manifest(tmp_path)


def test_a_folder_without_manifest_is_a_user_error(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match="no run folder"):
            read_manifest(folder)


def test_a_kill_while_writing_leaves_the_old_manifest(tmp_path, monkeypatch):
    write(tmp_path)

    def dies(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(manifests.epath.Path(tmp_path)), "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            seal(tmp_path, status="done", step=1, seconds=1.0)
    assert read_manifest(tmp_path)["status"] == "running"


def test_only_process_0_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(manifests.jax, "process_index", lambda: 1)
    write(tmp_path)
    with claim(tmp_path / "run"):
        pass
    assert list(tmp_path.iterdir()) == []


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_code_version_of_a_checkout(tmp_path, monkeypatch):
    package = tmp_path / "nerfjax"
    package.mkdir()
    (package / "__init__.py").write_text("x = 1\n")
    monkeypatch.setattr(nerfjax, "__file__", str(package / "__init__.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    outside = code_version()
    assert outside["commit"] is None and outside["dirty"] is None
    git(tmp_path, "init", "-q")
    (tmp_path / "other.txt").write_text("of some other project")
    git(tmp_path, "add", "other.txt")
    git(tmp_path, "commit", "-qm", "one")
    assert code_version()["commit"] is None  # the package lies in a checkout that does not track it
    git(tmp_path, "add", "nerfjax")
    git(tmp_path, "commit", "-qm", "two")
    clean = code_version()
    assert len(clean["commit"]) == 40 and clean["dirty"] is False and clean["sha256"] == outside["sha256"]
    (package / "__init__.py").write_text("x = 2\n")
    assert code_version()["dirty"] is True and code_version()["sha256"] != clean["sha256"]


def test_the_package_hash_depends_on_names_and_contents_only(tmp_path, monkeypatch):
    hashes = set()
    for place, name, text in (("a", "m.py", "x"), ("b", "m.py", "x"), ("c", "n.py", "x"), ("d", "m.py", "y")):
        (tmp_path / place).mkdir()
        (tmp_path / place / name).write_text(text)
        (tmp_path / place / "cache.pyc").write_text(place)
        monkeypatch.setattr(nerfjax, "__file__", str(tmp_path / place / "__init__.py"))
        hashes.add(code_version()["sha256"])
    assert len(hashes) == 3


def test_a_run_folder_is_claimed_by_one_run(tmp_path):
    run = tmp_path / "runs" / "one"
    with claim(run):
        with pytest.raises(UserError, match="another run") as caught, claim(run):
            pass
        assert f"process {os.getpid()}" in str(caught.value)
        with claim(tmp_path / "runs" / "two"):
            pass
    assert list(run.iterdir()) == []
    with claim(run):
        pass


def test_a_claim_ends_with_its_process(tmp_path):
    program = """
        import sys, time
        from nerfjax.runs.manifest import claim
        with claim(sys.argv[1]):
            print("claimed", flush=True)
            time.sleep(600)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "claimed\n"
        with pytest.raises(UserError, match="another run"), claim(tmp_path):
            pass
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    with claim(tmp_path):
        assert (tmp_path / ".lock").exists()


def test_a_folder_that_cannot_be_made_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"), claim(tmp_path / "file" / "run"):
        pass
    with pytest.raises(UserError, match="cannot be written"):
        write(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write_is_a_user_error(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(UserError, match="cannot be written"), claim(tmp_path):
        pass
    tmp_path.chmod(0o755)


def schema() -> dict:
    return schema_of("manifest")


def test_the_manifest_keeps_to_its_schema_through_its_life(tmp_path):
    assert violations(write(tmp_path), schema()) == []
    assert violations(seal(tmp_path, status="preempted", step=3, seconds=1.5), schema()) == []
    assert violations(append_restart(tmp_path, step=3, config=CONFIG), schema()) == []
    assert violations({**read_manifest(tmp_path), "status": "asleep"}, schema())


def test_the_seal_holds_the_final_metrics(tmp_path):
    write(tmp_path)
    lines = [{"step": 10, "loss": 0.5}, {"step": 20, "loss": 0.25, "psnr": 6.0}, {"step": 20, "eval/psnr": 7.0}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + '\n{"step": 30, "lo')
    assert seal(tmp_path, status="done", step=20, seconds=1.0)["end"]["metrics"] == lines[1]
    assert seal(tmp_path, status="diverged", step=15, seconds=1.0)["end"]["metrics"] == lines[0]


def test_an_evaluation_joins_the_seal_of_a_run_that_rests(tmp_path):
    result = dict(run="r", step=20, split="test", n=2, mean={"psnr": 30.0}, protocol={"name": "nerf"}, images=[])
    record_evaluation(tmp_path / "nowhere", result)
    write(tmp_path)
    record_evaluation(tmp_path, result)
    assert read_manifest(tmp_path)["end"] is None
    seal(tmp_path, status="done", step=20, seconds=1.0)
    with claim(tmp_path):  # the run goes on right now: its manifest is not ours
        record_evaluation(tmp_path, result)
    assert "evaluations" not in read_manifest(tmp_path)["end"]
    record_evaluation(tmp_path, result)
    record_evaluation(tmp_path, {**result, "split": "val"})
    found = read_manifest(tmp_path)
    assert list(found["end"]["evaluations"]) == ["test", "val"]
    assert found["end"]["evaluations"]["test"]["mean"] == {"psnr": 30.0}
    assert violations(found, schema()) == []
    assert append_restart(tmp_path, step=20)["restarts"][0]["previous_end"]["evaluations"]["test"]["n"] == 2


def test_manifests_of_older_and_newer_versions_are_read_and_kept(tmp_path):
    oldest = {"config": {}, "config_hash": "abc"}
    (tmp_path / "manifest.json").write_text(json.dumps(oldest))
    assert violations(read_manifest(tmp_path), schema()) == []
    newer = {**write(tmp_path), "schema": 99, "moon": {"phase": 0.5}}
    (tmp_path / "manifest.json").write_text(json.dumps(newer))
    append_restart(tmp_path, step=1)
    found = seal(tmp_path, status="done", step=2, seconds=1.0)
    assert found["schema"] == 99 and found["moon"] == {"phase": 0.5}
