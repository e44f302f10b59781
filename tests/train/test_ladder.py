"""The ladder of ray counts: its rule, its determinism, and what a step does with rays that are not covered."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from packed_stratified import packed_stratified
from test_supervision import scene_with

from nerfjax.errors import Preempted, UserError
from nerfjax.geometry.warps import s_from_t
from nerfjax.losses import distortion
from nerfjax.samplers import SAMPLERS
from nerfjax.train import configuration
from nerfjax.train.build import build_experiment
from nerfjax.train.checkpoint import Checkpoints
from nerfjax.train.configuration import config_hash, load_config
from nerfjax.train.ladder import DOWN, UP, RungQueue, next_rung, rays_of_rungs
from nerfjax.train.loop import StopSignal, fit
from nerfjax.train.run import restore_or_init
from nerfjax.train.stage import Stage
from nerfjax.train.step import final_distortion, gradients
from nerfjax.types import PackedIntervals, Rays, Rendering

TINY = {
    "scene.source": "analytic:spheres?views=4&size=16&test=1",
    "train.batch_rays": 64,
    "train.steps": 60,
    "train.steps_per_dispatch": 5,
    "field.instant_ngp.levels": 2,
    "field.instant_ngp.log2_size": 8,
    "parallel.devices": 1,
}


@pytest.fixture
def experiment_with(monkeypatch):
    """Builds an experiment with the packed sampler of the tests."""
    for table in (SAMPLERS, configuration.FAMILIES["sampler"]):
        monkeypatch.setitem(table, "packed", packed_stratified)

    def build(options=None, scene=None, **changes):
        changes = {key.replace("__", "."): value for key, value in changes.items()}
        options = {f"sampler.packed.{key}": value for key, value in (options or {}).items()}
        return build_experiment(
            load_config("demo", {**TINY, "sampler.name": "packed", **options, **changes}), scene=scene
        )

    return build


def test_the_next_rung_is_the_largest_that_fits_one_up_and_any_number_down():
    rays = rays_of_rungs(1024, 4)
    assert rays == (128, 256, 512, 1024)

    def slow(current, wanted, budget):
        fits = [r for r in range(4) if rays[r] * wanted <= UP * budget]
        largest = max(fits, default=0)
        if largest > current:
            return current + 1
        return current if rays[current] * wanted <= DOWN * budget else largest

    seen = set()
    for current in range(4):
        for wanted in (0.0, 0.5, 0.9, 0.95, 1.0, 1.1, 1.9, 2.1, 3.7, 5.0, 7.5, 20.0):
            got = int(next_rung(jnp.int32(current), jnp.float32(wanted), jnp.float32(1024.0), rays=rays))
            assert got == slow(current, wanted, 1024.0), (current, wanted)
            seen.add(got - current)
    assert seen == {-3, -2, -1, 0, 1}


def test_a_rung_just_reached_is_not_left_while_rays_want_the_same():
    rays, budget = rays_of_rungs(512, 3), jnp.float32(512.0)
    for wanted in np.linspace(0.3, 6.0, 200):
        rung = jnp.int32(0)
        path = [int(rung := next_rung(rung, jnp.float32(wanted), budget, rays=rays)) for _ in range(6)]
        assert path[-1] == path[-2] == path[-3]


def test_the_host_knows_two_rungs_and_reads_one_late():
    queue, order = RungQueue(np.array([0, 1])), []
    for decided in (2, 1, 0):
        order.append(queue.next())
        queue.add(jnp.int32(decided))
    assert [*order, queue.next(), queue.next()] == [0, 1, 2, 1, 0]
    assert RungQueue(None).next() == 0


def test_the_rungs_of_a_batch_must_divide_among_the_devices(experiment_with):
    with pytest.raises(UserError, match="multiple of 64"):
        experiment_with(train__rungs=4, train__batch_rays=96, parallel__devices=8)
    with pytest.raises(UserError, match="rungs"):
        experiment_with(train__rungs=0)


def test_samplers_that_are_not_packed_have_one_rung():
    experiment = build_experiment(load_config("demo", {**TINY, "train.rungs": 3, "sampler.name": "stratified"}))
    assert experiment.stage.rays == (64,)
    assert config_hash(load_config("demo", {"train.rungs": 3})) == config_hash(load_config("demo"))


def gradient_of(experiment, rung: int):
    """(loss, gradient, report, batch, squared errors of all rays) of step 0 at a rung."""
    parts = experiment.stage.rungs[rung]

    def run(state, data):
        loss, gradient, report, batch, (errors, _) = gradients(parts, state, data, None)
        return loss, gradient, report, batch, errors

    everywhere, spread = PartitionSpec(), PartitionSpec("data")
    specs = (everywhere, everywhere, everywhere, everywhere, spread)
    program = jax.jit(jax.shard_map(run, mesh=experiment.mesh, in_specs=everywhere, out_specs=specs))
    return jax.device_get(program(experiment.init_state(), experiment.data))


def test_rays_without_room_change_nothing_and_the_others_make_up_for_them(experiment_with):
    """Rung 1 shoots twice the rays of rung 0 with the same room: the second half of them is cut."""
    experiment = experiment_with(
        dict(samples_per_ray=2.0, wanted=4), train__rungs=2, train__distortion_weight=0.1, train__coarse_weight=1.0
    )
    assert experiment.stage.rays == (32, 64)
    low, high = gradient_of(experiment, 0), gradient_of(experiment, 1)
    np.testing.assert_array_equal(low[3].row, high[3].row[:32])
    np.testing.assert_array_equal(low[3].column, high[3].column[:32])
    np.testing.assert_allclose(high[0], low[0], rtol=1e-5)
    for a, b in zip(jax.tree.leaves(high[1]), jax.tree.leaves(low[1]), strict=True):
        assert np.linalg.norm(a - b) <= 1e-4 * np.linalg.norm(b)
    assert low[2]["cut_rays"] == 0.0 and high[2]["cut_rays"] == 0.5
    assert low[2]["packed_fill"] == high[2]["packed_fill"] == 1.0
    assert low[2]["samples_wanted"] == high[2]["samples_wanted"] == 4.0 and high[2]["overflow"] == 128.0
    assert low[2]["sample_budget"] == high[2]["sample_budget"] == 128.0
    assert low[2]["loss/distortion"] > 0.0


def test_the_weights_of_cut_rays_go_to_the_rays_of_all_devices(experiment_with):
    """The first device's rays want so much that most of them are cut; no other device's are."""
    experiment = experiment_with(dict(samples_per_ray=4.0, first_rays=8, first_wanted=30), parallel__devices=8)
    loss, _, report, _, errors = gradient_of(experiment, 0)
    seen = errors[errors >= 0]  # what is not seen is -1
    assert len(seen) == 57 and report["cut_rays"] == 7 / 64  # 32 slots hold one ray of 30
    np.testing.assert_allclose(loss, np.mean(seen), rtol=1e-5)


@pytest.mark.parametrize("spacing", ["linear", "piecewise"])
def test_the_distortion_of_packed_intervals_is_that_of_dense_ones(spacing):
    """Four rays of five intervals, the last of which is cut: it has no part in the mean."""
    t = np.sort(np.random.default_rng(0).uniform(0.5, 9.0, (4, 6)), axis=-1).astype(np.float32)
    weights = np.random.default_rng(1).uniform(0.0, 0.2, (4, 5)).astype(np.float32)
    near, far = jnp.asarray(t[:, 0]), jnp.asarray(t[:, -1])
    rays = Rays(*[jnp.zeros((4, 3))] * 2, near, far, *[jnp.zeros(4)] * 3)
    rows = jnp.repeat(jnp.arange(4, dtype=jnp.int32), 5)
    packed = PackedIntervals(
        t0=jnp.append(t[:, :-1].ravel(), 0.0), t1=jnp.append(t[:, 1:].ravel(), 0.0), ray=jnp.append(rows, 4),
        start=5 * jnp.arange(4, dtype=jnp.int32), count=jnp.full(4, 5, jnp.int32), overflow=jnp.int32(0),
    )  # fmt: skip
    final = Rendering(jnp.zeros((4, 3)), near, near, packed, jnp.append(weights.ravel(), 0.0))
    covered = jnp.array([True, True, True, False])
    mesh = jax.make_mesh((1,), ("data",), devices=jax.devices()[:1])
    loss = functools.partial(final_distortion, spacing=spacing)
    loss = jax.jit(jax.shard_map(loss, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec()))
    dense = jax.jit(lambda t, weights: distortion(s_from_t(spacing, t, t[:, 0], t[:, -1]), weights))
    np.testing.assert_allclose(loss(final, rays, covered), dense(t[:3], weights[:3]), rtol=1e-5)


class Record:
    """A writer that keeps the reports, and asks for a stop when it takes that of a step."""

    def __init__(self, stop: StopSignal, stop_after: int):
        self.reports, self._stop, self._stop_after = [], stop, stop_after

    def write(self, report):
        self.reports.append(dict(report))
        if report["step"] == self._stop_after:
            self._stop.request("the test")

    def close(self):
        pass


def train(experiment, folder, *, stop_after: int = -1, **options):
    """Trains, or goes on; returns the state (the step where it was stopped a dispatch later) and the reports."""
    with Checkpoints(folder) as checkpoints, StopSignal() as stop:
        state, _ = restore_or_init(experiment, checkpoints)
        record = Record(stop, stop_after)
        options = (
            dict(steps_per_dispatch=5, log_every=5, checkpoints=checkpoints, writers=[record], stop=stop) | options
        )
        try:
            return jax.device_get(fit(state=state, stages=experiment.stages, **options)), record.reports
        except Preempted:
            return checkpoints.steps()[-1], record.reports


def test_the_rungs_follow_from_the_state_alone(experiment_with, tmp_path, monkeypatch):
    """One up per dispatch once the first has been seen; when rays want four times as much, down; resumed, the same."""
    monkeypatch.setattr(Stage, "dispatch_for", functools.cache(Stage.dispatch_for))
    options = dict(samples_per_ray=4.0, wanted=3, change_at=35, wanted_later=14)
    experiment = experiment_with(options, train__rungs=3, parallel__devices=8, train__distortion_weight=0.01)
    want, reports = train(experiment, tmp_path / "whole", compile_ahead=True)
    # The first decision, at the end of the first dispatch, is for the third. At 35 the rays want 14 instead of 3.
    assert [r["rung"] for r in reports] == [0, 0, 1, 2, 2, 2, 2, 2, 2, 0, 0, 0]
    assert [r["rays_per_step"] for r in reports] == [16 * 2 ** r["rung"] for r in reports]
    assert all(r["stage"] == 0 and r["sample_budget"] == 256 for r in reports)
    assert [r["cut_rays"] > 0 for r in reports] == [step in (40, 45) for step in range(5, 61, 5)]
    assert train(experiment, tmp_path / "parts", stop_after=10)[0] == 15
    got, more = train(experiment, tmp_path / "parts")
    assert [(r["step"], r["rung"]) for r in more] == [(r["step"], r["rung"]) for r in reports[3:]]
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_sampler_is_told_the_measured_distances(experiment_with):
    scene = scene_with(depth=2.5, kind="ray")
    for share, told in ((0.5, 2.5), (0.0, 0.0)):
        experiment = experiment_with(dict(depth_share=share), scene=scene)
        assert experiment.parts.depth_prior == (share > 0)
        assert (experiment.data.depth_pages is not None) == (share > 0)
        np.testing.assert_allclose(gradient_of(experiment, 0)[2]["proposal_samples_per_ray"], told, rtol=1e-5)
    assert not experiment_with(dict(depth_share=0.5)).parts.depth_prior
