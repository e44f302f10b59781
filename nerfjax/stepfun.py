"""Calculus of step functions on a ray.

Notation: ``t`` [..., S+1] are sorted edges (in world units or in normalized ``s``, all the same here), ``w`` [..., S]
are weights: the integral of the function over each step; ``p = w / (t_{i+1} - t_i)`` is its height (pdf); ``cdf``
[..., S+1] its normalized integral at the edges, from 0 to 1. ``u`` [..., n] are positions in [0, 1) of the cdf. All
functions act on the last axis; leading axes are batches and broadcast. Steps may have zero width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
from jax import lax
from jaxtyping import Float, Int

from nerfjax import numerics
from nerfjax.types import Array

Edges = Float[Array, "... E"]
Steps = Float[Array, "... E-1"]
Values = Float[Array, "... n"]
Jitter = Float[Array, "... _"] | None

U_MAX = 1.0 - 2.0**-24  # the largest float32 below 1: u = 1 would point past the last step
MASS_MIN = 1e-30  # below it, weights count as all zero


def pdf_from_weights(t: Edges, w: Steps) -> Steps:
    """Heights [..., S] ``p_i = w_i / (t_{i+1} - t_i)`` of weights ``w`` [..., S]; 0 for steps of zero width."""
    return numerics.safe_divide(w, jnp.diff(t))


def weights_from_pdf(t: Edges, p: Steps) -> Steps:
    """Weights [..., S] ``w_i = p_i (t_{i+1} - t_i)`` of heights ``p`` [..., S]: the inverse of ``pdf_from_weights``."""
    return p * jnp.diff(t)


def _integrate(w: Array) -> Array:
    """[..., S+1] sums of the weights before each edge."""
    return jnp.concatenate([jnp.zeros_like(w[..., :1]), jnp.cumsum(w, axis=-1)], axis=-1)


def cdf_from_weights(w: Float[Array, "... S"], *, padding: float = 0.0) -> Float[Array, "... S+1"]:
    """Normalized integral at the edges; weights that are all zero count as all equal.

    Args:
      w: [..., S] weights, not negative.
      padding: added to every weight, so that no step is unreachable.

    Returns:
      [..., S+1], exactly 0 and 1 at the ends and non-decreasing.
    """
    w = w + padding
    total = jnp.sum(w, axis=-1, keepdims=True)
    empty = total <= MASS_MIN
    share = jnp.where(empty, 1.0 / w.shape[-1], w / jnp.where(empty, 1.0, total))
    inner = jnp.minimum(jnp.cumsum(share[..., :-1], axis=-1), 1.0)
    # A parallel prefix sum may step back by one rounding error: cummax.
    inner = lax.cummax(inner, axis=inner.ndim - 1)
    zero = jnp.zeros_like(share[..., :1])
    return jnp.concatenate([zero, inner, zero + 1.0], axis=-1)


# ---------------------------------------------------------------------------- lookup

# How to find the step of a position. Measured on 2 CPU cores, 2048 rays x 64 steps x 33 samples, whole inversion:
# binary search unrolled 0.8 ms, as a loop 1.2 ms, comparing all and summing 1.1 ms, searchsorted's "sort" 12 ms,
# masked maximum and minimum instead of gathers 16 ms. Comparing all grows with S * n but has no gathers, which are
# what TPUs are slow at: "auto" compares there and searches elsewhere. All give the same numbers.
LOOKUP_METHODS = ("auto", "search", "compare")


def _same_rank(*arrays: Array) -> tuple[Array, ...]:
    """Leading axes of length 1 where they lack, since rank promotion is not left to chance in this code base."""
    rank = max(x.ndim for x in arrays)
    return tuple(x.reshape((1,) * (rank - x.ndim) + x.shape) for x in arrays)


def _per_ray(one_ray: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """Applies a function of two vectors over leading axes that broadcast."""
    return jnp.vectorize(one_ray, signature="(s),(n)->(n)")(*_same_rank(a, b))


def _search(edges: Array, x: Array, side: str) -> Array:
    return jnp.searchsorted(edges, x, side=side, method="scan_unrolled").astype(jnp.int32)


def _compare(edges: Array, x: Array, side: str) -> Array:
    before = edges[None, :] <= x[:, None] if side == "right" else edges[None, :] < x[:, None]
    return jnp.sum(before, axis=-1, dtype=jnp.int32)


def _take(values: Array, index: Array) -> Array:
    return _per_ray(lambda v, i: v.at[i].get(mode="promise_in_bounds"), values, index)


def count_before(edges: Edges, x: Values, *, side: str = "right", method: str = "auto") -> Int[Array, "... n"]:
    """Number of edges ``<= x`` (side "right") or ``< x`` (side "left").

    Args:
      edges: [..., S+1] sorted.
      x: [..., n].
      side: "right" or "left".
      method: "auto", "search" or "compare".

    Returns:
      [..., n] int32.
    """
    edges, x = lax.stop_gradient(edges), lax.stop_gradient(x)
    search, compare = (partial(_per_ray, partial(count, side=side)) for count in (_search, _compare))
    if method == "auto":
        count = lax.platform_dependent(edges, x, tpu=compare, default=search)
    else:
        count = {"search": search, "compare": compare}[method](edges, x)
    # Otherwise XLA for CPU fuses the search into each of its uses and repeats it there: dilate 32 ms instead of 16.
    return lax.optimization_barrier(count)


def interpolate(x: Values, xp: Edges, fp: Edges, *, method: str = "auto") -> Values:
    """Piecewise linear interpolation, constant outside; where ``xp`` repeats, the function jumps.

    The result is sorted if ``x`` and ``fp`` are.

    Args:
      x: [..., n] where to evaluate.
      xp: [..., S+1] sorted nodes.
      fp: [..., S+1] values at the nodes.
      method: see ``count_before``.

    Returns:
      [..., n].
    """
    x, xp, fp = _same_rank(x, xp, fp)
    index = jnp.clip(count_before(xp, x, method=method) - 1, 0, xp.shape[-1] - 2)
    x0, x1, f0, f1 = _take(xp, index), _take(xp, index + 1), _take(fp, index), _take(fp, index + 1)
    fraction = jnp.clip(numerics.safe_divide(x - x0, x1 - x0), 0.0, 1.0)
    # The clip keeps a rounding error from carrying a value past its neighbour.
    return jnp.clip(f0 + fraction * (f1 - f0), jnp.minimum(f0, f1), jnp.maximum(f0, f1))


# ---------------------------------------------------------------------------- sampling


def stratified_uniform(jitter: Jitter, n: int) -> Float[Array, "... {n}"]:
    """One position in each of ``n`` equal strata of [0, 1): ``u_i = (i + jitter_i) / n``.

    Args:
      jitter: [..., n] uniform in [0, 1), one per stratum; [..., 1], one per ray; None for the midpoints.
      n: static number of strata.

    Returns:
      [..., n] sorted, at most 1 - 2^-24; [n] without jitter.
    """
    strata = jnp.arange(n, dtype=jnp.float32)
    if jitter is None:
        return (strata + 0.5) / n
    strata = strata.reshape((1,) * (jitter.ndim - 1) + (n,))
    return jnp.minimum((strata + jitter) / n, U_MAX)


def invert_cdf(u: Values, t: Edges, cdf: Edges, *, method: str = "auto") -> Values:
    """Inverse of a piecewise linear cdf: ``t`` with ``cdf(t) = u``; steps without mass are skipped.

    Args:
      u: [..., n] in [0, 1).
      t: [..., S+1] edges.
      cdf: [..., S+1], from ``cdf_from_weights``.
      method: see ``count_before``.

    Returns:
      [..., n], sorted if u is, always within the edges.
    """
    return interpolate(u, cdf, t, method=method)


def sample(jitter: Jitter, t: Edges, w: Steps, n: int, *, padding: float = 0.0) -> Float[Array, "... {n}"]:
    """Stratified samples of a step function, distributed as its weights.

    Args:
      jitter: [..., n], [..., 1] or None; see ``stratified_uniform``.
      t: [..., S+1] edges.
      w: [..., S] weights, in any scale.
      n: static number of samples.
      padding: added to the weight of every step that is not of zero width.

    Returns:
      [..., n] sorted.

    Mildenhall et al. 2020, NeRF, section 5.2.
    """
    cdf = cdf_from_weights(jnp.where(jnp.diff(t) > 0, w + padding, 0.0))
    return invert_cdf(stratified_uniform(jitter, n), t, cdf)


def sample_intervals(jitter: Jitter, t: Edges, w: Steps, n: int, *, padding: float = 0.0) -> Float[Array, "... {n}+1"]:
    """Edges of ``n`` intervals that are distributed as the weights.

    Samples are the centres; inner edges are midpoints of neighbouring centres, the outer ones their reflections at
    the outer centres, clipped to the domain ``[t_0, t_S]``. One interval is the whole domain.

    Args:
      jitter: [..., n], [..., 1] or None; see ``stratified_uniform``.
      t: [..., S+1] edges.
      w: [..., S] weights, in any scale.
      n: static number of intervals.
      padding: added to the weight of every step that is not of zero width.

    Returns:
      [..., n+1] sorted, within the domain.

    Barron et al. 2022, Mip-NeRF 360, section 3 and supplement.
    """
    centers = sample(jitter, t, w, n, padding=padding)
    lower, upper = (jnp.broadcast_to(end, (*centers.shape[:-1], 1)) for end in (t[..., :1], t[..., -1:]))
    if n == 1:
        return jnp.concatenate([lower, upper], axis=-1)
    inner = 0.5 * (centers[..., 1:] + centers[..., :-1])
    first = 2.0 * centers[..., :1] - inner[..., :1]
    last = 2.0 * centers[..., -1:] - inner[..., -1:]
    return jnp.clip(jnp.concatenate([first, inner, last], axis=-1), lower, upper)


def weighted_percentile(t: Edges, w: Steps, q: Values) -> Values:
    """Percentiles [..., n] of a step function, ``q`` [..., n] in [0, 100]: the median depth is q = 50."""
    return invert_cdf(q / 100.0, t, cdf_from_weights(w))


def merge_edges(a: Float[Array, "... A"], b: Float[Array, "... B"]) -> Float[Array, "... A+B"]:
    """Sorted union [..., A+B] of two sorted lists of edges, ``a`` [..., A] and ``b`` [..., B].

    ``a`` followed by ``b`` reversed rises and then falls, and log2 stages of minima and maxima sort such a list (the
    bitonic merge; Batcher 1968, Sorting networks and their applications).
    """
    # 2.3 ms for 65 + 128 edges of 2048 rays on 2 CPU cores, by sorting 18 ms; no gather and no scatter.
    batch, count = a.shape[:-1], a.shape[-1] + b.shape[-1]
    half = 1 << (count - 1).bit_length() - 1
    padding = jnp.full((*batch, 2 * half - count), jnp.inf, a.dtype)
    edges = jnp.concatenate([a, padding, jnp.flip(b, axis=-1)], axis=-1)
    while half:
        pairs = edges.reshape(*batch, -1, 2, half)
        low, high = pairs[..., 0, :], pairs[..., 1, :]
        edges = jnp.stack([jnp.minimum(low, high), jnp.maximum(low, high)], axis=-2).reshape(*batch, -1)
        half //= 2
    return edges[..., :count]


# ---------------------------------------------------------------------------- shaping the weights


def anneal(w: Float[Array, "... S"], fraction: Array | float, *, slope: float = 10.0) -> Float[Array, "... S"]:
    """Weights flattened early in training: ``w ** b`` with Schlick's bias ``b = slope f / ((slope - 1) f + 1)``.

    Args:
      w: [..., S] weights.
      fraction: f, share of the annealing that is over, clipped to [0, 1]: at 0 all weights are 1, at 1 unchanged.
      slope: steepness of the bias at 0.

    Returns:
      [..., S], not normalized.

    Barron et al. 2022, Mip-NeRF 360, supplement (annealing).
    """
    fraction = jnp.clip(jnp.asarray(fraction, w.dtype), 0.0, 1.0)
    exponent = slope * fraction / ((slope - 1.0) * fraction + 1.0)
    small = w <= MASS_MIN
    return jnp.exp(exponent * jnp.where(small, jnp.log(MASS_MIN), jnp.log(jnp.where(small, 1.0, w))))


def blur_weights(w: Float[Array, "... S"]) -> Float[Array, "... S"]:
    """Widened upper envelope [..., S] of weights: ``(max(w_{i-1}, w_i) + max(w_i, w_{i+1})) / 2``, ends repeated.

    Barron et al. 2021, Mip-NeRF, section 3.1 (without its additive constant: that is the samplers' ``padding``).
    """
    padded = jnp.concatenate([w[..., :1], w, w[..., -1:]], axis=-1)
    highest = jnp.maximum(padded[..., :-1], padded[..., 1:])
    return 0.5 * (highest[..., :-1] + highest[..., 1:])


def _range_max(values: Array, first: Array, last: Array) -> Array:
    """[..., n] maxima of values[first..last], by the table of maxima over all ranges of length 2^k."""
    # A masked maximum over all steps costs 30 ms at 2048 rays x 127 x 64 on 2 CPU cores, this table 1 ms.
    size = values.shape[-1]
    table, reach = [values], 1
    while 2 * reach <= size:
        beyond = jnp.concatenate([table[-1][..., reach:], table[-1][..., :reach]], axis=-1)  # wrapped ones are not read
        table.append(jnp.maximum(table[-1], beyond))
        reach *= 2
    table = jnp.concatenate(table, axis=-1)
    level = 31 - lax.clz(last - first + 1)
    start = last - jnp.left_shift(1, level) + 1
    return jnp.maximum(_take(table, level * size + first), _take(table, level * size + start))


def dilate(
    t: Edges, w: Steps, dilation: float, *, domain: tuple[float, float]
) -> tuple[Float[Array, "... 2*E-2"], Float[Array, "... 2*E-3"]]:
    """Max-dilation: the step function whose height at x is the largest height within ``dilation`` of x.

    Args:
      t: [..., S+1] edges.
      w: [..., S] weights.
      dilation: half-width of the window, in the unit of t.
      domain: (lower, upper) to which the new edges are clipped.

    Returns:
      (edges [..., 2 S], weights [..., 2 S - 1]); the weights add up to more than before.

    Barron et al. 2022, Mip-NeRF 360, supplement (dilation).
    """
    # The envelope changes only where a widened step begins or ends: those 2 S edges are all.
    begins, ends = t[..., :-1] - dilation, t[..., 1:] + dilation
    edges = jnp.clip(merge_edges(begins, ends), domain[0], domain[1])
    middle = 0.5 * (edges[..., :-1] + edges[..., 1:])
    last = jnp.maximum(count_before(begins, middle) - 1, 0)
    first = jnp.minimum(count_before(ends, middle), last)
    return edges, weights_from_pdf(edges, _range_max(pdf_from_weights(t, w), first, last))


# ---------------------------------------------------------------------------- moving weights to other edges


def resample(t_new: Float[Array, "... N"], t: Edges, w: Steps) -> Float[Array, "... N-1"]:
    """Weights of the same step function on other edges: integrals are kept, outside there is nothing.

    Args:
      t_new: [..., N+1] edges.
      t: [..., S+1] edges.
      w: [..., S] weights.

    Returns:
      [..., N].
    """
    return jnp.maximum(jnp.diff(interpolate(t_new, t, _integrate(w))), 0.0)


def bound(t: Float[Array, "... N"], t_p: Edges, w_p: Steps) -> Float[Array, "... N-1"]:
    """Upper bound of the weight of each interval that a proposal allows.

    The sum of the weights of all proposal steps that overlap the interval (a common end is no overlap).

    Args:
      t: [..., S+1] edges.
      t_p: [..., P+1] edges of the proposal.
      w_p: [..., P] weights of the proposal.

    Returns:
      [..., S].

    Barron et al. 2022, Mip-NeRF 360, Eq. 12.
    """
    # By prefix sums: with the gradient 2.1 ms at 2048 x 32 x 64 on 2 CPU cores; by a mask of overlaps 11 ms.
    integral = _integrate(w_p)
    first = jnp.maximum(count_before(t_p, t[..., :-1], side="right") - 1, 0)
    end = jnp.minimum(count_before(t_p, t[..., 1:], side="left"), w_p.shape[-1])
    return _take(integral, end) - _take(integral, jnp.minimum(first, end))


def blur_resample(t_new: Float[Array, "... N"], t: Edges, w: Steps, half_width: float) -> Float[Array, "... N-1"]:
    """Weights on other edges of a step function that was convolved with a box of unit mass.

    The integral of the blurred function up to x is ``sum_i w_i mean(R(z), x - t_{i+1} <= z <= x - t_i)`` with the
    ramp ``R(z) = clip((z + r) / (2 r), 0, 1)``, ``r = half_width``.

    Args:
      t_new: [..., N+1] edges.
      t: [..., S+1] edges.
      w: [..., S] weights.
      half_width: half the width of the box, in the unit of t.

    Returns:
      [..., N].

    Barron et al. 2023, Zip-NeRF, section 3 (anti-aliased interlevel loss).
    """
    # In closed form, term by term: double sums over sorted nodes and a quadratic interpolation divide the rounding
    # error of a prefix sum by the width of the box (3e-5 at 0.003).
    r = half_width
    t_new, t, w = _same_rank(t_new, t, w)
    z = t_new[..., :, None] - t[..., None, :]
    inside = jnp.clip(z, -r, r)
    below = inside[..., :-1] - inside[..., 1:]  # length of the mean's range on the ramp, then beyond it
    beyond = jnp.maximum(z[..., :-1], r) - jnp.maximum(z[..., 1:], r)
    ramp = below * (0.5 * (inside[..., :-1] + inside[..., 1:]) + r) / (2.0 * r)
    length = z[..., :-1] - z[..., 1:]
    flat = length <= numerics.DIVISOR_MIN
    share = jnp.where(flat, (inside[..., 1:] + r) / (2.0 * r), (ramp + beyond) / jnp.where(flat, 1.0, length))
    return jnp.diff(jnp.sum(share * w[..., None, :], axis=-1))
