"""What is seen behind everything: the colour that the rest of a ray's transmittance meets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from nerfjax.encodings.directional import spherical_harmonics
from nerfjax.numerics import ray_uniform
from nerfjax.types import Array, Rays


class Background(NamedTuple):
    """Pure functions of one background.

    Attributes:
      init: ``(key) -> params``.
      train_color: ``(key, params, rays [N]) -> [N, 3]``, the colour during training.
      color: ``(params, rays [N]) -> [N, 3]``, the colour of evaluation and renders.
    """

    init: Callable[[Array], Any]
    train_color: Callable[[Array, Any, Rays], Array]
    color: Callable[[Any, Rays], Array]


def _constant(value: float) -> Background:
    def color(params, rays: Rays) -> Array:
        del params
        return jnp.full_like(rays.directions, value)

    return Background(lambda key: {}, lambda key, params, rays: color(params, rays), color)


def white() -> Background:
    """White, always (the protocol of the Blender scenes)."""
    return _constant(1.0)


def black() -> Background:
    """Black, always."""
    return _constant(0.0)


def random(*, shown: float = 1.0) -> Background:
    """A new colour per ray and step in training, so that no opacity can hide in the background.

    Args:
      shown: the grey level that evaluation and renders show.
    """

    def train_color(key: Array, params, rays: Rays) -> Array:
        del params
        return ray_uniform(key, rays.index, (3,))

    return _constant(shown)._replace(train_color=train_color)


def learned(*, degree: int = 3) -> Background:
    """A learned panorama: sigmoid of spherical harmonics of the direction, for skies.

    Args:
      degree: degree of the harmonics, 1 to 5; degree 1 is one colour.
    """

    def init(key: Array):
        del key
        return {"harmonics": jnp.zeros((degree**2, 3))}

    def color(params, rays: Rays) -> Array:
        basis = spherical_harmonics(rays.directions, degree=degree)
        return jax.nn.sigmoid(jnp.matmul(basis, params["harmonics"], precision=jax.lax.Precision.HIGHEST))

    return Background(init, lambda key, params, rays: color(params, rays), color)


BACKGROUNDS = {"white": white, "black": black, "random": random, "learned": learned}
