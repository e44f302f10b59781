"""Procedural scenes made of constant-density primitives, integrated exactly (float64 NumPy).

A primitive is a unit shape seen through an affine map x' = A x + b: a ball |x'| < 1, a cube max|x'_i| < 1 (with zero
rows of A: an infinite slab), a cylinder x'_0² + x'_1² < 1, |x'_2| < 1, or the outside of a ball. A line meets each in
one interval [entry, exit]. Its density σ_p is constant, and its colour is a sum of sinusoids of position,
c_p(x) = base + Σ_k amplitude_k sin(wave_k · x + phase_k). Where primitives overlap, densities add and colours are
averaged by density.

Between neighbouring ends of intervals the density σ = Σ_p σ_p of a ray is constant, so that with T_a the
transmittance at the segment's start a, L its length, θ = wave · x(a) + phase and κ = wave · direction

    colour = T_a Σ_p σ_p ∫_0^L exp(-σ u) c_p(x(a + u)) du,
    ∫_0^L exp(-σ u) sin(θ + κ u) du = Im[exp(iθ) (exp(zL) - 1) / z],   z = iκ - σ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

BALL, CUBE, CYLINDER, OUTSIDE = range(4)
_CHUNK = 8192
_INVISIBLE = 1e-14  # transmittance beyond which nothing changes a float64 colour


@dataclass(frozen=True)
class Primitives:
    """P primitives with K sinusoids each, float64.

    Attributes:
      kind: [P] BALL, CUBE, CYLINDER or OUTSIDE.
      matrix, offset: [P, 3, 3], [P, 3]: x' = matrix x + offset.
      density: [P] 1 / world unit.
      base: [P, 3] mean colour.
      amplitude: [P, K, 3] of the sinusoids.
      wave: [P, K, 3] radians per world unit.
      phase: [P, K] radians.
    """

    kind: np.ndarray
    matrix: np.ndarray
    offset: np.ndarray
    density: np.ndarray
    base: np.ndarray
    amplitude: np.ndarray
    wave: np.ndarray
    phase: np.ndarray


class ExactRays(NamedTuple):
    """Exact integrals of N rays.

    Attributes:
      color: [N, 3] light from the scene, background (if given) included.
      transmittance: [N] of the whole ray, from near to far.
      accumulation: [N] opacity, 1 - transmittance.
      depth: [N] expected distance, with the light that passes through at ``far``.
    """

    color: np.ndarray
    transmittance: np.ndarray
    accumulation: np.ndarray
    depth: np.ndarray


class Segments(NamedTuple):
    """Stretches of constant density of N rays that meet up to H primitives.

    Attributes:
      start, length: [N, 2H - 1] world units.
      density: [N, 2H - 1] of all primitives together.
      active: [N, 2H - 1, H] which of the ray's primitives fill the stretch.
      primitive: [N, H] the primitives that the ray meets.
    """

    start: np.ndarray
    length: np.ndarray
    density: np.ndarray
    active: np.ndarray
    primitive: np.ndarray


def intersect(primitives: Primitives, origins, directions, near, far) -> tuple[np.ndarray, np.ndarray]:
    """Returns [N, P] entry and exit distances within [near, far]; exit <= entry where the ray misses.

    Rays meet ``OUTSIDE`` primitives from within only.
    """
    # Components first: sums over a leading axis of three are several times faster.
    o, d = (np.ascontiguousarray(np.asarray(x, np.float64).T) for x in (origins, directions))
    entry = np.empty((len(primitives.kind), o.shape[1]))
    exit_ = np.empty_like(entry)
    for p, kind in enumerate(primitives.kind):
        local = primitives.matrix[p] @ o + primitives.offset[p][:, None], primitives.matrix[p] @ d
        if kind == CUBE:
            entry[p], exit_[p] = _between_planes(*local)
        elif kind == CYLINDER:
            side, caps = _inside_ball(*(x[:2] for x in local)), _between_planes(*(x[2:] for x in local))
            entry[p], exit_[p] = np.maximum(side[0], caps[0]), np.minimum(side[1], caps[1])
        else:
            entry[p], exit_[p] = _inside_ball(*local)
            if kind == OUTSIDE:
                entry[p], exit_[p] = exit_[p], np.inf
    near, far = (np.broadcast_to(np.asarray(x, np.float64), o.shape[1]) for x in (near, far))
    return np.clip(entry, near, far).T, np.clip(exit_, near, far).T


def _inside_ball(o: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Entry and exit [N] of the unit ball (or disc) for rays [2|3, N]; (inf, -inf) for a miss."""
    a, b, c = (d * d).sum(0), (o * d).sum(0), (o * o).sum(0) - 1.0
    discriminant = b * b - a * c
    # A ray along a cylinder's axis (a = 0) is inside for ever or never.
    along = a < 1e-300
    root = np.where(along, np.inf, np.sqrt(np.maximum(discriminant, 0.0)))
    inverse = 1.0 / np.where(along, 1.0, a)
    miss = np.where(along, c >= 0, discriminant <= 0)
    return np.where(miss, np.inf, (-b - root) * inverse), np.where(miss, -np.inf, (root - b) * inverse)


def _between_planes(o: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Entry and exit [N] of |x_i| < 1 for all i, for rays [k, N]; entry > exit for a miss."""
    parallel = d == 0
    if not parallel.any():
        step, offset = np.abs(1.0 / d), -o / d
        return (offset - step).max(0), (offset + step).min(0)
    inverse = 1.0 / np.where(parallel, 1.0, d)
    step = np.where(parallel, np.where(np.abs(o) >= 1, -np.inf, np.inf), np.abs(inverse))
    offset = np.where(parallel, 0.0, -o * inverse)
    return (offset - step).max(0), (offset + step).min(0)


def optical_depth(primitives: Primitives, origins, directions, near, t) -> np.ndarray:
    """Returns the exact integral of the density from near to each distance.

    Args:
      primitives: the scene.
      origins: [N, 3].
      directions: [N, 3] of unit length.
      near: scalar or [N].
      t: [N, K] distances >= near.

    Returns:
      [N, K].
    """
    t = np.asarray(t, np.float64)
    entry, exit_ = intersect(primitives, origins, directions, near, np.inf)
    depth = np.zeros_like(t)
    for p in range(len(primitives.kind)):
        hit = exit_[:, p] > entry[:, p]
        first, last = entry[hit, p, None], exit_[hit, p, None]
        depth[hit] += primitives.density[p] * (np.clip(t[hit], first, last) - first)
    return depth


def exact_weights(primitives: Primitives, origins, directions, t) -> np.ndarray:
    """Returns the exact weights [N, S] of intervals with edges t [N, S+1]: w_i = T(t_i) - T(t_{i+1})."""
    t = np.asarray(t, np.float64)
    depth = optical_depth(primitives, origins, directions, t[:, 0], t)
    return -np.exp(-depth[:, :-1]) * np.expm1(depth[:, :-1] - depth[:, 1:])


def segments_of(primitives: Primitives, origins, directions, near, far) -> Segments:
    """Cuts rays at the ends of all their primitives' intervals."""
    entry, exit_ = intersect(primitives, origins, directions, near, far)
    hit = exit_ > entry
    most = max(1, int(hit.sum(-1).max(initial=0)))
    primitive = np.argsort(np.where(hit, entry, np.inf), axis=-1, kind="stable")[:, :most]
    hit, entry, exit_ = (np.take_along_axis(x, primitive, -1) for x in (hit, entry, exit_))
    cuts = np.sort(np.where(np.concatenate([hit, hit], -1), np.concatenate([entry, exit_], -1), exit_.max()), axis=-1)
    start, length = cuts[:, :-1], np.diff(cuts, axis=-1)
    middle = (start + 0.5 * length)[..., None]
    active = hit[:, None] & (entry[:, None] <= middle) & (middle < exit_[:, None]) & (length[..., None] > 0)
    density = np.einsum("nsh,nh->ns", active.astype(np.float64), primitives.density[primitive])
    return Segments(start, length, density, active, primitive)


def render_rays(primitives: Primitives, origins, directions, near, far, *, background=None) -> ExactRays:
    """Integrates rays in closed form.

    Args:
      primitives: the scene.
      origins: [N, 3].
      directions: [N, 3] of unit length.
      near: scalar or [N].
      far: scalar or [N], finite.
      background: [3] colour seen through the scene; None = black.
    """
    origins, directions = np.asarray(origins, np.float64), np.asarray(directions, np.float64)
    near, far = (np.broadcast_to(np.asarray(x, np.float64), len(origins)) for x in (near, far))
    parts = []
    for begin in range(0, max(len(origins), 1), _CHUNK):
        rows = slice(begin, begin + _CHUNK)
        parts.append(_render_chunk(primitives, origins[rows], directions[rows], near[rows], far[rows]))
    result = ExactRays(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    if background is None:
        return result
    return result._replace(color=result.color + result.transmittance[:, None] * np.asarray(background, np.float64))


def _render_chunk(primitives: Primitives, origins, directions, near, far) -> ExactRays:
    segments = segments_of(primitives, origins, directions, near, far)
    tau = segments.density * segments.length
    total = tau.sum(-1)
    through = np.exp(-(np.cumsum(tau, -1) - tau))
    absorbed = -np.expm1(-tau)
    # Mean distance of the light of a segment: a (1 - e^-τ) + (1 - e^-τ (1 + τ)) / σ.
    own = np.where(segments.density > 0, absorbed - tau * np.exp(-tau), 0.0) / np.maximum(segments.density, 1e-300)
    depth = (through * (segments.start * absorbed + own)).sum(-1) + np.exp(-total) * far
    color = _color(primitives, segments, through, origins, directions)
    return ExactRays(color, np.exp(-total), -np.expm1(-total), depth)


def _color(primitives: Primitives, segments: Segments, through, origins, directions) -> np.ndarray:
    """Sums the colour integrals of the (ray, segment, primitive) triples that can be seen."""
    ray, segment, slot = np.nonzero(segments.active & (through > _INVISIBLE)[..., None])
    p = segments.primitive[ray, slot]
    start, length = segments.start[ray, segment], segments.length[ray, segment]
    sigma = segments.density[ray, segment][:, None]
    direction, origin = directions[ray], origins[ray]
    plain = -np.expm1(-sigma[:, 0] * length) / sigma[:, 0]
    kappa = np.einsum("mkc,mc->mk", primitives.wave[p], direction)
    position = origin + start[:, None] * direction
    theta = np.einsum("mkc,mc->mk", primitives.wave[p], position) + primitives.phase[p]
    # Im[(exp(iθ + zL) - exp(iθ)) / z] in real arithmetic, which is twice as fast.
    end, fade = theta + kappa * length[:, None], np.exp(-sigma * length[:, None])
    real, imaginary = fade * np.cos(end) - np.cos(theta), fade * np.sin(end) - np.sin(theta)
    integral = -(sigma * imaginary + kappa * real) / (sigma**2 + kappa**2)
    light = primitives.base[p] * plain[:, None] + np.einsum("mk,mkc->mc", integral, primitives.amplitude[p])
    light *= (through[ray, segment] * primitives.density[p])[:, None]
    return np.stack([np.bincount(ray, light[:, c], len(origins)) for c in range(3)], axis=-1)


def evaluate(primitives: Primitives, positions) -> tuple[np.ndarray, np.ndarray]:
    """Returns (density [...], colour [..., 3]) at points [..., 3]; the colour of empty space is black."""
    x = np.asarray(positions, np.float64)
    density, light = np.zeros(x.shape[:-1]), np.zeros(x.shape)
    for p, kind in enumerate(primitives.kind):
        local = x @ primitives.matrix[p].T + primitives.offset[p]
        square = local**2
        inside = {
            BALL: square.sum(-1) < 1,
            CUBE: square.max(-1) < 1,
            CYLINDER: (square[..., :2].sum(-1) < 1) & (square[..., 2] < 1),
            OUTSIDE: square.sum(-1) > 1,
        }[kind]
        sigma = primitives.density[p] * inside
        waves = np.sin(x @ primitives.wave[p].T + primitives.phase[p])
        density += sigma
        light += sigma[..., None] * (primitives.base[p] + waves @ primitives.amplitude[p])
    return density, light / np.maximum(density, 1e-300)[..., None]
