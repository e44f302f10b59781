"""Masks and depth in the training step: what is ignored changes nothing, what is measured pulls the right way."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.data.resident import load_resident
from nerfjax.data.targets import Targets
from nerfjax.losses import log_depth
from nerfjax.renderer import camera_rays
from nerfjax.scenes import ImageReference, read_scene
from nerfjax.scenes.depths import DepthReference
from nerfjax.train.build import build_experiment
from nerfjax.train.configuration import load_config
from nerfjax.train.step import make_gradient, ray_distance
from nerfjax.types import PixelBatch

SIZE = 12
TINY = {
    "train.batch_rays": 256,
    "sampler.name": "stratified",
    "sampler.stratified.num_samples": 8,
    "field.instant_ngp.levels": 2,
    "field.instant_ngp.log2_size": 8,
    "parallel.devices": 2,
}


def scene_with(mask=None, garbage: int | None = None, depth: float | None = None, kind: str = "z"):
    """Three views; ``garbage`` replaces the colours under the black pixels of ``mask``."""
    scene = read_scene(f"analytic:spheres?views=3&size={SIZE}&val=0&test=0")
    frames = []
    for frame in scene.frames:
        image = frame.image.read().copy()
        if garbage is not None:
            image[~mask] = (garbage, garbage, garbage, 255)
        changes = dict(image=ImageReference(None, frame.image.size, lambda a=image: a, identity="i"))
        if mask is not None:
            shown = np.repeat(np.where(mask, 255, 0).astype(np.uint8)[..., None], 3, axis=-1)
            changes["mask"] = ImageReference(None, frame.image.size, lambda a=shown: a, identity="m")
        if depth is not None:
            known = np.where(mask, depth, 0.0) if mask is not None else np.full((SIZE, SIZE), depth)
            changes["depth"] = DepthReference(None, 1.0, kind, loader=lambda d=known: d, identity="d")
        frames.append(dataclasses.replace(frame, **changes))
    return dataclasses.replace(scene, frames=tuple(frames))


def half_mask():
    return np.arange(SIZE)[:, None] + np.arange(SIZE) < SIZE


@functools.cache
def compiled(depth_weight: float, far_away: bool):
    """(the compiled gradient, a state) for any of the scenes."""
    scene = scene_with(depth=1.0)
    if far_away:
        scene = dataclasses.replace(scene, geometry=scene.geometry.replace(near=np.float32(50), far=np.float32(51)))
    config = load_config("demo", {**TINY, "train.depth_weight": depth_weight})
    experiment = build_experiment(config, scene=scene, with_data=False)
    return make_gradient(experiment.parts, experiment.mesh), experiment.init_state()


def loss_and_gradient(scene, *, depth_weight: float = 0.0, far_away: bool = False):
    gradient, state = compiled(depth_weight, far_away)
    loss, leaves = gradient(state, load_resident(scene, depth=depth_weight > 0))
    return float(loss), [np.asarray(leaf) for leaf in jax.tree.leaves(leaves)]


def test_b56_what_lies_under_a_mask_does_not_reach_the_loss():
    mask = half_mask()
    one, other = (loss_and_gradient(scene_with(mask, garbage)) for garbage in (0, 255))
    assert one[0] == other[0]
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_array_equal(a, b)
    # Without the mask, the same garbage does.
    losses = []
    for scene in (scene_with(mask, garbage) for garbage in (0, 255)):
        frames = tuple(dataclasses.replace(frame, mask=None) for frame in scene.frames)
        losses.append(loss_and_gradient(dataclasses.replace(scene, frames=frames))[0])
    assert abs(losses[0] - losses[1]) > 0.01


def test_b56_the_weights_of_the_other_pixels_make_up_for_masked_ones():
    """An empty field against constant images: the loss is the same whatever share of the pixels is masked."""
    every = np.ones((SIZE, SIZE), bool)
    losses, flat = [], np.full((SIZE, SIZE, 3), 51, np.uint8)
    for mask in (every, half_mask(), np.arange(SIZE * SIZE).reshape(SIZE, SIZE) < 5):
        scene = scene_with(mask)
        frames = tuple(
            dataclasses.replace(f, image=ImageReference(None, f.image.size, lambda: flat, identity="f"))
            for f in scene.frames
        )
        losses.append(loss_and_gradient(dataclasses.replace(scene, frames=frames), far_away=True)[0])
    np.testing.assert_allclose(losses, 0.64, rtol=1e-5)  # (1 - 0.2)^2, white behind nothing


def test_depth_changes_the_loss_and_masked_or_unknown_depth_does_not():
    mask = half_mask()
    plain = loss_and_gradient(scene_with(mask))[0]
    near, far = (loss_and_gradient(scene_with(mask, depth=d), depth_weight=1.0)[0] for d in (0.1, 1e6))
    assert near > plain and far > plain + 5  # log(1e6 / 4)
    assert loss_and_gradient(scene_with(mask, depth=0.0), depth_weight=1.0)[0] == pytest.approx(plain)


def test_b57_z_depth_and_ray_length_of_a_wall_are_the_same_distances():
    """A wall before one camera at z = 3: its z-depth is constant, its length along the rays is not."""
    scene = scene_with()
    row, column = (jnp.asarray(a.ravel(), jnp.int32) for a in np.mgrid[:SIZE, :SIZE])
    image = jnp.zeros_like(row)
    rays = camera_rays(scene.geometry, scene.cameras, image, row, column, jnp.arange(SIZE * SIZE, dtype=jnp.int32))
    forward = -np.asarray(scene.cameras.pose[0, :, 2])
    length = 3.0 / (np.asarray(rays.directions) @ forward)
    batch = PixelBatch(image=image, row=row, column=column, weight=jnp.ones(len(row)))
    color = jnp.zeros((len(row), 3))
    for depth, is_z in ((np.full(len(row), 3.0), True), (length, False)):
        flags = jnp.full(len(row), is_z)
        targets = Targets(batch, color, depth=jnp.asarray(depth, jnp.float32), depth_is_z=flags)
        np.testing.assert_allclose(ray_distance(targets, scene.cameras, rays), length, rtol=1e-5)
    assert length.max() > 1.02 * length.min()


def test_log_depth_is_a_relative_error():
    target = jnp.asarray([1.0, 2.0, 0.0])
    weight = jnp.asarray([1.5, 1.5, 0.0])
    prediction = target * 1.1 + jnp.asarray([0.0, 0.0, 7.0])
    np.testing.assert_allclose(log_depth(prediction, target, weight), np.log(1.1), rtol=1e-5)
    assert float(log_depth(target, target, weight)) == 0.0
    assert np.isfinite(jax.grad(lambda p: log_depth(p, target, weight))(jnp.zeros(3))).all()
