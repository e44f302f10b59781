"""Rays from pixels, clipped to a box, and points along them.

Notation: a ray is x(t) = o + t d with |d| = 1; N rays, S intervals, M packed intervals. The footprint r is the radius
of the pixel's cone at t = 1: a disc of radius r has the per-axis variance r^2 / 4, a pixel of side a has a^2 / 12,
so r = a 2 / sqrt(12), with a the mean spacing of neighbouring rays at unit distance (mip-NeRF, Barron et al. 2021,
Sec. 3.1). The spacing is the derivative of the direction, so that it holds for every lens.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from nerfjax.geometry.cameras import rotate, select_cameras, unproject
from nerfjax.types import Array, Cameras, Intervals, PackedIntervals, Points, Rays

_DISC_FROM_SPACING = 2.0 / math.sqrt(12.0)


def rays_from_pixels(
    cameras: Cameras, image: ArrayLike, row: ArrayLike, column: ArrayLike, *, near, far, index: ArrayLike
) -> Rays:
    """Rays through the centres of pixels.

    Args:
      cameras: of C images.
      image: [N] int32 camera of each ray.
      row: [N] int32; the ray goes through y = row + 0.5.
      column: [N] int32; the ray goes through x = column + 0.5.
      near: scalar or [N], world units.
      far: scalar or [N], world units.
      index: [N] int32 positions in the global batch.

    Returns:
      Rays of batch shape [N], ``camera_index`` = image; differentiable in the cameras' poses and intrinsics.
    """
    image, row, column, index = (jnp.asarray(value, jnp.int32) for value in (image, row, column, index))
    own = select_cameras(cameras, image)
    pixels = jnp.stack([column, row], axis=-1).astype(jnp.float32) + 0.5

    def ray(pixels):
        result = unproject(own, pixels)
        return result.directions, result.offsets

    unit = jnp.zeros_like(pixels)
    (directions, offsets), along_x = jax.jvp(ray, (pixels,), (unit.at[..., 0].set(1.0),))
    _, along_y = jax.jvp(ray, (pixels,), (unit.at[..., 1].set(1.0),))
    # A perspective pixel turns the direction, an orthographic one moves the origin: one of the two terms is zero.
    spacing = 0.5 * sum(_length(turn) + _length(shift) for turn, shift in (along_x, along_y))
    directions = rotate(own.pose, directions)
    return Rays(
        origins=own.pose[..., :, 3] + rotate(own.pose, offsets),
        directions=directions / _length(directions)[..., None],
        near=jnp.broadcast_to(jnp.asarray(near, jnp.float32), image.shape),
        far=jnp.broadcast_to(jnp.asarray(far, jnp.float32), image.shape),
        footprint=_DISC_FROM_SPACING * spacing,
        camera_index=image,
        index=index,
    )


def rays_in_box(rays: Rays, box: ArrayLike) -> Rays:
    """Clips ``near`` and ``far`` to a box.

    Args:
      rays: of any batch shape.
      box: [2, 3] lower and upper corner, world units.

    Returns:
      The rays with near < far. A ray that misses the box (within its near and far) keeps ``near`` and ends a hundred
      thousandth farther, so that it crosses next to nothing.
    """
    # A component of zero is pushed off zero: its slab then holds all of the ray or none of it, without inf * 0.
    safe = jnp.where(jnp.abs(rays.directions) < 1e-12, 1e-12, rays.directions)
    lower, upper = (jnp.expand_dims(jnp.asarray(box)[side], tuple(range(rays.near.ndim))) for side in (0, 1))
    to_lower, to_upper = (lower - rays.origins) / safe, (upper - rays.origins) / safe
    entry = jnp.maximum(jnp.max(jnp.minimum(to_lower, to_upper), axis=-1), rays.near)
    exit = jnp.minimum(jnp.min(jnp.maximum(to_lower, to_upper), axis=-1), rays.far)
    sliver = rays.near + (1e-6 + 1e-5 * jnp.abs(rays.near))
    hit = exit > entry
    return rays.replace(near=jnp.where(hit, entry, rays.near), far=jnp.where(hit, exit, sliver))


def positions(rays: Rays, t: Array) -> Array:
    """Points x = o + t d.

    Args:
      rays: of batch shape [...].
      t: [..., S] distances.

    Returns:
      [..., S, 3] world units.
    """
    return rays.origins[..., None, :] + t[..., None] * rays.directions[..., None, :]


def cast_points(rays: Rays, intervals: Intervals | PackedIntervals) -> Points:
    """Where point fields are evaluated inside intervals (``t_eval``), with the pixel's radius there.

    Args:
      rays: [N] for packed intervals, else of the batch shape of the intervals.
      intervals: dense or packed.

    Returns:
      Points of shape [..., S] or [M]; padding of packed intervals lies at the last ray's origin, radius 0.
    """
    t = intervals.t_eval
    if isinstance(intervals, PackedIntervals):
        origins, directions, footprint = (
            leaf.at[intervals.ray].get(mode="clip") for leaf in (rays.origins, rays.directions, rays.footprint)
        )
        return Points(positions=origins + t[..., None] * directions, radius=footprint * t)
    return Points(positions=positions(rays, t), radius=rays.footprint[..., None] * t)


def _length(vector: Array) -> Array:
    return jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(vector), axis=-1), 1e-30))
