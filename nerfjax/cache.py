"""Where results that take long to compute are kept between commands."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Returns ``$NERFJAX_CACHE``, or a folder in the user's cache folder."""
    chosen = os.environ.get("NERFJAX_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nerfjax"
