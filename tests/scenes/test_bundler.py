from __future__ import annotations

import numpy as np
import pytest
from synthetic_photos import POINTS, check_projection, radial, ring, write_images

from nerfjax.errors import UserError
from nerfjax.scenes import read_scene
from nerfjax.scenes.bundler import registration

CAMERAS = ring()
NAMES = [f"images/{i}.png" for i in range(6)]
K = (-0.1, 0.02)
FLIP = np.diag([1.0, -1.0, -1.0])


def bundle_text(cameras=CAMERAS, dead=(), points=POINTS):
    lines = ["# Bundle file v0.3", f"{len(cameras)} {len(points)}"]
    for i, (rotation, translation) in enumerate(cameras):
        rotation, translation, lens = FLIP @ rotation, FLIP @ translation, (90.0 + i, *K)
        if i in dead:
            rotation, translation, lens = np.zeros((3, 3)), np.zeros(3), (0, 0, 0)
        lines += [" ".join(map(repr, map(float, row))) for row in (lens, *rotation, translation)]
    for point in points:
        lines += [" ".join(map(repr, map(float, point))), "10 20 30", "2 0 7 1.5 -2.5 1 8 0.5 0.25"]
    return "\n".join(lines) + "\n"


def write(folder, names=NAMES, list_name="list.txt", listed=None, **options):
    write_images(folder, names)
    (folder / "bundle.out").write_text(bundle_text(**options))
    if list_name:
        (folder / list_name).write_text("".join(f"{name}\n" for name in listed or names))
    return str(folder)


def pixel(name, points):
    i = NAMES.index(name)
    rotation, translation = CAMERAS[i]
    X, Y, Z = ((points @ rotation.T + translation) @ FLIP).T
    x, y = radial(-X / Z, -Y / Z, *K)
    return np.stack([40 + (90 + i) * x, 30 - (90 + i) * y], -1)


def test_projection_follows_the_manual(tmp_path):
    scene = read_scene(write(tmp_path))
    assert scene.format == "bundler" and scene.frames[0].name == "images/0.png" and scene.notes == ()
    check_projection(scene, pixel)
    np.testing.assert_array_equal(registration(tmp_path / "bundle.out", tmp_path).points, POINTS)


def test_names_of_a_list_come_before_the_order_of_the_files(tmp_path):
    swapped = [NAMES[1], NAMES[0], *NAMES[2:]]
    cameras = [CAMERAS[1], CAMERAS[0], *CAMERAS[2:]]
    listed = [f"./{name} 0 532.1" for name in swapped]  # Bundler adds an initial focal length
    scene = read_scene(write(tmp_path, list_name="list.txt", listed=listed, cameras=cameras))
    assert [round(float(f)) for f in scene.cameras.focal[:2, 0]] == [91, 90]


def test_unregistered_photos_are_named(tmp_path):
    scene = read_scene(write(tmp_path, dead=(2, 4)))
    assert len(scene.frames) == 4 and any("2 of 6" in n and "images/2.png, images/4.png" in n for n in scene.notes)


def test_b78_a_missing_image_takes_its_camera_with_it(tmp_path):
    source = write(tmp_path)
    (tmp_path / NAMES[3]).unlink()
    scene = read_scene(source)
    assert len(scene.frames) == 5 and any("1 of 6 cameras have no image" in n for n in scene.notes)
    check_projection(scene, pixel)


def test_without_a_list_the_counts_must_agree(tmp_path):
    scene = read_scene(write(tmp_path, list_name=None))
    assert any("i-th image by name" in note for note in scene.notes)
    check_projection(scene, pixel)
    (tmp_path / NAMES[3]).unlink()
    with pytest.raises(UserError, match="(?s)no names.*6 cameras, 5 images.*list.txt"):
        read_scene(str(tmp_path))


def test_a_model_in_a_folder_of_its_own(tmp_path):
    source = write(tmp_path)
    (tmp_path / "sparse").mkdir()
    for name in ("bundle.out", "list.txt"):
        (tmp_path / name).rename(tmp_path / "sparse" / name)
    for given in (source, tmp_path / "sparse", tmp_path / "sparse/bundle.out"):
        check_projection(read_scene(str(given)), pixel)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda text: text[:400], "ends early"),
        (lambda text: text.replace("v0.3", "v9"), "Unknown version"),
        (lambda text: text.replace("6 20", "6 x"), "word stands where a number"),
        (lambda text: text.replace("6 20", "6 -3"), "count is no count"),
        (lambda text: text.replace("90.0 ", "nan "), "bad number"),
        (lambda text: text.replace("90.0 ", "-90.0 "), "bad number"),
    ],
)
def test_bad_files_are_refused(tmp_path, edit, message):
    source = write(tmp_path)
    (tmp_path / "bundle.out").write_text(edit(bundle_text()))
    with pytest.raises(UserError, match=message):
        read_scene(source)


def test_kermit(capture):
    folder = capture("bundler_kermit")
    scene = read_scene(str(folder))
    assert len(scene.frames) == 9 and scene.provenance["normalization"]["inward_facing"]
    assert any("kermit004.jpg, kermit006.jpg" in note for note in scene.notes)
    assert registration(folder / "results.example/bundle.out", folder).points.shape == (634, 3)
