"""A random scene, written in each format that we write and read back, is the same scene."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nerfjax.errors import UserError
from nerfjax.geometry import cameras as lens
from nerfjax.geometry.poses import invert_similarity, look_at, split_similarity, transform_points
from nerfjax.scenes import read_scene
from nerfjax.scenes.assemble import assemble
from nerfjax.scenes.capture import Capture, RawFrame
from nerfjax.scenes.colmap_write import camera_from
from nerfjax.scenes.images import ImageReference
from nerfjax.scenes.writers import WRITERS, write_scene

JSON_MODELS = (
    "pinhole", "opencv", "opencv_fisheye", "equirectangular", "orthographic", "full_opencv", "thin_prism_fisheye",
    "rad_tan_thin_prism_fisheye",
)  # fmt: skip
COLMAP_MODELS = tuple(model for model in (*JSON_MODELS, "fov", "division", "eucm") if model != "orthographic")
MODELS = {
    "blender": JSON_MODELS, "transforms_json": JSON_MODELS, "colmap": COLMAP_MODELS, "colmap_text": COLMAP_MODELS,
    "llff": ("pinhole",),
}  # fmt: skip
# Coefficients as lenses have them: mild, and of every kind that a model has (opencv as far as COLMAP goes).
COEFFICIENTS = {
    "opencv": dict(k1=0.05, k2=-0.02, p1=0.004, p2=-0.003),
    "opencv_fisheye": dict(k1=0.03, k2=-0.01, k3=0.004, k4=-0.001),
    "full_opencv": dict(k1=0.05, k2=-0.02, k3=0.01, k4=0.02, p1=0.004, p2=-0.003, k5=0.01, k6=0.002),
    "thin_prism_fisheye": dict(k1=0.03, k2=-0.01, k3=0.004, k4=-0.001, p1=0.002, p2=0.001, s1=0.003, s3=-0.002),
    "rad_tan_thin_prism_fisheye": dict(k1=0.03, k2=-0.01, k5=0.001, p1=0.002, p2=-0.001, s1=0.003, s2=0.001, s4=0.002),
    "fov": dict(k1=0.7),
    "division": dict(k1=-0.05),
    "eucm": dict(k1=0.6, k2=1.1),
}
NAMES = ("r_{}", "images/{}.png", "cam {}/ünï ({}).jpg", "sub.folder/img{}.PNG")
SPLITS = ("train", "train", "test", "val")


def random_capture(draw, format) -> Capture:
    """A few cameras around a point somewhere, of mixed lenses and sizes, with pictures of noise."""
    seed = draw(st.integers(0, 2**32 - 1), label="seed")
    count = draw(st.integers(2, 5), label="frames")
    forward = draw(st.booleans(), label="side by side")
    radius = draw(st.sampled_from([0.01, 1.0, 300.0]), label="radius")
    alpha = draw(st.booleans(), label="alpha")
    masked = draw(st.booleans(), label="masks") and format != "llff"
    pattern = draw(st.sampled_from(NAMES), label="names")
    random = np.random.default_rng(seed)
    focus = radius * random.normal(size=3) * draw(st.sampled_from([0.0, 1.0, 20.0]), label="offset")
    frames = []
    for i in range(count):
        place = [0.1 * i - 0.2, 0, 0.05 * (i % 2)] if forward else random.normal(size=3)
        ahead = [0, 1.0, 0] if forward else -np.array(place)
        position = focus + radius * np.array(place) * (1 if forward else 1 / np.linalg.norm(place))
        pose = np.eye(4)
        pose[:3] = look_at(position, position + radius * (np.array(ahead) + 0.05 * random.normal(size=3)))
        model = draw(st.sampled_from(MODELS[format]), label="model")
        size = tuple(int(side) for side in random.integers(5, 12, 2))
        focal = size[0] * random.uniform(0.8, 1.5) * (np.ones(2) if format == "llff" else random.uniform(0.9, 1.1, 2))
        middle = np.array(size) / 2
        center = middle if format == "llff" else middle + random.uniform(-1, 1, 2)
        if model == "equirectangular":
            focal, center = np.ones(2), middle
        if model == "orthographic":
            focal = focal / radius
        coefficients = COEFFICIENTS.get(model, {})
        distortion = np.array([coefficients.get(key, 0.0) for key in lens.DISTORTION]) * random.uniform(0.5, 1.0)
        if model in ("fov", "eucm"):
            distortion /= np.abs(distortion).max() / 0.6
        picture = random.integers(0, 256, (size[1], size[0], 4 if alpha else 3), dtype=np.uint8)
        if alpha:
            picture[0] = 0
            picture[-1, ..., 3] = 255
        mask = np.repeat(random.integers(0, 2, (size[1], size[0], 1), dtype=np.uint8) * 255, 3, -1)
        frames.append(RawFrame(
            name=pattern.format(*[i, i][: pattern.count("{}")]), split=SPLITS[i % 4] if i else "train", pose=pose,
            image=ImageReference(None, size, loader=lambda picture=picture: picture, identity=str(i)),
            focal=focal, center=center, distortion=distortion, model=model,
            mask=ImageReference(None, size, loader=lambda mask=mask: mask, identity="m") if masked else None,
        ))  # fmt: skip
    points = focus + 0.2 * radius * random.normal(size=(7, 3)) if format in ("transforms_json", "colmap") else None
    return Capture("random", "none", "", tuple(frames), points=points)


def capture_rays(scene, row):
    """Origins and directions [P, 3] of all pixels of a frame, in the capture's coordinates."""
    width, height = scene.frames[row].image.size
    x, y = (side.ravel() for side in np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5))
    cameras = scene.cameras[np.full(len(x), row)]
    found = lens.unproject(cameras, np.stack([x, y], -1), xp=np)
    rotation = np.asarray(scene.cameras.pose[row, :, :3], np.float64)
    origins = scene.cameras.pose[row, :, 3] + np.asarray(found.offsets, np.float64) @ rotation.T
    back = invert_similarity(scene.to_scene)
    directions = np.asarray(found.directions, np.float64) @ rotation.T @ split_similarity(back).rotation.T
    return transform_points(back, origins), directions, np.asarray(found.converged)


def check_same(first, second, scale, *, names=None):
    assert len(first.frames) == len(second.frames)
    for row, frame in enumerate(first.frames):
        other = row if names is None else names[row]
        assert second.frames[other].image.size == frame.image.size
        np.testing.assert_array_equal(second.frames[other].image.read(), frame.image.read())
        one, two = capture_rays(first, row), capture_rays(second, other)
        np.testing.assert_array_equal(one[2], two[2])
        np.testing.assert_allclose(two[0], one[0], atol=1e-4 * scale)
        np.testing.assert_allclose(two[1][one[2]], one[1][one[2]], atol=1e-4)
        if frame.mask is not None:
            np.testing.assert_array_equal(second.frames[other].valid(), frame.valid())


def paired(first, second):
    """Row in ``second`` of each row of ``first``: the frames' numbers are part of their names."""
    number = lambda frame: [c for c in frame.name.rsplit("/", 1)[-1] if c.isdigit()][:1]  # noqa: E731
    rows = [next(k for k, other in enumerate(second.frames) if number(other) == number(f)) for f in first.frames]
    assert sorted(rows) == list(range(len(rows)))
    return rows


@pytest.mark.parametrize("format", WRITERS)
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_scene_survives_every_format(format, data):
    capture = random_capture(data.draw, format)
    positions = np.stack([frame.pose[:3, 3] for frame in capture.frames])
    scale = max(np.ptp(positions, axis=0).max(), 1e-2 * np.abs(positions).max())
    scene = assemble(capture)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "written"
        write_scene(scene, source, format)
        again = read_scene(str(source))
        assert again.format == format.removesuffix("_text")
        names = paired(scene, again)
        check_same(scene, again, scale, names=names)
        if format in ("blender", "transforms_json"):
            assert [again.frames[k].split for k in names] == [frame.split for frame in scene.frames]
        if capture.points is not None:
            back = transform_points(invert_similarity(again.to_scene), again.points)
            np.testing.assert_allclose(back, capture.points, atol=1e-4 * scale)


def simple_scene(**change):
    frames = []
    for i in range(3):
        pose = np.eye(4)
        pose[:3] = look_at([np.cos(i), np.sin(i), 0.3], [0, 0, 0])
        picture = np.full((6, 8, 3), 40 * i, np.uint8)
        values = dict(
            name=f"{i}.png", split="train", pose=pose, focal=np.array([9.0, 9.0]), center=np.array([4.0, 3.0]),
            image=ImageReference(None, (8, 6), loader=lambda picture=picture: picture, identity=str(i)),
            distortion=np.zeros(12), model="pinhole",
        )  # fmt: skip
        frames.append(RawFrame(**{**values, **change}))
    return assemble(Capture("simple", "none", "", tuple(frames)))


@pytest.mark.parametrize(
    ("change", "format"),
    [
        (dict(focal=np.array([9.0, 9.5])), "llff"),
        (dict(center=np.array([4.5, 3.0])), "llff"),
        (dict(model="opencv", distortion=np.array([0.1] + [0.0] * 11)), "llff"),
        (dict(model="fov", distortion=np.array([0.7] + [0.0] * 11)), "transforms_json"),
        (dict(model="orthographic"), "colmap"),
        (dict(model="opencv", distortion=np.array([0.1, 0, 0, 0.1] + [0.0] * 8)), "colmap"),
    ],
)
def test_a_lens_that_the_format_lacks_is_refused_and_nothing_is_left(tmp_path, change, format):
    with pytest.raises(UserError, match="no such lens|no perspective lens"):
        write_scene(simple_scene(**change), tmp_path / "out", format)
    assert not list(tmp_path.iterdir())


def test_a_folder_in_use_and_an_unknown_format_are_refused(tmp_path):
    (tmp_path / "precious").write_text("x")
    with pytest.raises(UserError, match="in use"):
        write_scene(simple_scene(), tmp_path, "llff")
    with pytest.raises(UserError, match="(?s)not written.*colmap"):
        write_scene(simple_scene(), tmp_path / "new", "colmab")


def test_names_that_meet_as_files_stay_apart(tmp_path):
    names = itertools.cycle(["a.jpg", "A.png", "../a.PNG"])
    scene = simple_scene()
    frames = tuple(type(f)(next(names), f.image, f.split) for f in scene.frames)
    write_scene(type(scene)(**{**vars(scene), "frames": frames}), tmp_path / "out", "colmap")
    assert sorted(p.name for p in (tmp_path / "out/images").iterdir()) == ["A_1.png", "a.png", "a_2.png"]


def test_16_bit_grey_survives_and_16_bit_colour_is_noted(tmp_path):
    grey = np.repeat(np.arange(300, 348, dtype=np.uint16).reshape(6, 8, 1) * 100, 3, -1)
    scene = simple_scene(image=ImageReference(None, (8, 6), loader=lambda: grey, identity="g"))
    assert write_scene(scene, tmp_path / "grey", "transforms_json") == ()
    np.testing.assert_array_equal(read_scene(str(tmp_path / "grey")).frames[0].image.read(), grey)
    color = grey * np.array([1, 2, 1], np.uint16)
    scene = simple_scene(image=ImageReference(None, (8, 6), loader=lambda: color, identity="g"))
    assert "3 images of 16 bits" in write_scene(scene, tmp_path / "color", "transforms_json")[0]


def test_orthographic_pixels_keep_their_size_in_the_capture():
    scene = simple_scene(model="orthographic", focal=np.array([2.0, 2.0]))
    assert split_similarity(scene.to_scene).scale != pytest.approx(1, rel=1e-2)
    origins, _, _ = capture_rays(scene, 0)
    np.testing.assert_allclose(np.linalg.norm(origins[7] - origins[0]), 3.5, rtol=1e-5)  # a row of 8 pixels


def test_colmap_has_a_camera_per_lens_and_not_per_image(tmp_path):
    write_scene(simple_scene(), tmp_path / "out", "colmap_text")
    lines = (tmp_path / "out/sparse/0/cameras.txt").read_text().splitlines()
    assert len(lines) == 2 and lines[1].startswith("1 PINHOLE 8 6 ")
    assert camera_from("pinhole", (8, 6), [9, 9], [4, 3], np.zeros(12)).model == "PINHOLE"
