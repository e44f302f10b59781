"""Samplers made ready for the procedural scenes: warmed up, fitted into a budget, measured and timed.

    laboratory = Laboratory(["toys"])
    ready = laboratory.ready("proposal", 32, "toys")
    laboratory.quality("proposal", 32, "toys").rmse

Scenes are arguments of the compiled programs: those with the same geometry (all bounded ones) share them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nerfjax.bench.costs import MANY_STEPS, RenderingCost, rendering_cost
from nerfjax.bench.quality import Quality, make_measure, quality_from
from nerfjax.bench.recipes import RECIPES, make_sampler
from nerfjax.bench.references import make_reference, point_density
from nerfjax.bench.warmup import FULL_WARMUP, Warmup, WarmupProgram, WarmupSizes, make_warmup, warm_up
from nerfjax.geometry.rays import cast_points
from nerfjax.samplers import Sampler, SamplerState
from nerfjax.types import Array, Rays, SceneGeometry

WARM_BUDGET = 32  # of the sampler by which networks are fitted
RAYS_TIMED = 4096
NOTCH = 2.0**0.5  # between the lengths of steps that are tried
NOTCHES, TRIES = (-20, 4), 4
ROOMY = 1024  # evaluations per ray that no scene needs at scale 1


class Sizes(NamedTuple):
    """How much is measured.

    Attributes:
      rays: rays of each scene.
      keys: repetitions with other random numbers.
      timed_rays: rays of a timed rendering; its time and memory are scaled to ``RAYS_TIMED``.
      repeats: timed renderings, of which the median counts; 0 leaves time and memory out.
      warmup: how long networks are fitted and grids refreshed.
    """

    rays: int = 256
    keys: int = 4
    timed_rays: int = 2048
    repeats: int = 3
    warmup: WarmupSizes = FULL_WARMUP


FULL = Sizes()


class Ready(NamedTuple):
    """A sampler that can be used on one scene.

    Attributes:
      sampler: the sampler.
      state: its state after the warm-up.
      scale: factor on the number of steps of a stepping sampler; 1 for others.
    """

    sampler: Sampler
    state: SamplerState
    scale: float


class Probe(NamedTuple):
    """A sampler of one budget with its compiled programs, for all scenes of one geometry."""

    sampler: Sampler
    warmup: WarmupProgram
    count: Callable[..., Any]
    measure: Callable[..., Any]


class Laboratory:
    """Programs, warmed states and fitted networks that several measurements share.

    Attributes:
      sizes: how much is measured.
      references: {scene: its rays and what is exactly true of them}.
    """

    def __init__(self, scenes: Sequence[str], sizes: Sizes = FULL, *, rays: Rays | None = None):
        """Draws the rays of the scenes; ``rays`` are taken instead where they are given."""
        self.sizes = sizes
        self.references = {scene: make_reference(scene, num_rays=sizes.rays, rays=rays) for scene in scenes}
        self._geometries = {scene: _digest(reference.geometry) for scene, reference in self.references.items()}
        self._keys = jax.random.split(jax.random.key(7), sizes.keys)
        self._probes: dict[Any, Probe] = {}
        self._warmups: dict[Any, Warmup] = {}
        self._ready: dict[Any, Ready] = {}
        self._costs: dict[Any, RenderingCost] = {}
        self._donors: dict[str, list[Warmup]] = {}

    def warmup(self, name: str, scene: str) -> Warmup:
        """Warms a sampler up; networks and grids of the same shapes are made once for each scene."""
        if (name, scene) not in self._warmups:
            program = self._probe(name, ROOMY if RECIPES[name].steps else WARM_BUDGET, scene).warmup
            donors = self._donors.setdefault(scene, [])
            key, reference = jax.random.key(0), self.references[scene]
            warmup = warm_up(program, key, reference, self.sizes.warmup, donors=donors)
            if (program.fit is None) != (program.refresh is None):
                donors.append(warmup)
            self._warmups[name, scene] = warmup
        return self._warmups[name, scene]

    def ready(self, name: str, budget: int, scene: str) -> Ready:
        """Makes a sampler ready; a stepping one gets the finest steps whose evaluations fit into the budget.

        Where none fit (steps are never longer than a cell), some are left out; ``Quality.overflow`` says how many.

        Args:
          name: a key of ``RECIPES``.
          budget: evaluations of the main field per ray.
          scene: one of the laboratory's.
        """
        key = name, budget, scene
        if key not in self._ready:
            find = self._stepping if RECIPES[name].steps else self._steady
            self._ready[key] = find(name, budget, scene)
        return self._ready[key]

    def _steady(self, name: str, budget: int, scene: str) -> Ready:
        return Ready(self._probe(name, budget, scene).sampler, self.warmup(name, scene).state, 1.0)

    def _stepping(self, name: str, budget: int, scene: str) -> Ready:
        reference, state, notch = self.references[scene], self.warmup(name, scene).state, 0
        wanted = self._probe(name, ROOMY, scene).count(self._keys[:1], state, reference)[0]
        for trial in range(TRIES):
            notches = int(np.floor(np.log(budget / max(float(wanted), 1e-3)) / np.log(NOTCH)))
            notch = int(np.clip(notch + (min(notches, -1) if trial else notches), *NOTCHES))
            scale = NOTCH**notch
            probe = self._probe(name, budget, scene, scale=scale)
            # Which cells count as occupied depends on the length of the steps: the grid is looked through once more.
            refresh, stepped = probe.warmup.refresh, state
            if refresh is not None:
                stepped = refresh(jax.random.key(9), state, reference, jnp.int32(0))
            evaluations, overflow = probe.count(self._keys, stepped, reference)
            if overflow == 0 or notch == NOTCHES[0]:
                break
            wanted = evaluations + overflow / reference.rays.near.shape[0]
        return Ready(probe.sampler, stepped, scale)

    def quality(self, name: str, budget: int, scene: str) -> Quality:
        """Measures a sampler on a scene's reference."""
        ready, reference = self.ready(name, budget, scene), self.references[scene]
        measure = self._probe(name, budget, scene, scale=ready.scale).measure
        return quality_from(measure(self._keys, ready.state, reference, jnp.int32(MANY_STEPS)), reference)

    def cost(self, name: str, budget: int, scene: str) -> RenderingCost:
        """Times a sampler's rendering, once for all scenes of the same geometry.

        The number of intervals, dense or packed, is static and the same on all of them; only how often a marching loop
        turns depends on the scene.
        """
        key, sizes = (name, budget, self._geometries[scene]), self.sizes
        if key not in self._costs:
            ready = self.ready(name, budget, scene)
            cost = rendering_cost(ready.sampler, ready.state, scene, rays=sizes.timed_rays, repeats=sizes.repeats)
            share = RAYS_TIMED / sizes.timed_rays
            peak = None if cost.peak_bytes is None else int(cost.peak_bytes * share)
            self._costs[key] = RenderingCost(cost.milliseconds * share, peak)
        return self._costs[key]

    def _probe(self, name: str, budget: int, scene: str, *, scale: float = 1.0) -> Probe:
        key = name, budget, scale, self._geometries[scene]
        if key not in self._probes:
            reference = self.references[scene]
            sampler = make_sampler(name, budget, reference.geometry, scale=scale)
            warmup = make_warmup(sampler, reference, self.sizes.warmup)
            self._probes[key] = Probe(sampler, warmup, _make_count(sampler), make_measure(sampler))
        return self._probes[key]


def _make_count(sampler: Sampler) -> Callable[..., tuple[Array, Array]]:
    """Returns ``(keys, state, reference) -> (evaluations per ray, mean overflow)``."""

    @jax.jit
    def count(keys: Array, state: SamplerState, reference) -> tuple[Array, Array]:
        def density_fn(rays: Rays, intervals, *, level: int) -> Array:
            return point_density(reference.rows, cast_points(rays, intervals).positions, rays.near)

        def one(key: Array) -> tuple[Array, Array]:
            info = sampler.sample(key, state, reference.rays, density_fn, step=jnp.int32(MANY_STEPS))[1]
            return info.evaluations, info.overflow.astype(jnp.float32)

        return jax.tree.map(jnp.mean, jax.lax.map(one, keys))

    return count


def _digest(geometry: SceneGeometry) -> str:
    leaves, structure = jax.tree.flatten(geometry)
    digest = hashlib.sha256(str(structure).encode())
    for leaf in leaves:
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()
