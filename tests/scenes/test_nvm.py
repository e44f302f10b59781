from __future__ import annotations

import numpy as np
import pytest
from synthetic_photos import POINTS, check_projection, ring, write_images

from nerfjax.errors import UserError
from nerfjax.geometry.poses import quaternion_from_rotation
from nerfjax.scenes import read_scene
from nerfjax.scenes.nvm import inverse_radial, registration

CAMERAS = ring()
NAMES = [f"images/{i}.png" for i in range(6)]
R = 0.08


def camera_line(name, camera, matrices=False):
    rotation, translation = camera
    if matrices:
        pose = [*rotation.ravel(), *translation]
    else:
        pose = [*quaternion_from_rotation(rotation), *(-rotation.T @ translation)]
    return " ".join([name.replace(" ", '"'), *(repr(float(x)) for x in (90.0, *pose, R, 0.0))])


def model_lines(names, cameras, points=POINTS, matrices=False):
    lines = ["", str(len(names)), *(camera_line(n, c, matrices) for n, c in zip(names, cameras, strict=True))]
    lines += ["", str(len(points)), *(" ".join(repr(float(x)) for x in p) + " 1 2 3 1 0 7 1.5 2.5" for p in points)]
    return lines


def write(folder, names=NAMES, header="NVM_V3", extra=(), **options):
    write_images(folder, names)
    lines = [header, *model_lines(names, CAMERAS, **options), *extra, "", "0", "", "#the rest is about ply files", "0"]
    (folder / "model.nvm").write_text("\n".join(lines) + "\n")
    return str(folder)


def undistort_by_steps(x, y, r):
    """The d with d (1 + r |d|^2) = (x, y), by fixed-point steps."""
    u, v = x, y
    for _ in range(200):
        factor = 1 + r * (u * u + v * v)
        u, v = x / factor, y / factor
    return u, v


def pixel(name, points, r=R, lens=(90.0, 40.0, 90.0, 30.0)):
    rotation, translation = CAMERAS[NAMES.index(name)]
    X, Y, Z = (points @ rotation.T + translation).T
    x, y = undistort_by_steps(X / Z, Y / Z, r)
    return np.stack([lens[0] * x + lens[1], lens[2] * y + lens[3]], -1)


def test_projection_undoes_the_measurement_distortion(tmp_path):
    scene = read_scene(write(tmp_path))
    assert scene.format == "nvm" and scene.notes == ()
    check_projection(scene, pixel)
    np.testing.assert_array_equal(registration(tmp_path / "model.nvm", tmp_path).points, POINTS)


def test_matrices_and_a_fixed_calibration(tmp_path):
    scene = read_scene(write(tmp_path, header="NVM_V3_R9T FixedK 95 37 97 31 0.05", matrices=True))
    check_projection(scene, lambda name, points: pixel(name, points, 0.05, (95, 37, 97, 31)))


def test_b08_the_largest_model_is_taken(tmp_path):
    names = ["images/0.png", "images/1.png"]
    others = model_lines(["a/9.png", "a/10.png"], CAMERAS[:2])
    source = write(tmp_path, extra=others)
    scene = read_scene(source)
    assert len(scene.frames) == 6 and any("2 models: the one with 6" in note for note in scene.notes)
    assert any("2 of 8 photos were not registered" in note and "a/9.png" in note for note in scene.notes)
    text = "\n".join(["NVM_V3", *model_lines(names, CAMERAS[:2]), *model_lines(NAMES[2:], CAMERAS[2:]), "", "0"])
    (tmp_path / "model.nvm").write_text(text)
    assert len(read_scene(source).frames) == 4


def test_b16_names_with_spaces(tmp_path):
    names = [f"images/My photo ({i}).png" for i in range(6)]
    scene = read_scene(write(tmp_path, names=names))
    assert [frame.name for frame in scene.frames] == names


@pytest.mark.parametrize(("r", "pixels"), [(0.3, 1.0), (0.12, 0.1), (-0.05, 0.1), (-0.12, 0.1)])
def test_the_inverse_of_the_distortion_fits_an_image_of_90_degrees(r, pixels):
    d = np.linspace(0, 1, 101)
    u = d * (1 + r * d**2)
    k = inverse_radial(r, 1.0)
    again = u * (1 + sum(k[i] * u ** (2 * i + 2) for i in range(4)))
    assert np.abs(again - d).max() * 1000 < pixels


def test_a_distortion_that_folds_is_refused(tmp_path):
    source = write(tmp_path)
    text = (tmp_path / "model.nvm").read_text()
    (tmp_path / "model.nvm").write_text(text.replace(f"{R} 0.0", "-2.0 0.0"))
    with pytest.raises(UserError, match="folds"):
        read_scene(source)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda text: text[:700], "incomplete"),
        (lambda text: text.replace("\n6\n", "\n6 7\n"), "none of the format's"),
        (lambda text: text.replace("\n6\n", "\nsix\n"), "word stands"),
        (lambda text: text.replace("90.0", "inf"), "numbers expected"),
        (lambda text: "NVM_V3\n\n0\n", "No photo is registered"),
    ],
)
def test_bad_files_are_refused(tmp_path, edit, message):
    source = write(tmp_path)
    path = tmp_path / "model.nvm"
    path.write_text(edit(path.read_text()))
    with pytest.raises(UserError, match=message):
        read_scene(source)


def test_aachen(capture):
    folder = capture("meta_only") / "kapture_aachen_nvm_bundler"
    scene = read_scene(str(folder / "3D-models/aachen_cvpr2018_db.nvm"))
    assert [frame.name.rsplit("/", 1)[1] for frame in scene.frames] == ["1045.jpg", "1135.jpg", "4446.jpg"]
    assert len(read_scene(str(folder / "3D-models/aachen_two_parts.nvm")).frames) == 2
    with pytest.raises(UserError, match="Several files describe cameras"):
        read_scene(str(folder))
