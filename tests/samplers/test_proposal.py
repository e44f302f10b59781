"""What proposal sampling adds: rounds, annealing, schedules and the loss that trains its networks."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.samplers import DensityNetwork, proposal
from nerfjax.types import Cameras, Intervals, Rays, Rendering, SceneGeometry
from nerfjax.volume import weights_from_density

QUICK = {"xla_backend_optimization_level": 0}  # halves the time to compile


def make_rays(count: int) -> Rays:
    full = jnp.ones((count,), jnp.float32)
    return Rays(
        origins=jnp.zeros((count, 3)), directions=jnp.broadcast_to(jnp.asarray([0.0, 0.0, 1.0]), (count, 3)),
        near=2 * full, far=6 * full, footprint=1e-3 * full,
        camera_index=jnp.zeros((count,), jnp.int32), index=jnp.arange(count, dtype=jnp.int32),
    )  # fmt: skip


def geometry() -> SceneGeometry:
    cameras = Cameras(
        pose=jnp.eye(4)[None, :3], focal=jnp.ones((1, 2)), center=jnp.ones((1, 2)), distortion=jnp.zeros((1, 6)),
        size=2 * jnp.ones((1, 2), jnp.int32), model=jnp.zeros((1,), jnp.int32),
    )  # fmt: skip
    box = jnp.asarray([[-6.0] * 3, [6.0] * 3])
    return SceneGeometry(box=box, near=jnp.asarray(2.0), far=jnp.asarray(6.0), cameras=cameras)


def wall(z):
    """A wall from 4 to 4.25 of [2, 6]."""
    return jnp.where((z > 4.0) & (z < 4.25), 30.0, 0.0)


def wall_network(scale=1.0) -> DensityNetwork:
    return DensityNetwork(
        init=lambda key, geometry: {"scale": jnp.asarray(scale, jnp.float32)},
        apply=lambda params, points: params["scale"] * wall(points.positions[..., 2]),
    )


def bins_network(count: int = 16) -> DensityNetwork:
    """One free density for each of the equal bins of [2, 6]: enough to learn a ray."""
    return DensityNetwork(
        init=lambda key, geometry: jnp.full((count,), -1.0, jnp.float32),
        apply=lambda params, points: jnp.exp(
            params.at[((points.positions[..., 2] - 2) / 4 * count).astype(jnp.int32)].get(mode="clip")
        ),
    )


@functools.cache
def compiled(sampler, count: int):
    field = lambda rays, intervals, *, level: wall(intervals.t_eval)  # noqa: E731

    def sample(state, step):
        return sampler.sample(jax.random.key(0), state, make_rays(count), field, step=step)

    return jax.jit(sample, compiler_options=QUICK)


def run(sampler, *, step=10_000, count=8, state=None):
    state = sampler.init(jax.random.key(1), geometry()) if state is None else state
    return compiled(sampler, count)(state, jnp.asarray(step, jnp.int32))


def rendering_of(intervals: Intervals) -> Rendering:
    weights = weights_from_density(wall(intervals.t_eval), intervals.t_delta)
    total = jnp.sum(weights, axis=-1)
    return Rendering(
        color=jnp.stack([total] * 3, axis=-1), accumulation=total, depth=total, intervals=intervals, weights=weights
    )


def inside_the_wall(intervals) -> np.ndarray:
    return np.sum((intervals.t > 3.99) & (intervals.t < 4.26), axis=-1)


@pytest.mark.parametrize("rounds", [(), (16,), (24, 12), (16, 8, 8)])
def test_any_number_of_rounds(rounds):
    sampler = proposal(networks=(wall_network(),), num_proposal=rounds, num_final=12)
    state = sampler.init(jax.random.key(1), geometry())
    intervals, info = jax.eval_shape(compiled(sampler, 8), state, jnp.asarray(0, jnp.int32))
    assert [level.intervals.count for level in info.levels] == list(rounds)
    assert [level.weights.shape for level in info.levels] == [(8, count) for count in rounds]
    assert intervals.count == 12
    assert not any(level.supervise_color for level in info.levels)


def test_each_round_finds_the_wall_better():
    crowd, finest = [], []
    for rounds in ((), (16,), (16, 16)):
        sampler = proposal(
            networks=(wall_network(),), num_proposal=rounds, num_final=16, dilation_bias=0.0, dilation_multiplier=0.0
        )
        intervals, _ = run(sampler)
        crowd.append(inside_the_wall(intervals).mean())
        finest.append(float(np.min(intervals.t_delta)))
    assert crowd[0] <= 2 and crowd[1] > 10 and crowd[2] > 10
    assert finest[2] < finest[1] < finest[0]


def test_one_network_for_each_round():
    networks = (wall_network(0.0), wall_network(1.0))
    sampler = proposal(networks=networks, num_proposal=(16, 16), num_final=8)
    state = sampler.init(jax.random.key(1), geometry())
    assert [float(params["scale"]) for params in state.params] == [0.0, 1.0]
    _, info = run(sampler)
    assert float(np.sum(info.levels[0].weights)) == 0.0 and float(np.sum(info.levels[1].weights)) > 1.0


def test_networks_of_the_rounds_start_differently():
    network = DensityNetwork(
        init=lambda key, geometry: jax.random.normal(key, (3,)), apply=lambda params, points: points.radius
    )
    params = proposal(networks=(network, network), num_proposal=(4, 4)).init(jax.random.key(0), geometry()).params
    assert not np.allclose(params[0], params[1])


def test_annealing_goes_from_even_to_the_weights():
    options = dict(networks=(wall_network(),), num_proposal=(16,), dilation_bias=0.0, dilation_multiplier=0.0)
    sampler = proposal(num_final=16, anneal_steps=1000, **options)
    start, early, end, later = (run(sampler, step=step)[0] for step in (0, 1, 1000, 5000))
    crowd = [inside_the_wall(intervals).mean() for intervals in (start, early, end)]
    assert crowd[0] < 3 and crowd[0] < crowd[1] < crowd[2] and crowd[2] > 10
    np.testing.assert_array_equal(end.t, later.t)
    at_once = proposal(num_final=16, anneal_steps=0, **options)
    np.testing.assert_allclose(run(at_once, step=0)[0].t, end.t, rtol=1e-4)


def test_dilation_reaches_beyond_the_wall():
    options = dict(networks=(wall_network(),), num_proposal=(16,), num_final=32, padding=0.0)
    reach = {}
    for bias in (0.0, 0.05):
        intervals, _ = run(proposal(dilation_bias=bias, dilation_multiplier=0.0, **options))
        reach[bias] = float(np.max(np.asarray(intervals.t)[:, -4]))
    assert reach[0.05] > reach[0.0] + 0.05


def test_without_cover_the_ends_are_reflections():
    options = dict(networks=(wall_network(),), num_proposal=(16,), num_final=16, padding=0.0)
    covered, _ = run(proposal(cover=True, **options))
    free, _ = run(proposal(cover=False, **options))
    np.testing.assert_array_equal(covered.t[:, [0, -1]], np.broadcast_to([2.0, 6.0], (8, 2)).astype(np.float32))
    np.testing.assert_array_equal(covered.t[:, 1:-1], free.t[:, 1:-1])
    assert np.all(free.t[:, 0] > 3.5) and np.all(free.t[:, -1] < 4.75)


def test_a_proposal_that_bounds_the_weights_costs_nothing_and_one_that_does_not_does():
    for scale, free in ((1.0, True), (0.01, False)):
        sampler = proposal(networks=(wall_network(scale),), num_proposal=(16,), num_final=16)
        _, info = run(sampler)
        # On the proposal's own intervals the weights of the same density are their own bound.
        final = rendering_of(info.levels[0].intervals)
        loss = float(sampler.loss(info, final, step=jnp.asarray(0))["interlevel"])
        assert (loss < 1e-6) == free, loss


@pytest.mark.parametrize("interlevel", ["mipnerf360", "antialiased"])
def test_the_loss_trains_the_networks_and_nothing_else(interlevel):
    """Plain gradient descent on the loss finds the wall, which the main field knows."""
    sampler = proposal(
        networks=(bins_network(),), num_proposal=(16,), num_final=16, interlevel=interlevel, anneal_steps=0,
        dilation_bias=0.0, dilation_multiplier=0.0, padding=0.05,
    )  # fmt: skip
    state = sampler.init(jax.random.key(1), geometry())

    def loss(params, scale, step):
        field = lambda rays, intervals, *, level: wall(intervals.t_eval)  # noqa: E731
        key = jax.random.fold_in(jax.random.key(0), step)
        intervals, info = sampler.sample(key, state.replace(params=params), make_rays(64), field, step=step)
        rendering = rendering_of(intervals)
        rendering = rendering.replace(weights=scale * rendering.weights)
        return sampler.loss(info, rendering, step=step)["interlevel"]

    def descend(params, step):
        value, (to_params, to_field) = jax.value_and_grad(loss, argnums=(0, 1))(params, jnp.asarray(1.0), step)
        params = jax.tree.map(lambda p, g: p - 2.0 * g / (jnp.max(jnp.abs(g)) + 1e-6) * 0.1, params, to_params)
        return params, (value, to_field)

    steps = jnp.arange(60, dtype=jnp.int32)
    params, (values, to_field) = jax.jit(lambda: jax.lax.scan(descend, state.params, steps), compiler_options=QUICK)()
    assert np.all(np.asarray(to_field) == 0)
    assert np.mean(values[-10:]) < 0.3 * np.mean(values[:5])
    # The wall fills bin (4 - 2) / 4 * 16; the anti-aliased loss sees it blurred by half a bin on either side.
    assert int(np.argmax(params[0])) in ((8,) if interlevel == "mipnerf360" else (7, 8, 9))


@pytest.mark.parametrize("interlevel", ["mipnerf360", "antialiased"])
@pytest.mark.parametrize("member, options", [
    ("hashgrid", dict(levels=2, log2_size=8, base_resolution=4, max_resolution=8, width=4)),
    ("mlp", dict(depth=1, width=8, degrees=2)),
])  # fmt: skip
@pytest.mark.parametrize("shared", [True, False])
def test_every_kind_of_network_learns_from_either_loss_shared_or_separate(member, options, shared, interlevel):
    from nerfjax.fields import DENSITY_NETWORKS

    networks = [DENSITY_NETWORKS[member](geometry(), **options)] * (1 if shared else 2)
    sampler = proposal(networks=networks, num_proposal=(8, 8), num_final=8, interlevel=interlevel)
    state = sampler.init(jax.random.key(1), geometry())
    assert len(state.params) == len(networks)

    def loss(params):
        field = lambda rays, intervals, *, level: wall(intervals.t_eval)  # noqa: E731
        intervals, info = sampler.sample(
            jax.random.key(0), state.replace(params=params), make_rays(4), field, step=jnp.asarray(0)
        )
        return sampler.loss(info, rendering_of(intervals), step=0)["interlevel"]

    gradients = jax.jit(jax.grad(loss), compiler_options=QUICK)(state.params)
    for gradient in gradients:  # of each network
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(gradient)]
        assert all(np.all(np.isfinite(leaf)) for leaf in leaves) and any(np.any(leaf != 0) for leaf in leaves)


def test_weight_multiplies_the_loss():
    options = dict(networks=(wall_network(0.1),), num_proposal=(8,), num_final=8)
    intervals, info = run(proposal(**options))
    one, small = (
        float(proposal(interlevel_weight=weight, **options).loss(info, rendering_of(intervals), step=0)["interlevel"])
        for weight in (1.0, 0.01)
    )
    assert one > 0
    np.testing.assert_allclose(small, 0.01 * one, rtol=1e-5)


def test_networks_are_updated_every_few_steps_after_the_warm_up():
    sampler = proposal(networks=(wall_network(0.1),), num_proposal=(8,), num_final=8, update_after=10, update_every=5)
    field = lambda rays, intervals, *, level: wall(intervals.t_eval)  # noqa: E731

    @jax.jit
    def gradient(step):
        def total(params):
            state = sampler.init(jax.random.key(1), geometry()).replace(params=params)
            _, info = sampler.sample(jax.random.key(0), state, make_rays(2), field, step=step)
            return jnp.sum(info.levels[0].weights)

        return jax.grad(total)(sampler.init(jax.random.key(1), geometry()).params)[0]["scale"]

    moved = [step for step in range(21) if float(gradient(jnp.asarray(step, jnp.int32))) != 0]
    assert moved == [*range(10), 10, 15, 20]
    plain = proposal(networks=(wall_network(0.1),), num_proposal=(8,), num_final=8)
    np.testing.assert_array_equal(run(sampler, step=13)[0].t, run(plain, step=13)[0].t)


def test_opaque_end_takes_the_rest_of_the_light():
    sampler = proposal(networks=(wall_network(0.01),), num_proposal=(8,), num_final=8, opaque_end=True)
    np.testing.assert_allclose(np.sum(run(sampler)[1].levels[0].weights, axis=-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize(
    "options, word",
    [
        (dict(networks=()), "networks"),
        (dict(networks=(wall_network(),) * 3), "networks"),
        (dict(num_proposal=(8, 0)), "num_proposal"),
        (dict(num_final=0), "num_final"),
        (dict(interlevel="zipnerf"), "interlevel"),
        (dict(interlevel="antialiased", pulse_widths=(0.03,)), "pulse_widths"),
        (dict(jitter="no"), "jitter"),
    ],
)
def test_wrong_options_are_refused(options, word):
    with pytest.raises(UserError, match=word):
        proposal(**{"networks": (wall_network(),), "num_proposal": (8, 8), **options})
