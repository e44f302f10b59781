"""What every test runs under: eight virtual devices, checked shapes and types, no silent broadcasting."""

from __future__ import annotations

import atexit
import gc
import os
import pathlib
import shutil
import tempfile

# One process serves the tests of one device and of eight. It must be said before jax is imported; child processes and
# the workers of pytest-xdist inherit it.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "NERFJAX_CACHE" not in os.environ:  # commands that tests start share what they compile, and leave nothing behind
    os.environ["NERFJAX_CACHE"] = tempfile.mkdtemp(prefix="nerfjax-tests-")
    atexit.register(shutil.rmtree, os.environ["NERFJAX_CACHE"], ignore_errors=True)

import jaxtyping
import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "nerfjax"
DATA_VARIABLE = "NERFJAX_TEST_DATA"


def checked_modules() -> list[str]:
    """Rooms whose functions check their annotations; not ``types``: tree maps fill its dataclasses with specs."""
    names = (path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())
    return sorted(f"nerfjax.{name}" for name in names if name not in ("__init__", "types"))


jaxtyping.install_import_hook(checked_modules(), "beartype.beartype")

import jax  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(autouse=True, scope="module")
def programs_of_one_file():
    """Drops a file's compiled programs after it: each takes memory maps, of which a process may have some 65,000."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="session")
def capture():
    """``capture("fox")`` is the folder of a real capture; the test is skipped, by name, where there is none."""

    def find(name: str) -> pathlib.Path:
        root = os.environ.get(DATA_VARIABLE)
        if not root:
            pytest.skip(f"real capture {name!r}: {DATA_VARIABLE} is not set")
        folder = pathlib.Path(root).expanduser().resolve() / name
        if not folder.is_dir():
            pytest.skip(f"real capture {name!r}: {DATA_VARIABLE} has no such folder")
        return folder

    return find
