"""Penalties of parameters: what fields and proposal networks say of their tables, weighted by the config.

A field may have a method ``regularize() -> {name: scalar}``, a density network a function of its parameters that does
the same; ``Renderer.regularize`` adds up what they return. Each name stands in ``PENALTIES`` and is weighted by
``config.train.NAME_weight``, which stages of a curriculum may change.
"""

from __future__ import annotations

from typing import Any

import jax
from ml_collections import ConfigDict

from nerfjax.errors import UserError
from nerfjax.renderer import Renderer
from nerfjax.types import SceneGeometry

# "tv" is of what density depends on, "color_tv" of what only colour does.
PENALTIES = ("l1", "tv", "color_tv", "decay")


def penalty_weights(config: ConfigDict, renderer: Renderer, geometry: SceneGeometry) -> dict[str, float]:
    """Returns {name: weight} of the penalties that are on.

    Args:
      config: of a stage.
      renderer: its renderer.
      geometry: the scene.

    Raises:
      UserError: neither the field nor the sampler's networks have a penalty that is on.
    """
    weights = {name: config.train[f"{name}_weight"] for name in PENALTIES if config.train[f"{name}_weight"]}
    if not weights:
        return {}

    def penalties() -> dict[str, Any]:
        return renderer.regularize(renderer.init(jax.random.key(0), geometry)[0])

    known = jax.eval_shape(penalties)
    for name, weight in weights.items():
        if name not in known:
            others = ", ".join(f"config.train.{other}_weight" for other in known)
            raise UserError(
                f"the field {config.field.name!r} and its proposal networks have no {name!r} penalty",
                field=f"config.train.{name}_weight", found=weight, expected="0",
                fix=f"penalties that they have: {others}" if others else None,
            )  # fmt: skip
    return weights
