"""Finite arithmetic, streams of rays, the epoch's permutation and the segmented scans."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nerfjax import numerics

LARGE = (2**32 - 1, 2**32, 2**32 + 1, 65536**2 - 65536, 99991**2, 99991**2 + 1, 10**10 - 1, 10**10)
MEDIUM = sorted(
    {2**k + d for k in range(10, 17) for d in (-1, 0, 1)}
    | {n * n + d for n in (31, 64, 101, 250) for d in (-1, 0, 1)}
    | {n * (n + 1) + d for n in (33, 128) for d in (-1, 0, 1)}
    | {997, 1009, 7919, 65521, 65537}
)


@pytest.fixture(autouse=True)
def strict_promotion():
    with jax.numpy_dtype_promotion("strict"):
        yield


# ---------------------------------------------------------------------------- finite values and gradients


def test_safe_exp_is_exp_where_it_can_be():
    x = jnp.linspace(-14.0, 14.0, 57)
    value, gradient = jax.vmap(jax.value_and_grad(numerics.safe_exp))(x)
    np.testing.assert_allclose(value, np.exp(np.asarray(x, np.float64)), rtol=2e-6)
    np.testing.assert_allclose(gradient, value, rtol=2e-6)


def test_safe_exp_stays_finite_and_can_come_back():
    x = jnp.asarray([-jnp.inf, -1e30, -100.0, 80.0, 100.0, 1e30, jnp.inf])
    value, gradient = jax.vmap(jax.value_and_grad(numerics.safe_exp))(x)
    assert np.all(np.isfinite(value)) and np.all(np.diff(value) >= 0)
    assert np.all(np.isfinite(gradient)) and np.all(np.asarray(gradient) > 0)
    np.testing.assert_allclose(gradient[0], math.exp(-15), rtol=1e-5)
    assert np.isnan(numerics.safe_exp(jnp.float32(jnp.nan)))


def test_safe_sqrt():
    x = jnp.asarray([-1.0, 0.0, 1e-38, 1e-20, 4.0, 1e38])
    value, gradient = jax.vmap(jax.value_and_grad(numerics.safe_sqrt))(x)
    np.testing.assert_allclose(value[3:], np.sqrt(np.asarray(x[3:], np.float64)), rtol=1e-6)
    np.testing.assert_array_equal(value[:2], 0.0)
    np.testing.assert_array_equal(gradient[:2], 0.0)
    np.testing.assert_allclose(gradient[4], 0.25)
    assert np.all(np.isfinite(gradient)) and np.isnan(numerics.safe_sqrt(jnp.float32(jnp.nan)))


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1.0, 1e18, 1e30])
def test_safe_norm_at_every_scale(scale):
    x = np.random.default_rng(0).normal(size=(50, 3)) * scale
    value, gradient = jax.vmap(jax.value_and_grad(numerics.safe_norm))(jnp.asarray(x, jnp.float32))
    norm = np.linalg.norm(x, axis=-1)
    np.testing.assert_allclose(value, norm, rtol=1e-6)
    np.testing.assert_allclose(gradient, x / norm[:, None], atol=1e-6)


def test_safe_norm_at_zero_and_of_axes():
    assert numerics.safe_norm(jnp.zeros(3)) == 0.0
    np.testing.assert_array_equal(jax.grad(numerics.safe_norm)(jnp.zeros(3)), 0.0)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 3, 4)), jnp.float32)
    assert numerics.safe_norm(x, axis=1, keepdims=True).shape == (2, 1, 4)
    np.testing.assert_allclose(numerics.safe_norm(x, axis=1), np.linalg.norm(x, axis=1), rtol=1e-6)
    assert np.isnan(numerics.safe_norm(jnp.asarray([0.0, jnp.nan, 1.0])))


def test_safe_divide():
    a, b = jnp.asarray([1.0, 0.0, 3.0, 1.0]), jnp.asarray([0.0, 0.0, -2.0, 1e-17])
    np.testing.assert_allclose(numerics.safe_divide(a, b), [0.0, 0.0, -1.5, 1e17], rtol=1e-6)
    gradients = jax.grad(lambda a, b: jnp.sum(numerics.safe_divide(a, b)), argnums=(0, 1))(a, b)
    np.testing.assert_allclose(gradients[0], [0.0, 0.0, -0.5, 1e17], rtol=1e-6)
    assert np.all(np.isfinite(gradients[1])) and np.isclose(gradients[1][2], -0.75)
    assert np.isnan(numerics.safe_divide(jnp.float32(jnp.nan), jnp.float32(1.0)))


# ---------------------------------------------------------------------------- randomness of a ray


def test_a_rays_numbers_do_not_depend_on_its_batch():
    key = jax.random.key(3)
    whole = numerics.ray_uniform(key, jnp.arange(40, dtype=jnp.int32), (5,))
    parts = [numerics.ray_uniform(key, jnp.arange(i, i + 8, dtype=jnp.int32), (5,)) for i in range(0, 40, 8)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    alone = jax.random.uniform(jax.random.fold_in(key, 17), (5,))
    np.testing.assert_array_equal(whole[17], alone)


def test_rays_numbers_are_uniform_and_independent():
    u = np.asarray(numerics.ray_uniform(jax.random.key(0), jnp.arange(4000, dtype=jnp.int32), (2,)))
    assert u.shape == (4000, 2) and u.min() >= 0 and u.max() < 1
    for values in (u[:, 0], u[:, 1]):
        assert stats.kstest(values, "uniform").pvalue > 1e-4
    for a, b in ((u[:, 0], u[:, 1]), (u[1:, 0], u[:-1, 0])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(len(a))
    other = np.asarray(numerics.ray_uniform(jax.random.key(1), jnp.arange(4000, dtype=jnp.int32), (2,)))
    assert np.mean(other == u) < 0.01


# ---------------------------------------------------------------------------- the order of an epoch


def numpy_permutation(position, total: int, seed: int = 0, epoch: int = 0) -> np.ndarray:
    keys = numerics.permutation_keys(seed, epoch, xp=np)
    high, low = numerics.permute_index(*numerics.digits_of(position, total), total=total, keys=keys, xp=np)
    assert high.dtype == low.dtype == np.uint32
    return high.astype(np.int64) * numerics.permutation_radix(total) + low


def inverse_permutation(position, total: int, seed: int = 0, epoch: int = 0) -> np.ndarray:
    """The rounds undone one by one, in 64-bit arithmetic."""
    radix = numerics.permutation_radix(total)
    rows, keys = -(-total // radix), numerics.permutation_keys(seed, epoch, xp=np)
    position = np.array(position, np.int64)
    outside = np.ones(position.shape, bool)
    while outside.any():
        high, low = np.divmod(position[outside], radix)
        for i in reversed(range(0, len(keys), 2)):
            low = (low - numerics._hash_uint32(high.astype(np.uint32) ^ keys[i + 1])) % radix
            high = (high - numerics._hash_uint32(low.astype(np.uint32) ^ keys[i])) % rows
        position[outside] = high * radix + low
        outside = position >= total
    return position


@pytest.mark.parametrize(
    "sizes", [range(1, 201), range(201, 401), range(401, 601), MEDIUM], ids=lambda s: f"to_{s[-1]}"
)
def test_the_permutation_is_a_bijection_of_every_size(sizes):
    for total in sizes:
        image = numpy_permutation(np.arange(total), total, seed=total)
        np.testing.assert_array_equal(np.sort(image), np.arange(total))


@pytest.mark.parametrize("total", LARGE)
def test_the_permutation_of_billions_is_inverted(total):
    rng = np.random.default_rng(total)
    position = np.unique(np.concatenate([np.arange(2000), total - 1 - np.arange(2000), rng.integers(0, total, 20000)]))
    image = numpy_permutation(position, total, seed=5, epoch=9)
    assert image.min() >= 0 and image.max() < total and len(np.unique(image)) == len(position)
    np.testing.assert_array_equal(inverse_permutation(image, total, seed=5, epoch=9), position)
    # and every position is somebody's image
    np.testing.assert_array_equal(numpy_permutation(inverse_permutation(position, total), total), position)


@pytest.mark.parametrize("total", [1, 2, 3, 4, 5, 17, 256, 257, 600, 7919, 65537, *LARGE[1:3], *LARGE[-2:]])
def test_numpy_and_jax_agree_on_the_permutation(total):
    rng = np.random.default_rng(total)
    position = np.arange(total) if total <= 600 else np.append(rng.integers(0, total, 3000), [0, total - 1])
    high, low = numerics.digits_of(position, total)

    @jax.jit
    def permute(seed, epoch, high, low):
        return numerics.permute_index(high, low, total=total, keys=numerics.permutation_keys(seed, epoch))

    for seed, epoch in ((0, 0), (7, 3), (2**31 - 1, 2**31 - 1)):
        got = permute(jnp.int32(seed), jnp.uint32(epoch), high, low)
        assert got[0].dtype == got[1].dtype == jnp.uint32
        want = numpy_permutation(position, total, seed, epoch)
        np.testing.assert_array_equal(
            np.asarray(got[0], np.int64) * numerics.permutation_radix(total) + np.asarray(got[1]), want
        )


def test_round_keys_differ_and_take_integers_of_any_size():
    keys = [
        tuple(numerics.permutation_keys(seed, epoch, xp=np).tolist()) for seed in range(-5, 40) for epoch in range(40)
    ]
    flat = [key for row in keys for key in row]
    assert len(set(keys)) == len(keys) and len(set(flat)) > 0.99 * len(flat)
    for seed in (-1, 2**40 + 3):
        np.testing.assert_array_equal(
            numerics.permutation_keys(seed, 1), numerics.permutation_keys(seed % 2**32, 1, xp=np)
        )
    np.testing.assert_array_equal(
        numerics.permutation_keys(jnp.int32(-1), jnp.uint32(1)), numerics.permutation_keys(-1, 1, xp=np)
    )


def test_the_domain_is_tight_and_its_ends_are_checked():
    for total in (*range(1, 2000), *LARGE):
        radix = numerics.permutation_radix(total)
        rows = -(-total // radix)
        assert radix - 2 <= rows <= radix and 0 <= rows * radix - total < radix
    for total in (0, -1, 10**10 + 1):
        with pytest.raises(ValueError, match="total"):
            numerics.permutation_radix(total)


def test_positions_outside_come_back_unchanged():
    total, keys = 11, numerics.permutation_keys(0, 0, xp=np)  # domain 3 x 4: one pair too many
    high, low = np.asarray([2, 50], np.uint32), np.asarray([3, 60], np.uint32)
    got = numerics.permute_index(high, low, total=total, keys=keys, xp=np)
    np.testing.assert_array_equal(got, [high, low])


@pytest.mark.parametrize("total", [600, 4096, 99991, 10**6 + 3, 10**10])
def test_the_order_looks_random(total):
    count = min(total, 40000)
    image = numpy_permutation(np.arange(count), total, seed=1) / total
    bins = 40
    if count < total:  # a part of the order covers everything evenly
        assert stats.chisquare(np.histogram(image, bins, (0, 1))[0]).pvalue > 1e-4
    for lag in (1, 2, numerics.permutation_radix(total)):
        if lag < count // 2:
            assert abs(np.corrcoef(image[lag:], image[:-lag])[0, 1]) < 5 / math.sqrt(count - lag), lag
            # neighbours' places are spread over the unit square, not along lines
            table = np.histogram2d(image[lag:], image[:-lag], bins=6, range=((0, 1), (0, 1)))[0]
            assert stats.chisquare(table.ravel()).pvalue > 1e-4, lag
    assert abs(np.corrcoef(image, np.arange(count))[0, 1]) < 5 / math.sqrt(count)
    later = numpy_permutation(np.arange(count), total, seed=1, epoch=1) / total
    assert abs(np.corrcoef(image, later)[0, 1]) < 5 / math.sqrt(count)
    steps = np.abs(np.diff(image))
    assert abs(steps.mean() - 1 / 3) < 5 * math.sqrt(1 / 18 / count)


@pytest.mark.parametrize("total", [3, 4, 5])
def test_all_orders_of_a_few_are_equally_likely(total):
    epochs = 1500
    orders = {}
    for epoch in range(epochs):
        order = tuple(numpy_permutation(np.arange(total), total, seed=2, epoch=epoch).tolist())
        orders[order] = orders.get(order, 0) + 1
    assert len(orders) == math.factorial(total)
    assert stats.chisquare(list(orders.values())).pvalue > 1e-4


def test_every_position_goes_everywhere():
    total, epochs = 30, 1500
    table = np.zeros((total, total), np.int64)
    for epoch in range(epochs):
        table[np.arange(total), numpy_permutation(np.arange(total), total, seed=4, epoch=epoch)] += 1
    for row in table:
        assert stats.chisquare(row).pvalue > 1e-5
    fixed_points = np.trace(table) / epochs
    assert abs(fixed_points - 1) < 5 / math.sqrt(epochs)


@pytest.mark.parametrize("total", [1, 5, 600, 2**32 + 1, 10**10])
@pytest.mark.parametrize("batch", [1, 7, 4096, 2**20])
def test_epoch_position_is_exact(total, batch):
    batches = -(-total // batch)
    lane = np.unique(np.concatenate([np.arange(min(batch, 300)), batch - 1 - np.arange(min(batch, 50))]))
    position = jax.jit(functools.partial(numerics.epoch_position, batch=batch, total=total))
    for step in (0, 1, 2, batches - 1, batches, batches + 1, 12345678, 2**31 - 1):
        step = min(step, 2**31 - 1)
        epoch, high, low = numerics.epoch_position(step, batch, total, lane, xp=np)
        assert int(epoch) == step // batches
        want = [((step % batches) * batch + int(i)) % total for i in lane]
        radix = numerics.permutation_radix(total)
        np.testing.assert_array_equal(high.astype(np.int64) * radix + low, want)
        assert np.all(low < radix)
        traced = position(step=jnp.int32(step), lane=jnp.asarray(lane, jnp.int32))
        for a, b in zip(traced, (epoch, high, low), strict=True):
            assert a.dtype == jnp.uint32
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("batch", "total"), [(1, 7), (4, 32), (5, 32), (50, 32), (33, 1000)])
def test_an_epoch_visits_everything(batch, total):
    batches, seen = -(-total // batch), []
    for step in range(batches):
        epoch, high, low = numerics.epoch_position(3 * batches + step, batch, total, np.arange(batch), xp=np)
        assert epoch == 3
        keys = numerics.permutation_keys(0, epoch, xp=np)
        high, low = numerics.permute_index(high, low, total=total, keys=keys, xp=np)
        seen.extend((high.astype(np.int64) * numerics.permutation_radix(total) + low).tolist())
    visits = np.bincount(seen, minlength=total)
    assert visits.min() >= 1 and visits.sum() == batches * batch
    assert visits.max() <= -(-batches * batch // total)


def test_batch_size_is_checked():
    with pytest.raises(ValueError, match="batch"):
        numerics.epoch_position(0, 0, 10, np.arange(1), xp=np)


# ---------------------------------------------------------------------------- segmented scans

LENGTHS = (3, 1, 0, 40, 2, 7)
IDS = np.repeat(np.arange(len(LENGTHS)), LENGTHS).astype(np.int32)


def slow_scan(values: np.ndarray, ids: np.ndarray, combine, identity: float, exclusive: bool) -> np.ndarray:
    out, total = np.zeros(values.shape), identity
    for i, value in enumerate(values.astype(np.float64)):
        total = identity if i == 0 or ids[i] != ids[i - 1] else total
        out[i] = total if exclusive else combine(total, value)
        total = combine(total, value)
    return out


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize(
    ("scan", "combine", "identity"),
    [(numerics.segmented_cumsum, np.add, 0.0), (numerics.segmented_cumprod, np.multiply, 1.0)],
)
def test_segmented_scans(scan, combine, identity, shape, exclusive):
    values = np.random.default_rng(0).uniform(0.3, 1.3, (len(IDS), *shape)).astype(np.float32)
    got = jax.jit(lambda v, i: scan(v, i, exclusive=exclusive))(values, IDS)
    np.testing.assert_allclose(got, slow_scan(values, IDS, combine, identity, exclusive), rtol=1e-5)


def test_a_segment_does_not_feel_the_one_before():
    values = np.asarray([1e20, 1e20, 1e-3, 2e-3, jnp.inf, 1.0], np.float32)
    ids = np.asarray([0, 0, 1, 1, 2, 3], np.int32)
    got = numerics.segmented_cumsum(jnp.asarray(values), jnp.asarray(ids))
    np.testing.assert_allclose(got, [1e20, 2e20, 1e-3, 3e-3, np.inf, 1.0], rtol=1e-6)


@pytest.mark.parametrize("exclusive", [False, True])
def test_gradients_of_segmented_products_with_zeros(exclusive):
    values = np.asarray([0.5, 0.0, 3.0, 2.0, 0.0, 0.0, 4.0])
    ids = np.asarray([0, 0, 0, 1, 1, 1, 1], np.int32)
    weights = np.arange(1.0, 8.0)

    def objective(v):
        scanned = numerics.segmented_cumprod(v, jnp.asarray(ids), exclusive=exclusive)
        return jnp.sum(scanned * jnp.asarray(weights, jnp.float32))

    gradient = jax.grad(objective)(jnp.asarray(values, jnp.float32))
    for i in range(len(values)):  # exact central differences: the product is linear in each value
        ends = [
            slow_scan(values + d * (np.arange(7) == i), ids, np.multiply, 1.0, exclusive) @ weights for d in (1, -1)
        ]
        np.testing.assert_allclose(gradient[i], (ends[0] - ends[1]) / 2, rtol=1e-5, atol=1e-6)


def test_segment_sum_leaves_padding_out():
    values = np.random.default_rng(0).normal(size=(len(IDS) + 4, 2)).astype(np.float32)
    ids = np.concatenate([IDS, np.full(4, len(LENGTHS), np.int32)])
    got = numerics.segment_sum(jnp.asarray(values), jnp.asarray(ids), len(LENGTHS))
    want = [values[ids == k].astype(np.float64).sum(0) for k in range(len(LENGTHS))]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
