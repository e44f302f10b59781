"""What adaptive sampling adds: a budget that is met exactly, given to the rays that need it."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.geometry.warps import s_from_t
from nerfjax.losses import interlevel
from nerfjax.numerics import segment_sum
from nerfjax.samplers import DensityNetwork, adaptive
from nerfjax.samplers.adaptive import need
from nerfjax.samplers.budget import allocate, capacity
from nerfjax.types import Cameras, Rays, Rendering, SceneGeometry
from nerfjax.volume import packed_weights_from_density, weights_from_density

QUICK = {"xla_backend_optimization_level": 0}  # halves the time to compile


def make_rays(count: int) -> Rays:
    """Rays along +z, one after the other in x."""
    full, index = jnp.ones((count,), jnp.float32), jnp.arange(count, dtype=jnp.int32)
    origins = jnp.stack([index.astype(jnp.float32), 0 * full, 0 * full], axis=-1)
    return Rays(
        origins=origins, directions=jnp.broadcast_to(jnp.asarray([0.0, 0.0, 1.0]), (count, 3)), near=2 * full,
        far=6 * full, footprint=1e-3 * full, camera_index=0 * index, index=index,
    )  # fmt: skip


def scene(x, z):
    """Every fourth ray sees nothing, one a wall, one a wall behind a thin one, one fog."""
    kind = jnp.round(x) % 4
    wall = jnp.where((z > 4.0) & (z < 4.5), 60.0, 0.0)
    film = jnp.where((z > 2.5) & (z < 2.75), 2.0, 0.0)
    return jnp.where(kind == 0, 0.0, jnp.where(kind == 1, wall, jnp.where(kind == 2, wall + film, 0.3 + 0 * z)))


def network(scale=1.0) -> DensityNetwork:
    return DensityNetwork(
        init=lambda key, geometry: {"scale": jnp.asarray(scale, jnp.float32)},
        apply=lambda params, points: params["scale"] * scene(points.positions[..., 0], points.positions[..., 2]),
    )


def geometry() -> SceneGeometry:
    cameras = Cameras(
        pose=jnp.eye(4)[None, :3], focal=jnp.ones((1, 2)), center=jnp.ones((1, 2)), distortion=jnp.zeros((1, 12)),
        size=2 * jnp.ones((1, 2), jnp.int32), model=jnp.zeros((1,), jnp.int32),
    )  # fmt: skip
    box = jnp.asarray([[-20.0] * 3, [20.0] * 3])
    return SceneGeometry(box=box, near=jnp.asarray(2.0), far=jnp.asarray(6.0), cameras=cameras)


def no_field(rays, intervals, *, level):
    raise AssertionError("the field is not evaluated")


@functools.cache
def compiled(sampler, count: int):
    state = sampler.init(jax.random.key(0), geometry())
    return jax.jit(
        lambda key, params: sampler.sample(
            key, state.replace(params=params), make_rays(count), no_field, step=jnp.asarray(10**6)
        ),
        compiler_options=QUICK,
    )


def run(sampler, count: int = 16, seed: int = 0):
    return compiled(sampler, count)(jax.random.key(seed), sampler.init(jax.random.key(0), geometry()).params)


def rendering_of(packed) -> Rendering:
    x = packed.ray.astype(jnp.float32)
    weights = packed_weights_from_density(scene(x, packed.t_eval), packed)
    total = segment_sum(weights, packed.ray, packed.start.shape[0])
    return Rendering(
        color=jnp.stack([total] * 3, axis=-1), accumulation=total, depth=total, intervals=packed, weights=weights
    )


# ---------------------------------------------------------------------------- the budget


@pytest.mark.parametrize("rays", [1, 300])
@pytest.mark.parametrize("kind", ["random", "equal", "one", "zero", "huge", "broken"])
def test_the_total_is_exact_and_the_shares_are_proportional(rays, kind):
    rng = np.random.default_rng(rays)
    scores = {
        "random": rng.random(rays) ** 4, "equal": np.full(rays, 0.3), "one": np.eye(1, rays)[0], "zero": np.zeros(rays),
        "huge": 1e30 * rng.random(rays), "broken": np.where(np.arange(rays) % 3 == 0, np.nan, 1.0),
    }[kind]  # fmt: skip
    scores, index = jnp.asarray(scores, jnp.float32), jnp.arange(rays, dtype=jnp.int32)
    for total, minimum in ((rays * 32, 4), (rays * 7 + rays // 2, 1), (rays * 2, 2), (rays * 100 + 1, 0)):
        count = np.asarray(allocate(scores, index, total=total, minimum=minimum, even_share=0.1))
        assert count.sum() == total and count.min() >= minimum
        clean = np.nan_to_num(np.asarray(scores, np.float64))
        share = clean / clean.sum() if clean.sum() > 0 else np.full(rays, 1 / rays)
        wanted = minimum + (total - rays * minimum) * (0.9 * share + 0.1 / rays)
        assert np.all(np.abs(count - wanted) < 1.01), np.abs(count - wanted).max()


def test_counts_do_not_depend_on_the_order_of_rays():
    rng = np.random.default_rng(0)
    index = jnp.arange(500, dtype=jnp.int32)
    for scores in (rng.random(500), rng.integers(0, 3, 500)):  # with ties, too
        scores, order = jnp.asarray(scores, jnp.float32), rng.permutation(500)
        count = allocate(scores, index, total=9_999, minimum=2)
        np.testing.assert_array_equal(count[order], allocate(scores[order], index[order], total=9_999, minimum=2))


def test_the_capacity_is_the_same_at_all_shares():
    assert [capacity(1024 // k, 24.5, 1 / k) for k in (1, 2, 4)] == [25088] * 3
    sampler = adaptive(networks=(network(),), num_proposal=(16,), samples_per_ray=8.0, ray_share=0.25)
    packed, info = run(sampler, 4)
    assert packed.t0.shape == (128,) and float(info.evaluations) == 32.0


# ---------------------------------------------------------------------------- the need


def test_need_is_the_width_of_the_weights():
    s = jnp.linspace(0.0, 1.0, 17)[None]
    wide, narrow = np.zeros((1, 16), np.float32), np.zeros((1, 16), np.float32)
    wide[:, 4:12], narrow[:, 4] = 0.1, 0.8
    for weights, width in ((wide, 0.5), (narrow, 1 / 16)):
        np.testing.assert_allclose(need("entropy", s, jnp.asarray(weights)), [0.8 * width], rtol=1e-5)
        np.testing.assert_allclose(need("spread", s, jnp.asarray(weights)), [0.8 * width / np.sqrt(12)], rtol=1e-4)
        np.testing.assert_array_equal(need("uniform", s, jnp.asarray(weights)), [1.0])
    finer = jnp.linspace(0.0, 1.0, 65)[None]  # the same function on finer steps
    np.testing.assert_allclose(
        need("entropy", finer, jnp.repeat(jnp.asarray(wide) / 4, 4, axis=-1)), need("entropy", s, jnp.asarray(wide)),
        rtol=1e-5,
    )  # fmt: skip
    for name in ("entropy", "spread"):
        assert float(need(name, s, jnp.zeros((1, 16)))[0]) == 0.0


def test_rays_that_need_more_get_more():
    sampler = adaptive(networks=(network(),), num_proposal=(32,), samples_per_ray=24.0, minimum=2)
    packed, info = run(sampler)
    count = np.asarray(packed.count).reshape(-1, 4)
    assert count.sum() == packed.t0.shape[0] == 16 * 24 and int(info.overflow) == 0
    nothing, wall, two, fog = count.mean(axis=0)
    assert nothing < 6 and wall > nothing and two > 1.5 * wall and fog > two
    # Which kinds of rays are in the batch matters, their number does not.
    np.testing.assert_allclose(
        np.asarray(run(sampler, 32)[0].count).reshape(-1, 4).mean(axis=0), count.mean(axis=0), atol=1
    )
    even = run(adaptive(networks=(network(),), num_proposal=(32,), samples_per_ray=24.0, allocate_by="uniform"))[0]
    np.testing.assert_array_equal(even.count, 24)


# ---------------------------------------------------------------------------- the intervals


@pytest.mark.parametrize(
    "options", [dict(deterministic=True), dict(), dict(jitter="stratum", randomize="points"), dict(spacing="log")]
)
def test_intervals_tile_their_ray(options):
    sampler = adaptive(networks=(network(),), num_proposal=(16, 16), samples_per_ray=11.3, minimum=1, **options)
    packed, _ = run(sampler)
    assert packed.t0.shape == (181,)
    np.testing.assert_array_equal(np.repeat(np.arange(16), packed.count), packed.ray)
    np.testing.assert_array_equal(packed.start, np.cumsum(packed.count) - packed.count)
    for start, count in zip(np.asarray(packed.start), np.asarray(packed.count), strict=True):
        t0, t1 = np.asarray(packed.t0)[start : start + count], np.asarray(packed.t1)[start : start + count]
        assert t0[0] == 2.0 and t1[-1] == 6.0 and np.all(t1 >= t0)
        np.testing.assert_allclose(t0[1:], t1[:-1], rtol=3e-7 if options.get("spacing") else 0)
    assert np.all((packed.t_eval >= packed.t0) & (packed.t_eval <= packed.t1))


def test_a_wall_gets_edges_at_the_steps_that_hold_it():
    sampler = adaptive(
        networks=(network(),), num_proposal=(16,), samples_per_ray=16.0, deterministic=True, padding=0.0, quiet=1e-3
    )
    packed, info = run(sampler)
    start, count = int(packed.start[1]), int(packed.count[1])
    edges = np.asarray(packed.t1)[start : start + count]
    # The wall's first step stops all light; a step on either side is kept, and the rest is two gaps.
    assert np.sum(np.isclose(edges, 3.75)) == 1 and np.sum(edges < 3.75) == 0
    assert np.sum(np.isclose(edges, 4.5)) == 1 and np.sum(edges > 4.5) == 1


# ---------------------------------------------------------------------------- the loss


@pytest.mark.parametrize("kind", ["mipnerf360", "antialiased"])
def test_the_loss_is_that_of_dense_rays_where_all_counts_are_equal(kind):
    rays = 8
    sampler = adaptive(
        networks=(network(0.05),), num_proposal=(16, 16), samples_per_ray=12.0, allocate_by="uniform", interlevel=kind,
        spacing="disparity",
    )  # fmt: skip
    packed, info = run(sampler, rays)
    rendering = rendering_of(packed)
    found = float(sampler.loss(info, rendering, step=0)["interlevel"])
    t = jnp.concatenate([packed.t0.reshape(rays, 12), packed.t1.reshape(rays, 12)[:, -1:]], axis=-1)
    s = s_from_t("disparity", t, make_rays(rays).near, make_rays(rays).far)
    weights = weights_from_density(scene(jnp.arange(rays)[:, None] * 1.0, packed.t_eval.reshape(rays, 12)), jnp.diff(t))
    if kind == "mipnerf360":
        wanted = sum(interlevel((s, weights), (level.intervals.s, level.weights)) for level in info.levels)
    else:
        from nerfjax.samplers import proposal

        dense = proposal(networks=(network(),), num_proposal=(16, 16), interlevel=kind)
        intervals = info.levels[0].intervals.replace(t=t, s=s, t_point=None)
        wanted = dense.loss(info, rendering.replace(intervals=intervals, weights=weights), step=0)["interlevel"]
    assert found > 0.01
    np.testing.assert_allclose(found, float(wanted), rtol=1e-5)


def test_the_loss_trains_the_network():
    sampler = adaptive(networks=(network(0.1),), num_proposal=(16,), samples_per_ray=16.0)

    @jax.jit
    def loss(params):
        packed, info = sampler.sample(
            jax.random.key(0),
            sampler.init(jax.random.key(0), geometry()).replace(params=params),
            make_rays(8),
            no_field,
            step=10,
        )
        return sampler.loss(info, rendering_of(packed), step=10)["interlevel"]

    params = sampler.init(jax.random.key(0), geometry()).params
    value, slope = jax.value_and_grad(loss)(params)
    assert float(value) > 0.05 and float(slope[0]["scale"]) < 0
    assert float(loss(({"scale": jnp.asarray(1.0)},))) < 0.1 * float(value)


@pytest.mark.parametrize(
    "options, word",
    [
        (dict(allocate_by="error"), "allocate_by"),
        (dict(num_proposal=()), "num_proposal"),
        (dict(minimum=0), "minimum"),
        (dict(samples_per_ray=3.0), "samples_per_ray"),
        (dict(ray_share=0.0), "samples_per_ray"),
        (dict(even_share=1.5), "even_share"),
        (dict(quiet=-1.0), "quiet"),
        (dict(padding=-1.0), "padding"),
    ],
)
def test_wrong_options_are_refused(options, word):
    with pytest.raises(UserError, match=word):
        adaptive(**{"networks": (network(),), **options})
