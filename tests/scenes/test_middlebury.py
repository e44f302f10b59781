from __future__ import annotations

import numpy as np
import pytest
from synthetic_photos import check_projection, ring, write_images

from nerfjax.errors import UserError
from nerfjax.scenes import read_scene
from nerfjax.scenes.middlebury import registration

CAMERAS = ring()
NAMES = [f"toy{i:04d}.png" for i in range(1, 7)]
K = np.array([[100.0, 0, 37], [0, 104, 31], [0, 0, 1]])


def write(folder, names=NAMES, matrix=K, count=None):
    write_images(folder, NAMES)
    lines = [str(count or len(names))]
    for name, (rotation, translation) in zip(names, CAMERAS, strict=True):
        numbers = np.concatenate([matrix.ravel(), rotation.ravel(), translation])
        lines.append(" ".join([name, *(repr(float(number)) for number in numbers)]))
    (folder / "toy_par.txt").write_text("\n".join(lines) + "\n")
    return str(folder)


def pixel(name, points):
    rotation, translation = CAMERAS[NAMES.index(name)]
    p = (points @ rotation.T + translation) @ K.T
    return p[:, :2] / p[:, 2:] + 0.5


def test_projection_is_k_r_t(tmp_path):
    scene = read_scene(write(tmp_path))
    assert scene.format == "middlebury" and scene.cameras.models == ("pinhole",)
    check_projection(scene, pixel)
    check_projection(read_scene(str(tmp_path / "toy_par.txt")), pixel)


@pytest.mark.parametrize("text", ["(-1 2 3)\n(4 -5 6.5)", "-1, 2, 3\n4 -5 6.5", "is\n( -1.0 2e0 3 ) (4 -5 6.5)"])
def test_the_readme_states_the_bounding_box(tmp_path, text):
    write(tmp_path)
    assert registration(tmp_path / "toy_par.txt", tmp_path).region is None
    (tmp_path / "README.txt").write_text(f"The (tight) bounding box for the model is\n{text}\n 7 8 9\n")
    corners = registration(tmp_path / "toy_par.txt", tmp_path).region
    np.testing.assert_array_equal([corners.min(axis=0), corners.max(axis=0)], [[-1, -5, 3], [4, 2, 6.5]])


def test_b07_names_that_do_not_meet(tmp_path):
    with pytest.raises(UserError, match="(?s)6 cameras such as a0, a1.*6 images such as toy0001.png, toy0002.png"):
        read_scene(write(tmp_path, names=[f"a{i}" for i in range(6)]))


def test_b02_litter_is_no_image(tmp_path):
    source = write(tmp_path)
    (tmp_path / "._toy0001.png").write_bytes(b"\0\5\x16\7")
    (tmp_path / ".DS_Store").write_bytes(b"x")
    scene = read_scene(source)
    assert len(scene.frames) == 6 and scene.notes == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(count=5), "as many cameras as it says"),
        (dict(matrix=K + [[0, 9, 0], [0, 0, 0], [0, 0, 0]]), "skewed"),
        (dict(matrix=K * [[1], [1], [-1]]), "no camera matrix"),
        (dict(matrix=K * [[np.nan], [1], [1]]), "not the numbers expected"),
    ],
)
def test_bad_files_are_refused(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        read_scene(write(tmp_path, **options))


def test_temple(capture):
    folder = capture("middlebury_temple")
    scene = read_scene(str(folder))
    assert len(scene.frames) == 16 and scene.provenance["normalization"]["inward_facing"]
    corners = registration(folder / "templeSR_par.txt", folder).region
    box = np.stack([corners.min(axis=0), corners.max(axis=0)])
    np.testing.assert_allclose(box, [[-0.073568, 0.021728, -0.012445], [0.028855, 0.181892, 0.062736]])
    # The cameras look at the object.
    np.testing.assert_allclose(scene.provenance["normalization"]["center"], box.mean(0), atol=0.05)
    # The region of interest that the README states is what gets full resolution, and near lies before it.
    assert scene.geometry.box[1, 0] < 0.3 and 0.5 < scene.geometry.near < 0.9
