"""EXR and HEIC: written by their own packages, read as images, depths and masks; refused in words without them."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import OpenEXR
import pillow_heif
import pytest
from PIL import Image
from ring_capture import COUNT, SIZE
from test_record3d import write as write_record3d
from test_round_trip import simple_scene

from nerfjax.cli.main import main
from nerfjax.data.prepared import prepare
from nerfjax.errors import UserError
from nerfjax.scenes import read_scene
from nerfjax.scenes.depths import decode_depth
from nerfjax.scenes.doctor import inspect_source
from nerfjax.scenes.exr import srgb_from_linear
from nerfjax.scenes.images import decode_image, only_photos, open_image
from nerfjax.scenes.masks import open_mask
from nerfjax.scenes.writers import write_scene

RNG = np.random.default_rng(0)


def write_exr(path, channels, **header):
    path.parent.mkdir(parents=True, exist_ok=True)
    base = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    with OpenEXR.File({**base, **header}, channels) as file:
        file.write(str(path))


def planes(values, names="RGBA"):
    return {name: np.ascontiguousarray(values[..., i]) for i, name in enumerate(names[: values.shape[-1]])}


def window(left, top, width, height):
    return np.array([left, top], np.int32), np.array([left + width - 1, top + height - 1], np.int32)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_b51_linear_light_is_clipped_and_encoded(tmp_path, dtype):
    linear = RNG.uniform(-0.2, 1.5, (6, 8, 3)).astype(dtype)
    write_exr(tmp_path / "a.exr", planes(linear))
    image = decode_image(tmp_path / "a.exr")
    clipped = np.clip(linear.astype(np.float64), 0, 1)
    expected = np.where(clipped <= 0.0031308, 12.92 * clipped, 1.055 * np.maximum(clipped, 1e-9) ** (1 / 2.4) - 0.055)
    assert image.dtype == np.uint16 and open_image(tmp_path / "a.exr").size == (8, 6)
    np.testing.assert_allclose(image / 65535, expected, atol=2e-5)


def test_the_curve_is_that_of_srgb():
    np.testing.assert_allclose(srgb_from_linear(np.array([0, 0.214041, 1])), [0, 0.5, 1], atol=1e-5)
    low, high = srgb_from_linear(np.array([0.0031308, 0.0031309]))
    assert 0 < high - low < 1e-5


def test_alpha_that_is_multiplied_in_becomes_straight(tmp_path):
    """The colour under half alpha is the same as under full alpha; under alpha 0 it is black."""
    alpha = np.array([[1.0, 0.5, 0.0]], np.float32)
    linear = np.stack([np.array([[0.6, 0.3, 0.0]], np.float32)] * 3 + [alpha], -1)
    write_exr(tmp_path / "a.exr", planes(linear))
    image = decode_image(tmp_path / "a.exr") / 65535
    value = float(srgb_from_linear(np.array([0.6]))[0])
    np.testing.assert_allclose(image[0], [[value] * 3 + [1], [value] * 3 + [0.5], [0] * 4], atol=2e-5)


@pytest.mark.parametrize("prefix", ["", "ViewLayer.Combined.", "beauty."])
def test_layers_and_what_is_brighter_than_any_number(tmp_path, prefix):
    color = np.full((4, 5), 0.25, np.float32)
    color[0, 0], color[1, 1] = -np.inf, np.inf
    other = np.zeros((4, 5), np.float32)
    channels = {f"{layer}.{name}": other for layer in ("albedo", "zzz") for name in "RGB"}
    write_exr(tmp_path / "a.exr", {**channels, **{prefix + name: color for name in "RGB"}, "depth.Z": other})
    image = decode_image(tmp_path / "a.exr")
    assert image.shape == (4, 5, 3) and image[0, 0, 0] == 0 and image[1, 1, 0] == 65535 and image[2, 2, 0] > 0


@pytest.mark.parametrize("channel", ["G", "A"])
def test_pixels_that_are_not_numbers_are_refused_and_counted(tmp_path, channel):
    channels = {name: np.full((4, 5), 0.25, np.float32) for name in "RGBA"}
    channels[channel][2, 3] = np.nan
    write_exr(tmp_path / "a.exr", channels)
    with pytest.raises(UserError, match=r"(?s)row 2, column 3.*1 of 20 pixels"):
        decode_image(tmp_path / "a.exr")


def test_a_grey_picture_and_a_picture_smaller_than_its_window(tmp_path):
    write_exr(tmp_path / "grey.exr", {"Y": np.full((2, 3), 1.0, np.float32)})
    assert (decode_image(tmp_path / "grey.exr") == 65535).all()
    part = {name: np.ones((3, 4), np.float16) for name in "RGB"}
    write_exr(tmp_path / "a.exr", part, dataWindow=window(2, 1, 4, 3), displayWindow=window(0, 0, 8, 6))
    image = decode_image(tmp_path / "a.exr")
    assert open_image(tmp_path / "a.exr").size == (8, 6) and image.shape == (6, 8, 3)
    expected = np.zeros((6, 8))
    expected[1:4, 2:6] = 65535
    np.testing.assert_array_equal(image[..., 0], expected)


def test_no_colour_is_said(tmp_path):
    write_exr(tmp_path / "a.exr", {"Z": np.ones((2, 3), np.float32)})
    with pytest.raises(UserError, match="(?s)no colour.*Z"):
        decode_image(tmp_path / "a.exr")
    assert decode_depth(tmp_path / "a.exr").tolist() == [[1.0] * 3] * 2


def write_heic(path, values, **options):
    pillow_heif.register_heif_opener()
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path, "HEIF", quality=-1, chroma=444, **options)


@pytest.mark.parametrize("name", ["a.HEIC", "a.heif", "a.jpg"])
def test_heic_whatever_its_name(tmp_path, name):
    values = np.kron(RNG.integers(0, 256, (4, 6, 3), np.uint8), np.ones((16, 16, 1), np.uint8))
    write_heic(tmp_path / name, values)
    assert open_image(tmp_path / name).size == (96, 64)
    image = decode_image(tmp_path / name)
    assert image.dtype == np.uint8 and np.abs(image.astype(int) - values).mean() < 2


CAPTURE_KINDS = {"heic": (".heic", write_heic), "exr": (".exr", None)}


def capture_of(folder, kind):
    """A capture whose photos are EXR or HEIC."""
    write_scene(simple_scene(), folder, "transforms_json")
    content = json.loads((folder / "transforms.json").read_text())
    for frame in content["frames"]:
        path = folder / frame["file_path"]
        values = np.asarray(Image.open(path).convert("RGB"))
        new = path.with_suffix(CAPTURE_KINDS[kind][0])
        if kind == "heic":
            write_heic(new, values)
        else:
            write_exr(new, planes((values / 255).astype(np.float32) ** 2.2))
        path.unlink()
        frame["file_path"] = new.relative_to(folder).as_posix()
        for key in ("train", "val", "test"):
            names = content.get(f"{key}_filenames") or []
            content[f"{key}_filenames"] = [n.replace(path.name, new.name) for n in names]
    (folder / "transforms.json").write_text(json.dumps(content))
    return str(folder)


@pytest.mark.parametrize("kind", CAPTURE_KINDS)
def test_a_capture_is_read_inspected_and_prepared(tmp_path, kind):
    source = capture_of(tmp_path / "set", kind)
    scene = read_scene(source)
    assert len(scene.frames) == len(simple_scene().frames)
    assert not [f for f in inspect_source(source).findings if f.severity == "error"]
    again = read_scene(str(prepare(scene, tmp_path / "out")))
    assert again.fingerprint() == scene.fingerprint()
    for one, other in zip(scene.frames, again.frames, strict=True):
        np.testing.assert_array_equal(one.image.read(), other.image.read())


@pytest.mark.parametrize(
    ("kind", "module", "package"), [("heic", "pillow_heif", "pillow-heif"), ("exr", "OpenEXR", "OpenEXR")]
)
def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch, capsys, kind, module, package):
    source = capture_of(tmp_path / "set", kind)
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["inspect", source]) == 2
    assert main(["prepare", source, f"--out={tmp_path / 'out'}"]) == 2
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert "pip install 'nerfjax[formats]'" in text and package in text and "Traceback" not in text


@pytest.mark.parametrize("kind", CAPTURE_KINDS)
@pytest.mark.parametrize("keep", [0, 3, 20, 0.5, 0.9])
def test_damaged_files_are_named_and_nothing_is_printed(tmp_path, capfd, kind, keep):
    source = capture_of(tmp_path / "set", kind)
    victim = sorted((tmp_path / "set").rglob(f"*{CAPTURE_KINDS[kind][0]}"))[1]
    data = victim.read_bytes()
    victim.write_bytes(data[: keep if isinstance(keep, int) else int(keep * len(data))])
    capfd.readouterr()
    with pytest.raises(UserError, match=victim.name):
        for frame in read_scene(source).frames:
            frame.image.read()
    assert capfd.readouterr().out == ""


def test_an_exr_beside_a_photo_of_its_name_is_no_photo(tmp_path):
    names = ["0.jpg", "0.exr", "1.exr", "2.png"]
    paths = [tmp_path / name for name in names]
    assert [path.name for path in only_photos(paths)] == ["0.jpg", "1.exr", "2.png"]


def test_depth_of_record3d_in_exr(tmp_path):
    source = write_record3d(tmp_path)
    meters = RNG.uniform(0.5, 4, (COUNT, 3, 4)).astype(np.float32)
    meters[0, 0, 0], meters[0, 0, 1] = np.nan, np.inf
    for i in range(COUNT):
        write_exr(tmp_path / f"EXR_RGBD/depth/{i}.exr", {"R": meters[i].astype(np.float16 if i % 2 else np.float32)})
    scene = read_scene(source)
    scale = np.cbrt(np.linalg.det(scene.to_scene[:3, :3]))
    for i, frame in enumerate(scene.frames):
        depth = frame.depth.read((4, 3))
        assert frame.depth.kind == "z" and (i or (depth[0, :2] == 0).all())
        known = np.isfinite(meters[i])
        np.testing.assert_allclose(depth[known], meters[i][known] * scale, rtol=2e-3 if i % 2 else 1e-5)
        assert frame.depth.read(SIZE).shape == SIZE[::-1]
    assert scene.provenance["depths"] == COUNT
    out = prepare(scene, tmp_path / "out")
    np.testing.assert_array_equal(read_scene(str(out)).frames[2].depth.read((8, 6)), scene.frames[2].depth.read((8, 6)))


def test_depth_without_the_package(tmp_path, monkeypatch, capsys):
    source = write_record3d(tmp_path / "set")
    write_exr(tmp_path / "set/EXR_RGBD/depth/0.exr", {"R": np.ones((3, 4), np.float32)})
    monkeypatch.setitem(sys.modules, "OpenEXR", None)
    assert main(["prepare", source, f"--out={tmp_path / 'out'}"]) == 2
    assert "--no-depth" in capsys.readouterr().err
    assert main(["prepare", source, f"--out={tmp_path / 'out'}", "--no-depth"]) == 0


def test_a_mask_in_exr(tmp_path):
    write_exr(tmp_path / "m.exr", {"Y": np.array([[0, 1.0]], np.float32)})
    assert open_mask(tmp_path / "m.exr", (2, 1)).read()[0, :, 0].tolist() == [0, 255]


def test_real_depth_of_record3d(capture):
    scene = read_scene(str(capture("record3d_door28")))
    depth = scene.frames[3].depth
    stored = decode_depth(depth.path)
    assert stored.shape != scene.frames[3].image.size[::-1] and np.isfinite(stored).mean() > 0.9
    assert 0.2 < np.nanmedian(stored) < 10


def test_photos_in_heic_are_solved_from_copies(tmp_path):
    from nerfjax.scenes.photos import _readable

    values = RNG.integers(0, 256, (16, 24, 3), np.uint8)
    write_heic(tmp_path / "set/a/1.heic", values)
    Image.fromarray(values).save(tmp_path / "set/2.png")
    names = ["a/1.heic", "2.png"]
    work = _readable(tmp_path / "set", names, tmp_path / "work")
    assert work == tmp_path / "work"
    for name in names:
        with Image.open(work / name) as image:
            assert image.size == (24, 16) and image.format == "PNG"
    shutil.rmtree(tmp_path / "set/a")
    assert _readable(tmp_path / "set", ["2.png"], tmp_path / "none") == tmp_path / "set"
