"""Steps along rays through an occupancy grid: which of them are occupied, and their packing into static slots.

The steps of a ray follow ``dt = clamp(cone t, dt_min, dt_max)``. With t1 = dt_min / cone and t2 = dt_max / cone, the
number of steps from 0 to t has a closed form, linear, then logarithmic, then linear again::

  F(t) = min(t, t1) / dt_min + log(clamp(t, t1, t2) / t1) / log(1 + cone) + max(t - t2, 0) / dt_max

and step k of a ray reaches from F^-1(k + phase) to F^-1(k + 1 + phase), cut to what of the ray lies in the grid. The
lattice hangs on t = 0 and not on the ray's near end, so a call whose ``near`` is the ``t_end`` of another goes on with
the same steps. A step is occupied if its middle is.

Occupied steps are found by a hierarchical DDA: all rays walk in lock-step, and each turn takes a ray over its cell, or
over the largest empty aligned block that holds it, to the first middle of a step beyond. Steps are written as bits, 32
to a word, and the packing selects the j-th bit: no array has a point for every step of every ray.

Mueller et al. 2022, Instant Neural Graphics Primitives, appendix C; Amanatides and Woo 1987 (DDA).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from nerfjax.errors import UserError
from nerfjax.samplers.occupancy_grid import GridSpec, OccupancyGrid, cascade_of, cell_coordinates, cell_index
from nerfjax.types import Array, PackedIntervals, Rays

WORD = 32  # steps to a word of bits


class StepRule(NamedTuple):
    """Static lengths of steps, ``dt = clamp(cone t, dt_min, dt_max)``, world units; at most ``max_steps`` per call."""

    dt_min: float
    dt_max: float
    cone: float
    max_steps: int


@struct.dataclass
class Lattice:
    """The steps of N rays: step i = 0 ... count-1 of a ray reaches from F^-1(base + i) to F^-1(base + i + 1).

    Attributes:
      base: [N] place of the first step's near end in the steps' coordinate F.
      count: [N] int32 number of steps, at most ``max_steps``.
      near, far: [N] ends of what of the ray lies in the grid, world units; they cut the first and the last step.
      complete: [N] bool, whether the steps reach ``far``.
      rule: static; lengths of the steps.
    """

    base: Any
    count: Any
    near: Any
    far: Any
    complete: Any
    rule: StepRule = struct.field(pytree_node=False)


def step_rule(spec: GridSpec, *, cone: float, max_steps: int = 0) -> StepRule:
    """Returns the steps that suit a grid: from ``spec.step`` to the diagonal of a cell of the last cascade.

    Args:
      spec: the grid.
      cone: growth of a step with distance; 0 for equal steps.
      max_steps: a multiple of 32; 0 for as many as the longest ray through the grid needs.

    Raises:
      UserError: an option is not valid.
    """
    if max_steps < 0 or max_steps % WORD:
        raise UserError("steps are kept as bits of words", field="max_steps", found=max_steps,
                        expected=f"a multiple of {WORD}, or 0 for as many as a ray needs")  # fmt: skip
    diagonal = 2.0 * float(np.linalg.norm(spec.outer_half))
    rule = StepRule(spec.step, max(spec.step, diagonal / spec.resolution), cone, max_steps)
    if max_steps == 0:
        # F is concave: no ray has more steps than one that starts at 0. Two are cut by its ends.
        longest = float(_coordinate(rule, np.float32(min(diagonal, spec.far)), np)) + 2.0
        rule = rule._replace(max_steps=WORD * math.ceil(longest / WORD))
    return rule


# ---------------------------------------------------------------------------- the lattice


def _coordinate(rule: StepRule, t, xp):
    if rule.cone == 0.0:
        return t / rule.dt_min
    t1, t2 = rule.dt_min / rule.cone, rule.dt_max / rule.cone
    grown = xp.log(xp.clip(t, t1, t2) / t1) / math.log1p(rule.cone)
    return xp.minimum(t, t1) / rule.dt_min + grown + xp.maximum(t - t2, 0.0) / rule.dt_max


def step_coordinate(rule: StepRule, t: Array) -> Array:
    """Number of steps F(t) [...] from 0 to distances t [...]."""
    return _coordinate(rule, t, jnp)


def step_distance(rule: StepRule, u: Array) -> Array:
    """Distance F^-1(u) [...] after ``u`` [...] steps from 0."""
    if rule.cone == 0.0:
        return u * rule.dt_min
    growth = math.log1p(rule.cone)
    t1, u1 = rule.dt_min / rule.cone, 1.0 / rule.cone
    u2 = u1 + math.log(rule.dt_max / rule.dt_min) / growth
    grown = t1 * jnp.exp((jnp.clip(u, u1, u2) - u1) * growth)
    return jnp.where(u < u1, u * rule.dt_min, grown + jnp.maximum(u - u2, 0.0) * rule.dt_max)


def _rounding(u: Array) -> Array:
    """What float32 may be wrong by in F, of the order of ``u``."""
    return 1e-3 + 5e-7 * jnp.abs(u)


def make_lattice(spec: GridSpec, rule: StepRule, rays: Rays, phase: Array) -> Lattice:
    """Lays steps over rays.

    Args:
      spec: the grid, outside of which there are no steps.
      rule: lengths of the steps.
      rays: of batch shape [N].
      phase: [N] shift of a ray's steps, in [0, 1); the same in every call that is to go on with them.

    Returns:
      The lattice; without steps for a ray that is empty (near >= far) or misses the grid.
    """
    safe = jnp.where(jnp.abs(rays.directions) < 1e-12, 1e-12, rays.directions)
    to_center = (spec.center[None] - rays.origins) / safe
    reach = jnp.abs(spec.outer_half[None] / safe)
    near = jnp.maximum(rays.near, jnp.max(to_center - reach, axis=-1))
    far = jnp.minimum(rays.far, jnp.min(to_center + reach, axis=-1))
    u_near, u_far = step_coordinate(rule, near), step_coordinate(rule, far)
    # A near end at a step's end belongs to the next step, on whichever side of it rounding has put it.
    first = jnp.floor(u_near - phase + _rounding(u_near))
    count = jnp.where(far > near, jnp.maximum(jnp.ceil(u_far - phase - _rounding(u_far)) - first, 1.0), 0.0)
    return Lattice(
        base=first + phase,
        count=jnp.minimum(count, rule.max_steps).astype(jnp.int32),
        near=near,
        far=far,
        complete=count <= rule.max_steps,
        rule=rule,
    )


# ---------------------------------------------------------------------------- which steps are occupied


def occupied_steps(
    spec: GridSpec, grid: OccupancyGrid, rays: Rays, lattice: Lattice, *, early_stop: float = 0.0
) -> Array:
    """Finds the steps whose middles lie in occupied cells.

    Args:
      spec: the grid's static choices.
      grid: the grid.
      rays: of batch shape [N].
      lattice: their steps.
      early_stop: transmittance below which a ray ends; 0 for never. It is estimated from ``grid.solid``, the lowest
        of the densities around a cell: a wire or a surface that fills cells in part stops nothing.

    Returns:
      [N, max_steps / 32] uint32; step i is bit i % 32 of word i // 32.
    """
    rule, skips = lattice.rule, grid.skip.reshape(-1)
    words = jnp.arange(rule.max_steps // WORD, dtype=jnp.int32)[None]

    def turn(state):
        step, bits, depth = state
        middle = _distance(lattice, step, 0.5)
        t = jnp.clip(middle, lattice.near, lattice.far)
        index, level, t_exit = _block(spec, skips, rays, t)
        u_exit = step_coordinate(rule, jnp.minimum(t_exit, lattice.far))
        # Rounding may lead back into this block, which costs a turn, but never past a middle beyond it.
        after = jnp.ceil(u_exit - lattice.base - 0.5 - _rounding(u_exit)).astype(jnp.int32)
        after = jnp.clip(after, step + 1, lattice.count)
        hit = (level == 0) & (step < lattice.count)
        # A run of bits ends with its word, so that a turn writes to one word only.
        after = jnp.where(hit, jnp.minimum(after, (step | (WORD - 1)) + 1), after)
        here = (words == (step // WORD)[:, None]) & hit[:, None]
        bits = jnp.where(here, bits | _run(step, after)[:, None], bits)
        if early_stop > 0.0:
            solid = grid.solid.reshape(-1).at[index].get(mode="promise_in_bounds")
            depth += jnp.where(hit, solid * (_distance(lattice, after) - _distance(lattice, step)), 0.0)
            after = jnp.where(depth > -math.log(early_stop), lattice.count, after)
        return after, bits, depth

    # Sums with zeros: inside shard_map the state must vary over the devices from the start.
    zero = lattice.count * 0
    start = (zero, (words * 0 + zero[:, None]).astype(jnp.uint32), zero.astype(jnp.float32))
    return lax.while_loop(lambda state: jnp.any(state[0] < lattice.count), turn, start)[1]


def _distance(lattice: Lattice, step: Array, offset: float = 0.0) -> Array:
    """Distance [N] of the near ends of steps [N], or of what lies ``offset`` steps beyond; not cut."""
    return step_distance(lattice.rule, lattice.base + (step.astype(jnp.float32) + offset))


def _block(spec: GridSpec, skips: Array, rays: Rays, t: Array) -> tuple[Array, Array, Array]:
    """Cell [N] and skip level [N] of the points at distances t [N], and where the rays leave the block [N]."""
    position = rays.origins + t[:, None] * rays.directions
    cascade = cascade_of(spec, position)[0]
    place = cell_coordinates(spec, position, cascade)
    cell = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, spec.resolution - 1)
    index = cell_index(spec, cascade, cell)
    level = skips.at[index].get(mode="promise_in_bounds").astype(jnp.int32)
    shift = jnp.maximum(level - 1, 0)[:, None]
    bound = (jnp.right_shift(cell, shift) + (rays.directions > 0.0).astype(jnp.int32)) << shift
    width = spec.half[None] * (2.0 / spec.resolution) * jnp.exp2(cascade.astype(jnp.float32))[:, None]
    flat = jnp.abs(rays.directions) < 1e-9
    ahead = (bound.astype(jnp.float32) - place) * width / jnp.where(flat, 1.0, rays.directions)
    return index, level, t + jnp.min(jnp.where(flat, jnp.inf, ahead), axis=-1)


def _run(first: Array, end: Array) -> Array:
    """Words [N] with the bits of steps first ... end-1 set, all of which are of one word."""
    ones = jnp.uint32(0xFFFFFFFF)
    return (ones << (first % WORD).astype(jnp.uint32)) & (ones >> ((WORD - end) % WORD).astype(jnp.uint32))


# ---------------------------------------------------------------------------- packing


def pack_steps(
    bits: Array, lattice: Lattice, rays: Rays, capacity: int, *, fair: bool
) -> tuple[PackedIntervals, Array]:
    """Packs the steps whose bit is set.

    Args:
      bits: [N, max_steps / 32] uint32.
      lattice: the steps.
      rays: of batch shape [N].
      capacity: static number M of slots.
      fair: what to do where they do not fit. False: rays in order take all that they want until the slots are used
        up. True: every ray gets at most q, the largest number for which all fit.

    Returns:
      (intervals; [N] distance up to which each ray is covered: ``rays.far``, or the near end of the first step left
      out, or the end of the last of ``max_steps``).
    """
    num_rays, num_words = bits.shape
    set_bits = lax.population_count(bits).astype(jnp.int32)
    before = jnp.cumsum(set_bits, axis=-1) - set_bits
    wanted = before[:, -1] + set_bits[:, -1]
    kept = _fair_share(wanted, capacity, WORD * num_words) if fair else _in_order(wanted, capacity)
    start = jnp.cumsum(kept) - kept

    # The word of each slot is the last one that begins at or before it: marks at the beginnings, summed.
    begin = (start[:, None] + jnp.minimum(before, kept[:, None])).reshape(-1)
    marks = jnp.zeros((capacity,), jnp.int32) + 0 * begin[0]
    word = jnp.cumsum(marks.at[begin].add(1, mode="drop", indices_are_sorted=True)) - 1
    slot = jnp.arange(capacity, dtype=jnp.int32)
    valid = slot < jnp.sum(kept)
    ray = word // num_words
    bit = _set_bit(_take(bits.reshape(-1), word), slot - _take(begin, word))
    t0, t1 = _step_ends(lattice, ray, WORD * (word % num_words) + bit)
    packed = PackedIntervals(
        t0=jnp.where(valid, t0, 0.0),
        t1=jnp.where(valid, t1, 0.0),
        ray=jnp.where(valid, ray, num_rays),
        start=start,
        count=kept,
        overflow=jnp.sum(wanted - kept),
    )
    return packed, _covered(bits, set_bits, before, kept, lattice, rays)


def _in_order(wanted: Array, capacity: int) -> Array:
    return jnp.clip(capacity - (jnp.cumsum(wanted) - wanted), 0, wanted)


def _fair_share(wanted: Array, capacity: int, most: int) -> Array:
    share = 0 * wanted[0]
    for power in reversed(range(most.bit_length())):
        larger = share + (1 << power)
        share = jnp.where(jnp.sum(jnp.minimum(wanted, larger)) <= capacity, larger, share)
    return jnp.minimum(wanted, share)


def _take(values: Array, index: Array) -> Array:
    return values.at[index].get(mode="promise_in_bounds")


def _set_bit(word: Array, rank: Array) -> Array:
    """Position [...] of the rank-th set bit (from 0) of uint32 words [...], by halves."""
    position = 0 * rank
    for width in (16, 8, 4, 2, 1):
        low = lax.population_count(word & jnp.uint32((1 << width) - 1)).astype(jnp.int32)
        beyond = rank >= low
        position = jnp.where(beyond, position + width, position)
        rank = jnp.where(beyond, rank - low, rank)
        word = jnp.where(beyond, word >> jnp.uint32(width), word)
    return position


def _step_ends(lattice: Lattice, ray: Array, step: Array) -> tuple[Array, Array]:
    """Near and far ends [M] of steps [M] of rays [M]."""
    base, near, far = (_take(leaf, ray) for leaf in (lattice.base, lattice.near, lattice.far))
    last = (step == _take(lattice.count, ray) - 1) & _take(lattice.complete, ray)
    ends = [base + (step + side).astype(jnp.float32) for side in (0, 1)]
    t0, t1 = (jnp.clip(step_distance(lattice.rule, u), near, far) for u in ends)
    return jnp.where(step == 0, near, t0), jnp.where(last, far, t1)


def _covered(bits: Array, set_bits: Array, before: Array, kept: Array, lattice: Lattice, rays: Rays) -> Array:
    """Distance [N] up to which the kept steps cover the rays."""
    num_words = bits.shape[1]
    word = jnp.minimum(jnp.sum((before + set_bits <= kept[:, None]).astype(jnp.int32), axis=-1), num_words - 1)
    chosen = jnp.arange(num_words, dtype=jnp.int32)[None] == word[:, None]
    rank = kept - jnp.sum(jnp.where(chosen, before, 0), axis=-1)
    step = WORD * word + _set_bit(jnp.sum(jnp.where(chosen, bits, 0), axis=-1, dtype=jnp.uint32), rank)
    cut = kept < before[:, -1] + set_bits[:, -1]
    step = jnp.where(cut, step, lattice.count)
    end = jnp.where(step == 0, lattice.near, jnp.clip(_distance(lattice, step), lattice.near, lattice.far))
    return jnp.where(cut | ~lattice.complete, end, rays.far)
