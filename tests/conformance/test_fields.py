"""Every field keeps the contract of ``fields/base.py``; a new member is a new row."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.fields import DENSITY_NETWORKS, FIELDS
from nerfjax.geometry.cameras import cameras_from
from nerfjax.geometry.casting import cast_balls
from nerfjax.renderer import init_field
from nerfjax.types import Conditioning, Points, SceneGeometry

SMALL = {
    "nerf": dict(width=16, depth=6, color_width=8),
    "mipnerf": dict(width=16, depth=6, color_width=8),
    "mipnerf360": dict(width=16, depth=6, bottleneck_width=8, color_width=8),
    "instant_ngp": dict(levels=4, log2_size=10, max_resolution=64, density_width=8, color_width=8),
    "zipnerf": dict(levels=3, log2_size=10, max_resolution=64, density_width=8, bottleneck_width=8, color_width=8),
    "tensorf": dict(resolution=8, density_components=2, appearance_components=3, features=4, color_width=8),
    "kplanes": dict(resolution=8, multipliers=(1, 2), features=4, density_width=8, color_width=8),
    "plenoxels": dict(resolution=8),
    "tpu": dict(resolution=16, features=8, coefficients=4, density_width=8, color_width=8),
}
SMALL_NETWORKS = {
    "hashgrid": dict(levels=3, log2_size=10, max_resolution=32),
    "mlp": dict(depth=2, width=8, degrees=4),
    "multisampled": dict(levels=3, log2_size=10, max_resolution=64, width=8),
    "integrated": dict(depth=2, width=8, degrees=4),
    "kplanes": dict(resolution=8, features=2, width=8),
    "separable": dict(resolution=16, features=4, coefficients=3, grid_resolution=4, grid_features=2, width=8),
}


def geometry(*, scale=1.0, bounded=True):
    pose = np.eye(4)[None, :3]
    cameras = cameras_from(pose, focal=[10.0, 10.0], center=[5.0, 5.0], size=[10, 10])
    box = np.array([[-1.5] * 3, [1.5] * 3], np.float32) * scale
    return SceneGeometry(box, np.float32(0.1 * scale), np.float32(10 * scale), cameras, bounded=bounded)


def points(key=0, *, scale=1.0, shape=(5, 7)):
    positions = jax.random.uniform(jax.random.key(key), (*shape, 3), minval=-1.4, maxval=1.4) * scale
    return Points(positions, jnp.full(shape, 1e-3 * scale))


@functools.cache
def parameters(module):
    return jax.jit(lambda key: init_field(module, key))(jax.random.key(0))


@functools.partial(jax.jit, static_argnums=0)
def evaluate(module, params, where):
    """Density and colour, compiled once per module and shape."""

    def forward(module):
        density, features = module.density(cast_balls(module.point_kind, where.positions, where.radius))
        batch = where.radius.shape
        directions = jnp.broadcast_to(jnp.asarray([0.0, 0.6, 0.8]), (*batch, 3))
        conditioning = Conditioning(jnp.full(batch, -1, jnp.int32), jnp.zeros(batch))
        return density, module.color(features, directions, conditioning)

    return nn.apply(forward, module)({"params": params})


def test_every_member_has_a_row():
    assert set(SMALL) == set(FIELDS)
    assert set(SMALL_NETWORKS) == set(DENSITY_NETWORKS)


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("name", FIELDS)
def test_density_and_colour_have_the_contract_s_shapes_and_ranges(name, bounded):
    module = FIELDS[name](geometry(bounded=bounded), **SMALL[name])
    params = parameters(module)
    density, color = evaluate(module, params, points())
    assert density.shape == (5, 7) and color.shape == (5, 7, 3)
    assert bool(jnp.all(density >= 0)) and bool(jnp.all((color >= 0) & (color <= 1)))


@pytest.mark.parametrize("name", FIELDS)
def test_a_bounded_scene_is_empty_outside_its_box(name):
    module = FIELDS[name](geometry(), **SMALL[name])
    params = parameters(module)
    outside = Points(jnp.asarray([[1.6, 0.0, 0.0], [0.0, -5.0, 0.0], [1e18, 0.0, 0.0]]), jnp.ones(3))
    density, _ = evaluate(module, params, outside)
    np.testing.assert_array_equal(density, 0.0)


@pytest.mark.parametrize("name", FIELDS)
def test_optical_depth_does_not_depend_on_the_unit_of_length(name):
    """A capture in millimetres starts as opaque as the same one in metres."""
    for scale in (1.0, 1000.0):
        module = FIELDS[name](geometry(scale=scale), **SMALL[name])
        params = parameters(module)
        density, _ = evaluate(module, params, points(scale=scale))
        if scale == 1.0:
            reference = density
    np.testing.assert_allclose(density * 1000.0, reference, rtol=2e-3)


@pytest.mark.parametrize("where", [0.0, 1e-20, 1.0, 1e18])
@pytest.mark.parametrize("name", FIELDS)
def test_values_and_gradients_are_finite_everywhere_in_unbounded_space(name, where):
    module = FIELDS[name](geometry(bounded=False), **SMALL[name])
    params = parameters(module)

    def total(params, positions):
        density, color = evaluate(module, params, Points(positions, jnp.ones(positions.shape[:1])))
        return jnp.sum(density) + jnp.sum(color)

    value, gradients = jax.value_and_grad(total, argnums=(0, 1))(params, jnp.full((2, 3), where))
    assert jnp.isfinite(value)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradients))


@pytest.mark.parametrize("name", FIELDS)
def test_every_parameter_but_the_dead_gets_a_gradient(name):
    module = FIELDS[name](geometry(), **SMALL[name])
    params = parameters(module)

    def total(params):
        density, color = evaluate(module, params, points(shape=(400,)))
        return jnp.sum(density * jnp.sum(color**2, axis=-1))

    gradients = jax.grad(total)(params)
    silent = [jax.tree_util.keystr(p) for p, g in jax.tree_util.tree_flatten_with_path(gradients)[0] if not jnp.any(g)]
    assert not silent


@pytest.mark.parametrize("name", DENSITY_NETWORKS)
def test_density_networks_map_positions_to_densities(name):
    network = DENSITY_NETWORKS[name](geometry(), **SMALL_NETWORKS[name])
    params = jax.jit(lambda key: network.init(key, geometry()))(jax.random.key(0))
    where = points()
    density = jax.jit(network.apply)(params, cast_balls(network.point_kind, where.positions, where.radius))
    assert density.shape == (5, 7) and bool(jnp.all(density >= 0)) and bool(jnp.any(density > 0))
