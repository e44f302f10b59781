from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from ring_capture import CENTER, COUNT, FOCAL, check, opengl, write_image, write_json

from nerfjax.errors import UserError
from nerfjax.scenes import read_scene

FIRST = 262195552056  # names are times in microseconds


def name(index):
    return FIRST + 33_000 * index


def write(folder, kind="corrected_", **change):
    """As the app exports: cameras with more keys than are used, a thumbnail and a description beside the keyframes."""
    for i in range(COUNT):
        camera = {f"t_{r}{c}": opengl(i)[r, c] for r in range(3) for c in range(4)}
        camera |= {"fx": FOCAL[0], "fy": FOCAL[1], "cx": CENTER[0], "cy": CENTER[1], "width": 8, "height": 6}
        camera |= {"blur_score": 165.65264892578125, "center_depth": 1.4739747047424316, "timestamp": name(i),
                   "angular_velocity": 3.4028234663852886e38, "manual_keyframe": False, "neighbors": []}  # fmt: skip
        write_json(folder / f"keyframes/{kind}cameras/{name(i)}.json", {**camera, **change})
        write_image(folder / f"keyframes/{kind}images/{name(i)}.jpg", i)
    write_image(folder / "thumbnail.jpg")
    write_json(folder / "mesh_info.json", {"alignmentTransform": np.eye(4).ravel().tolist(), "faceCount": 3})
    return str(folder)


def write_depth(folder, index, values, confidence=None):
    for kind, array in (("depth", values), ("confidence", confidence)):
        if array is not None:
            (folder / f"keyframes/{kind}").mkdir(exist_ok=True)
            Image.fromarray(array).save(folder / f"keyframes/{kind}/{name(index)}.png")


def test_corrected_cameras_go_first(tmp_path):
    write(tmp_path, "", fx=3.0)
    source = write(tmp_path)
    scene = read_scene(source, border=1)
    check(scene, names=[f"keyframes/corrected_images/{name(i)}.jpg" for i in range(COUNT)])
    assert scene.format == "polycam" and scene.provenance["kind"] == "corrected_cameras"
    assert scene.frames[0].valid().sum() == 6 * 4 and not scene.frames[0].valid()[0].any()
    check(read_scene(f"{source}/keyframes"))


def test_uncorrected_cameras_are_said(tmp_path):
    scene = read_scene(write(tmp_path, ""))
    check(scene)
    assert any("no corrected cameras" in note for note in scene.notes) and scene.frames[0].mask is None


def test_depth_in_millimetres(tmp_path):
    source = write(tmp_path, "")
    write_depth(tmp_path, 1, np.full((3, 4), 1250, np.uint16))
    scene = read_scene(source)
    scale = np.cbrt(np.linalg.det(scene.to_scene[:3, :3]))
    np.testing.assert_allclose(scene.frames[1].depth.read((8, 6)), 1.25 * scale, rtol=1e-5)
    before = scene.fingerprint()
    # Where the confidence is 0 the depth is a guess.
    confidence = np.full((3, 4), 127, np.uint8)
    confidence[0], confidence[1] = 0, 255
    write_depth(tmp_path, 1, np.full((3, 4), 1250, np.uint16), confidence)
    scene = read_scene(source)
    depth = scene.frames[1].depth.read((4, 3))
    assert (depth[0] == 0).all() and np.allclose(depth[1:], 1.25 * scale)
    assert scene.fingerprint() != before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(t_11="up"), "not the numbers"),
        (dict(t_11=9.0), "not orthonormal"),
        (dict(fx=0.0), "calibration matrix"),
        (dict(width=-8), "impossible"),
        (dict(width=6, height=8), "swapped"),
    ],
)
def test_bad_cameras(tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        read_scene(write(tmp_path, **change))
