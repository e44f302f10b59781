"""Faults that users of such tools have met: the rest of their tests, and the count of all of them.

Ids (b01 …) are those of the project's list of known faults; the tests of most are with the reader or module where they
can occur, with the id in their names.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from test_round_trip import simple_scene

from nerfjax.data import resident
from nerfjax.errors import UserError
from nerfjax.evaluate import protocol_of
from nerfjax.geometry.poses import invert_similarity, look_at, transform_points
from nerfjax.geometry.rays import rays_from_pixels
from nerfjax.scenes import READERS, ImageReference, read_scene
from nerfjax.scenes.assemble import assemble
from nerfjax.scenes.capture import Capture, RawFrame
from nerfjax.scenes.colmap_files import read_model
from nerfjax.scenes.ply import read_ply_points
from nerfjax.scenes.writers import WRITERS, write_scene

COVERED = (
    1, 2, 4, 5, 7, 8, 11, 12, 13, 15, 16, 18, 20, 22, 23, 25, 26, 28, 29, 30, 31, 33, 35, 36, 37, 39, 40, 41, 43, 44,
    46, 48, 49, 51, 52, 53, 55, 56, 57, 59, 61, 62, 64, 66, 68, 69, 70, 72, 73, 75, 78, 79, 80, 83, 84, 86, 87, 88, 89,
    90, 91, 94, 95, 96, 97,
)  # fmt: skip


def test_every_known_fault_has_a_test():
    names = [
        name
        for path in Path(__file__).parents[1].rglob("test_*.py")
        for name in re.findall(r"^def test_((?:b\d\d_)+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    tested = {int(number) for name in names for number in re.findall(r"b(\d\d)", name)}
    assert set(COVERED) <= tested, sorted(set(COVERED) - tested)


def write_angle(folder, size, **root):
    """Two frames whose only intrinsic is a field of view."""
    frames = []
    for i in range(2):
        Image.new("RGB", size, (80 * i, 0, 0)).save(folder / f"{i}.png")
        pose = np.concatenate([look_at([2 + i, 0, 1], [0, 0, 0]), [[0, 0, 0, 1]]])
        frames.append({"file_path": f"{i}.png", "transform_matrix": pose.tolist()})
    (folder / "transforms.json").write_text(json.dumps({**root, "frames": frames}))
    return str(folder)


@pytest.mark.parametrize("size", [(64, 48), (48, 64)])
def test_b30_an_angle_belongs_to_its_own_side(tmp_path, size):
    focal = read_scene(write_angle(tmp_path, size, camera_angle_x=0.8)).cameras.focal[0]
    np.testing.assert_allclose(focal, 0.5 * size[0] / math.tan(0.4), rtol=1e-6)
    focal = read_scene(write_angle(tmp_path, size, camera_angle_y=0.8)).cameras.focal[0]
    np.testing.assert_allclose(focal, 0.5 * size[1] / math.tan(0.4), rtol=1e-6)


def test_b26_the_size_is_read_from_the_image(tmp_path):
    scene = read_scene(write_angle(tmp_path, (64, 48), camera_angle_x=0.8))
    assert scene.cameras.size.tolist() == [[64, 48]] * 2 and scene.cameras.center.tolist() == [[32, 24]] * 2


@pytest.mark.parametrize("format", WRITERS)
def test_b39_rays_go_through_pixel_centres_at_a_half(tmp_path, format):
    """In an 8 x 6 image with the principal point in the middle no ray is the axis: the nearest are half a pixel off."""
    write_scene(simple_scene(), tmp_path / "set", format)
    scene = read_scene(str(tmp_path / "set"))
    pixels = [(0, 0), (2, 3), (3, 4), (5, 7)]
    rows, columns = (jnp.array(side, jnp.int32) for side in zip(*pixels, strict=True))
    zeros = jnp.zeros(len(pixels), jnp.int32)
    rays = rays_from_pixels(scene.cameras, zeros, rows, columns, near=0.1, far=1.0, index=zeros)
    local = np.asarray(rays.directions) @ scene.cameras.pose[0, :, :3]
    image = np.stack([local[:, 0] / -local[:, 2], local[:, 1] / local[:, 2]], -1) * 9  # the focal length
    np.testing.assert_allclose(image, [[c + 0.5 - 4, r + 0.5 - 3] for r, c in pixels], atol=1e-4)


def test_b51_the_colour_space_of_the_scores_is_stated():
    protocol = protocol_of(1.0)
    assert "sRGB" in protocol["prediction"] and "clipped to [0, 1]" in protocol["prediction"]
    assert "sRGB" in protocol["target"]


def test_b89_no_ray_is_stored():
    """What lies on the device is the images' bytes and a row per camera."""
    scene = simple_scene()
    images = resident.load_resident(scene)
    stored = sum(np.asarray(leaf).nbytes for leaf in (images.pages, images.first_page))
    assert images.pages.dtype == np.uint8
    assert stored == len(scene.frames) * (resident.PAGE * 3 + 4)
    assert len(images.cameras) == len(scene.frames)


def test_b95_the_split_is_by_names_whatever_the_order_of_the_file(tmp_path):
    names = [f"{i}.png" for i in range(9)]
    for name in names:
        Image.new("RGB", (8, 6), (20 * int(name[0]), 0, 0)).save(tmp_path / name)
    poses = [np.concatenate([look_at([math.cos(i), math.sin(i), 0.5], [0, 0, 0]), [[0, 0, 0, 1]]]) for i in range(9)]
    entries = [{"file_path": n, "transform_matrix": p.tolist()} for n, p in zip(names, poses, strict=True)]
    splits = []
    for order in (entries, entries[::-1], entries[4:] + entries[:4]):
        (tmp_path / "transforms.json").write_text(json.dumps({"camera_angle_x": 0.8, "frames": order}))
        splits.append(read_scene(str(tmp_path)).split_names())
    assert splits[0] == splits[1] == splits[2] and splits[0]["test"] == ["0.png", "8.png"]
    assert not set(splits[0]["test"]) & set(splits[0]["train"])


@pytest.mark.parametrize("format", ["blender", "transforms_json", "colmap", "llff"])
def test_b16_unreadable_images_are_named_where_they_are_read(tmp_path, format):
    scene = simple_scene()
    write_scene(scene, tmp_path / "set", format)
    victim = sorted((tmp_path / "set").rglob("*.png"))[1]
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)).save(victim)
    victim.write_bytes(victim.read_bytes()[:120])
    with pytest.raises(UserError, match=re.escape(victim.name)):  # some look at a first image when they read
        for frame in read_scene(str(tmp_path / "set")).frames:
            frame.image.read()


@pytest.mark.parametrize("format", ["transforms_json", "colmap", "colmap_text"])
def test_b97_what_is_written_has_the_captures_own_coordinates(tmp_path, format):
    """A cube of side 1 at (10, 0, 0): the scene is turned, shifted and scaled, and writing undoes it."""
    corners = np.array([[x, y, z] for x in (9.5, 10.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
    frames = []
    for i in range(6):
        pose = np.eye(4)
        position = [10 + 3 * math.cos(i), 3 * math.sin(i), 1.0 + 0.1 * i]
        pose[:3] = look_at(position, [10, 0, 0])
        picture = np.full((6, 8, 3), 30 * i, np.uint8)
        image = ImageReference(None, (8, 6), loader=lambda picture=picture: picture, identity=str(i))
        frames.append(RawFrame(f"{i}.png", image, "train", pose, np.full(2, 9.0), np.array([4.0, 3.0]), np.zeros(12),
                               "pinhole"))  # fmt: skip
    scene = assemble(Capture("cube", "none", "", tuple(frames), points=corners))
    assert np.abs(scene.points - corners).max() > 1
    back = transform_points(invert_similarity(scene.to_scene), np.asarray(scene.points, np.float64))
    np.testing.assert_allclose(back, corners, atol=1e-5)
    write_scene(scene, tmp_path / "set", format)
    written = (
        read_ply_points(tmp_path / "set/points.ply") if format == "transforms_json"
        else read_model(tmp_path / "set/sparse/0").positions
    )  # fmt: skip
    np.testing.assert_allclose(written, corners, atol=1e-5)


def test_b59_the_axes_are_an_option_of_every_format():
    import inspect

    for name, reader in READERS.items():
        assert "axes" in inspect.signature(reader.read).parameters or name in ("analytic", "prepared", "photos"), name
