from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.scenes import primitives as exact
from nerfjax.scenes.analytic_field import analytic_field
from nerfjax.scenes.analytic_scenes import SCENES, primitives
from nerfjax.types import Intervals, Points, Rays


@pytest.mark.parametrize("name", SCENES)
def test_device_values_equal_the_float64_ones(name):
    x = np.random.default_rng(0).uniform(-1.2, 1.2, (50, 40, 3)).astype(np.float32)
    with jax.numpy_dtype_promotion("strict"):
        field = analytic_field(name)
        density, features = jax.jit(field.density)(Points(jnp.asarray(x), jnp.zeros(x.shape[:-1])))
        color = field.color(features, jnp.zeros_like(features))
    expected_density, expected_color = exact.evaluate(primitives(name), x)
    same = np.isclose(density, expected_density, rtol=1e-5)
    assert same.mean() > 0.999  # float32 may put a point on the other side of a surface
    np.testing.assert_allclose(np.asarray(color)[same], expected_color[same], atol=2e-4)


def test_it_is_a_flax_module_without_parameters():
    field = analytic_field("fog")
    points = Points(jnp.zeros((3, 3)), jnp.zeros(3))
    assert field.init(jax.random.key(0), points, jnp.zeros((3, 3))) == {}
    density, _ = field.apply({}, points, method="density")
    assert density.shape == (3,) and (density > 0).all()
    assert field.point_kind == "point"


def test_midpoint_rule_over_the_field_converges_to_the_exact_weights():
    origins, directions = (
        np.array([[0.1, 0.05, 4.0], [4.0, 0.2, 0.1]], np.float32),
        np.array([[0, 0, -1.0], [-1, 0, 0]]),
    )
    field = analytic_field("fog")
    errors = []
    for count in (64, 512):
        t = np.broadcast_to(np.linspace(2, 6, count + 1), (2, count + 1))
        rays = Rays(
            jnp.asarray(origins),
            jnp.asarray(directions, jnp.float32),
            jnp.full(2, 2.0),
            jnp.full(2, 6.0),
            jnp.full(2, 1e-3),
            jnp.zeros(2, jnp.int32),
            jnp.arange(2),
        )
        intervals = Intervals(t=jnp.asarray(t, jnp.float32), s=jnp.asarray((t - 2) / 4, jnp.float32))
        density = np.asarray(field.interval_density(rays, intervals, level=0), np.float64)
        through = np.exp(-np.cumsum(density * np.diff(t), -1))
        expected = np.exp(-exact.optical_depth(primitives("fog"), origins, directions, 2.0, t))[:, 1:]
        errors.append(np.abs(through - expected).mean())
    assert errors[1] < 0.3 * errors[0] and errors[1] < 2e-3


def test_density_has_a_finite_gradient_everywhere():
    field = analytic_field("toys")
    x = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (200, 3)), jnp.float32)
    gradient = jax.grad(lambda x: sum(jnp.sum(part) for part in field.density(Points(x, jnp.zeros(200)))))(x)
    assert jnp.isfinite(gradient).all()


def test_unknown_scene():
    with pytest.raises(UserError, match="did you mean 'wires'"):
        analytic_field("wire")
