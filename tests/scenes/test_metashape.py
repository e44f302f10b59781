from __future__ import annotations

import pathlib

import numpy as np
import pytest
from synthetic_photos import check_projection, radial, ring, write_images

from nerfjax.errors import UserError
from nerfjax.scenes import read_scene
from nerfjax.scenes.metashape import registration

CAMERAS = ring()
LABELS = [f"IMG_{i}" for i in range(6)]
FILES = [f"photos/{label}.JPG" for label in LABELS]
TERMS = dict(f=90, cx=2, cy=-3, k1=0.1, k2=-0.05, k3=0.02, k4=0.01, p1=0.02, p2=0.01, b1=4)


def calibration(terms, kind="frame", name="adjusted", size=(80, 60)):
    lines = [f'<calibration type="{kind}" class="{name}">', f'<resolution width="{size[0]}" height="{size[1]}"/>']
    return "".join([*lines, *(f"<{key}>{value}</{key}>" for key, value in terms.items()), "</calibration>"])


def sensor(number=0, terms=TERMS, kind="frame", inner="", calibrations=None, attributes=""):
    inside = calibration(terms, kind) if calibrations is None else calibrations
    return (
        f'<sensor id="{number}" label="Camera {number}" type="{kind}"{attributes}>'
        f'<resolution width="80" height="60"/><property name="layer_index" value="0"/>{inside}{inner}</sensor>'
    )


def transform(camera, world=None):
    rotation, translation = camera
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation.T, -rotation.T @ translation
    if world is not None:
        scale, turn, shift = world
        pose[:3, :3], pose[:3, 3] = turn.T @ pose[:3, :3], turn.T @ (pose[:3, 3] - shift) / scale
    return " ".join(repr(float(number)) for number in pose.ravel())


def camera(i, label=None, pose=..., attributes='sensor_id="0"'):
    pose = transform(CAMERAS[i]) if pose is ... else pose
    inside = (
        f"<transform>{pose}</transform><rotation_covariance>1 0 0 0 1 0 0 0 1</rotation_covariance>" if pose else ""
    )
    label = LABELS[i] if label is None else label
    return f'<camera id="{i}" {attributes} label="{label}" enabled="true">{inside}<orientation>1</orientation></camera>'


def write(folder, sensors=None, cameras=None, extra="", files=FILES, size=(80, 60), wrap=lambda chunk: chunk):
    write_images(folder, files, size)
    sensors = sensor() if sensors is None else sensors
    cameras = "".join(camera(i) for i in range(6)) if cameras is None else cameras
    chunk = (
        f'<chunk label="Chunk 1" enabled="true"><sensors next_id="1">{sensors}</sensors>'
        f'<cameras next_id="6" next_group_id="0">{cameras}</cameras>{extra}</chunk>'
    )
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<document version="1.5.0">{wrap(chunk)}</document>\n'
    (folder / "cameras.xml").write_text(text)
    return str(folder)


def bend(x, y, terms):
    """The manual's distortion, its p1 and p2."""
    q = x * x + y * y
    u, v = radial(x, y, *(terms.get(k, 0) for k in ("k1", "k2", "k3", "k4")))
    p1, p2 = terms.get("p1", 0), terms.get("p2", 0)
    return u + p1 * (q + 2 * x * x) + 2 * p2 * x * y, v + p2 * (q + 2 * y * y) + 2 * p1 * x * y


def formula(terms=TERMS, cameras=CAMERAS, fisheye=False):
    def pixel(name, points):
        rotation, translation = cameras[FILES.index(name)]
        X, Y, Z = (points @ rotation.T + translation).T
        x, y = X / Z, Y / Z
        if fisheye:
            rho = np.hypot(x, y)
            x, y = x * np.arctan(rho) / rho, y * np.arctan(rho) / rho
        u, v = bend(x, y, terms)
        f = terms["f"]
        u = 40 + terms.get("cx", 0) + u * (f + terms.get("b1", 0)) + v * terms.get("b2", 0)
        return np.stack([u, 30 + terms.get("cy", 0) + v * f], -1)

    return pixel


def test_projection_follows_the_manual(tmp_path):
    scene = read_scene(write(tmp_path))
    assert scene.format == "metashape" and scene.notes == ()
    assert [frame.name for frame in scene.frames] == FILES
    check_projection(scene, formula())
    check_projection(read_scene(str(tmp_path / "cameras.xml")), formula())


def test_fisheye(tmp_path):
    scene = read_scene(write(tmp_path, sensor(kind="fisheye")))
    check_projection(scene, formula(fisheye=True))


def test_calibrations_of_old_versions(tmp_path):
    old = dict(fx=94, fy=90, cx=42, cy=27, skew=0, k1=0.1, k2=-0.05, k3=0.02, k4=0.01, p1=0.01, p2=0.02)
    check_projection(read_scene(write(tmp_path, sensor(terms=old))), formula())


def test_b69_adjusted_before_initial(tmp_path):
    both = calibration({"f": 70}, name="initial") + calibration(TERMS)
    check_projection(read_scene(write(tmp_path, sensor(calibrations=both))), formula())


def test_b70_every_camera_has_its_sensor_and_unused_ones_are_ignored(tmp_path):
    second = {**TERMS, "f": 80, "k1": 0}
    unused = sensor(7, calibrations="") + sensor(8, kind="spherical", calibrations="")
    cameras = "".join(camera(i, attributes=f'sensor_id="{i % 2}"') for i in range(6))
    scene = read_scene(write(tmp_path, unused + sensor() + sensor(1, second), cameras))
    assert scene.provenance["sensors_unused"] == 2
    check_projection(scene, lambda name, points: formula(second if FILES.index(name) % 2 else TERMS)(name, points))


@pytest.mark.parametrize(
    ("sensors", "message"),
    [
        (sensor(calibrations=""), r"(?s)sensor 0 \(Camera 0\).*no calibration"),
        (
            sensor(kind="spherical", calibrations=""),
            r"(?s)sensor 0 \(Camera 0\).*type spherical, which is not supported",
        ),
        (sensor(3), "(?s)sensor 0 of camera IMG_0.*no such sensor"),
        (sensor(terms={"f": "x"}), "(?s)numbers expected.*sensor 0.*calibration/f"),
        (sensor(terms={"f": -5}), "not positive"),
        (sensor(terms={}), "not positive"),
        (sensor(terms={**TERMS, "b2": 3}), "(?s)not supported.*b2"),
        (sensor(terms={**TERMS, "p3": 30}), "(?s)not supported.*p3, p4"),
    ],
)
def test_b70_a_sensor_in_use_that_cannot_serve_is_named(tmp_path, sensors, message):
    with pytest.raises(UserError, match=message):
        read_scene(write(tmp_path, sensors))


def test_a_little_skew_is_left_out_with_a_note(tmp_path):
    terms = {**TERMS, "b2": 0.05}
    scene = read_scene(write(tmp_path, sensor(terms=terms)))
    assert any("b2 were left out; they move pixels by up to 0.0" in note for note in scene.notes)
    check_projection(scene, formula(terms), tolerance=0.04)


def test_b72_slaves_of_a_rig_are_composed_with_their_sensors_offset(tmp_path):
    turn = np.array([[0.8, 0, 0.6], [0, 1, 0], [-0.6, 0, 0.8]])
    offset = np.array([0.1, 0.02, -0.03])
    inner = f"<rotation>{' '.join(map(str, turn.ravel()))}</rotation><location>{' '.join(map(str, offset))}</location>"
    sensors = sensor() + sensor(1, inner=inner, attributes=' master_id="0"')
    cameras, poses = "", {}
    for i in (0, 2, 4):
        cameras += camera(i) + camera(i + 1, pose=None, attributes=f'sensor_id="1" master_id="{i}"')
        rotation, translation = CAMERAS[i]
        poses[i] = CAMERAS[i]
        poses[i + 1] = (turn.T @ rotation, turn.T @ (translation - offset))
    scene = read_scene(write(tmp_path, sensors, cameras))
    assert scene.provenance["slaves"] == 3 and scene.notes == ()
    check_projection(scene, formula(cameras=[poses[i] for i in range(6)]))


def test_b72_slaves_without_an_offset_are_counted(tmp_path):
    cameras = "".join(
        camera(i) if i < 4 else camera(i, pose=None, attributes='sensor_id="1" master_id="0"') for i in range(6)
    )
    scene = read_scene(write(tmp_path, sensor() + sensor(1), cameras))
    assert len(scene.frames) == 4
    assert any("2 of 6 cameras are slaves" in n and "not supported" in n and "IMG_4, IMG_5" in n for n in scene.notes)


WORLD = (2.5, np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]), np.array([1.0, 2, 3]))


def world_xml(world=WORLD):
    scale, turn, shift = world
    texts = (" ".join(map(str, turn.ravel())), " ".join(map(str, shift)), scale)
    tags = ("rotation", "translation", "scale")
    return "<transform>" + "".join(f"<{t}>{x}</{t}>" for t, x in zip(tags, texts, strict=True)) + "</transform>"


@pytest.mark.parametrize("place", ["chunk", "component"])
def test_transforms_of_chunk_and_component(tmp_path, place):
    attributes = 'sensor_id="0" component_id="0"' if place == "component" else 'sensor_id="0"'
    cameras = "".join(camera(i, pose=transform(CAMERAS[i], WORLD), attributes=attributes) for i in range(6))
    extra = world_xml()
    if place == "component":
        extra = f'<components><component id="0" label="Component 1">{extra}</component></components>'
    scene = read_scene(write(tmp_path, cameras=cameras, extra=extra))
    assert scene.provenance["has_world"]
    check_projection(scene, formula())


def test_of_components_without_a_common_frame_the_largest_is_read(tmp_path):
    attributes = 'sensor_id="0" component_id="{}"'
    cameras = "".join(camera(i, attributes=attributes.format(int(i < 2))) for i in range(6))
    extra = '<components><component id="0"/><component id="1"/></components>'
    scene = read_scene(write(tmp_path, cameras=cameras, extra=extra))
    assert len(scene.frames) == 4 and any("2 components" in note for note in scene.notes)
    check_projection(scene, formula())


def test_groups_disabled_and_unaligned_cameras(tmp_path):
    cameras = (
        f'<group id="0" label="first flight" type="folder">{camera(0)}{camera(1)}</group>{camera(2)}{camera(3)}'
        + camera(4, pose=None)
        + camera(5).replace('enabled="true"', 'enabled="false"')
    )
    scene = read_scene(write(tmp_path, cameras=cameras))
    assert len(scene.frames) == 4
    assert any("1 of 5 photos were not registered and were left out: IMG_4" in note for note in scene.notes)
    assert any("1 cameras are disabled and were left out: IMG_5" in note for note in scene.notes)
    check_projection(scene, formula())


def test_groups_tell_photos_of_one_label_apart(tmp_path):
    files = [f"{'ab'[i % 2]}/IMG_{i // 2}.png" for i in range(6)]
    groups = "".join(
        f'<group id="{g}" label="{"ab"[g]}">' + "".join(camera(i, f"IMG_{i // 2}") for i in range(g, 6, 2)) + "</group>"
        for g in (0, 1)
    )
    scene = read_scene(write(tmp_path, cameras=groups, files=files))
    check_projection(scene, lambda name, points: formula()(FILES[files.index(name)], points))


def test_b07_labels_and_file_names_that_do_not_meet(tmp_path):
    files = [f"frame_{i:05d}.jpg" for i in range(1, 7)]
    with pytest.raises(UserError, match=r"(?s)IMG_0, IMG_1.*frame_00001.jpg, frame_00002.jpg"):
        read_scene(write(tmp_path, files=files))


def test_masks_and_thumbnails_are_no_photos(tmp_path):
    files = [*FILES, "masks/IMG_0.png", "thumbnails/IMG_0.jpg"]
    assert read_scene(write(tmp_path, files=files)).notes == ()


def test_two_files_for_one_label_are_refused(tmp_path):
    with pytest.raises(UserError, match="(?s)Several image files fit one camera.*IMG_0"):
        read_scene(write(tmp_path, files=[*FILES, "more/IMG_0.png"]))


@pytest.mark.parametrize("size", [(40, 30), (160, 120)])
def test_photos_of_another_size_than_the_calibration(tmp_path, size):
    scene = read_scene(write(tmp_path, size=size))
    assert any("6 images have another size than their camera" in note for note in scene.notes)
    check_projection(scene, lambda name, points: formula()(name, points) * size[0] / 80)


def test_photos_of_another_shape_are_refused(tmp_path):
    with pytest.raises(UserError, match="another shape"):
        read_scene(write(tmp_path, size=(60, 80)))


def test_the_chunk_with_most_cameras_is_read(tmp_path):
    scene = read_scene(write(tmp_path, wrap=lambda chunk: '<chunk label="empty"></chunk>' + chunk))
    assert any("2 chunks: the one with 6" in note for note in scene.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<document version='1'><chunk>", "not valid XML"),
        ("<document><chunk/></document>", "no cameras"),
        ("<other><document><chunk/></document></other>", "no cameras"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    source = write(tmp_path)
    (tmp_path / "cameras.xml").write_text(text)
    with pytest.raises(UserError, match=message):
        read_scene(source)


@pytest.mark.parametrize(
    ("pose", "message"),
    [
        ("1 0 0", "numbers expected"),
        (" ".join(["nan"] * 16), "numbers expected"),
        ("2 0 0 0 0 2 0 0 0 0 2 0 0 0 0 1", "scaled by 2"),
        ("-1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1", "left-handed"),
    ],
)
def test_bad_poses_are_refused(tmp_path, pose, message):
    cameras = camera(0, pose=pose) + "".join(camera(i) for i in range(1, 6))
    with pytest.raises(UserError, match=message):
        read_scene(write(tmp_path, cameras=cameras))


def test_the_region_tells_near(tmp_path):
    turn = np.array([[0.8, 0.6, 0.0], [-0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])  # rows: the region's axes

    def region(rotation):
        texts = {"center": np.zeros(3), "size": np.array([0.5, 0.1, 0.1]), "R": rotation.ravel()}
        inside = "".join(f"<{tag}>{' '.join(map(str, values))}</{tag}>" for tag, values in texts.items())
        return f"<region>{inside}</region>"

    corners = registration(
        pathlib.Path(write(tmp_path / "a", extra=region(turn))) / "cameras.xml", tmp_path / "a"
    ).region
    far_ends = corners[np.abs(corners @ turn[0]) > 0.249]
    assert len(far_ends) == 8  # the long side lies along the first row
    np.testing.assert_allclose(np.abs(corners @ turn[1]), 0.05, atol=1e-12)
    plain = read_scene(write(tmp_path / "b")).geometry
    told = read_scene(write(tmp_path / "c", extra=region(turn))).geometry
    assert told.near > 2 * plain.near


def test_mvs20(capture):
    scene = read_scene(str(capture("metashape_mvs20")))
    assert len(scene.frames) == 20 and scene.frames[0].name == "IMG_4190.JPG"
    np.testing.assert_allclose(scene.cameras.focal[0], 8682.2451747692048 * 600 / 3456, rtol=1e-6)
    np.testing.assert_allclose(scene.cameras.center[0], [1778.327441 * 600 / 3456, 1136.479283 * 400 / 2304], rtol=1e-6)
    # In metashape the terms p1 and p2 are the other way round.
    np.testing.assert_allclose(scene.cameras.distortion[0, 4:6], [0.00097042, 0.00178032], rtol=1e-4)
    assert scene.provenance["normalization"]["inward_facing"]
    assert scene.geometry.box[1, 0] < 0.6 and 0.3 < scene.geometry.near < 0.8
