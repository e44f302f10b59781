"""The fingerprint: content alone decides, in every format that we can write."""

from __future__ import annotations

import json
import shutil
import struct

import numpy as np
import pytest
from PIL import Image
from test_round_trip import simple_scene

from nerfjax.scenes import read_scene
from nerfjax.scenes.writers import WRITERS, write_scene


def write(folder, format):
    write_scene(simple_scene(), folder, format)
    return folder


def change_pose_digit(folder, format):
    """Changes the last digit (or bit) of one position."""
    if format in ("blender", "transforms_json"):
        path = next(folder.glob("transforms*.json"))
        content = json.loads(path.read_text())
        row = content["frames"][1]["transform_matrix"][0]
        row[3] = float(np.nextafter(row[3], 10.0))
        path.write_text(json.dumps(content))
    elif format == "llff":
        rows = np.load(folder / "poses_bounds.npy")
        rows[1, 3] = np.nextafter(rows[1, 3], 10.0)
        np.save(folder / "poses_bounds.npy", rows)
    elif format == "colmap_text":
        path = folder / "sparse/0/images.txt"
        lines = path.read_text().splitlines()
        words = lines[2].split()
        words[5] = repr(float(words[5]) + 1e-14)
        lines[2] = " ".join(words)
        path.write_text("\n".join(lines) + "\n")
    else:
        path = folder / "sparse/0/images.bin"
        data = bytearray(path.read_bytes())
        place = 8 + 4 + 4 * 8  # count, id, quaternion: the translation's x
        (x,) = struct.unpack_from("<d", data, place)
        struct.pack_into("<d", data, place, x + 1e-14)
        path.write_bytes(bytes(data))


@pytest.mark.parametrize("format", WRITERS)
def test_the_fingerprint_is_of_content_alone(tmp_path, format):
    source = write(tmp_path / "one", format)
    first = read_scene(str(source)).fingerprint()
    copy = tmp_path / "deep/er/another name"
    shutil.copytree(source, copy)
    assert read_scene(str(copy)).fingerprint() == first
    assert read_scene(str(write(tmp_path / "two", format))).fingerprint() == first  # written at another time

    change_pose_digit(copy, format)
    posed = read_scene(str(copy)).fingerprint()

    pixel = tmp_path / "pixel"
    shutil.copytree(source, pixel)
    path = sorted(pixel.rglob("*.png"))[2]
    image = Image.open(path)
    image.load()
    red, *rest = image.getpixel((3, 2))
    image.putpixel((3, 2), (red ^ 1, *rest))
    image.save(path)
    painted = read_scene(str(pixel)).fingerprint()

    split = split_changed(tmp_path, source, format)
    assert len({first, posed, painted, split}) == 4


def split_changed(tmp_path, source, format):
    if format == "blender":  # the files name the splits
        other = tmp_path / "split"
        shutil.copytree(source, other)
        content = json.loads((other / "transforms_train.json").read_text())
        moved = content["frames"].pop()
        (other / "transforms_train.json").write_text(json.dumps(content))
        (other / "transforms_test.json").write_text(json.dumps({**content, "frames": [moved]}))
        return read_scene(str(other)).fingerprint()
    if format == "transforms_json":
        other = tmp_path / "split"
        shutil.copytree(source, other)
        content = json.loads((other / "transforms.json").read_text())
        content["test_filenames"] = [content["train_filenames"].pop()]
        (other / "transforms.json").write_text(json.dumps(content))
        return read_scene(str(other)).fingerprint()
    return read_scene(str(source), holdout=2).fingerprint()
