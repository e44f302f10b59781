"""Numbers that stay finite, streams of randomness per ray, the order of an epoch, scans that restart at each ray.

A pixel position may exceed 2^32 while device code has no 64-bit integers, so positions are digit pairs
``high * b + low`` of uint32, with radix ``b = permutation_radix(total)``. The functions that choose pixels take
``xp``: they give the same bits in NumPy (``xp=np``, on the host) and in JAX (``xp=jnp``, traced).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Float, Int

from nerfjax.types import Array

EXP_MAX = 80.0  # exp(80) ~ 5.5e34 leaves room for a factor of 6000 in float32
EXP_GRADIENT_MAX = 15.0  # instant-ngp's bound on the argument in the gradient of its truncated exponential
DIVISOR_MIN = 1e-18  # a / b and its gradient a / b^2 stay finite in float32 for |a| < 100
PERMUTATION_TOTAL_MAX = 10**10
PERMUTATION_ROUNDS = 12  # even; small domains need more than the 4 of the theory, see tests/test_numerics.py


# ---------------------------------------------------------------------------- finite values and gradients


def named(name: str, tree: Any) -> Any:
    """Names the tensors of floating-point numbers of a tree, for whoever reads the program (``train.fault_trace``).

    The identity; compiled, nothing is left of it.
    """

    def mark(path: tuple, leaf: Array) -> Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        inner = jax.tree_util.keystr(path, simple=True, separator="/")
        return checkpoint_name(leaf, f"{name}/{inner}" if inner else name)

    return jax.tree_util.tree_map_with_path(mark, tree)


@jax.custom_jvp
def safe_exp(x: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Exponential whose value and gradient stay finite.

    ``exp(min(x, 80))`` with derivative ``exp(clip(x, -15, 15))``: the derivative neither overflows nor vanishes, so
    that a density far outside the range can come back.

    Args:
      x: [...].

    Returns:
      [...].

    Mueller et al. 2022, Instant Neural Graphics Primitives (density activation).
    """
    return jnp.exp(jnp.minimum(x, EXP_MAX))


@safe_exp.defjvp
def _safe_exp_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return safe_exp(x), dx * jnp.exp(jnp.clip(x, -EXP_GRADIENT_MAX, EXP_GRADIENT_MAX))


def safe_sqrt(x: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Square root with value 0 and gradient 0 for ``x <= 0`` (and denormal x); NaN stays NaN.

    Args:
      x: [...].

    Returns:
      [...].
    """
    small = x <= float(jnp.finfo(x.dtype).tiny)
    return jnp.where(small, 0.0, jnp.sqrt(jnp.where(small, 1.0, x)))


def safe_norm(x: Float[Array, " ..."], axis: int = -1, keepdims: bool = False) -> Float[Array, " ..."]:
    """Euclidean norm that neither over- nor underflows, with gradient 0 at 0.

    Components are divided by the largest one before they are squared: the norm does not depend on that factor, so
    it may be held constant in the gradient.

    Args:
      x: array with components along ``axis``.
      axis: axis of the components.
      keepdims: whether that axis stays, with length 1.

    Returns:
      The norms.
    """
    largest = lax.stop_gradient(jnp.max(jnp.abs(x), axis=axis, keepdims=True))
    small = largest <= float(jnp.finfo(x.dtype).tiny)
    scale = jnp.where(small, 1.0, largest)
    norm = scale * safe_sqrt(jnp.sum(jnp.square(jnp.where(small, 0.0, x / scale)), axis=axis, keepdims=True))
    return norm if keepdims else jnp.squeeze(norm, axis=axis)


def safe_divide(a: Float[Array, " ..."], b: Float[Array, " ..."]) -> Float[Array, " ..."]:
    """``a / b``, with value 0 and gradient 0 where ``|b| <= 1e-18``; NaN stays NaN.

    Args:
      a: [...].
      b: [...].

    Returns:
      [...].
    """
    small = jnp.abs(b) <= DIVISOR_MIN
    return jnp.where(small, 0.0, a / jnp.where(small, 1.0, b))


# ---------------------------------------------------------------------------- randomness of a ray


def ray_keys(key: Array, index: Int[Array, " N"]) -> Array:
    """One key per ray, a function of ``key`` and the ray's position in the global batch alone.

    Args:
      key: a key.
      index: [N] int32, ``Rays.index``.

    Returns:
      [N] keys.
    """
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(index)


def ray_uniform(key: Array, index: Int[Array, " N"], shape: tuple[int, ...]) -> Float[Array, "N ..."]:
    """Uniform numbers in [0, 1), an independent stream per ray: the same whatever batch the ray travels in.

    Args:
      key: a key.
      index: [N] int32, ``Rays.index``.
      shape: static shape of the numbers of one ray.

    Returns:
      [N, *shape] float32.
    """
    return jax.vmap(lambda k: jax.random.uniform(k, shape, jnp.float32))(ray_keys(key, index))


# ---------------------------------------------------------------------------- the order of an epoch


def permutation_radix(total: int) -> int:
    """The radix ``b = ceil(sqrt(total))`` of digit pairs that number ``total`` positions.

    Args:
      total: number of positions, 1 to 10^10.

    Returns:
      b; ``a = ceil(total / b)`` high digits make the domain ``a * b >= total`` the tightest for this radix.
    """
    if not 1 <= total <= PERMUTATION_TOTAL_MAX:
        raise ValueError(f"total must lie in 1..{PERMUTATION_TOTAL_MAX}, got {total}")
    return math.isqrt(total - 1) + 1


def digits_of(position, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Splits positions into digits, on the host.

    Args:
      position: int or int64 array of positions.
      total: number of positions of the whole sequence.

    Returns:
      (high, low), uint32.
    """
    high, low = np.divmod(np.asarray(position, np.int64), permutation_radix(total))
    return high.astype(np.uint32), low.astype(np.uint32)


def _as_uint32(x, xp):
    """An int (of any size, taken modulo 2^32) or an integer array as uint32."""
    return xp.asarray(np.uint32(x & 0xFFFFFFFF)) if isinstance(x, int) else xp.asarray(x).astype(xp.uint32)


def _hash_uint32(x):
    """The finalizer of MurmurHash3 (public domain): a bijection of uint32 in which each bit moves all others."""
    for shift, multiplier in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(multiplier)
    return x ^ (x >> np.uint32(16))


def permutation_keys(seed, epoch, *, xp=jnp):
    """Round keys of one epoch's permutation.

    Args:
      seed: int, or a scalar uint32 or int32.
      epoch: the same.
      xp: ``jnp`` or ``np``.

    Returns:
      [PERMUTATION_ROUNDS] uint32: a hash of (seed, epoch, round).
    """
    with np.errstate(over="ignore"):  # wrapping is wanted; NumPy warns of it for scalars
        rounds = xp.arange(1, PERMUTATION_ROUNDS + 1, dtype=xp.uint32) * np.uint32(0x9E3779B9)
        state = _hash_uint32(_as_uint32(seed, xp) ^ np.uint32(0x6E657266))
        state = _hash_uint32(state + _as_uint32(epoch, xp) * np.uint32(0x85EBCA77))
        return _hash_uint32(rounds ^ state) ^ _hash_uint32(rounds + state)


def permute_index(high, low, *, total: int, keys, xp=jnp):
    """Where a position stands after the shuffle that ``keys`` name: a bijection of [0, total), without any table.

    A mixed-radix Feistel network permutes the digit pairs of the domain ``a * b``: rounds add a hash of one digit to
    the other, modulo its radix. A result outside [0, total) is sent through again (cycle walking) until it falls
    inside, which keeps the map a bijection; less than one in ``sqrt(total)`` needs it. Pairs outside [0, total) come
    back unchanged, so that the walk ends for any input.

    Args:
      high: [...] uint32 high digits of the positions.
      low: [...] uint32 low digits.
      total: static number of positions, 1 to 10^10.
      keys: [PERMUTATION_ROUNDS] uint32, from ``permutation_keys``.
      xp: ``jnp`` or ``np``; both give the same.

    Returns:
      (high, low), uint32.

    Black and Rogaway 2002, Ciphers with Arbitrary Finite Domains (generalized Feistel and cycle walking).
    """
    radix = permutation_radix(total)
    high_radix = np.uint32(-(-total // radix))
    total_high, total_low, radix = np.uint32(total // radix), np.uint32(total % radix), np.uint32(radix)

    def inside(h, m):
        return (h < total_high) | ((h == total_high) & (m < total_low))

    def walk(state):
        h0, m0, active = state
        h, m = h0, m0
        for i in range(0, PERMUTATION_ROUNDS, 2):
            h = (h + _hash_uint32(m ^ keys[i]) % high_radix) % high_radix
            m = (m + _hash_uint32(h ^ keys[i + 1]) % radix) % radix
        return xp.where(active, h, h0), xp.where(active, m, m0), active & ~inside(h, m)

    state = (high, low, inside(high, low))
    if xp is jnp:
        return lax.while_loop(lambda s: jnp.any(s[2]), walk, state)[:2]
    with np.errstate(over="ignore"):
        while np.any(state[2]):
            state = walk(state)
    return state[:2]


def multiply_wide(x, y):
    """64-bit product of uint32 ``x`` and ``y`` (uint32, or an int < 2^32) as (upper, lower) uint32, by 16-bit limbs."""
    mask, shift = np.uint32(0xFFFF), np.uint32(16)
    y = np.uint32(y) if isinstance(y, int) else y
    x1, x0, y1, y0 = x >> shift, x & mask, y >> shift, y & mask
    low, mid_a, mid_b = x0 * y0, x0 * y1, x1 * y0
    middle = (low >> shift) + (mid_a & mask) + (mid_b & mask)
    return x1 * y1 + (mid_a >> shift) + (mid_b >> shift) + (middle >> shift), (low & mask) | (middle << shift)


def divide_wide(upper, lower, divisor: int):
    """Quotient (which must fit 32 bits) and remainder of a 64-bit number by ``divisor`` < 2^24, byte by byte."""
    divisor = np.uint32(divisor)
    quotient = remainder = lower & np.uint32(0)
    for word in (upper, lower):
        for shift in (24, 16, 8, 0):
            remainder = (remainder << np.uint32(8)) | ((word >> np.uint32(shift)) & np.uint32(0xFF))
            quotient = (quotient << np.uint32(8)) | (remainder // divisor)
            remainder = remainder % divisor
    return quotient, remainder


def epoch_position(step, batch: int, total: int, lane, *, xp=jnp):
    """Where the lanes of batch ``step`` fall in the sequence of epochs.

    An epoch is ``ceil(total / batch)`` batches; the last one wraps to the epoch's beginning:
    ``position = ((step mod batches) * batch + lane) mod total``, exact although it may exceed 32 bits.

    Args:
      step: int, or a scalar int32 or uint32.
      batch: static number of lanes of a batch, below 2^31.
      total: static number of positions, 1 to 10^10.
      lane: [N] integers in [0, batch).
      xp: ``jnp`` or ``np``; both give the same.

    Returns:
      (epoch, high, low): scalar uint32 and [N] uint32 digits of the position.
    """
    if not 1 <= batch < 2**31:
        raise ValueError(f"batch must lie in 1..2^31-1, got {batch}")
    radix, batches = permutation_radix(total), -(-total // batch)
    total_high, total_low, b = np.uint32(total // radix), np.uint32(total % radix), np.uint32(radix)
    with np.errstate(over="ignore"):
        step, lane = _as_uint32(step, xp), _as_uint32(lane, xp)
        if batches < 2**32:
            epoch, within = step // np.uint32(batches), step % np.uint32(batches)
        else:  # no uint32 step leaves the first epoch
            epoch, within = xp.zeros_like(step), step
        if total < batch:
            lane = lane % np.uint32(total)
        base_high, base_low = divide_wide(*multiply_wide(within, batch), radix)
        low = base_low + lane % b
        high = base_high + lane // b + (low >= b).astype(xp.uint32)
        low = xp.where(low >= b, low - b, low)
        wraps = (high > total_high) | ((high == total_high) & (low >= total_low))
        borrow = low < total_low
        wrapped_low = xp.where(borrow, low + b - total_low, low - total_low)
        wrapped_high = high - total_high - borrow.astype(xp.uint32)
        return epoch, xp.where(wraps, wrapped_high, high), xp.where(wraps, wrapped_low, low)


# ---------------------------------------------------------------------------- scans that restart at each segment


def _segmented_scan(combine: Callable, values: Array, segment_ids: Array, *, exclusive: bool, identity: float) -> Array:
    """Scan along axis 0 that restarts wherever the id changes."""
    # Measured on 2 CPU cores, 98k slots, value + gradient: associative_scan 2.0 ms, doubling shifts 11 ms, two-level
    # blocks 4.7 ms. A global cumsum minus its value at the segment's start (0.9 ms) cancels: not used.
    first = jnp.concatenate([jnp.ones((1,), bool), segment_ids[1:] != segment_ids[:-1]])
    first = first.reshape(first.shape + (1,) * (values.ndim - 1))

    def merge(a, b):
        return a[0] | b[0], jnp.where(b[0], b[1], combine(a[1], b[1]))

    scanned = lax.associative_scan(merge, (jnp.broadcast_to(first, values.shape), values))[1]
    if not exclusive:
        return scanned
    # Shifted, not "inclusive minus own value": that difference would cancel.
    shifted = jnp.concatenate([jnp.full_like(scanned[:1], identity), scanned[:-1]])
    return jnp.where(first, identity, shifted)


def segmented_cumsum(
    values: Float[Array, " M *rest"], segment_ids: Int[Array, " M"], *, exclusive: bool = False
) -> Float[Array, " M *rest"]:
    """Cumulative sums that restart at each segment.

    Args:
      values: [M, ...], the slots of a segment adjacent.
      segment_ids: [M] integers, such as ``PackedIntervals.ray``.
      exclusive: whether a slot's own value is left out.

    Returns:
      [M, ...].
    """
    return _segmented_scan(jnp.add, values, segment_ids, exclusive=exclusive, identity=0.0)


def segmented_cumprod(
    values: Float[Array, " M *rest"], segment_ids: Int[Array, " M"], *, exclusive: bool = False
) -> Float[Array, " M *rest"]:
    """Cumulative products that restart at each segment; zeros are allowed, also in gradients.

    Args:
      values: [M, ...], the slots of a segment adjacent.
      segment_ids: [M] integers, such as ``PackedIntervals.ray``.
      exclusive: whether a slot's own value is left out.

    Returns:
      [M, ...].
    """
    return _segmented_scan(jnp.multiply, values, segment_ids, exclusive=exclusive, identity=1.0)


def segment_sum(
    values: Float[Array, " M *rest"], segment_ids: Int[Array, " M"], num_segments: int
) -> Float[Array, " {num_segments} *rest"]:
    """Sums per segment; slots with an id outside [0, num_segments), such as padding, are left out.

    Args:
      values: [M, ...].
      segment_ids: [M] integers.
      num_segments: static.

    Returns:
      [num_segments, ...].
    """
    return jax.ops.segment_sum(values, segment_ids, num_segments=num_segments)
