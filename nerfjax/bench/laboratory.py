"""Samplers made ready for the procedural scenes: warmed up, fitted into a budget, measured and timed.

    laboratory = Laboratory(["toys"])
    ready = laboratory.ready("proposal", 32, "toys")
    laboratory.quality("proposal", 32, "toys").rmse

Scenes are arguments of the compiled programs: those with the same geometry (all bounded ones) share them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nerfjax.bench.costs import MANY_STEPS, RenderingCost, RenderingProgram, compile_rendering, time_rendering
from nerfjax.bench.quality import Quality, make_measure, quality_from
from nerfjax.bench.recipes import RECIPES, make_sampler
from nerfjax.bench.references import make_reference, point_density
from nerfjax.bench.warmup import FULL_WARMUP, Warmup, WarmupProgram, WarmupSizes, make_warmup, warm_up
from nerfjax.geometry.rays import cast_points
from nerfjax.samplers import Sampler, SamplerState
from nerfjax.types import Array, PackedIntervals, Rays, SceneGeometry

WARM_BUDGET = 32  # of the sampler by which networks are fitted
RAYS_TIMED = 4096
NOTCH = 2.0**0.5  # between the lengths of steps that are tried
NOTCHES, TRIES = (-20, 4), 4
THREADS = 2
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
        self._results: dict[Any, tuple[Ready, Quality]] = {}
        self._wanted: dict[Any, float] = {}
        self._packed: dict[str, bool] = {}
        self._lock = Lock()
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
        return self._measured(name, budget, scene)[0]

    def quality(self, name: str, budget: int, scene: str) -> Quality:
        """Measures a sampler, made ready, on a scene's reference."""
        return self._measured(name, budget, scene)[1]

    def _measured(self, name: str, budget: int, scene: str) -> tuple[Ready, Quality]:
        key = name, budget, scene
        if key not in self._results:
            find = self._stepping if RECIPES[name].steps else self._steady
            self._results[key] = find(name, budget, scene)
        return self._results[key]

    def _steady(self, name: str, budget: int, scene: str) -> tuple[Ready, Quality]:
        ready = Ready(self._probe(name, budget, scene).sampler, self.warmup(name, scene).state, 1.0)
        return ready, self.measure(name, budget, scene, ready)

    def _stepping(self, name: str, budget: int, scene: str) -> tuple[Ready, Quality]:
        reference, state, notch = self.references[scene], self.warmup(name, scene).state, 0
        wanted = self._wanted_at_scale_1(name, scene)
        for trial in range(TRIES):
            notches = int(np.floor(np.log(budget / max(wanted, 1e-3)) / np.log(NOTCH)))
            notch = int(np.clip(notch + (min(notches, -1) if trial else notches), *NOTCHES))
            probe = self._probe(name, budget, scene, scale=NOTCH**notch)
            ready = Ready(probe.sampler, state, NOTCH**notch)
            quality = self.measure(name, budget, scene, ready)
            if quality.overflow == 0.0 or notch == NOTCHES[0]:
                break
            wanted = quality.evaluations + quality.overflow / reference.rays.near.shape[0]
        return ready, quality

    def _wanted_at_scale_1(self, name: str, scene: str) -> float:
        with self._lock:
            if (name, scene) not in self._wanted:
                count, state = self._probe(name, ROOMY, scene).count, self.warmup(name, scene).state
                self._wanted[name, scene] = float(count(self._keys[0], state, self.references[scene]))
            return self._wanted[name, scene]

    def measure(self, name: str, budget: int, scene: str, ready: Ready) -> Quality:
        """Measures a sampler in a given state on a scene's reference."""
        measure, reference = self._probe(name, budget, scene, scale=ready.scale).measure, self.references[scene]
        return quality_from(measure(self._keys, ready.state, reference, jnp.int32(MANY_STEPS)), reference)

    def qualities(self, name: str, budgets: Sequence[int], scene: str) -> list[Quality]:
        """``quality`` for several budgets at a time: most of the work is to compile, which threads do side by side."""
        self.warmup(name, scene)  # its time is taken: alone
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(lambda budget: self.quality(name, budget, scene), budgets))

    def costs(self, name: str, budgets: Sequence[int], scene: str) -> list[RenderingCost]:
        """Times a sampler's rendering at several budgets, on the first scene that asks for it.

        A dense sampler does the same on every scene. The number of packed intervals is static, too, and the same on all
        scenes of one geometry; only how often a marching loop turns depends on the scene. All is compiled first, side
        by side, and then timed one after the other.
        """
        if name not in self._packed:
            self._packed[name] = _is_packed(self.ready(name, budgets[0], scene), self.references[scene].rays)
        keys = [(name, budget, self._geometries[scene] if self._packed[name] else "") for budget in budgets]
        missing = [key for key in keys if key not in self._costs]

        def compiled(key: tuple) -> RenderingProgram:
            ready = self.ready(name, key[1], scene)
            return compile_rendering(ready.sampler, ready.state, scene, rays=self.sizes.timed_rays)

        with ThreadPoolExecutor(THREADS) as pool:
            programs = list(pool.map(compiled, missing))
        share = RAYS_TIMED / self.sizes.timed_rays
        for key, program in zip(missing, programs, strict=True):
            cost = time_rendering(program, repeats=self.sizes.repeats)
            peak = None if cost.peak_bytes is None else int(cost.peak_bytes * share)
            self._costs[key] = RenderingCost(cost.milliseconds * share, peak)
        return [self._costs[key] for key in keys]

    def forget(self, name: str) -> None:
        """Drops the programs of a sampler; its warm state stays, for others to take over.

        A program of XLA's for CPUs takes hundreds of memory maps, of which a Linux process may have 65 thousand: those
        of all samplers together are too many.
        """
        for kept in (self._probes, self._results):
            for key in [key for key in kept if key[0] == name]:
                del kept[key]
        jax.clear_caches()

    def _probe(self, name: str, budget: int, scene: str, *, scale: float = 1.0) -> Probe:
        key = name, budget, scale, self._geometries[scene]
        if key not in self._probes:
            reference = self.references[scene]
            sampler = make_sampler(name, budget, reference.geometry, scale=scale)
            warmup = make_warmup(sampler, reference, self.sizes.warmup)
            self._probes[key] = Probe(sampler, warmup, _make_count(sampler), make_measure(sampler))
        return self._probes[key]


def _make_count(sampler: Sampler) -> Callable[..., Array]:
    """Returns the compiled ``(key, state, reference) -> evaluations per ray``."""

    @jax.jit
    def count(key: Array, state: SamplerState, reference) -> Array:
        def density_fn(rays: Rays, intervals, *, level: int) -> Array:
            return point_density(reference.rows, cast_points(rays, intervals).positions, rays.near)

        return sampler.sample(key, state, reference.rays, density_fn, step=jnp.int32(MANY_STEPS))[1].evaluations

    return count


def _is_packed(ready: Ready, rays: Rays) -> bool:
    def sample(state: SamplerState, rays: Rays):
        def density_fn(rays: Rays, intervals, *, level: int) -> Array:
            return jnp.zeros_like(intervals.t_mid)

        return ready.sampler.sample(jax.random.key(0), state, rays, density_fn, step=jnp.int32(0))[0]

    return isinstance(jax.eval_shape(sample, ready.state, rays), PackedIntervals)


def _digest(geometry: SceneGeometry) -> str:
    leaves, structure = jax.tree.flatten(geometry)
    digest = hashlib.sha256(str(structure).encode())
    for leaf in leaves:
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()
