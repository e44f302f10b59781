"""Every field stands extreme rays, through casting and compositing, in every precision of its networks."""

import functools
import inspect

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_fields import SMALL, geometry, parameters

from nerfjax.fields import FIELDS
from nerfjax.geometry.casting import cast
from nerfjax.types import Conditioning, Intervals, Rays
from nerfjax.volume import composite, weights_from_density

# One ray to the end of the world, one of intervals without length, one through the origin along an axis.
EDGES = np.asarray([[0.0, 1.0, 1e3, 5e5, 1e6], [0.0, 0.0, 2.0, 2.0, 2.0], [0.5, 1.5, 2.0, 2.5, 4.0]], np.float32)
ORIGINS = np.asarray([[0.0, 0.0, 0.0], [0.1, 0.2, 0.3], [0.0, 0.0, 2.0]], np.float32)
DIRECTIONS = np.asarray([[0.6, 0.0, 0.8], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]], np.float32)

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}  # run once
WITH_NETWORKS = [name for name, make in FIELDS.items() if "precision" in inspect.signature(make).parameters]


def rays_and_intervals():
    full, number = jnp.ones(3), jnp.arange(3, dtype=jnp.int32)
    rays = Rays(jnp.asarray(ORIGINS), jnp.asarray(DIRECTIONS), 0.0 * full, 1e6 * full, 1e-3 * full, number, number)
    edges = jnp.asarray(EDGES)
    return rays, Intervals(t=edges, s=edges / edges[:, -1:])


@pytest.mark.parametrize(
    ("name", "precision"), [(name, "default") for name in FIELDS] + [(name, "bfloat16") for name in WITH_NETWORKS]
)
def test_values_and_gradients_are_finite_on_extreme_rays(name, precision):
    make = functools.partial(FIELDS[name], geometry(bounded=False), **SMALL[name])
    module = make(precision=precision) if name in WITH_NETWORKS else make()

    @functools.partial(jax.jit, compiler_options=QUICK)
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def render(params, origins):
        rays, intervals = rays_and_intervals()
        points = cast(module.point_kind, None, rays.replace(origins=origins), intervals)

        def forward(module):
            density, features = module.density(points)
            directions = jnp.broadcast_to(rays.directions[:, None], (*density.shape, 3))
            conditioning = Conditioning(jnp.full(density.shape, -1, jnp.int32), jnp.zeros(density.shape))
            return density, module.color(features, directions, conditioning)

        density, color = nn.apply(forward, module)({"params": params})
        weights = weights_from_density(density, intervals.t_delta)
        final = composite(weights, color, intervals, rays.far, jnp.zeros((3, 3)))
        return jnp.sum(final.color) + 1e-6 * jnp.sum(final.depth)

    value, gradients = render(parameters(make()), jnp.asarray(ORIGINS))
    assert np.isfinite(float(value)) and float(value) != 0.0
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradients))
