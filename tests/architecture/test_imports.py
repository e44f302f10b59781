"""``import nerfjax`` and ``nerfjax --help`` are light; every name of the façade exists."""

from __future__ import annotations

import subprocess
import sys

import nerfjax


def modules_after(code: str) -> set[str]:
    """Modules that a fresh interpreter has loaded after ``code``."""
    result = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint('\\nLOADED', *sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(result.stdout.rsplit("LOADED", 1)[1].split())


HEAVY = {"jax", "flax", "optax", "orbax", "tensorflow", "tensorboard", "matplotlib", "PIL", "numpy"}


def test_import_is_light():
    assert modules_after("import nerfjax; nerfjax.__version__; dir(nerfjax)") & HEAVY == set()


def test_help_is_light():
    code = "from nerfjax.cli.main import main\nassert main(['--help']) == 0"
    assert modules_after(code) & HEAVY == set()


def test_training_modules_leave_tensorflow_alone():
    loaded = modules_after("import nerfjax.train.run, nerfjax.evaluate, nerfjax.trajectory, nerfjax.runs.report")
    assert "jax" in loaded
    assert not {name for name in loaded if name.split(".")[0] in ("tensorflow", "tensorflow_datasets")}


def test_every_public_name_exists():
    for name in nerfjax.__all__:
        assert getattr(nerfjax, name) is not None, name
    assert set(nerfjax.__all__) <= set(dir(nerfjax))


def test_unknown_name_says_so():
    try:
        nerfjax.load_confg  # noqa: B018
    except AttributeError as error:
        assert "load_config" in str(error)
    else:
        raise AssertionError("a misspelt name was accepted")
