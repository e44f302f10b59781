"""Optimizers and learning-rate schedules. A schedule is a function of the step and of its own length, nothing else."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from nerfjax.types import Array

Schedule = Callable[[ArrayLike], Array]


def log_lerp(
    *, initial: float = 1e-2, final: float = 1e-4, steps: int = 20_000, delay_steps: int = 0, delay_scale: float = 0.01
) -> Schedule:
    """Interpolates log-linearly from ``initial`` to ``final`` over ``steps``, then stays at ``final``.

    The rate is scaled by delay_scale + (1 - delay_scale) sin(pi/2 clip(step / delay_steps, 0, 1)) at the start: the
    delayed warm-up of mip-NeRF (Barron et al. 2021, supplement).
    """

    def schedule(step: ArrayLike) -> Array:
        step = jnp.asarray(step, jnp.float32)
        fraction = jnp.clip(step / steps, 0.0, 1.0)
        rate = jnp.exp(jnp.log(initial) * (1.0 - fraction) + jnp.log(final) * fraction)
        if delay_steps == 0:
            return rate
        ramp = jnp.sin(0.5 * jnp.pi * jnp.clip(step / delay_steps, 0.0, 1.0))
        return rate * (delay_scale + (1.0 - delay_scale) * ramp)

    return schedule


def exponential(*, initial: float = 1e-2, rate: float = 0.1, steps: int = 20_000, warmup: int = 0) -> Schedule:
    """Decays as initial * rate^(step / steps), without end; ``warmup`` steps rise linearly first."""

    def schedule(step: ArrayLike) -> Array:
        step = jnp.asarray(step, jnp.float32)
        decayed = initial * jnp.exp(jnp.log(rate) * step / steps)
        return decayed * jnp.minimum(1.0, (step + 1.0) / max(warmup, 1))

    return schedule


def cosine(*, initial: float = 1e-2, final: float = 0.0, steps: int = 20_000, warmup: int = 0) -> Schedule:
    """Rises linearly over ``warmup`` steps, then follows half a cosine from ``initial`` to ``final`` at ``steps``."""

    def schedule(step: ArrayLike) -> Array:
        step = jnp.asarray(step, jnp.float32)
        fraction = jnp.clip((step - warmup) / max(steps - warmup, 1), 0.0, 1.0)
        decayed = final + (initial - final) * 0.5 * (1.0 + jnp.cos(jnp.pi * fraction))
        return decayed * jnp.minimum(1.0, (step + 1.0) / max(warmup, 1))

    return schedule


SCHEDULES = {"log_lerp": log_lerp, "exponential": exponential, "cosine": cosine}


def is_table(path: tuple) -> bool:
    """Says whether a parameter's path leads into a grid of features."""
    return any(getattr(entry, "key", None) == "tables" for entry in path)


def adam(
    *,
    schedule: Schedule,
    b1: float = 0.9,
    b2: float = 0.99,
    eps: float = 1e-15,
    weight_decay: float = 0.0,
    clip_norm: float = 0.0,
    table_rate: float = 1.0,
) -> optax.GradientTransformation:
    """Adam (Kingma & Ba 2015) with the extras that radiance fields use.

    Args:
      schedule: learning rate by step.
      b1: decay of the first moment.
      b2: decay of the second moment.
      eps: added to the root of the second moment.
      weight_decay: L2 added to the gradient of everything but grids of features (instant-ngp); 0 is off.
      clip_norm: largest global norm of the gradient (mip-NeRF 360: 1e-3); 0 is off.
      table_rate: factor on the learning rate of grids of features.
    """

    def not_table(params):
        return jax.tree_util.tree_map_with_path(lambda path, leaf: not is_table(path), params)

    def scale_tables(updates):
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: leaf * table_rate if is_table(path) else leaf, updates
        )

    parts = []
    if clip_norm:
        parts.append(optax.clip_by_global_norm(clip_norm))
    if weight_decay:
        parts.append(optax.add_decayed_weights(weight_decay, mask=not_table))
    parts.append(optax.scale_by_adam(b1=b1, b2=b2, eps=eps))
    if table_rate != 1.0:
        parts.append(optax.stateless(lambda updates, params: scale_tables(updates)))
    return optax.chain(*parts, optax.scale_by_learning_rate(schedule))


OPTIMIZERS = {"adam": adam}
