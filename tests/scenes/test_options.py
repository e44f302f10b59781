"""Options of readers: their text, the check against signatures, what they change, where they are remembered."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest
import test_idr
import test_nsvf
from PIL import Image
from test_round_trip import simple_scene

from nerfjax.cli.main import main
from nerfjax.data.prepared import prepare
from nerfjax.errors import UserError
from nerfjax.scenes import READERS, read_scene
from nerfjax.scenes.options import COMMON, canonical, checked_options, parse_options, reader_options
from nerfjax.scenes.writers import write_scene
from nerfjax.train.build import read_config_scene
from nerfjax.train.configuration import config_hash, load_config


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", {}), ("focal=1170", {"focal": "1170"}), (" a = 1 ,b=x=y,", {"a": "1", "b": "x=y"})],
)
def test_text_of_options(text, expected):
    assert parse_options(text) == expected


@pytest.mark.parametrize("text", ["focal", "=3", "focal=", "a=1,a=2"])
def test_text_that_is_none(text):
    with pytest.raises(UserError, match="KEY=VALUE"):
        parse_options(text)


def test_every_option_of_every_reader_has_types_that_text_can_give():
    for name, reader in READERS.items():
        for option, (kinds, default) in reader_options(reader.read).items():
            assert set(kinds) <= {bool, int, float, str, type(None)}, (name, option)
            assert type(default) in kinds, (name, option)
        parameters = inspect.signature(reader.read).parameters
        assert {"source", "downscale", "holdout"} <= set(parameters), name
    assert "say" in COMMON


@pytest.mark.parametrize(
    ("format", "text", "value"),
    [
        ("llff", "ndc=true", True), ("llff", "ndc=auto", "auto"), ("llff", "model=sparse/1", "sparse/1"),
        ("nsvf", "focal=1170", 1170.0), ("nsvf", "focal=1170.5", 1170.5), ("nsvf", "focal=none", None),
        ("polycam", "border=0", 0), ("photos", "least_share=0.2", 0.2), ("colmap", "model=0", "0"),
    ],
)  # fmt: skip
def test_texts_become_values_of_the_readers_types(format, text, value):
    ((_, found),) = checked_options(format, READERS[format].read, parse_options(text)).items()
    assert found == value and type(found) is not bool or found is value


@pytest.mark.parametrize(
    ("format", "text", "words"),
    [
        ("nsvf", "focl=3", "did you mean 'focal'"), ("nsvf", "focal=wide", "a number"),
        ("polycam", "border=1.5", "a whole number"), ("middlebury", "focal=3", "no options"),
        ("transforms_json", "masks=backgruond", "did you mean 'background'"),
        ("transforms_json", "camera_model=OPENVC", "did you mean 'OPENCV'"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_met_with_the_nearest_right_one(tmp_path, format, text, words):
    write_scene(simple_scene(), tmp_path, "transforms_json")
    with pytest.raises(UserError, match=words):
        read_scene(str(tmp_path), format=format, options=text)


def test_only_what_differs_from_the_defaults_is_remembered():
    read = READERS["photos"].read
    values = checked_options("photos", read, parse_options("max_size=900,matching=auto,least_share=0.5"))
    assert canonical(read, values) == "max_size=900"


def test_a_trajectory_is_read_with_a_focal_length(tmp_path, capsys):
    test_nsvf.write_log(tmp_path)
    (tmp_path / "intrinsics.txt").unlink(missing_ok=True)
    assert main(["inspect", str(tmp_path)]) == 2
    out = capsys.readouterr().out
    assert "--options=focal=" in out and "--config.scene.options=focal=" in out
    scene = read_scene(str(tmp_path), options="focal=9")
    assert scene.options == "focal=9.0" and (scene.cameras.focal == 9).all()
    assert (
        read_scene(str(tmp_path), focal=9).options == "focal=9.0"
        and main(["inspect", str(tmp_path), "--options=focal=9"]) == 0
    )
    assert main(["inspect", str(tmp_path), "--options=focal=9,x=3"]) == 2


def test_train_takes_them_and_they_are_hashed(tmp_path):
    test_nsvf.write_log(tmp_path)
    (tmp_path / "intrinsics.txt").unlink(missing_ok=True)
    config = load_config("demo", {"scene.source": str(tmp_path), "scene.options": "focal=9"})
    assert (read_config_scene(config).cameras.focal == 9).all()
    other = load_config("demo", {"scene.source": str(tmp_path), "scene.options": "focal=10"})
    assert config_hash(config) != config_hash(other)


def masked(folder):
    """Masks that leave out the right half, on the first two frames."""
    write_scene(simple_scene(), folder, "transforms_json")
    content = json.loads((folder / "transforms.json").read_text())
    width, height = simple_scene().frames[0].image.size
    mask = np.zeros((height, width), np.uint8)
    mask[:, : width // 2] = 255
    Image.fromarray(mask).save(folder / "mask.png")
    for frame in content["frames"][:2]:
        frame["mask_path"] = "mask.png"
    (folder / "transforms.json").write_text(json.dumps(content))
    return str(folder)


def test_b56_masked_pixels_are_ignored_or_background_or_nothing(tmp_path):
    source = masked(tmp_path / "set")
    scenes = {how: read_scene(source, options=f"masks={how}") for how in ("ignore", "background", "off")}
    marked = [frame.name for frame in scenes["ignore"].frames if frame.mask is not None]
    assert len(marked) == 2
    for how in ("background", "off"):
        assert all(frame.mask is None for frame in scenes[how].frames)
    half = scenes["ignore"].frames[0].image.size[0] // 2
    for frame, plain in zip(scenes["background"].frames, scenes["off"].frames, strict=True):
        image = frame.image.read()
        np.testing.assert_array_equal(image[..., :3], plain.image.read()[..., :3])
        if frame.name in marked:
            assert image.shape[-1] == 4 and (image[:, :half, 3] == 255).all() and (image[:, half:, 3] == 0).all()
    prints = {scene.fingerprint() for scene in scenes.values()}
    assert len(prints) == 3 and scenes["ignore"].fingerprint() == read_scene(source).fingerprint()
    Image.new("L", scenes["off"].frames[0].image.size, 255).save(tmp_path / "set/mask.png")
    assert read_scene(source, masks="background").fingerprint() not in prints
    assert read_scene(source, masks="off").fingerprint() in prints


def test_masks_that_are_off_need_not_be_there(tmp_path):
    source = masked(tmp_path)
    (tmp_path / "mask.png").unlink()
    with pytest.raises(UserError, match="missing"):
        read_scene(source)
    assert read_scene(source, masks="off").frames


def test_an_object_that_is_cut_out_is_bounded(tmp_path):
    source = test_idr.write(tmp_path)
    (tmp_path / "mask").mkdir(exist_ok=True)
    width, height = read_scene(source).frames[0].image.size
    mask = np.zeros((height, width), np.uint8)
    mask[1:3, 2:5] = 255
    for i in range(len(read_scene(source).frames)):
        Image.fromarray(mask).save(tmp_path / f"mask/{i:03d}.png")
    assert not read_scene(source).geometry.bounded
    scene = read_scene(source, options="masks=background")
    assert scene.geometry.bounded and scene.background == "white"


def test_the_camera_model_may_be_given(tmp_path):
    write_scene(simple_scene(), tmp_path, "transforms_json")
    assert read_scene(str(tmp_path)).cameras.models == ("pinhole",)
    scene = read_scene(str(tmp_path), options="camera_model=opencv_fisheye")
    assert scene.cameras.models == ("opencv_fisheye",)


def test_a_prepared_set_keeps_its_options_and_takes_no_others(tmp_path, capsys):
    source = masked(tmp_path / "set")
    assert main(["prepare", source, f"--out={tmp_path / 'out'}", "--options=masks=background"]) == 0
    scene = read_scene(source, options="masks=background")
    again = read_scene(str(tmp_path / "out"))
    assert again.options == "masks=background" and again.fingerprint() == scene.fingerprint()
    assert again.frames[0].image.read().shape[-1] == 4
    assert read_scene(str(tmp_path / "out"), options="masks=background").fingerprint() == scene.fingerprint()
    with pytest.raises(UserError, match=r"(?s)prepared in another way.*masks=off.*masks=background"):
        read_scene(str(tmp_path / "out"), options="masks=off")
    with pytest.raises(UserError, match="another way"):
        read_scene(str(tmp_path / "out"), convention="opencv")
    # Another choice is another data set.
    assert prepare(read_scene(source), tmp_path / "other") != tmp_path / "out"
    capsys.readouterr()
    assert main(["prepare", source, f"--out={tmp_path / 'out'}"]) == 2
    assert "another data set" in capsys.readouterr().err
