"""Radiance fields in JAX, built around the ray-sampling problem.

The names below load on first use (PEP 562), so that ``import nerfjax`` and ``nerfjax --help`` cost nothing:

    import nerfjax

    config = nerfjax.load_config("nerf", {"scene.source": "captures/fox", "scene.downscale": 8})
    experiment = nerfjax.build_experiment(config)

Everything else is imported from its room: ``from nerfjax.geometry.rays import rays_from_pixels``.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "FIELDS": "nerfjax.fields",
    "PIXELS": "nerfjax.pixels",
    "READERS": "nerfjax.scenes",
    "SAMPLERS": "nerfjax.samplers",
    "UserError": "nerfjax.errors",
    "build_experiment": "nerfjax.train.build",
    "load_config": "nerfjax.train.configuration",
    "load_run": "nerfjax.train.run",
    "read_scene": "nerfjax.scenes",
}

__all__ = ["__version__"]
__all__ += list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    from nerfjax.errors import did_you_mean

    raise AttributeError(f"module 'nerfjax' has no attribute {name!r}; {did_you_mean(name, __all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
