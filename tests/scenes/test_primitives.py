"""The closed forms against Gauss-Legendre quadrature of the point evaluation, and against formulas done by hand."""

from __future__ import annotations

import numpy as np
import pytest

from nerfjax.scenes import primitives as exact
from nerfjax.scenes.analytic_scenes import SCENES, UNBOUNDED, primitives
from nerfjax.scenes.looks import Builder, plain, stripes

NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(40)


def random_rays(name, count=20, seed=0):
    rng = np.random.default_rng(seed)
    origins = rng.normal(size=(count, 3))
    origins *= (0.9 if name in UNBOUNDED else 4.0) / np.linalg.norm(origins, axis=-1, keepdims=True)
    if name in UNBOUNDED:
        origins[:, 2] = np.abs(origins[:, 2])
    directions = rng.uniform(-0.8, 0.8, (count, 3)) - origins
    return origins, directions / np.linalg.norm(directions, axis=-1, keepdims=True)


def quadrature(scene, origin, direction, near, far):
    """Colour, transmittance and depth of one ray from point values only, cut where the density jumps."""
    entry, exit_ = exact.intersect(scene, origin[None], direction[None], near, far)
    cuts = np.unique(np.concatenate([[near], entry[0], exit_[0], [far]]))
    optical, color, depth = 0.0, np.zeros(3), 0.0
    for a, b in zip(cuts[:-1], cuts[1:], strict=True):
        if b - a < 1e-9:  # rounding of two surfaces that touch
            continue
        sigma = exact.evaluate(scene, origin + 0.5 * (a + b) * direction)[0]
        stop = min(b, a + 30.0 / max(sigma, 1e-9))  # the light beyond is below 1e-13
        t = a + 0.5 * (NODES + 1) * (stop - a)
        density, values = exact.evaluate(scene, origin + t[:, None] * direction)
        np.testing.assert_allclose(density, sigma)
        w = 0.5 * (stop - a) * NODE_WEIGHTS * density * np.exp(-optical - density * (t - a))
        color, depth = color + w @ values, depth + w @ t
        optical += sigma * (b - a)
    return color, np.exp(-optical), depth + np.exp(-optical) * far


@pytest.mark.parametrize("name", SCENES)
def test_closed_form_equals_quadrature(name):
    scene, far = primitives(name), 150.0 if name in UNBOUNDED else 7.0
    origins, directions = random_rays(name)
    rays = exact.render_rays(scene, origins, directions, 0.5, far)
    assert np.mean(rays.accumulation > 0.5) > 0.2
    for i in range(len(origins)):
        color, transmittance, depth = quadrature(scene, origins[i], directions[i], 0.5, far)
        np.testing.assert_allclose(rays.color[i], color, atol=1e-7)
        np.testing.assert_allclose(rays.transmittance[i], transmittance, atol=1e-12)
        np.testing.assert_allclose(rays.depth[i], depth, rtol=1e-7)


@pytest.mark.parametrize("name", SCENES)
def test_intersections_bound_the_points_that_are_inside(name):
    scene = primitives(name)
    origins, directions = random_rays(name, seed=1)
    t = np.random.default_rng(2).uniform(0.5, 7.0, (len(origins), 200))
    density, _ = exact.evaluate(scene, origins[:, None] + t[..., None] * directions[:, None])
    entry, exit_ = exact.intersect(scene, origins, directions, 0.0, np.inf)
    inside = (entry[:, None] < t[..., None]) & (t[..., None] < exit_[:, None])
    np.testing.assert_allclose(density, inside @ scene.density)
    assert density.max() > 0


@pytest.mark.parametrize("name", SCENES)
def test_colors_are_displayable_and_objects_fit_their_box(name):
    scene = primitives(name)
    points = np.random.default_rng(0).uniform(-3, 3, (40000, 3))
    density, color = exact.evaluate(scene, points)
    assert color.min() >= 0 and color.max() <= 1
    assert density.max() > 0
    if name not in UNBOUNDED:
        assert not density[np.abs(points).max(-1) > 1.5].any()


def test_one_ball_by_hand():
    b = Builder()
    b.ball((0.0, 0.0, 0.0), 0.5, 2.0, plain((0.2, 0.4, 0.8)), shade=0)
    rays = exact.render_rays(b.build(), [[0, 0, 3.0], [0, 0.3, 3.0], [0, 0.6, 3.0]], [[0, 0, -1.0]] * 3, 0.0, 10.0)
    chord = np.array([1.0, 0.8, 0.0])
    through = np.exp(-2 * chord)
    np.testing.assert_allclose(rays.transmittance, through, rtol=1e-12)
    np.testing.assert_allclose(rays.color, (1 - through)[:, None] * [0.2, 0.4, 0.8], rtol=1e-12)
    entry = 3 - chord / 2
    mean = entry * (1 - through) + (1 - through * (1 + 2 * chord)) / 2 + 10 * through
    np.testing.assert_allclose(rays.depth, mean, rtol=1e-12)
    white = exact.render_rays(b.build(), [[0, 0, 3.0]], [[0, 0, -1.0]], 0.0, 10.0, background=(1.0, 1.0, 1.0))
    np.testing.assert_allclose(white.color[0], rays.color[0] + through[0], rtol=1e-12)


def test_overlap_adds_density_and_averages_color_by_density():
    b = Builder()
    b.box((0.0, 0.0, 0.0), 1.0, 1.0, plain((1.0, 0.0, 0.0)), shade=0)
    b.slab((0, 0, 1), -1.0, 1.0, 3.0, plain((0.0, 0.0, 1.0)))
    scene = b.build()
    density, color = exact.evaluate(scene, np.zeros(3))
    assert density == 4.0
    np.testing.assert_allclose(color, [0.25, 0, 0.75])
    rays = exact.render_rays(scene, [[0.0, 0, 5]], [[0.0, 0, -1]], 0.0, 20.0)
    np.testing.assert_allclose(rays.color[0], (1 - np.exp(-8)) * np.array([0.25, 0, 0.75]), rtol=1e-9)


def test_rays_along_axes_and_inside_parallel_planes():
    b = Builder()
    b.disc((0, 0, 0), 0.5, 1.0, 1.0, plain((1.0, 1.0, 1.0)), shade=0)
    b.slab((0, 1, 0), 2.0, 3.0, 1.0, plain((1.0, 1.0, 1.0)))
    origins = np.array([[0.0, 0, 5], [0.6, 0, 5], [0, 2.5, 5], [0, 3.5, 5]])
    with np.errstate(all="raise", under="ignore"):
        entry, exit_ = exact.intersect(b.build(), origins, [[0.0, 0, -1]] * 4, 0.0, 10.0)
    np.testing.assert_allclose((exit_ - entry)[[0, 2], [0, 1]], [2.0, 10.0])
    assert (exit_ <= entry)[[0, 1, 1, 2, 3, 3], [1, 0, 1, 0, 0, 1]].all()


@pytest.mark.parametrize("name", ["toys", "fog"])
def test_weights_of_intervals_sum_to_the_opacity(name):
    origins, directions = random_rays(name)
    t = np.sort(np.random.default_rng(3).uniform(1.0, 7.0, (len(origins), 33)), axis=-1)
    weights = exact.exact_weights(primitives(name), origins, directions, t)
    rays = exact.render_rays(primitives(name), origins, directions, t[:, 0], t[:, -1])
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(-1), rays.accumulation, atol=1e-12)


def test_color_of_a_ray_is_that_of_its_two_halves():
    origins, directions = random_rays("fog")
    scene = primitives("fog")
    whole, first, second = (exact.render_rays(scene, origins, directions, *ends) for ends in ((1, 7), (1, 4), (4, 7)))
    np.testing.assert_allclose(whole.color, first.color + first.transmittance[:, None] * second.color, atol=1e-12)
    np.testing.assert_allclose(whole.transmittance, first.transmittance * second.transmittance, atol=1e-12)


def test_a_look_that_would_leave_the_displayable_range_is_damped():
    b = Builder()
    b.ball((0.0, 0.0, 0.0), 1.0, 1.0, stripes((2.0, 1.0, 1.0), (0.0, 0.0, 0.0), (1, 0, 0)), shade=0)
    _, color = exact.evaluate(b.build(), np.random.default_rng(0).uniform(-0.5, 0.5, (1000, 3)))
    assert color.min() >= 0 and color.max() <= 1


def test_chunks_change_nothing(monkeypatch):
    origins, directions = random_rays("toys")
    whole = exact.render_rays(primitives("toys"), origins, directions, 0.5, 7.0)
    monkeypatch.setattr(exact, "_CHUNK", 7)
    parts = exact.render_rays(primitives("toys"), origins, directions, 0.5, 7.0)
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-14)
