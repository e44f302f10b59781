"""Compiled programs are kept between commands."""

from __future__ import annotations

import os
import sys

from nerfjax.cache import cache_folder


def keep_compiled_programs() -> None:
    """Has JAX keep what it compiles in the cache folder, so that a second start need not compile again.

    Where the user has chosen a folder for that, or it cannot be made, or jax is imported already (a notebook, whose
    settings are its own), nothing is changed.
    """
    folder = cache_folder() / "xla"
    if "jax" in sys.modules or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
