"""The ray-count ladder: how many rays a step shoots, so that they fill the packed sampler's budget.

A packed sampler has room for M intervals in a step, M = (rays at the largest rung) * ``samples_per_ray``, whatever the
number of rays. Rung r of R shoots n_r = batch_rays / 2^(R - 1 - r) rays: the first n_r of the batch that the pixel
sampler draws for ``batch_rays``, so that an epoch advances as at the largest rung. A stage begins at rung 0.

With w the intervals that a ray wants (kept and left out, mean over the rays, maximum over a dispatch's steps), the next
rung is the largest of which ``UP`` M holds the n_r w that it would want, but at most one higher; a rung is left for a
lower one only where its n_r w exceeds ``DOWN`` M. A rung just reached so wants to be left again only where w changes by
``DOWN`` / ``UP`` - 1.

The rung is decided by the device at the end of each dispatch, for the dispatch after the next: the state carries both,
and the host, which must know a rung before it can launch its program, reads the one of a dispatch that has ended while
the next is running. So the rungs are a function of the state alone, and nothing waits. Each rung is a program of its
own: a stage compiles at most R programs for each length of dispatch, of which there is one, besides a shorter first
and last one where the stage does not begin or end at a multiple of ``steps_per_dispatch``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from nerfjax.errors import UserError
from nerfjax.types import Array

UP, DOWN = 0.9, 1.0


def check_ladder(batch_rays: int, rungs: int, devices: int) -> None:
    """Checks that the rays of every rung divide among the devices.

    Raises:
      UserError: they do not.
    """
    if rungs < 1 or rungs > 20:
        raise UserError("the number of rungs is out of range", field="config.train.rungs", found=rungs, expected="1…20")
    unit = devices * 2 ** (rungs - 1)
    if batch_rays % unit:
        raise UserError(
            "the global batch does not divide among the devices" + (" at the lowest rung" if rungs > 1 else ""),
            field="config.train.batch_rays",
            found=f"{batch_rays} rays, {devices} devices" + (f", {rungs} rungs" if rungs > 1 else ""),
            expected=f"a multiple of {unit}",
        )


def rays_of_rungs(batch_rays: int, rungs: int) -> tuple[int, ...]:
    """Returns the rays of one step at each rung, ascending."""
    return tuple(batch_rays >> (rungs - 1 - rung) for rung in range(rungs))


def next_rung(current: Array, wanted: Array, budget: Array, *, rays: tuple[int, ...]) -> Array:
    """Returns the rung that follows a rung.

    Args:
      current: [] int32.
      wanted: [] intervals that a ray wants.
      budget: [] intervals for which a step has room, M.
      rays: of one step at each rung, ascending.
    """
    totals = jnp.asarray(rays, jnp.float32) * wanted
    largest = jnp.maximum(jnp.sum(totals <= UP * budget).astype(jnp.int32) - 1, 0)
    stays = totals[current] <= DOWN * budget
    return jnp.where(largest > current, current + 1, jnp.where(stays, current, jnp.minimum(largest, current)))


class RungQueue:
    """The rungs of the dispatches to come, on the host.

    Args:
      known: the state's two; None where a stage has one rung.
    """

    def __init__(self, known: Iterable[Any] | None):
        self._one = known is None
        self._known = deque(int(rung) for rung in (() if known is None else known))
        self._decided: deque[Any] = deque()

    def next(self) -> int:
        """Returns the rung of the dispatch to be launched; waits for the dispatch before the one in flight."""
        if self._one:
            return 0
        if not self._known:
            self._known.append(int(jax.device_get(self._decided.popleft())))
        return self._known.popleft()

    def add(self, decided: Any) -> None:
        """Takes what a dispatch decided, still on the device; None where a stage has one rung."""
        if not self._one:
            self._decided.append(decided)
