"""TensoRF, K-Planes and Plenoxels against their equations, their sizes, and gradients at extreme rays."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.background import BACKGROUNDS
from nerfjax.encodings.factorized import PLANES
from nerfjax.errors import UserError
from nerfjax.fields import FIELDS, kplanes, kplanes_density, plenoxels, tensorf
from nerfjax.geometry.cameras import cameras_from
from nerfjax.renderer import init_field, make_renderer
from nerfjax.samplers import stratified
from nerfjax.types import Conditioning, Points, Rays, SceneGeometry

VM = dict(resolution=4, density_components=2, appearance_components=3, features=4, color_width=8)
SMALL = {"tensorf": VM, "kplanes": dict(resolution=4, multipliers=(1, 2), features=3), "plenoxels": dict(resolution=4)}


def geometry(*, bounded=True, box=((-1.0, -1.0, -1.0), (1.0, 1.0, 1.0))):
    cameras = cameras_from(np.eye(4)[None, :3], focal=[10.0, 10.0], center=[5.0, 5.0], size=[10, 10])
    return SceneGeometry(np.asarray(box, np.float32), np.float32(0.1), np.float32(10), cameras, bounded=bounded)


def count(module):
    shapes = jax.eval_shape(functools.partial(init_field, module), jax.random.key(0))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


def test_the_published_sizes():
    """VM-192 of 300^3: 192 planes and lines, the basis, the colour MLP of 150 inputs; the paper says 71.8 MB."""
    head = 150 * 128 + 128 + 128 * 128 + 128 + 128 * 3 + 3
    assert count(tensorf(geometry())) == 192 * (300 * 300 + 300) + 144 * 27 + head == 17_377_715
    cp = tensorf(geometry(), decomposition="cp", resolution=500, density_components=96, appearance_components=288)
    assert count(cp) == 384 * 3 * 500 + 288 * 27 + head
    planes = 3 * 32 * (128**2 + 256**2 + 512**2)  # the paper says 33 million
    assert count(kplanes(geometry())) == planes + (96 * 64 + 64 * 16) + (31 * 64 + 64 * 64 + 64 * 3)
    assert count(plenoxels(geometry(), resolution=512)) == 512**3 * 28


def test_a_long_box_has_more_vertices_along_its_long_side():
    box = ((0.0, 0.0, 0.0), (4.0, 1.0, 2.0))
    resolutions = plenoxels(geometry(box=box), resolution=32).resolutions
    assert resolutions == (64, 16, 32)
    assert plenoxels(geometry(box=box, bounded=False), resolution=32).resolutions == (32, 32, 32)


def start(module):
    return jax.jit(functools.partial(init_field, module))(jax.random.key(0))


def scaled(params, seed=0):
    """Parameters of order one, so that densities are far from those of an empty start."""
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    return jax.tree.unflatten(
        tree, [jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    )


def at_vertices(side):
    """World positions of all vertices [side^3, 3] of the box [-1, 1]^3, and their indices."""
    index = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    return (index / (side - 1) * 2 - 1).astype(np.float32), index


def density_of(module, params, positions):
    points = Points(jnp.asarray(positions), jnp.zeros(positions.shape[:-1]))
    return jax.jit(lambda params: module.apply({"params": params}, points, method="density"))(params)


@pytest.mark.parametrize("decomposition", ["vm", "cp"])
def test_tensorf_s_density_is_the_softplus_of_the_sum_over_components(decomposition):
    module = tensorf(geometry(), decomposition=decomposition, density_shift=-1.0, density_gain=3.0, **VM)
    params = scaled(start(module))
    tables = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params["tables"])
    positions, index = at_vertices(4)
    lines = [tables["density_lines"][axis][index[:, axis]] for axis in range(3)]
    if decomposition == "cp":
        raw = np.sum(lines[0] * lines[1] * lines[2], axis=-1)
    else:
        planes = [tables["density_planes"][axis][index[:, b], index[:, c]] for axis, (b, c) in enumerate(PLANES)]
        raw = sum(np.sum(plane * line, axis=-1) for plane, line in zip(planes, lines, strict=True))
    density, features = density_of(module, params, positions)
    np.testing.assert_allclose(density, 3.0 * np.log1p(np.exp(raw - 1.0)), rtol=1e-4, atol=1e-6)
    assert features.shape == (64, 4)


def test_kplanes_multiplies_planes_and_concatenates_scales():
    module = kplanes(geometry(), resolution=3, multipliers=(1, 2), features=2, geometry_features=4)
    params = start(module)
    position = np.asarray([[0.3, -0.5, 0.9]], np.float32)
    unit = (position.astype(np.float64) + 1) / 2
    features = []
    for scale, side in ((0, 3), (1, 6)):
        hats = np.maximum(1 - np.abs(unit.T * (side - 1) - np.arange(side)), 0)  # [3, side]
        planes = params["tables"][f"scale_{scale}"]
        over = [np.einsum("i,j,ijr->r", hats[b], hats[c], planes[axis]) for axis, (b, c) in enumerate(PLANES)]
        features.append(np.prod(over, axis=0))
    head = params["density_head"]
    hidden = np.maximum(np.concatenate(features) @ np.asarray(head["hidden_0"]["kernel"]), 0)
    out = hidden @ np.asarray(head["out"]["kernel"])
    density, got = density_of(module, params, position)
    np.testing.assert_allclose(density[0], np.exp(out[0] - 1.0), rtol=1e-4)
    np.testing.assert_allclose(got[0], out[1:], rtol=1e-4, atol=1e-5)


def test_plenoxels_colours_are_harmonics_and_their_gradient_passes_the_cut():
    module = plenoxels(geometry(), resolution=3, harmonics_degree=2, density_gain=10.0)
    params = start(module)
    density, _ = density_of(module, params, np.zeros((1, 3), np.float32))
    np.testing.assert_allclose(density, 0.1, rtol=1e-5)
    direction, condition = jnp.asarray([[0.0, 0.6, 0.8]]), Conditioning(jnp.full((1,), -1, jnp.int32), jnp.zeros((1,)))

    @jax.jit
    @jax.value_and_grad
    def red(features):
        color = module.apply({"params": params}, features, direction, condition, method="color")
        return color[0, 0] + jnp.sum(color[0, 1:] * jnp.asarray([10.0, 100.0]))

    features = jnp.zeros((1, 12)).at[0, :4].set(jnp.asarray([0.1, 0.2, 0.3, 0.4]))
    value, gradient = red(features)
    basis = np.asarray([np.sqrt(1 / (4 * np.pi)), *(np.sqrt(3 / (4 * np.pi)) * np.asarray([0.6, 0.8, 0.0]))])
    np.testing.assert_allclose(value, 0.5 + basis @ [0.1, 0.2, 0.3, 0.4] + 55.0, rtol=1e-5)
    np.testing.assert_allclose(gradient[0, :4], basis, rtol=1e-5, atol=1e-6)
    value, gradient = red(features.at[0, 0].set(20.0))
    np.testing.assert_allclose(value, 56.0, rtol=1e-5)
    np.testing.assert_allclose(gradient[0, :4], basis, rtol=1e-5, atol=1e-6)


def test_the_penalties_are_those_of_the_tables_that_they_name():
    module = tensorf(geometry(), **VM)
    params = scaled(start(module))
    tables = jax.tree.map(np.asarray, params["tables"])

    def variation(planes):
        return sum(np.mean(np.diff(plane, axis=axis) ** 2) for plane in planes for axis in (0, 1))

    want = {
        "l1": sum(np.mean(np.abs(t)) for t in [*tables["density_lines"], *tables["density_planes"]]),
        "tv": variation(tables["density_planes"]),
        "color_tv": variation(tables["color_planes"]),
    }
    got = jax.jit(lambda params: module.apply({"params": params}, method="regularize"))(params)
    assert set(got) == set(want)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5)
    network = kplanes_density(geometry(), resolution=4, features=2, width=4)
    params = jax.jit(lambda: network.init(jax.random.key(0), geometry()))()
    got = jax.jit(network.regularize)(params)
    np.testing.assert_allclose(got["tv"], variation(params["tables"]["scale_0"]), rtol=1e-5)


@pytest.mark.parametrize("name, precision", [("tensorf", "default"), ("kplanes", "bfloat16"), ("plenoxels", None)])
def test_gradients_are_finite_at_the_start_for_extreme_rays(name, precision):
    """Through the origin, to 1e6 away, and of no length at all; in unbounded space."""
    options = SMALL[name] | ({"precision": precision} if precision else {})
    scene = geometry(bounded=False)
    renderer = make_renderer(FIELDS[name](scene, **options), stratified(num_samples=6), BACKGROUNDS["white"]())
    params, aux = jax.jit(lambda: renderer.init(jax.random.key(0), scene))()
    rays = Rays(
        origins=jnp.asarray([[0.0, 0.0, -1.0], [0.0, 0.0, 0.0], [1e3, 2e3, 0.0], [0.5, 0.5, 0.5]]),
        directions=jnp.asarray([[0.0, 0.0, 1.0], [0.6, 0.0, 0.8], [0.0, 1.0, 0.0], [0.0, 0.6, 0.8]]),
        near=jnp.asarray([0.0, 0.2, 0.2, 1.0]), far=jnp.asarray([2.0, 1e6, 1e6, 1.0]), footprint=jnp.full((4,), 1e-3),
        camera_index=jnp.full((4,), -1, jnp.int32), index=jnp.arange(4, dtype=jnp.int32),
    )  # fmt: skip

    @jax.jit
    @jax.value_and_grad
    def loss(params):
        rendered = renderer.render(jax.random.key(1), params, aux, rays, jnp.zeros((4, 3)), step=jnp.int32(0))
        return jnp.sum(rendered.final.color**2) + sum(renderer.regularize(params).values())

    value, gradient = loss(params)
    assert jnp.isfinite(value)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradient))
    assert any(bool(jnp.any(leaf != 0)) for leaf in jax.tree.leaves(gradient["field"]["tables"]))


@pytest.mark.parametrize("name", SMALL)
def test_parameters_start_with_a_type_that_training_keeps(name):
    """A weak type becomes a strong one in the first step, and the second would compile again."""
    params = jax.eval_shape(functools.partial(init_field, FIELDS[name](geometry(), **SMALL[name])), jax.random.key(0))
    assert not [jax.tree_util.keystr(p) for p, leaf in jax.tree_util.tree_leaves_with_path(params) if leaf.weak_type]


def test_wrong_options_are_named():
    with pytest.raises(UserError, match="vm, cp"):
        tensorf(geometry(), decomposition="tucker")
    for make in (lambda: tensorf(geometry(), resolution=1), lambda: plenoxels(geometry(), resolution=1)):
        with pytest.raises(UserError, match="resolution"):
            make()
    with pytest.raises(UserError, match="multipliers"):
        kplanes(geometry(), multipliers=())
