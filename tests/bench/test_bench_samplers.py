"""``nerfjax bench samplers``: exact references, statistics against oracles, and the whole document in small."""

from __future__ import annotations

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import wasserstein_distance

import nerfjax
from nerfjax.bench import costs, laboratory, sampler_tables
from nerfjax.bench.laboratory import Laboratory, Sizes
from nerfjax.bench.quality import error_parts, points_per_cell, wasserstein
from nerfjax.bench.recipes import BUDGETS, NETWORK, RECIPES, make_sampler
from nerfjax.bench.references import CELLS, geometry_and_cameras, make_reference, padded_rows
from nerfjax.bench.sampler_plots import COLORS
from nerfjax.bench.samplers import bench_samplers
from nerfjax.bench.warmup import WarmupSizes
from nerfjax.cli.main import main
from nerfjax.geometry.warps import t_from_s
from nerfjax.samplers import SAMPLERS
from nerfjax.scenes.analytic_field import evaluate_rows
from nerfjax.scenes.analytic_scenes import SCENES, primitives
from nerfjax.scenes.primitives import evaluate
from nerfjax.types import Intervals, PackedIntervals, zeros_int

SMALL = Sizes(rays=24, keys=2, timed_rays=64, repeats=1, warmup=WarmupSizes(steps=2, rays=16, grid_steps=1))


@pytest.fixture(scope="module", autouse=True)
def small_networks():
    """Compiling is what takes the time, and grids of few levels compile quickly."""
    with pytest.MonkeyPatch.context() as patch:
        for options, small in ((costs.MAIN_FIELD, dict(levels=2, log2_size=10)), (NETWORK, dict(levels=3))):
            for key, value in small.items():
                patch.setitem(options, key, value)
        yield


@pytest.fixture(scope="module")
def result():
    return bench_samplers(scenes=("fog",), samplers=("stratified", "hierarchical"), budgets=(8, 32), sizes=SMALL)


def test_every_sampler_has_a_recipe_and_a_colour():
    assert set(SAMPLERS) <= set(RECIPES) and set(SAMPLERS) <= set(COLORS)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_recipe_spends_its_budget(name):
    reference = make_reference("spheres", num_rays=8)
    for budget in BUDGETS:  # options of every budget are accepted
        sampler = make_sampler(name, budget, reference.geometry)
    sampler = make_sampler(name, 8, reference.geometry)

    def sample(key):
        def even(rays, intervals, *, level):
            return jnp.ones_like(intervals.t_mid)

        state = sampler.init(key, reference.geometry)
        return sampler.sample(key, state, reference.rays, even, step=jnp.int32(0))[1]

    quick = {"xla_backend_optimization_level": 0}
    info = jax.jit(sample, compiler_options=quick)(jax.random.key(0))
    assert 4 < info.evaluations <= 8


@pytest.mark.parametrize("scene", ["fog", "landscape"])
def test_the_reference_is_the_scene(scene):
    reference = make_reference(scene, num_rays=16)
    np.testing.assert_allclose(reference.cell_weights.sum(axis=-1), reference.accumulation, atol=1e-5)
    assert reference.cell_weights.shape == (16, CELLS) and float(reference.accumulation.max()) > 0.5
    x = np.random.default_rng(0).uniform(-1.2, 1.2, (500, 3)).astype(np.float32)
    density, color = evaluate_rows(padded_rows(scene), jnp.asarray(x))
    expected_density, expected_color = evaluate(primitives(scene), x)
    same = np.isclose(density, expected_density, rtol=1e-5)
    assert same.mean() > 0.99
    np.testing.assert_allclose(np.asarray(color)[same], expected_color[same], atol=2e-4)
    assert len({tuple(row.shape for row in padded_rows(other)) for other in SCENES}) == 1


def test_bounded_scenes_share_their_geometry():
    lab = Laboratory(("wires", "fog", "landscape"), SMALL._replace(rays=4))
    assert lab._geometries["wires"] == lab._geometries["fog"] != lab._geometries["landscape"]


def test_wasserstein_against_an_oracle():
    rng, middles = np.random.default_rng(0), (np.arange(CELLS) + 0.5) / CELLS
    weights = rng.uniform(size=(3, CELLS)) * (rng.uniform(size=(3, CELLS)) > 0.9)
    weights[0] *= 0.0  # an empty ray does not count
    weights[1:] *= 0.7 / weights[1:].sum(axis=-1, keepdims=True)
    points = rng.multinomial(7, np.full(CELLS, 1 / CELLS), size=3).astype(np.float64)
    expected = np.mean([wasserstein_distance(middles, middles, points[i], weights[i]) for i in (1, 2)])
    found = wasserstein(*(jnp.asarray(x, jnp.float32) for x in (points, weights, weights.sum(axis=-1))))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_points_are_counted_in_their_cells_dense_and_packed():
    rays = make_reference("landscape", num_rays=3).rays
    s = jnp.asarray([[0.1, 0.2503, 0.7], [0.0, 0.5003, 0.9999], [0.3, 0.3, 0.3]])
    t = t_from_s("piecewise", s, rays.near, rays.far)
    edges = jnp.concatenate([t, rays.far[:, None]], axis=-1)
    dense = points_per_cell("piecewise", rays, Intervals(t=edges, s=edges, t_point=t))
    expected = np.zeros((3, CELLS))
    for ray in range(3):
        for place in np.asarray(s[ray]):
            expected[ray, int(place * CELLS)] += 1
    np.testing.assert_array_equal(dense, expected)
    ray = jnp.asarray([0, 0, 0, 2, 2, 2, 3], jnp.int32)  # the second ray has none, the last slot is padding
    ends = jnp.concatenate([t[0], t[2], jnp.zeros(1)])
    counts = jnp.asarray([3, 0, 3], jnp.int32)
    packed = PackedIntervals(ends, ends, ray, jnp.cumsum(counts, dtype=jnp.int32) - counts, counts, zeros_int())
    expected[1] = 0
    np.testing.assert_array_equal(points_per_cell("piecewise", rays, packed), expected)


def test_bias_and_deviation_are_told_apart():
    rng = np.random.default_rng(0)
    bias, deviation = error_parts(0.3 + 0.2 * rng.standard_normal((4, 20_000, 3)))
    assert abs(bias - 0.3) < 3e-3 and abs(deviation - 0.2) < 3e-3
    bias, deviation = error_parts(0.2 * rng.standard_normal((2, 20_000, 3)))
    assert bias < 0.02 and abs(deviation - 0.2) < 3e-3


def test_the_document_keeps_its_schema(result):
    schema = json.loads((pathlib.Path(nerfjax.__file__).parent / "schemas" / "bench_samplers.schema.json").read_text())
    assert set(result) == set(schema["required"]) == set(schema["properties"])
    rows = schema["properties"]["rows"]["items"]
    assert all(set(row) == set(rows["required"]) == set(rows["properties"]) for row in result["rows"])
    assert json.loads(json.dumps(result, allow_nan=False))["equal_cost"] == result["equal_cost"]
    assert [(row["sampler"], row["budget"]) for row in result["rows"]] == [
        (name, budget) for name in ("stratified", "hierarchical") for budget in (8, 32)
    ]


def test_more_evaluations_err_less_and_cost_more(result):
    for name in ("stratified", "hierarchical"):
        few, many = (row for row in result["rows"] if row["sampler"] == name)
        assert many["rmse"] < few["rmse"] and few["evaluations"] == 8 and many["evaluations"] == 32
        assert many["flop_evaluations"] == 32 and many["peak_bytes"] > few["peak_bytes"] > 0
        np.testing.assert_allclose(few["rmse"] ** 2, few["bias"] ** 2 + few["deviation"] ** 2, rtol=1e-6)
    even, drawn = (row for row in result["rows"] if row["budget"] == 32)
    assert drawn["wasserstein"] < even["wasserstein"] and drawn["useful"] > even["useful"]
    assert 5_000 < result["main_field"]["flops"] < 50_000 and 100 < result["proposal_network"]["flops"] < 10_000


def test_networks_are_fitted_and_their_cost_is_counted():
    lab = Laboratory(("fog",), SMALL._replace(warmup=WarmupSizes(steps=200, rays=64)))
    warmup, untouched = lab.warmup("proposal", "fog"), make_sampler("proposal", 32, lab.references["fog"].geometry)
    assert warmup.main_evaluations == 200 * 64 * 32 and warmup.proposal_evaluations == 200 * 64 * 128
    assert warmup.seconds > 0
    start = untouched.init(jax.random.key(0), lab.references["fog"].geometry)
    ready, fitted = lab.ready("proposal", 8, "fog"), lab.quality("proposal", 8, "fog")
    assert fitted.wasserstein < 0.9 * lab.measure("proposal", 8, "fog", ready._replace(state=start)).wasserstein


def test_steps_are_as_fine_as_the_budget_allows():
    if "occupancy" not in SAMPLERS:
        pytest.skip("there is no stepping sampler")
    lab = Laboratory(("spheres",), SMALL._replace(rays=64, warmup=WarmupSizes(grid_steps=2)))
    quality = lab.quality("occupancy", 16, "spheres")
    assert quality.overflow == 0 and 16 / laboratory.NOTCH**2 < quality.evaluations <= 16
    assert lab.warmup("occupancy", "spheres").main_evaluations > 64**3


def test_errors_are_compared_at_equal_cost():
    rows = [dict(cost=cost, rmse=1.0 / cost) for cost in (8, 16, 64)]
    assert abs(sampler_tables.rmse_at_cost(rows, "cost", 32) - 1 / 32) < 1e-9
    assert sampler_tables.rmse_at_cost(rows, "cost", 8) == pytest.approx(0.125)
    assert (
        sampler_tables.rmse_at_cost(rows, "cost", 7) is None and sampler_tables.rmse_at_cost(rows, "cost", 65) is None
    )


def test_the_command_prints_and_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(laboratory, "FULL", SMALL)
    flags = ["--scenes=fog", "--samplers=stratified", "--budgets=8", "--rays=8", "--keys=2", "--no-timing"]
    assert main(["bench", "samplers", *flags, f"--out={tmp_path}", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["rows"][0]["milliseconds"] is None and out["rays"] == 8
    assert {file.name for file in tmp_path.iterdir()} >= {"rmse_by_evaluations.png", "wasserstein.png", "useful.png"}
    sampler_tables.print_samplers(out)
    assert "stratified" in capsys.readouterr().out
    assert main(["bench", "samplers", "--scenes=frog"]) == 2
    assert "fog" in capsys.readouterr().err


def test_every_scene_has_test_views():
    geometry, cameras = geometry_and_cameras("landscape")
    assert len(cameras) == 8 and not geometry.bounded
