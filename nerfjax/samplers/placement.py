"""How normalised edges become intervals, and what of them is random: shared by the dense samplers.

Notation: n intervals of a ray have edges ``s`` [..., n+1] in [0, 1] and ``t`` between near and far. A sampler
randomises one of two things while it trains:

- ``randomize="points"``: the field is evaluated at a point drawn uniformly from each interval. Given the edges,
  the expected quadrature is sum_i delta_i E[sigma(t_i)] = integral of sigma: the optical depth is unbiased,
  whatever the edges, the spacing and the correlation of the points are.
- ``randomize="edges"``: the edges move and the field is evaluated over whole intervals (at midpoints, or over cones
  and multisamples). The error is of second order for every draw, but the ends of the ray bias its mean.

The random numbers are independent for each stratum (``jitter="stratum"``; the points' root-mean-square error is of
order 1.5) or one for the whole ray (``jitter="single"``: cheaper and evenly spaced; of order 1 where the density
differs between the ends of the ray, better where both ends are empty). Midpoints of fixed intervals are of order 2.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from nerfjax.errors import UserError, did_you_mean
from nerfjax.geometry.warps import SPACINGS, t_from_s
from nerfjax.numerics import ray_uniform
from nerfjax.types import Array, Intervals, Rays, SamplerInfo, zeros_int

JITTERS = ("stratum", "single")
RANDOMIZED = ("points", "edges")


class Placement(NamedTuple):
    """Static choices of a dense sampler: the name of the s-t warp, and what is random and how."""

    spacing: str
    jitter: str
    randomize: str
    deterministic: bool


def check_name(field: str, name: str, valid) -> None:
    """Raises UserError where ``name`` is not one of ``valid``."""
    if name not in valid:
        raise UserError(
            f"there is no {field} called {name!r}",
            field=field, found=name, expected=" | ".join(map(str, valid)), fix=did_you_mean(name, valid),
        )  # fmt: skip


def check_counts(**counts: int) -> None:
    """Raises UserError where a number of intervals is below 1."""
    for field, count in counts.items():
        if count < 1:
            raise UserError("a sampler needs at least one interval", field=field, found=count, expected="1 or more")


def placement(*, spacing: str, jitter: str, randomize: str, deterministic: bool) -> Placement:
    """Returns the validated choices.

    Raises:
      UserError: a name is unknown.
    """
    check_name("spacing", spacing, tuple(SPACINGS))
    check_name("jitter", jitter, JITTERS)
    check_name("randomize", randomize, RANDOMIZED)
    return Placement(spacing, jitter, randomize, deterministic)


def draw_jitter(how: Placement, key: Array, rays: Rays, count: int) -> Array | None:
    """Draws a ray's numbers in [0, 1): [N, count] or [N, 1]; None for deterministic sampling."""
    if how.deterministic:
        return None
    return ray_uniform(key, rays.index, (count if how.jitter == "stratum" else 1,))


def uniform_edges(how: Placement, key: Array, rays: Rays, count: int) -> Array:
    """Returns edges [N, count+1] of equal strata of [0, 1], the inner ones moved by up to half a stratum.

    They move only under ``randomize="edges"``; the ends always stay at 0 and 1.
    """
    edges = jnp.broadcast_to(jnp.linspace(0.0, 1.0, count + 1, dtype=jnp.float32), (*rays.near.shape, count + 1))
    if how.deterministic or how.randomize == "points" or count == 1:
        return edges
    inner = edges[..., 1:-1] + (draw_jitter(how, key, rays, count - 1) - 0.5) / count
    return jnp.concatenate([edges[..., :1], inner, edges[..., -1:]], axis=-1)


def intervals_from_edges(how: Placement, key: Array, rays: Rays, s: Array) -> Intervals:
    """Returns the intervals with edges ``s`` [N, S+1], without gradient, and their points of evaluation."""
    t = t_from_s(how.spacing, s, rays.near, rays.far)
    # Some warps are monotone up to the last bit only.
    s, t = jax.lax.stop_gradient((s, jax.lax.cummax(t, axis=t.ndim - 1)))
    if how.deterministic or how.randomize == "edges":
        return Intervals(t=t, s=s)
    fraction = draw_jitter(how, key, rays, s.shape[-1] - 1)
    # The minimum guards against rounding: t0 + u * (t1 - t0) may pass t1 by an ulp.
    return Intervals(t=t, s=s, t_point=jnp.minimum(t[..., :-1] + fraction * (t[..., 1:] - t[..., :-1]), t[..., 1:]))


def dense_info(
    rays: Rays, *, evaluations: float | int, levels: tuple = (), proposal_evaluations: int = 0
) -> SamplerInfo:
    """Returns the report of a sampler with the same number of intervals on every ray, up to ``rays.far``."""
    return SamplerInfo(
        levels=levels,
        evaluations=jnp.asarray(evaluations, jnp.float32),
        proposal_evaluations=jnp.asarray(proposal_evaluations, jnp.float32),
        overflow=zeros_int(),
        t_end=rays.far,
    )
