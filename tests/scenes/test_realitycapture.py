from __future__ import annotations

import math

import numpy as np
import pytest
from synthetic_photos import check_projection, radial, ring, write_images

from nerfjax.errors import UserError
from nerfjax.scenes import read_scene
from nerfjax.scenes.realitycapture import rotation_from_angles

CAMERAS = ring()
NAMES = [f"IMG_{i}.png" for i in range(6)]
HEADER = "#name,x,y,alt,heading,pitch,roll,f,px,py,k1,k2,k3,k4,t1,t2"
FOCAL = 40.0  # mm, as of full frame


def angles(rotation):
    """Heading, pitch and roll of a world-to-camera rotation, from the formulas that the maker published."""
    pitch = math.asin(-rotation[1, 2])
    heading = math.atan2(-rotation[1, 0], -rotation[1, 1])
    roll = math.atan2(-rotation[0, 2], -rotation[2, 2])
    return [math.degrees(angle) for angle in (heading, pitch, roll)]


def rows(names=NAMES):
    lines = []
    for name, (rotation, translation) in zip(names, CAMERAS, strict=True):
        numbers = [*(-rotation.T @ translation), *angles(rotation), FOCAL, 0.01, -0.02, 0.1, -0.05, 0.02, 0.01, 0, 0]
        lines.append(",".join([name, *(repr(float(number)) for number in numbers)]))
    return lines


def write(folder, lines=None, header=HEADER, files=NAMES):
    write_images(folder / "images", files)
    (folder / "cameras.csv").write_text("\n".join([header, *(lines or rows())]) + "\n")
    return str(folder)


def pixel(name, points):
    rotation, translation = CAMERAS[NAMES.index(name.removeprefix("images/"))]
    X, Y, Z = (points @ rotation.T + translation).T
    x, y = radial(X / Z, Y / Z, 0.1, -0.05, 0.02, 0.01)
    return np.stack([40 + 80 * (0.01 + FOCAL / 36 * x), 30 + 80 * (-0.02 + FOCAL / 36 * y)], -1)


def test_rotation_of_a_camera_that_the_software_exported_both_ways():
    # One camera's angles (CSV) and rotation (XMP, world-to-camera, OpenCV axes), published by a user.
    rotation = rotation_from_angles(163.736597399311, 83.4154313461628, 174.386496244756)
    expected = [
        [0.982594073038806, 0.185426733553445, -0.0112166890261935],
        [-0.032113633044729, 0.11008102707942, -0.993403685341366],
    ]
    np.testing.assert_allclose((rotation * [1, -1, -1]).T[:2], expected, atol=1e-9)


def test_projection(tmp_path):
    scene = read_scene(write(tmp_path))
    assert scene.format == "realitycapture" and scene.notes == ()
    check_projection(scene, pixel)
    check_projection(read_scene(str(tmp_path / "cameras.csv")), pixel)


@pytest.mark.parametrize("form", ["count", "semicolons", "shuffled", "bom", "crlf"])
def test_flavours(tmp_path, form):
    source = write(tmp_path)
    lines = [HEADER, *rows()]
    if form == "count":
        lines.insert(0, "#cameras 6")
    if form == "semicolons":
        lines = [line.replace(",", ";") for line in lines]
    if form == "shuffled":
        lines = [",".join(line.split(",")[::-1]) for line in lines]
    text = ("\r\n" if form == "crlf" else "\n").join(lines)
    (tmp_path / "cameras.csv").write_bytes(text.encode("utf-8-sig" if form == "bom" else "utf-8"))
    check_projection(read_scene(source), pixel)


def test_numbers_as_the_software_writes_them(tmp_path):
    """A line that a user published: exponents of three digits, whole zeros, a principal point in units of the side."""
    line = (
        "camera_0001.tif,0.3480514800888185,-0.4569554687028632,1.874974343996205,-26.48605557558155,87.22740777694953,"
        "14.71531939343132,16.80822459736219,5.653226032102788e-003,-1.402847801366674e-002,-0.2370146620500887,"
        "6.993741670541821e-002,-1.089548244371304e-002,0,0,0"
    )
    other = line.replace("camera_0001", "camera_0002").replace(",0.3480", ",0.9480")
    scene = read_scene(write(tmp_path, [line, other], files=["camera_0001.png", "camera_0002.png"]))
    np.testing.assert_allclose(scene.cameras.focal, 16.80822459736219 * 80 / 36, rtol=1e-6)
    np.testing.assert_allclose(scene.cameras.center[0], [40 + 80 * 0.005653226, 30 - 80 * 0.014028478], rtol=1e-5)
    np.testing.assert_allclose(scene.cameras.distortion[0, :4], [-0.23701466, 0.06993742, -0.010895482, 0], rtol=1e-6)
    # It looks nearly level: the pitch is from straight down.
    back = (
        np.asarray(scene.cameras.pose[0, :, 2])
        @ scene.to_scene[:3, :3]
        / np.cbrt(np.linalg.det(scene.to_scene[:3, :3]))
    )
    assert abs(back[2]) < 0.1


def test_optional_columns_may_lack(tmp_path):
    header = ",".join(HEADER.split(",")[:8])
    scene = read_scene(write(tmp_path, [",".join(row.split(",")[:8]) for row in rows()], header))
    assert scene.cameras.models == ("pinhole",)
    np.testing.assert_allclose(scene.cameras.center, [[40, 30]] * 6)


def test_b05_more_cameras_than_images(tmp_path):
    scene = read_scene(write(tmp_path, files=[NAMES[0], *NAMES[2:]]))
    assert len(scene.frames) == 5
    assert any("1 of 6 cameras have no image and were left out: IMG_1.png" in note for note in scene.notes)
    check_projection(scene, pixel)


def test_b07_no_camera_has_an_image(tmp_path):
    with pytest.raises(UserError, match=r"(?s)IMG_0.png, IMG_1.png.*images/frame_0.png, images/frame_1.png"):
        read_scene(write(tmp_path, files=[f"frame_{i}.png" for i in range(6)]))


@pytest.mark.parametrize(
    "header",
    [
        "#name,x,y,alt",
        "#name,x,y,alt,heading,pitch,roll",
        "#name,x,y,alt,omega,phi,kappa",
        "name,x,y,z",
        "IMG_7.png,1.0,2.0,3.0,4.0",
    ],
)
def test_b73_other_exports_are_recognised_and_refused(tmp_path, header):
    columns = header.count(",") + 1
    source = write(tmp_path, [",".join(row.split(",")[:columns]) for row in rows()], header)
    with pytest.raises(UserError, match="(?s)lacks what is needed.*Internal/External camera parameters"):
        read_scene(source)


def test_b73_without_the_hash(tmp_path):
    check_projection(read_scene(write(tmp_path, header=HEADER[1:])), pixel)


def test_b64_coordinates_of_a_map(tmp_path):
    lines = []
    for row in rows():
        words = row.split(",")
        words[1:3] = [repr(float(words[1]) + 5e5), repr(float(words[2]) + 5.5e6)]
        lines.append(",".join(words))
    far, near = tmp_path / "far", tmp_path / "near"
    far.mkdir(), near.mkdir()
    a, b = read_scene(write(far, lines)), read_scene(write(near))
    np.testing.assert_allclose(a.cameras.pose, b.cameras.pose, atol=1e-5)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [(1, "nan", "numbers expected"), (4, "north", "numbers expected"), (7, "0", "not positive"), (0, "", "no name")],
)
def test_bad_values_are_refused(tmp_path, column, value, message):
    lines = rows()
    words = lines[2].split(",")
    words[column] = value
    lines[2] = ",".join(words)
    with pytest.raises(UserError, match=f"(?s){message}.*line 4"):
        read_scene(write(tmp_path, lines))


def test_short_lines_and_double_names_are_refused(tmp_path):
    with pytest.raises(UserError, match="fewer columns"):
        read_scene(write(tmp_path, [*rows()[:5], "IMG_5.png,1,2"]))
    with pytest.raises(UserError, match="Several cameras have one name"):
        read_scene(write(tmp_path, [*rows(), rows()[0]]))
