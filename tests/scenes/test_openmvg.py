from __future__ import annotations

import json
import math

import numpy as np
import pytest
from synthetic_photos import POINTS, check_projection, radial, ring, write_images

from nerfjax.errors import UserError
from nerfjax.scenes import read_scene
from nerfjax.scenes.openmvg import registration

CAMERAS = ring()
NAMES = [f"day 1/{i}.png" for i in range(6)]
HIGH = 0x80000000
LENS = {"width": 80, "height": 60, "focal_length": 90.0, "principal_point": [37.0, 31.0]}


def pointer(number, data, name=None, kind=None):
    value = {"ptr_wrapper": {"id": HIGH | number, "data": data}}
    value["polymorphic_id"] = 0x40000000 if kind is None else kind
    return {**value, **({"polymorphic_name": name} if name else {})}


def write(folder, kind="pinhole_radial_k3", more=None, nested=False, edit=None, size=(80, 60)):
    write_images(folder, NAMES, size)
    views = []
    for i, name in enumerate(NAMES):
        folder_name, _, filename = name.rpartition("/")
        data = {"local_path": folder_name, "filename": filename, "width": 80, "height": 60}
        views.append({"key": i, "value": pointer(i + 1, {**data, "id_view": i, "id_intrinsic": i % 2, "id_pose": i})})
    lens = {"value0": LENS} if nested else LENS
    content = {
        "sfm_data_version": "0.3",
        "root_path": "C:\\elsewhere\\photos",
        "views": views,
        # The second intrinsic repeats the type by its number, without its name.
        "intrinsics": [
            {"key": 0, "value": pointer(101, {**lens, **(more or {})}, name=kind, kind=HIGH | 1)},
            {"key": 1, "value": pointer(102, {**lens, **(more or {})}, kind=1)},
        ],
        "extrinsics": [
            {"key": i, "value": {"rotation": r.tolist(), "center": (-r.T @ t).tolist()}}
            for i, (r, t) in enumerate(CAMERAS)
        ],
        "structure": [{"key": i, "value": {"X": p.tolist(), "observations": []}} for i, p in enumerate(POINTS)],
        "control_points": [],
    }
    if edit:
        edit(content)
    (folder / "sfm_data.json").write_text(json.dumps(content))
    return str(folder)


def formula(bend):
    def pixel(name, points):
        rotation, translation = CAMERAS[NAMES.index(name)]
        x, y = bend(*(points @ rotation.T + translation).T)
        return np.stack([90 * x + 37.5, 90 * y + 31.5], -1)

    return pixel


def k3(X, Y, Z):
    return radial(X / Z, Y / Z, 0.1, -0.05, 0.02)


def brown(X, Y, Z):
    x, y = X / Z, Y / Z
    q = x * x + y * y
    u, v = k3(X, Y, Z)
    return u + 0.02 * (q + 2 * x * x) + 2 * 0.01 * x * y, v + 0.01 * (q + 2 * y * y) + 2 * 0.02 * x * y


def fisheye(X, Y, Z):
    rho = np.hypot(X, Y)
    theta = np.arctan2(rho, Z)
    bent = theta * (1 + 0.1 * theta**2 - 0.05 * theta**4 + 0.02 * theta**6)
    return bent * X / rho, bent * Y / rho


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("kind", "more", "bend"),
    [
        ("pinhole", {}, lambda X, Y, Z: (X / Z, Y / Z)),
        ("pinhole_radial_k1", {"disto_k1": [0.1]}, lambda X, Y, Z: radial(X / Z, Y / Z, 0.1)),
        ("pinhole_radial_k3", {"disto_k3": [0.1, -0.05, 0.02]}, k3),
        ("pinhole_brown_t2", {"disto_t2": [0.1, -0.05, 0.02, 0.01, 0.02]}, brown),
        ("fisheye", {"fisheye": [0.1, -0.05, 0.02, 0.0]}, fisheye),
    ],
)
def test_projection_follows_the_documentation(tmp_path, kind, more, bend, nested):
    scene = read_scene(write(tmp_path, kind, more, nested))
    assert scene.format == "openmvg" and [frame.name for frame in scene.frames] == NAMES and scene.notes == ()
    check_projection(scene, formula(bend))
    assert read_scene(str(tmp_path / "sfm_data.json")).format == "openmvg"
    np.testing.assert_array_equal(registration(tmp_path / "sfm_data.json", tmp_path).points, POINTS)


def test_spherical(tmp_path):
    def edit(content):
        for view in content["views"]:
            view["value"]["ptr_wrapper"]["data"].update(width=80, height=40)

    def pixel(name, points):
        rotation, translation = CAMERAS[NAMES.index(name)]
        X, Y, Z = (points @ rotation.T + translation).T
        return np.stack(
            [
                40 + 80 * np.arctan2(X, Z) / (2 * math.pi),
                20 + 40 * np.arctan2(Y, np.hypot(X, Z)) / math.pi,
            ],
            -1,
        )

    more = {"width": 80, "height": 40}
    check_projection(read_scene(write(tmp_path, "spherical", more, edit=edit, size=(80, 40))), pixel)


def test_views_without_a_pose_are_unregistered(tmp_path):
    def edit(content):
        content["views"][2]["value"]["ptr_wrapper"]["data"]["id_pose"] = 0xFFFFFFFF
        content["views"][3]["value"]["ptr_wrapper"]["data"]["id_intrinsic"] = 0xFFFFFFFF

    scene = read_scene(write(tmp_path, "pinhole", edit=edit))
    assert len(scene.frames) == 4 and any("2 of 6 photos were not registered" in note for note in scene.notes)
    check_projection(scene, formula(lambda X, Y, Z: (X / Z, Y / Z)))


def test_pointers_to_objects_written_before(tmp_path):
    def edit(content):
        content["intrinsics"][1]["value"] = {"polymorphic_id": 1, "ptr_wrapper": {"id": 101}}

    check_projection(read_scene(write(tmp_path, "pinhole", edit=edit)), formula(lambda X, Y, Z: (X / Z, Y / Z)))


def test_b20_files_of_one_name_in_two_folders(tmp_path):
    source = write(tmp_path, "pinhole")
    write_images(tmp_path, ["day 2/0.png"], (80, 60))
    scene = read_scene(source)
    assert scene.frames[0].name == "day 1/0.png" and any("1 images have no camera" in note for note in scene.notes)


def test_photos_in_other_folders_are_found_by_the_end_of_their_path(tmp_path):
    source = write(tmp_path, "pinhole")
    (tmp_path / "day 1").rename(tmp_path / "photos")
    assert [frame.name for frame in read_scene(source).frames][:2] == ["photos/0.png", "photos/1.png"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c["intrinsics"][0]["value"].update(polymorphic_name="pinhole_new"), "not supported"),
        (lambda c: c["intrinsics"][0]["value"].pop("ptr_wrapper"), "incomplete"),
        (lambda c: c["intrinsics"][1]["value"].update(ptr_wrapper={"id": 7}), "none before it|not supported"),
        (lambda c: c["extrinsics"][0]["value"].update(center=[1, 2]), "numbers expected"),
        (lambda c: c["extrinsics"][0]["value"].update(rotation=[[1, 0, 0]] * 3), "not orthonormal"),
        (lambda c: c["views"][0]["value"]["ptr_wrapper"]["data"].update(filename=3), "no file name"),
        (lambda c: c["views"][0]["value"]["ptr_wrapper"]["data"].update(width=None), "numbers expected"),
        (lambda c: c["structure"][0]["value"].update(X="a"), "numbers expected"),
        (lambda c: c.update(views={}), "No photo is registered"),
        (lambda c: c.update(views=5), "incomplete"),
    ],
)
def test_bad_files_are_refused(tmp_path, edit, message):
    with pytest.raises(UserError, match=message):
        read_scene(write(tmp_path, "pinhole", edit=edit))


def test_maupertuis(capture):
    folder = capture("openmvg_maupertuis")
    scene = read_scene(str(folder))
    assert len(scene.frames) == 4 and scene.cameras.models == ("opencv",)
    assert len(registration(folder / "sfm_data.json", folder).points) == 365
