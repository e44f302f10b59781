from __future__ import annotations

import json
import math

import numpy as np
import pytest
from synthetic_photos import POINTS, check_projection, radial, ring, write_images

from nerfjax.errors import UserError
from nerfjax.geometry.poses import quaternion_from_rotation
from nerfjax.scenes import read_scene
from nerfjax.scenes.opensfm import registration

CAMERAS = ring()
NAMES = [f"{i:02d}.png" for i in range(6)]
SIZE = (60, 80)  # portrait: the unit is the height


def angle_axis(rotation):
    w, *vector = quaternion_from_rotation(rotation)
    length = np.linalg.norm(vector)
    return (np.array(vector) / length * 2 * math.atan2(length, w)).tolist()


def pose(rotation, translation):
    return {"rotation": angle_axis(rotation), "translation": list(translation)}


def write(folder, camera, size=SIZE, files=None, edit=None, extra=(), **members):
    write_images(folder / "images", files or NAMES, size)
    shots = {name: {**pose(*c), "camera": "v2 phone, 4.28mm f/2.4"} for name, c in zip(NAMES, CAMERAS, strict=True)}
    part = {
        "cameras": {"v2 phone, 4.28mm f/2.4": {"width": size[0], "height": size[1], **camera}},
        "shots": shots,
        "points": {str(i): {"color": [1, 2, 3], "coordinates": point.tolist()} for i, point in enumerate(POINTS)},
        **members,
    }
    if edit:
        edit(part)
    (folder / "reconstruction.json").write_text(json.dumps([*extra, part]))
    return str(folder)


def in_camera(name, points):
    rotation, translation = CAMERAS[NAMES.index(name.removeprefix("images/"))]
    return (points @ rotation.T + translation).T


def to_pixels(u, v):
    return np.stack([30 + 80 * u, 40 + 80 * v], -1)


def perspective(name, points):
    X, Y, Z = in_camera(name, points)
    x, y = radial(X / Z, Y / Z, 0.02, -0.01)
    return to_pixels(0.9 * x, 0.9 * y)


FISHEYE_62 = {"focal_x": 0.9, "focal_y": 0.9, **dict.fromkeys(("c_x", "c_y", "k3", "k4", "k5", "k6", "p1", "p2"), 0.0)}
FISHEYE_62 |= {"k1": 0.02, "k2": -0.01}
PERSPECTIVE = {"projection_type": "perspective", "focal": 0.9, "k1": 0.02, "k2": -0.01}


def brown(name, points):
    X, Y, Z = in_camera(name, points)
    x, y = X / Z, Y / Z
    q = x * x + y * y
    u, v = radial(x, y, 0.02, -0.01, 0.03)
    u, v = u + 2 * 0.01 * x * y + 0.02 * (q + 2 * x * x), v + 0.01 * (q + 2 * y * y) + 2 * 0.02 * x * y
    return to_pixels(0.9 * u + 0.05, 0.95 * v - 0.02)


def fisheye(name, points):
    X, Y, Z = in_camera(name, points)
    rho = np.hypot(X, Y)
    theta = np.arctan2(rho, Z)
    bent = theta * (1 + 0.02 * theta**2 - 0.01 * theta**4)
    return to_pixels(0.9 * bent * X / rho, 0.9 * bent * Y / rho)


def spherical(name, points):
    X, Y, Z = in_camera(name, points)
    longitude, latitude = np.arctan2(X, Z), np.arctan2(-Y, np.hypot(X, Z))
    return np.stack([40 + 80 * longitude / (2 * math.pi), 20 - 80 * latitude / (2 * math.pi)], -1)


BROWN = dict(focal_x=0.9, focal_y=0.95, c_x=0.05, c_y=-0.02, k1=0.02, k2=-0.01, k3=0.03, p1=0.01, p2=0.02)


@pytest.mark.parametrize(
    ("camera", "formula", "size"),
    [
        (PERSPECTIVE, perspective, SIZE),
        ({"projection_type": "brown", **BROWN}, brown, SIZE),
        ({"projection_type": "fisheye", "focal": 0.9, "k1": 0.02, "k2": -0.01}, fisheye, SIZE),
        ({"projection_type": "fisheye62", **FISHEYE_62}, fisheye, SIZE),
        ({"projection_type": "spherical"}, spherical, (80, 40)),
    ],
)
def test_projection_follows_the_documentation(tmp_path, camera, formula, size):
    scene = read_scene(write(tmp_path, camera, size))
    assert scene.format == "opensfm" and scene.notes == () and len(scene.frames) == 6
    check_projection(scene, formula)
    assert read_scene(str(tmp_path / "reconstruction.json")).format == "opensfm"
    np.testing.assert_array_equal(registration(tmp_path / "reconstruction.json", tmp_path).points, POINTS)


def test_resized_photos(tmp_path):
    scene = read_scene(write(tmp_path, {**PERSPECTIVE, "width": 600, "height": 800}))
    assert any("6 images have another size" in note for note in scene.notes)
    check_projection(scene, perspective)


def test_b08_the_largest_reconstruction_is_taken(tmp_path):
    other = {"cameras": {}, "shots": {"a.png": {}, "b.png": {}}}
    scene = read_scene(write(tmp_path, PERSPECTIVE, extra=[other]))
    assert len(scene.frames) == 6 and any("2 reconstructions: the one with 6 shots" in note for note in scene.notes)


def test_b72_shots_of_a_rig_are_composed(tmp_path):
    turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    offset = np.array([0.1, 0.2, 0.3])

    def edit(part):
        for i, name in enumerate(NAMES):
            shot = part["shots"][name]
            del shot["rotation"], shot["translation"]
            rotation, translation = CAMERAS[i]
            instance = pose(turn.T @ rotation, turn.T @ (translation - offset))
            part["rig_instances"][name] = {**instance, "rig_camera_ids": {name: "side"}}

    rig = {"rig_cameras": {"side": pose(turn, offset)}, "rig_instances": {}}
    check_projection(read_scene(write(tmp_path, PERSPECTIVE, edit=edit, **rig)), perspective)


def test_b07_names_that_do_not_meet(tmp_path):
    with pytest.raises(UserError, match=r"(?s)6 cameras such as 00.png, 01.png.*such as images/a0.png, images/a1.png"):
        read_scene(write(tmp_path, PERSPECTIVE, files=[f"a{i}.png" for i in range(6)]))


def change(path, value):
    def edit(part):
        for key in path[:-1]:
            part = part[key] if key != 0 else next(iter(part.values()))
        part[path[-1]] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (change(["shots", "00.png", "camera"], "other"), "not in the file"),
        (change(["shots", "00.png", "camera"], {}), "not in the file"),
        (change(["shots", "00.png", "rotation"], [0, None, 1]), "numbers expected"),
        (change(["shots", "00.png", "translation"], "x"), "numbers expected"),
        (change(["shots", "00.png"], []), "incomplete"),
        (change(["points", "0"], {"coordinates": [1, 2]}), "numbers expected"),
        (change(["cameras", 0, "focal"], -1), "bad number"),
        (change(["cameras", 0, "focal"], None), "bad number"),
        (change(["cameras", 0, "width"], 0), "no size"),
        (change(["cameras", 0, "width"], 80), "another shape"),
        (change(["cameras", 0, "projection_type"], "dual"), "not supported"),
        (change(["cameras", 0, "projection_type"], "spherical"), "not the whole sphere"),
        (change(["shots"], {}), "No photo is registered"),
        (change(["shots"], None), "no reconstruction"),
    ],
)
def test_bad_files_are_refused(tmp_path, edit, message):
    with pytest.raises(UserError, match=message):
        read_scene(write(tmp_path, PERSPECTIVE, edit=edit))


def test_berlin(capture):
    scene = read_scene(str(capture("opensfm_berlin")))
    assert len(scene.frames) == 3 and scene.format == "opensfm"
    # The solved focal length, not the prior of camera_models.json.
    np.testing.assert_allclose(scene.cameras.focal, 0.9642521761171555 * 3264, rtol=1e-6)
