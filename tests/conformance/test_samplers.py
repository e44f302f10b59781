"""One suite for every sampler: a new member adds a row to ``sampler_rows``, as ``nerfjax.samplers``' table asks for.

Each test of a row shares compiled functions with the others (``compiled``), because compiling is what takes the time.
Members give dense or packed intervals; the tests see both through ``ragged`` (host) and ``padded`` (traced).
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from sampler_rows import ROWS, each_kind, each_row, geometry, peaked_network

from nerfjax.numerics import segment_sum
from nerfjax.samplers import SAMPLERS
from nerfjax.types import Intervals, PackedIntervals, Rays, Rendering
from nerfjax.volume import render_weights

COUNT, MORE = 32, 128  # numbers of drawn final intervals
RAYS = 512
BASE, SWING, RATE, PHASE = 0.6, 0.5, 1.7, 0.4
QUICK = {"xla_backend_optimization_level": 0}  # halves the time to compile


def smooth_density(t):
    """A density along the ray that differs between its ends."""
    return BASE + SWING * jnp.cos(RATE * t + PHASE)


def smooth_depth(t, near, xp=jnp):
    """Its integral from ``near`` to t."""
    return BASE * (t - near) + SWING / RATE * (xp.sin(RATE * t + PHASE) - xp.sin(RATE * near + PHASE))


def closed_form(rays: Rays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Optical depth, transmittance and colour, for the colour (1 + sin(optical depth so far)) / 2."""
    near, far = (np.asarray(end, np.float64) for end in (rays.near, rays.far))
    depth = smooth_depth(far, near, np)
    through = np.exp(-depth)
    return depth, through, 0.5 * (1 - through) + 0.25 * (1 - through * (np.sin(depth) + np.cos(depth)))


def make_rays(count: int = RAYS, *, offset: int = 0) -> Rays:
    """Rays along -z with various ends, so that errors do not cancel by luck."""
    index = jnp.arange(count, dtype=jnp.int32)
    share = (index % 32).astype(jnp.float32) / 32
    return Rays(
        origins=jnp.zeros((count, 3), jnp.float32),
        directions=jnp.broadcast_to(jnp.asarray([0.0, 0.0, -1.0], jnp.float32), (count, 3)),
        near=0.4 + 0.5 * share,
        far=4.2 + 1.5 * share * share,
        footprint=jnp.full((count,), 1e-3, jnp.float32),
        camera_index=jnp.full((count,), -1, jnp.int32),
        index=index + offset,
    )


def smooth_field(rays: Rays, intervals: Intervals, *, level: int):
    del rays, level
    return smooth_density(intervals.t_eval)


@functools.cache
def compiled(name: str, kind: str, n: int):
    """``sample(key, rays, step)`` of a row over the smooth density, compiled."""
    sampler = ROWS[name].make(n, **ROWS[name].kinds[kind].options)
    state = sampler.init(jax.random.key(1), geometry())

    def sample(key, rays, step):
        return sampler.sample(key, state, rays, smooth_field, step=step)

    return jax.jit(sample, compiler_options=QUICK)


def run(name: str, kind: str, *, n: int = COUNT, rays: Rays | None = None, seed: int = 0, step: int = 500):
    rays = make_rays() if rays is None else rays
    return compiled(name, kind, n)(jax.random.key(seed), rays, jnp.asarray(step, jnp.int32))


def of_ray(values, intervals):
    """Values [N] of rays for each of their intervals."""
    if isinstance(intervals, PackedIntervals):
        return values.at[intervals.ray].get(mode="fill", fill_value=0)
    return values[:, None]


def sum_over_ray(values, intervals):
    """Sums [N] of values of intervals."""
    if isinstance(intervals, PackedIntervals):
        return segment_sum(values, intervals.ray, intervals.start.shape[0])
    return jnp.sum(values, axis=-1)


def render(rays: Rays, intervals, density) -> Rendering:
    """A grey image of the colour of ``closed_form``."""
    weights = render_weights(density, intervals)
    color = 0.5 * (1 + jnp.sin(smooth_depth(intervals.t_eval, of_ray(rays.near, intervals))))
    color = sum_over_ray(weights * color, intervals)
    return Rendering(
        color=jnp.stack([color] * 3, axis=-1), accumulation=sum_over_ray(weights, intervals),
        depth=sum_over_ray(weights * intervals.t_mid, intervals), intervals=intervals, weights=weights,
    )  # fmt: skip


def padded(intervals, size: int = 2 * MORE):
    """Leaves with a row for each ray: those of dense intervals, or near ends, far ends and points [N, size]."""
    if not isinstance(intervals, PackedIntervals):
        return intervals
    lane = jnp.arange(size, dtype=jnp.int32)[None]
    slot = jnp.where(lane < intervals.count[:, None], intervals.start[:, None] + lane, intervals.t0.shape[0])
    return [leaf.at[slot].get(mode="fill", fill_value=0) for leaf in (intervals.t0, intervals.t1, intervals.t_eval)]


def ragged(intervals) -> list[np.ndarray]:
    """For each ray [S, 3]: near end, far end and point of its intervals."""
    if isinstance(intervals, PackedIntervals):
        parts, counts = padded(intervals), np.asarray(intervals.count)
    else:
        parts, counts = (intervals.t[:, :-1], intervals.t[:, 1:], intervals.t_eval), None
    rays = np.stack([np.asarray(part) for part in parts], axis=-1)
    return list(rays) if counts is None else [ray[:count] for ray, count in zip(rays, counts, strict=True)]


def mean_count(intervals) -> float:
    """Intervals per ray."""
    return np.mean([len(ray) for ray in ragged(intervals)])


def per_ray(result):
    """Those leaves of a result that have a row for each ray."""
    intervals, info = result
    return padded(intervals), [(padded(level.intervals), level.weights) for level in info.levels], info.t_end


def assert_leaves_equal(a, b) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_every_member_has_a_row():
    assert {row.member for row in ROWS.values()} == set(SAMPLERS)


@each_kind(lambda row: ("midpoints", *row.random))
def test_edges_are_sorted_and_inside_and_points_lie_in_their_intervals(name, kind):
    rays = make_rays()
    near, far = np.asarray(rays.near), np.asarray(rays.far)
    intervals, info = run(name, kind)
    for part in (intervals, *(level.intervals for level in info.levels)):
        for i, ray in enumerate(ragged(part)):
            ends = ray[:, :2].reshape(-1)
            assert np.all(np.diff(ends) >= 0) and np.all((ends >= near[i]) & (ends <= far[i]))
            assert np.all((ray[:, 2] >= ray[:, 0]) & (ray[:, 2] <= ray[:, 1]))
        if not isinstance(part, PackedIntervals):
            assert np.all(np.diff(part.s) >= 0) and np.all((part.s >= 0) & (part.s <= 1))
    # The final intervals cover the ray.
    for i, ray in enumerate(ragged(intervals)):
        np.testing.assert_array_equal(ray[[0, -1], [0, 1]], [near[i], far[i]])
        np.testing.assert_allclose(ray[1:, 0], ray[:-1, 1], rtol=1e-5)


def depth_z_score(name: str, kind: str, n: int = COUNT) -> float:
    """Standard errors between the mean error of the optical depth over 8192 rays and zero."""
    errors = []
    for seed in range(8192 // RAYS):
        intervals = run(name, kind, n=n, seed=seed)[0]
        estimate = sum_over_ray(smooth_density(intervals.t_eval) * intervals.t_delta, intervals)
        errors.append(np.asarray(estimate, np.float64) - closed_form(make_rays())[0])
    errors = np.concatenate(errors)
    return errors.mean() / (errors.std() / np.sqrt(errors.size))


@each_kind(lambda row: tuple(kind for kind in row.random if kind.startswith("points")))
def test_optical_depth_is_unbiased_for_points(name, kind):
    assert abs(depth_z_score(name, kind)) < 4.5


def test_the_test_of_bias_sees_the_bias_of_moving_edges():
    assert abs(depth_z_score("stratified", "edges-single", 4)) > 9


@each_kind(lambda row: tuple(row.kinds) if row.member == "stratified" else ("midpoints", row.random[0]))
def test_color_and_transmittance_converge_at_the_stated_order(name, kind):
    rays = make_rays()
    truth = np.stack(closed_form(rays)[1:], axis=-1)
    counts, errors = [], []
    for n in (COUNT, MORE):
        intervals = run(name, kind, n=n)[0]
        rendering = render(rays, intervals, smooth_density(intervals.t_eval))
        measured = np.stack([1 - rendering.accumulation, rendering.color[:, 0]], axis=-1).astype(np.float64)
        errors.append(np.sqrt(np.mean((measured - truth) ** 2, axis=0)))
        counts.append(mean_count(intervals))
    slopes = np.log(errors[0] / errors[1]) / np.log(counts[1] / counts[0])
    assert np.all(slopes > ROWS[name].kinds[kind].order - 0.3), (slopes, errors)
    assert np.all(errors[1] < 0.02), errors


@each_row
def test_deterministic_variant_does_not_depend_on_the_key_and_the_others_do(name):
    assert_leaves_equal(run(name, "midpoints", seed=3), run(name, "midpoints", seed=4))
    for kind in ROWS[name].random:
        first, second = (ragged(run(name, kind, seed=seed)[0]) for seed in (3, 4))
        assert all(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@each_row
def test_rays_draw_independent_numbers(name):
    """The first and last points of neighbouring rays, each relative to its own ray, are uncorrelated."""
    rays = make_rays()
    points = np.stack([ray[[0, -1], 2] for ray in ragged(run(name, ROWS[name].random[-1])[0])]).astype(np.float64)
    relative = (points - np.asarray(rays.near)[:, None]) / np.asarray(rays.far - rays.near)[:, None]
    for column in (0, -1):
        same_ray = relative[:, column].reshape(-1, 32)  # rays 32 apart have the same ends
        noise = same_ray - same_ray.mean(axis=0)
        correlation = np.mean(noise[:, :-1] * noise[:, 1:]) / np.mean(noise**2)
        assert abs(correlation) < 5 / np.sqrt(noise.size)


@each_row
def test_second_call_does_not_recompile(name):
    for seed in range(2):
        rays = make_rays(offset=seed)
        results = [run(name, ROWS[name].random[0], rays=rays, seed=seed, step=step) for step in (0, 7)]
        assert jax.tree.structure(results[0]) == jax.tree.structure(results[1])
    sample = compiled(name, ROWS[name].random[0], COUNT)
    before = sample._cache_size()
    run(name, ROWS[name].random[0], seed=9, step=900)
    assert sample._cache_size() == before


@each_row
def test_numbers_do_not_depend_on_micro_batches_order_or_vmap(name):
    sampler = ROWS[name].make(7, **ROWS[name].kinds[ROWS[name].random[0]].options)
    state = sampler.init(jax.random.key(1), geometry())

    @jax.jit
    def sample(rays):
        return per_ray(sampler.sample(jax.random.key(0), state, rays, smooth_field, step=jnp.asarray(500)))

    rays = make_rays(12)
    whole = sample(rays)
    parts = [sample(jax.tree.map(lambda x, i=i: x[i : i + 6], rays)) for i in (0, 6)]
    parts = jax.tree.map(lambda *part: np.concatenate(part), *parts)
    if not ROWS[name].shares:
        assert_leaves_equal(whole, parts)
        assert_leaves_equal(jax.tree.map(lambda x: x[9:10], whole), sample(jax.tree.map(lambda x: x[9:10], rays)))
    order = np.random.default_rng(0).permutation(12)
    assert_leaves_equal(jax.tree.map(lambda x: x[order], whole), sample(jax.tree.map(lambda x: x[order], rays)))
    stacked = jax.tree.map(lambda x: x.reshape(2, 6, *x.shape[1:]), rays)
    mapped = jax.jit(jax.vmap(sample), compiler_options=QUICK)(stacked)
    for x, y in zip(jax.tree.leaves(parts), jax.tree.leaves(mapped), strict=True):
        np.testing.assert_allclose(x, y.reshape(x.shape), rtol=1e-5, atol=1e-6)


def hard_densities(t):
    """Densities at the interval points t [N, S] that break careless code, stacked."""
    wall = jnp.where((t > 2.0) & (t < 2.3), 1e4, 0.0)
    return jnp.stack([0 * t, wall, 1e10 + 0 * t, 3e38 + 0 * t, 1e-30 + 0 * t])


@each_row
def test_values_and_gradients_are_finite(name):
    """One ray, or an empty one, over densities from none to overflowing, and as hard ones in the sampler's own params.

    The scalar holds all that is differentiable: final colour and depth, levels' weights, the sampler's own loss.
    """
    sampler = ROWS[name].make(5)
    state = sampler.init(jax.random.key(1), geometry())

    def total(scale, params, kind, near):
        rays = make_rays(1)
        rays = rays.replace(near=rays.near * 0 + near)
        field = lambda rays, part, *, level: scale * hard_densities(part.t_eval)[kind]  # noqa: E731
        intervals, info = sampler.sample(
            jax.random.key(0), state.replace(params=params), rays, field, step=jnp.asarray(10)
        )
        rendering = render(rays, intervals, field(rays, intervals, level=len(info.levels)))
        losses = sampler.loss(info, rendering, step=jnp.asarray(10))
        values = [rendering.color, rendering.depth, *losses.values(), *(level.weights**2 for level in info.levels)]
        return sum(jnp.sum(value) for value in values)

    grid = jnp.meshgrid(jnp.asarray([0.0, 1.0, 1e30]), jnp.arange(5), jnp.asarray([1.0, 4.2]), indexing="ij")
    factor, kind, near = (axis.reshape(-1) for axis in grid)

    def one(factor, kind, near):
        params = jax.tree.map(lambda leaf: factor * leaf, state.params)
        return jax.value_and_grad(total, argnums=(0, 1))(jnp.asarray(1.0), params, kind, near)

    results = jax.jit(jax.vmap(one), compiler_options=QUICK)(factor, kind, near)
    for leaf in jax.tree.leaves(results):
        assert np.all(np.isfinite(leaf)), leaf


@each_row
def test_positions_carry_no_gradient_and_levels_teach_what_made_them(name):
    """A level's weights have a gradient for whoever computed the density: the main field or the sampler's params."""
    sampler = ROWS[name].make(5, **ROWS[name].kinds[ROWS[name].random[0]].options)
    state = sampler.init(jax.random.key(1), geometry())

    def sums(scale, params, near):
        field = lambda rays, intervals, *, level: scale * smooth_density(intervals.t_eval)  # noqa: E731
        rays = make_rays(2).replace(near=near)
        intervals, info = sampler.sample(
            jax.random.key(0), state.replace(params=params), rays, field, step=jnp.asarray(10)
        )
        weights = sum((jnp.sum(level.weights) for level in info.levels), start=0 * jnp.sum(scale))
        positions = [leaf for leaf in jax.tree.leaves(intervals) if leaf.dtype == jnp.float32]
        return weights, sum(jnp.sum(leaf) for leaf in [*positions, intervals.t_eval])

    of_weights, of_positions = jax.jit(jax.jacrev(sums, argnums=(0, 1, 2)), compiler_options=QUICK)(
        jnp.asarray(1.0), state.params, jnp.asarray([0.5, 1.0])
    )
    assert all(np.all(np.asarray(leaf) == 0) for leaf in jax.tree.leaves(of_positions))
    learned = sum(float(np.sum(np.abs(leaf))) for leaf in jax.tree.leaves(of_weights[:2]))
    assert (learned > 0) == (len(run(name, "midpoints")[1].levels) > 0)


@each_row
def test_works_under_strict_promotion(name):
    sampler = ROWS[name].make(6)

    def all_of_it(key, rays, step):
        state = sampler.init(key, geometry())
        intervals, info = sampler.sample(key, state, rays, smooth_field, step=step)
        rendering = render(rays, intervals, smooth_density(intervals.t_eval))
        return intervals, info, sampler.loss(info, rendering, step=step)

    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        intervals, _, losses = jax.eval_shape(all_of_it, jax.random.key(0), make_rays(3), jnp.asarray(3, jnp.int32))
    whole = {jnp.dtype(jnp.int32)} if isinstance(intervals, PackedIntervals) else set()
    assert {leaf.dtype for leaf in jax.tree.leaves((intervals, losses))} == {jnp.dtype(jnp.float32)} | whole
    assert all(value.shape == () for value in losses.values())


@each_row
def test_report_counts_the_evaluations(name):
    counted = {"field": 0, "network": 0}

    def counting_field(rays, intervals, *, level):
        counted["field"] += intervals.t_eval.shape[-1]
        return smooth_field(rays, intervals, level=level)

    def counting_apply(params, points):
        counted["network"] += points.radius.shape[-1]
        return peaked_network().apply(params, points)

    options = {}
    if ROWS[name].member in ("proposal", "compose", "adaptive"):
        options["network"] = peaked_network()._replace(apply=counting_apply)
    sampler = ROWS[name].make(COUNT, **options)
    state = sampler.init(jax.random.key(1), geometry())
    jax.eval_shape(
        lambda rays: sampler.sample(jax.random.key(0), state, rays, counting_field, step=jnp.asarray(0)), make_rays(3)
    )
    intervals, info = run(name, "midpoints")
    np.testing.assert_allclose(float(info.evaluations), counted["field"] + mean_count(intervals), rtol=1e-6)
    assert float(info.proposal_evaluations) == counted["network"] + ROWS[name].lookups
    assert int(info.overflow) == 0
    np.testing.assert_array_equal(info.t_end, make_rays().far)
