"""What a user meets at the command line: help, hints, exit codes."""

from __future__ import annotations

import errno
import subprocess
import sys
import types

import pytest

from nerfjax.cli import main as cli
from nerfjax.errors import Diverged, Preempted, UserError


def test_help_names_the_verbs_that_exist(capsys):
    assert cli.main(["--help"]) == 0
    first = capsys.readouterr().out
    assert cli.main([]) == 0
    assert capsys.readouterr().out == first
    assert [line.split()[0] for line in first.split("verbs:\n")[1].split("\n\n")[0].splitlines()] == list(cli.VERBS)


@pytest.mark.parametrize("verb", ["", *cli.VERBS])
def test_help_fits_a_screen_and_shows_an_example(capsys, verb):
    assert cli.main([*([verb] if verb else []), "--help"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 30 and max(map(len, out.splitlines())) <= 84
    assert "example:\n  nerfjax " in out


def test_the_examples_parse(monkeypatch, capsys):
    for verb in cli.VERBS:
        module = __import__(f"nerfjax.cli.{verb}", fromlist=["run"])
        monkeypatch.setattr(module, "run", lambda arguments: 0)
        example = module.EPILOG.split("example:\n")[1].replace("\\\n", " ").split()
        assert cli.main(example[1:]) == 0, capsys.readouterr().err


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("nerfjax 0.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], ["trian", "train"]),
        (["xyzzy"], ["use one of", "status"]),
        (["train"], ["--config", "--workdir", "--help"]),
        (["train", "--config=a", "--workdr=b", "--workdir=c"], ["--workdr", "--workdir"]),
        (["eval", "run", "--split=all"], ["--split", "test"]),
        (["status", "run", "more"], ["more", "--help"]),
        (["status", "run", "--config.train.steps=3"], ["takes no config"]),
        (["train", "--config=a", "--workdir=b", "--config.train.steps"], ["--config.train.steps=VALUE"]),
        (["status", "nowhere"], ["no run folder", "nowhere"]),
        (["render", "nowhere", "--out=a.gif"], ["a.mp4"]),
        (["render", "nowhere", "--size=12"], ["WIDTHxHEIGHT"]),
        (["render", "nowhere", "--frames=0"], ["--frames"]),
    ],
)
def test_wrong_input_is_one_message_and_exit_code_2(capsys, arguments, words):
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err
    assert all(word in captured.err for word in words), captured.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("no", fix="do"), 2),
        (Diverged("nan"), 3),
        (Preempted("saved"), 75),
        (KeyboardInterrupt(), 130),
        (OSError(errno.ENOSPC, "No space left on device", "runs/x"), 2),
    ],
)
def test_errors_become_exit_codes(monkeypatch, capsys, error, code):
    def run(arguments):
        raise error

    module = types.SimpleNamespace(EPILOG="", add_arguments=lambda parser: None, run=run)
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: module)
    assert cli.main(["status"]) == code
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch):
    def run(arguments):
        raise ZeroDivisionError

    module = types.SimpleNamespace(EPILOG="", add_arguments=lambda parser: None, run=run)
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: module)
    with pytest.raises(ZeroDivisionError):
        cli.main(["status"])


def test_config_flags_are_split_from_the_rest():
    arguments = ["--config=a", "--config.x.y=1=2", "--config.z", "-1", "--noconfig.flag", "--workdir", "b"]
    plain, flags = cli.split_config_flags(arguments)
    assert plain == ["--config=a", "--workdir", "b"]
    assert flags == ["--config.x.y=1=2", "--config.z=-1", "--config.flag=false"]


def test_the_module_runs_as_a_program():
    done = subprocess.run([sys.executable, "-m", "nerfjax.cli.main", "trian"], capture_output=True, text=True)
    assert done.returncode == 2 and "did you mean 'train'" in done.stderr
