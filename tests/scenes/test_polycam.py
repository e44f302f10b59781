from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from ring_capture import CENTER, COUNT, FOCAL, check, opengl, write_image, write_json

from nerfjax.errors import UserError
from nerfjax.scenes import read_scene


def write(folder, kind="corrected_", **change):
    for i in range(COUNT):
        camera = {f"t_{r}{c}": opengl(i)[r, c] for r in range(3) for c in range(4)}
        camera |= {"fx": FOCAL[0], "fy": FOCAL[1], "cx": CENTER[0], "cy": CENTER[1], "width": 8, "height": 6}
        write_json(folder / f"keyframes/{kind}cameras/{1000 + i}.json", {**camera, "blur_score": 90.0, **change})
        write_image(folder / f"keyframes/{kind}images/{1000 + i}.jpg", i)
    return str(folder)


def test_corrected_cameras_go_first(tmp_path):
    write(tmp_path, "", fx=3.0)
    source = write(tmp_path)
    scene = read_scene(source, border=1)
    check(scene, names=[f"keyframes/corrected_images/{1000 + i}.jpg" for i in range(COUNT)])
    assert scene.format == "polycam" and scene.provenance["kind"] == "corrected_cameras"
    assert scene.frames[0].valid().sum() == 6 * 4 and not scene.frames[0].valid()[0].any()
    check(read_scene(f"{source}/keyframes"))


def test_uncorrected_cameras_are_said(tmp_path):
    scene = read_scene(write(tmp_path, ""))
    check(scene)
    assert any("no corrected cameras" in note for note in scene.notes) and scene.frames[0].mask is None


def test_depth_in_millimetres(tmp_path):
    source = write(tmp_path, "")
    (tmp_path / "keyframes/depth").mkdir()
    Image.fromarray(np.full((3, 4), 1250, np.uint16)).save(tmp_path / "keyframes/depth/1001.png")
    scene = read_scene(source)
    scale = np.cbrt(np.linalg.det(scene.to_scene[:3, :3]))
    np.testing.assert_allclose(scene.frames[1].depth.read((8, 6)), 1.25 * scale, rtol=1e-5)


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
