"""What an interval of a ray becomes for a field: a point, a Gaussian or a handful of isotropic samples.

A ray is the axis of the cone that its pixel sees: at distance t its radius is r t, with r the ray's footprint. Between
t0 and t1 the cone is a frustum, whose moments are those of mip-NeRF (Barron et al. 2021, Eq. 7 and supplement A, in the
form that does not cancel for thin frustums), with m = (t0 + t1)/2 and h = (t1 - t0)/2:

  mean of t       m + 2 m h^2 / (3 m^2 + h^2)
  variance of t   h^2/3 - (4/15) h^4 (12 m^2 - h^2) / (3 m^2 + h^2)^2
  variance across r^2 (m^2/4 + 5 h^2/12 - (4/15) h^4 / (3 m^2 + h^2))
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from nerfjax.errors import UserError
from nerfjax.geometry.rays import cast_points
from nerfjax.numerics import ray_uniform
from nerfjax.types import Array, CastPoints, Gaussians, Intervals, Multisamples, PackedIntervals, Points, Rays

POINT_KINDS = ("point", "gaussian", "multisample")
SPREAD = 0.5  # of a multisample, in units of its distance from the axis: Zip-NeRF's factor
_ANGLES = np.float32(math.pi / 3.0) * np.asarray([0, 2, 4, 3, 5, 1], np.float32)
_SAMPLES = len(_ANGLES)
_TINY = 1e-18  # its square is a float32, too


def cast(kind: str, key: Array | None, rays: Rays, intervals: Intervals | PackedIntervals) -> CastPoints:
    """Casts intervals to what a field of some kind is evaluated at.

    Args:
      kind: one of ``POINT_KINDS``, as the field's ``point_kind`` says.
      key: decides how multisamples are turned; None turns neighbours by fixed angles (evaluation).
      rays: [N].
      intervals: dense [N, S] or packed [M].

    Returns:
      ``Points``, ``Gaussians`` or ``Multisamples`` of batch shape [N, S] or [M].

    Raises:
      UserError: there is no such kind.
    """
    if kind == "point":
        return cast_points(rays, intervals)
    if kind == "gaussian":
        return cast_gaussians(rays, intervals)
    if kind == "multisample":
        return cast_multisamples(key, rays, intervals)
    raise UserError(
        "a field asks for points of an unknown kind", field="point_kind", found=kind, expected=", ".join(POINT_KINDS)
    )


def cast_balls(kind: str, positions: Array, radii: Array) -> CastPoints:
    """Casts balls (cells of a grid, not parts of a ray) to what a field of some kind is evaluated at.

    Args:
      kind: one of ``POINT_KINDS``.
      positions: [..., 3] world units.
      radii: [...] world units; a ball of radius r has the variance r^2 / 5 along each axis.
    """
    if kind == "point":
        return Points(positions=positions, radius=radii)
    variance = jnp.square(radii) / 5.0
    if kind == "gaussian":
        unit = jnp.eye(3, dtype=positions.dtype).reshape((1,) * radii.ndim + (3, 3))
        return Gaussians(means=positions, covariances=variance[..., None, None] * unit)
    return Multisamples(positions=positions[..., None, :], deviations=jnp.sqrt(variance)[..., None])


def frustum_moments(t0: Array, t1: Array, footprint: Array) -> tuple[Array, Array, Array]:
    """Returns (mean of t, variance of t, variance across the ray along each axis) of conical frustums.

    Args:
      t0: [...] near ends, world units.
      t1: [...] far ends.
      footprint: [...] radius of the cone at t = 1.
    """
    middle, half = 0.5 * (t0 + t1), 0.5 * (t1 - t0)
    # Ratios of squares, so that 1e6 raised to the fourth power is never formed.
    below = jnp.maximum(3.0 * jnp.square(middle) + jnp.square(half), _TINY)
    share = jnp.square(half) / below  # at most 1
    mean = middle + 2.0 * middle * share
    along = jnp.square(half) / 3.0 - (4.0 / 15.0) * share**2 * (12.0 * jnp.square(middle) - jnp.square(half))
    across = 0.25 * jnp.square(middle) + (5.0 / 12.0) * jnp.square(half) - (4.0 / 15.0) * share * jnp.square(half)
    return mean, jnp.maximum(along, 0.0), jnp.square(footprint) * jnp.maximum(across, 0.0)


def cast_gaussians(rays: Rays, intervals: Intervals | PackedIntervals, *, shape: str = "cone") -> Gaussians:
    """The Gaussians of conical frustums, or of cylinders.

    Args:
      rays: [N].
      intervals: dense [N, S] or packed [M].
      shape: "cone", or "cylinder", whose radius is the cone's in the middle (for rays that do not diverge).

    Returns:
      Gaussians of batch shape [N, S] or [M], world units.

    Raises:
      UserError: there is no such shape.

    Barron et al. 2021, Mip-NeRF, Eqs. 7-8.
    """
    origins, directions, footprint, t0, t1 = _along(rays, intervals)
    if shape == "cone":
        mean, along, across = frustum_moments(t0, t1, footprint)
    elif shape == "cylinder":
        mean, along = 0.5 * (t0 + t1), jnp.square(t1 - t0) / 12.0
        across = jnp.square(footprint * mean) / 4.0
    else:
        raise UserError("no such shape of a ray", field="shape", found=shape, expected="cone or cylinder")
    outer = directions[..., :, None] * directions[..., None, :]
    unit = jnp.eye(3, dtype=outer.dtype).reshape((1,) * (outer.ndim - 2) + (3, 3))
    covariances = along[..., None, None] * outer + across[..., None, None] * (unit - outer)
    return Gaussians(means=origins + mean[..., None] * directions, covariances=covariances)


def cast_multisamples(key: Array | None, rays: Rays, intervals: Intervals | PackedIntervals) -> Multisamples:
    """Six isotropic samples per frustum, on a twisted hexagon about the axis, with the frustum's mean and covariance.

      t_j = t0 + h (t1^2 + 2 m^2 + (3/sqrt 7)(2 j/5 - 1) sqrt((h^2 - m^2)^2 + 4 m^4)) / (h^2 + 3 m^2),  j = 0 .. 5

    lies at the distance r t_j / sqrt 2 from the axis, at the angles (pi/3)(0, 2, 4, 3, 5, 1). Every pattern is turned
    by a random angle and mirrored at random; without a key every other one is mirrored and turned by 30 degrees.

    Args:
      key: a key, of which each ray's own is made, or None.
      rays: [N].
      intervals: dense [N, S] or packed [M].

    Returns:
      Multisamples of batch shape [N, S] or [M], six each, world units.

    Barron et al. 2023, Zip-NeRF, section 2 and supplement.
    """
    origins, directions, footprint, t0, t1 = _along(rays, intervals)
    middle, half = 0.5 * (t0 + t1), 0.5 * (t1 - t0)
    share = half / jnp.maximum(jnp.square(half) + 3.0 * jnp.square(middle), _TINY)
    # sqrt((h^2 - m^2)^2 + 4 m^4) by a scale that the root cannot overflow or vanish at.
    peak = jnp.maximum(jnp.square(middle), _TINY)
    root = peak * jnp.sqrt(jnp.square(jnp.square(half) / peak - 1.0) + 4.0)
    place = (3.0 / math.sqrt(7.0)) * (2.0 * np.arange(_SAMPLES, dtype=np.float32) / (_SAMPLES - 1) - 1.0)
    place = place.reshape((1,) * t0.ndim + (-1,))
    center = jnp.square(t1) + 2.0 * jnp.square(middle)
    t = t0[..., None] + share[..., None] * (center[..., None] + place * root[..., None])
    distance = footprint[..., None] * t * math.sqrt(0.5)
    angles = _turned(key, rays, intervals)
    first, second = _basis(directions)
    across = jnp.cos(angles)[..., None] * first[..., None, :] + jnp.sin(angles)[..., None] * second[..., None, :]
    positions = origins[..., None, :] + t[..., None] * directions[..., None, :] + distance[..., None] * across
    return Multisamples(positions=positions, deviations=SPREAD * distance)


def _along(rays: Rays, intervals: Intervals | PackedIntervals) -> tuple[Array, ...]:
    """Returns origins, directions, footprints, near and far ends, of shapes that broadcast to the intervals'."""
    if isinstance(intervals, PackedIntervals):
        owned = (leaf.at[intervals.ray].get(mode="clip") for leaf in (rays.origins, rays.directions, rays.footprint))
        return *owned, intervals.t0, intervals.t1
    t = intervals.t
    footprint = jnp.broadcast_to(rays.footprint[..., None], t[..., 1:].shape)
    origins = jnp.broadcast_to(rays.origins[..., None, :], (*footprint.shape, 3))
    directions = jnp.broadcast_to(rays.directions[..., None, :], (*footprint.shape, 3))
    return origins, directions, footprint, t[..., :-1], t[..., 1:]


def _turned(key: Array | None, rays: Rays, intervals: Intervals | PackedIntervals) -> Array:
    """The angles [..., 6] of every pattern."""
    packed = isinstance(intervals, PackedIntervals)
    if packed:
        lane = jnp.arange(intervals.t0.shape[0], dtype=jnp.int32)
        begin = intervals.start.at[intervals.ray].get(mode="fill", fill_value=0)
        number = lane - begin
    else:
        number = jnp.broadcast_to(jnp.arange(intervals.count, dtype=jnp.int32), intervals.t[..., 1:].shape)
    if key is None:
        odd = (number % 2).astype(jnp.float32)
        turn, mirror = odd * (math.pi / 6.0), 1.0 - 2.0 * odd
    elif packed:  # one turn per ray, then the golden angle from interval to interval
        own = ray_uniform(key, rays.index, (2,)).at[intervals.ray].get(mode="clip")
        turn = 2.0 * math.pi * jnp.mod(own[..., 0] + 0.38196601 * number.astype(jnp.float32), 1.0)
        mirror = jnp.where((own[..., 1] < 0.5) ^ (number % 2 == 1), 1.0, -1.0)
    else:
        own = ray_uniform(key, rays.index, (intervals.count, 2))
        turn, mirror = 2.0 * math.pi * own[..., 0], jnp.where(own[..., 1] < 0.5, 1.0, -1.0)
    return turn[..., None] + mirror[..., None] * _ANGLES.reshape((1,) * number.ndim + (-1,))


def _basis(directions: Array) -> tuple[Array, Array]:
    """Two unit vectors [..., 3] at right angles to unit directions and to each other, without a branch.

    Duff et al. 2017, Building an Orthonormal Basis, Revisited.
    """
    x, y, z = (directions[..., axis] for axis in range(3))
    sign = jnp.where(z >= 0.0, 1.0, -1.0)
    a = -1.0 / (sign + z)
    b = x * y * a
    first = jnp.stack([1.0 + sign * x * x * a, sign * b, -sign * x], axis=-1)
    second = jnp.stack([b, sign + y * y * a, -y], axis=-1)
    return first, second
