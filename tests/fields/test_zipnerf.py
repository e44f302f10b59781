"""Zip-NeRF's field: its size, what contraction does to its samples, the decay of its grids."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.encodings.hashgrid import grid_levels, init_grid
from nerfjax.errors import UserError
from nerfjax.fields import multisampled_density, zipnerf
from nerfjax.fields.base import domain_of
from nerfjax.geometry.cameras import cameras_from
from nerfjax.renderer import init_field
from nerfjax.train.configuration import load_config
from nerfjax.types import Multisamples, SceneGeometry


def geometry(*, bounded=False, box=((-1.5,) * 3, (1.5,) * 3)):
    cameras = cameras_from(np.eye(4)[None, :3], focal=[10.0, 10.0], center=[5.0, 5.0], size=[10, 10])
    return SceneGeometry(np.array(box, np.float32), np.float32(0.2), np.float32(1e6), cameras, bounded=bounded)


def size_of(params):
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def test_has_the_number_of_parameters_that_the_published_settings_imply():
    """Ten levels of 16 to 8192 cells: three have all their vertices, seven 2^21 rows; tables are padded to 8 rows."""
    params = jax.eval_shape(lambda: init_field(zipnerf(geometry()), jax.random.key(0)))
    rows = sum(-(-((side + 1) ** 3) // 8) * 8 for side in (16, 32, 64)) + 7 * 2**21
    assert size_of(params["tables"]) == 4 * rows == 59_982_240
    trunk = (10 * 4 + 10) * 64 + 64  # values and scales of ten levels
    heads = (64 + 1) + (64 * 256 + 256)
    color = (256 + 27) * 256 + 256 + 2 * (256 * 256 + 256) + 256 * 3 + 3
    assert size_of(params) - size_of(params["tables"]) == trunk + heads + color == 225_028


@pytest.mark.parametrize(("levels", "finest"), [(6, 512), (8, 2048)])
def test_proposal_networks_double_their_resolution_from_level_to_level(levels, finest):
    network = multisampled_density(geometry(), levels=levels, max_resolution=finest)
    params = jax.eval_shape(network.init, jax.random.key(0), geometry())
    sides = [16 * 2**level for level in range(levels)]
    rows = sum(min(-(-((side + 1) ** 3) // 8) * 8, 2**21) for side in sides)
    assert size_of(params["tables"]) == rows
    assert size_of(params["head"]) == 2 * levels * 64 + 64 + 64 + 1


@pytest.mark.parametrize("bounded", [True, False])
def test_deviations_shrink_by_the_cube_root_of_the_jacobian_s_determinant(bounded):
    domain = domain_of(geometry(bounded=bounded, box=((-1.0, -2.0, -1.5), (3.0, 1.0, 0.5))))
    positions = jax.random.normal(jax.random.key(0), (20, 6, 3)) * jnp.logspace(-1, 2, 20)[:, None, None]
    deviations = jax.random.uniform(jax.random.key(1), (20, 6), minval=0.1)
    got = jax.jit(domain.multisamples)(Multisamples(positions, deviations))
    jacobian = jax.jit(jax.vmap(jax.jacfwd(domain.unit_cube)))(positions.reshape(-1, 3))
    scale = np.abs(np.linalg.det(np.asarray(jacobian, np.float64))) ** (1 / 3)
    np.testing.assert_allclose(got.deviations, deviations * scale.reshape(20, 6), rtol=2e-4)
    np.testing.assert_allclose(got.positions, jax.jit(domain.unit_cube)(positions), atol=1e-7)


def test_field_and_network_have_the_decay_of_their_grids():
    small = dict(levels=2, log2_size=8, max_resolution=32)
    field, network = zipnerf(geometry(), features=2, **small), multisampled_density(geometry(), features=2, **small)
    tables = init_grid(jax.random.key(0), grid_levels(2, 16, 32, 8), 2, 1.0)
    expected = sum(np.mean(np.square(table)) for table in tables.values())
    for penalty in (
        field.apply({"params": {"tables": tables}}, method="regularize"),
        network.regularize({"tables": tables}),
    ):
        assert set(penalty) == {"decay"}
        np.testing.assert_allclose(penalty["decay"], expected, rtol=1e-5)


def test_an_unknown_density_activation_is_refused_with_the_known_ones():
    for make in (zipnerf, multisampled_density):
        with pytest.raises(UserError, match="softplus"):
            make(geometry(), density_activation="sofplus")


def test_the_variant_for_one_accelerator_sees_as_many_rays():
    published, one = load_config("zipnerf"), load_config("zipnerf:one")
    assert one.train.batch_rays * one.train.steps == published.train.batch_rays * published.train.steps
    assert one.schedule.log_lerp.initial * 8 == published.schedule.log_lerp.initial
    assert load_config("zipnerf:one,bounded").train.batch_rays == one.train.batch_rays
    with pytest.raises(UserError, match="bounded"):
        load_config("zipnerf:bouned")
