"""Compiled programs are kept between commands."""

import subprocess
import sys
from pathlib import Path

import nerfjax

ASK = """\
import os
{}
from nerfjax.cli.compilation_cache import keep_compiled_programs
keep_compiled_programs()
print(os.environ.get("{}"))
"""
FOLDER = "JAX_COMPILATION_CACHE_DIR"


def answer(code, environment):
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def environment(tmp_path, **more):
    return {"PYTHONPATH": str(Path(nerfjax.__file__).parents[1]), "NERFJAX_CACHE": str(tmp_path / "kept"), **more}


def test_a_command_keeps_what_it_compiles(tmp_path):
    assert answer(ASK.format("", FOLDER), environment(tmp_path)) == str(tmp_path / "kept" / "xla")
    assert (tmp_path / "kept" / "xla").is_dir()


def test_what_the_user_chose_stays(tmp_path):
    assert answer(ASK.format("", FOLDER), environment(tmp_path, **{FOLDER: "mine"})) == "mine"
    assert answer(ASK.format("import jax", FOLDER), environment(tmp_path)) == "None"


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path):
    (tmp_path / "kept").write_text("a file is in the way")
    assert answer(ASK.format("", FOLDER), environment(tmp_path)) == "None"
