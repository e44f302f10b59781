"""mip-NeRF's family: sizes as published, the box and the contraction of Gaussians, prefiltering, padded colours."""

import jax
import jax.numpy as jnp
import numpy as np

from nerfjax.fields import DENSITY_NETWORKS, FIELDS
from nerfjax.geometry.cameras import cameras_from
from nerfjax.renderer import init_field
from nerfjax.types import Conditioning, Gaussians, SceneGeometry


def geometry(*, bounded=True):
    cameras = cameras_from(np.eye(4)[None, :3], focal=[10.0, 10.0], center=[5.0, 5.0], size=[10, 10])
    box = np.asarray([[-2.0, -1.0, -1.0], [2.0, 3.0, 1.0]], np.float32)
    return SceneGeometry(box, np.float32(0.1), np.float32(10), cameras, bounded=bounded)


def count(tree):
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))


def field_size(name, **options):
    """The number of parameters of a field of published size, from shapes alone."""
    return count(jax.eval_shape(lambda key: init_field(FIELDS[name](geometry(), **options), key), jax.random.key(0)))


def network_size(name, **options):
    network = DENSITY_NETWORKS[name](geometry(), **options)
    return count(jax.eval_shape(lambda key: network.init(key, geometry()), jax.random.key(0)))


def test_sizes_are_the_published_ones():
    """NeRF: 1,191,688 in two networks. mip-NeRF: 612 thousand in one, half, because its levels share it; the 16,896
    more than one of NeRF's are those of 33 more inputs (96 in place of 63) to two layers of 256. mip-NeRF 360: the
    one proposal network (its two rounds share it) and the field.
    """
    assert 2 * field_size("nerf") == 1_191_688
    assert field_size("mipnerf") == 612_740 == 1_191_688 // 2 + 2 * 33 * 256
    assert network_size("integrated") == 326_913
    assert field_size("mipnerf360") == 8_680_580
    assert network_size("integrated") + field_size("mipnerf360") == 9_007_493


def test_the_domain_maps_the_box_to_the_cube_with_its_covariances():
    rng = np.random.default_rng(0)
    mean, square = rng.uniform(-0.5, 0.5, 3), rng.normal(size=(3, 3)) * 0.05
    samples = rng.multivariate_normal(mean, square @ square.T, size=50_000)
    module = FIELDS["mipnerf"](geometry())
    gaussian = Gaussians(jnp.asarray(mean, jnp.float32), jnp.asarray(square @ square.T, jnp.float32))
    mapped = jax.jit(module.domain.gaussians)(gaussian)
    inside = (samples - [0.0, 1.0, 0.0]) / [2.0, 2.0, 1.0]
    np.testing.assert_allclose(mapped.means, inside.mean(0), atol=1e-3)
    np.testing.assert_allclose(mapped.covariances, np.cov(inside.T), atol=0.03 * np.cov(inside.T).max())
    # Outside the box, the contraction takes over; at its edge (x = 2) coordinates are 1 long.
    contracted = FIELDS["mipnerf"](geometry(bounded=False)).domain
    edge = Gaussians(jnp.asarray([[2.0, 1.0, 0.0], [2e5, 1.0, 0.0]]), jnp.eye(3)[None] * jnp.full((2, 1, 1), 4e-4))
    far = jax.jit(contracted.gaussians)(edge)
    np.testing.assert_allclose(far.means, [[1.0, 0.0, 0.0], [2.0 - 1e-5, 0.0, 0.0]], atol=1e-6)
    np.testing.assert_allclose(far.covariances[0], np.diag([1e-4, 1e-4, 4e-4]), atol=1e-9)
    assert float(jnp.abs(far.covariances[1]).max()) < 1e-12


def test_a_wide_gaussian_sees_the_slow_waves_only():
    """Prefiltering: the field's answer to a ball does not change when the ball moves by a small part of itself."""
    module = FIELDS["mipnerf"](geometry(), width=16, depth=3, color_width=8)
    params = jax.jit(lambda key: init_field(module, key))(jax.random.key(0))

    @jax.jit
    def change(radius):
        means = jnp.asarray([[0.3, 0.2, 0.1], [0.302, 0.2, 0.1]])
        gaussians = Gaussians(means, jnp.broadcast_to(jnp.square(radius) * jnp.eye(3), (2, 3, 3)))
        features = module.apply({"params": params}, gaussians, method="density")[1]
        return jnp.max(jnp.abs(features[0] - features[1]))

    narrow, wide = (float(change(jnp.float32(radius))) for radius in (1e-5, 0.1))
    assert wide < 0.05 * narrow


def test_colour_reaches_a_little_beyond_black_and_white():
    module = FIELDS["mipnerf"](geometry(), width=8, depth=2, color_width=4)
    params = jax.jit(lambda key: init_field(module, key))(jax.random.key(0))
    head = params["color_head"]["out"]
    params["color_head"]["out"] = {**head, "bias": jnp.asarray([-30.0, 0.0, 30.0]), "kernel": head["kernel"] * 0}
    conditioning = Conditioning(jnp.zeros(1, jnp.int32), jnp.zeros(1))
    color = module.apply({"params": params}, jnp.zeros((1, 8)), jnp.eye(3)[:1], conditioning, method="color")
    np.testing.assert_allclose(color[0], [-0.001, 0.5, 1.001], atol=1e-6)
