"""A crashed training is started again from where it was, and given up when that is of no use."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from nerfjax.cli.main import main
from nerfjax.cli.supervise import Supervisor, child_command
from nerfjax.errors import UserError
from nerfjax.runs.manifest import ATTEMPT_VARIABLE, append_restart, write_manifest

SAVE = "def save(step): f = w / 'checkpoints' / str(step); f.mkdir(parents=True); (f / 'SHA256SUMS').write_text('')"


def supervisor(folder: pathlib.Path, script: str, **options) -> tuple[Supervisor, list[str]]:
    """A supervisor of a Python script; ``w`` is the run folder there, ``attempt`` its number."""
    said: list[str] = []
    lines = f"""
        import os, pathlib, signal, sys, time
        w, attempt = pathlib.Path({os.fspath(folder)!r}), int(os.environ[{ATTEMPT_VARIABLE!r}])
    """
    script = "\n".join([textwrap.dedent(lines), SAVE, textwrap.dedent(script)])
    options = dict(retries=2, first_wait=0.01, say=said.append) | options
    return Supervisor([sys.executable, "-c", script], folder, **options), said


@pytest.mark.parametrize("code", [0, 2, 3, 75])
def test_what_a_run_chooses_to_end_with_is_final(tmp_path, code):
    watch, said = supervisor(tmp_path, f"sys.exit({code})")
    assert watch.run() == code and said == []


def test_crashes_are_restarted_while_there_are_new_checkpoints(tmp_path):
    """Six attempts, of which every second one saves, get through with two restarts in a row that may bring nothing."""
    script = """
        if attempt == 6: sys.exit(0)
        if attempt % 2: save(attempt)
        os.kill(os.getpid(), signal.SIGKILL) if attempt < 3 else sys.exit(1)
    """
    watch, said = supervisor(tmp_path, script)
    assert watch.run() == 0
    assert len(said) == 5 and "SIGKILL" in said[0] and "attempt 2" in said[0] and "step 1" in said[0]
    assert "exit code 1" in said[3] and "step 3" in said[3]


def test_it_gives_up_with_a_summary_when_nothing_new_is_saved(tmp_path):
    watch, said = supervisor(tmp_path, "save(100) if attempt == 1 else None; sys.exit(1)")
    assert watch.run() == 1
    assert len(said) == 3
    assert all(word in said[-1] for word in ("given up: 2 restarts", "attempts: 3", "exit code 1", "step 100"))
    # The wait doubles, but for chance.
    waits = [float(line.split(" begins in ")[1].split()[0]) for line in said[:2]]
    assert len(waits) == 2 and all(wait <= 0.02 for wait in waits)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_nothing_is_restarted(tmp_path, number):
    script = """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(75)), signal.signal(signal.SIGINT, lambda *_: sys.exit(75))
        (w / "ready").touch(); time.sleep(60)
    """
    watch, said = supervisor(tmp_path, script)

    def send() -> None:
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    before = signal.getsignal(number)
    assert watch.run() == 75 and said == []
    sender.join()
    assert signal.getsignal(number) is before


def test_a_signal_between_two_attempts_ends_the_waiting(tmp_path):
    watch, said = supervisor(tmp_path, "sys.exit(1)", first_wait=60.0)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
    start = time.monotonic()
    assert watch.run() == 75 and len(said) == 1 and time.monotonic() - start < 20


def test_the_child_is_the_same_command_without_retries(tmp_path, monkeypatch):
    started = []

    class Ended:
        def __init__(self, command, env, **options):
            started.append((command, env[ATTEMPT_VARIABLE]))

        def wait(self) -> int:
            return 3

    monkeypatch.setattr(subprocess, "Popen", Ended)
    flags = ["--config=demo", f"--workdir={tmp_path}", "--config.train.steps=7"]
    assert main(["train", *flags, "--retries=4"]) == 3
    assert main(["train", "--retries", "4", *flags]) == 3
    assert started == [([sys.executable, "-m", "nerfjax.cli.main", "train", *flags], "1")] * 2
    assert child_command(["--config=a"])[-1] == "--config=a"


def test_a_number_of_retries_that_makes_no_sense(tmp_path, capsys):
    assert main(["train", "--config=demo", f"--workdir={tmp_path}", "--retries=-1"]) == 2
    assert "--retries" in capsys.readouterr().err
    with pytest.raises(UserError):
        Supervisor(["true"], tmp_path, retries=0)


def test_the_manifest_says_which_attempt_a_restart_was(tmp_path, monkeypatch):
    about = dict(config={}, config_hash="", scene_fingerprint="", split={}, precision="default", seeds={})
    write_manifest(tmp_path, **about)
    monkeypatch.setenv(ATTEMPT_VARIABLE, "3")
    assert append_restart(tmp_path, step=10)["restarts"][0]["attempt"] == 3
    monkeypatch.delenv(ATTEMPT_VARIABLE)
    assert "attempt" not in append_restart(tmp_path, step=10)["restarts"][1]
