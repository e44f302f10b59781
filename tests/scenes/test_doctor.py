"""Every finding by the fault that it is for, made in a small analytic capture; none of them on clean captures."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from nerfjax.scenes import read_scene
from nerfjax.scenes.analytic import write_blender_capture
from nerfjax.scenes.doctor import diagnose, error_from_findings, examine, inspect_source, print_findings

VIEWS, WORLD_VIEWS = 12, 40


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """An object on nothing, seen from around; the test views are others."""
    folder = tmp_path_factory.mktemp("doctor") / "object"
    return write_blender_capture("spheres", folder, views=VIEWS, size=48, test=4, val=0, antialias=1)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Opaque photos of a world."""
    folder = tmp_path_factory.mktemp("doctor") / "world"
    return write_blender_capture("landscape", folder, views=WORLD_VIEWS, size=128, test=5, val=0, antialias=1)


class Corrupted:
    """A copy of a capture to damage."""

    def __init__(self, clean, folder):
        self.folder = shutil.copytree(clean, folder)

    def edit(self, change, split="train"):
        path = self.folder / f"transforms_{split}.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    def pose(self, change, rows=(3,), split="train"):
        def apply(content):
            for row in rows if rows is not None else range(len(content["frames"])):
                matrix = np.array(content["frames"][row]["transform_matrix"])
                content["frames"][row]["transform_matrix"] = np.asarray(change(matrix)).tolist()

        self.edit(apply, split)

    def image(self, change, row=3, split="train"):
        path = self.folder / split / f"r_{row}.png"
        change(np.array(Image.open(path))).save(path)

    def masks(self, pixels, rows=range(VIEWS), size=(48, 48)):
        def apply(content):
            for row in rows:
                content["frames"][row]["mask_path"] = f"mask/{row}.png"

        (self.folder / "mask").mkdir()
        for row in rows:
            mask = np.full(size[::-1], 0 if pixels == "half" else pixels, np.uint8)
            mask[: size[1] // 2] = 255 if pixels == "half" else pixels
            Image.fromarray(mask).save(self.folder / "mask" / f"{row}.png")
        self.edit(apply)


def scaled(matrix, factor):
    matrix[:3, :3] *= factor
    return matrix


def turned(matrix, diagonal):
    return matrix @ np.diag([*diagonal, 1.0])


def sheared(matrix):
    matrix = matrix.copy()
    matrix[:3, 0] += 0.3 * matrix[:3, 1]
    return matrix


def not_finite(matrix):
    matrix[0, 3] = np.nan
    return matrix


def far_away(matrix):
    matrix[:3, 3] *= 100
    return matrix


def look_elsewhere(matrix):
    return matrix @ np.diag([-1.0, 1.0, -1.0, 1.0])


def truncate(capture, row=3):
    path = capture.folder / "train" / f"r_{row}.png"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def set_frame(row, **values):
    return lambda content: content["frames"][row].update(values)


def at_one_point(matrix):
    matrix[:3, 3] = (1, 2, 3)
    return matrix


def shifted(matrix):
    matrix[:3, 3] += (0, 0, 1.5)
    return matrix


def nearly_copy(capture):
    image = np.array(Image.open(capture.folder / "train/r_3.png"))
    image[0, 0] ^= 1
    Image.fromarray(image).save(capture.folder / "test/r_1.png")


FAULTS = {
    "unreadable": lambda c: (c.folder / "transforms_train.json").write_text("{,"),
    "images-missing": lambda c: (c.folder / "train/r_3.png").unlink(),
    "image-unreadable": truncate,
    "image-blank": lambda c: c.image(lambda a: Image.new("RGBA", (48, 48), (9, 9, 9, 255))),
    "images-duplicated": lambda c: shutil.copy(c.folder / "train/r_4.png", c.folder / "train/r_3.png"),
    "images-unregistered": lambda c: c.edit(lambda content: content["frames"].pop()),
    "images-extra": lambda c: Image.new("RGB", (9, 9)).save(c.folder / "train/panorama.png"),
    "few-registered": lambda c: [
        shutil.copy(c.folder / "train/r_0.png", c.folder / f"train/r_{i}.png") for i in range(100, 120)
    ],
    "few-images": lambda c: c.edit(lambda content: content.update(frames=content["frames"][:2])),
    "size-mismatch": lambda c: c.edit(lambda content: content.update(w=64, h=48, fl_x=60)),
    "size-swapped": lambda c: [
        c.image(lambda a: Image.fromarray(a[:32])),
        c.edit(set_frame(3, w=32, h=48, fl_x=60)),
    ],
    "sizes-mixed": lambda c: c.image(lambda a: Image.fromarray(a).resize((24, 24))),
    "blurred": lambda c: c.image(lambda a: Image.fromarray(a).resize((4, 4)).resize((48, 48))),
    "exposure-jump": lambda c: c.image(lambda a: Image.fromarray((a * [[[0.2, 0.2, 0.2, 1]]]).astype(np.uint8))),
    "mask-size": lambda c: c.masks("half", rows=[3], size=(24, 24)),
    "mask-all-black": lambda c: c.masks(0, rows=[3]),
    "mask-all-white": lambda c: c.masks(255, rows=[3, 4]),
    "masks-partial": lambda c: c.masks("half", rows=[3]),
    "file-missing": lambda c: c.edit(set_frame(3, mask_path="mask/nowhere.png")),
    "intrinsics-bad": lambda c: c.edit(set_frame(3, fl_x=-5.0)),
    "principal-point": lambda c: c.edit(lambda content: content.update(cx=4.0, cy=24.0)),
    "focal-implausible": lambda c: c.edit(lambda content: content.update(camera_angle_x=0.01)),
    "focal-aspect": lambda c: c.edit(lambda content: content.update(fl_x=60.0, fl_y=120.0)),
    "distortion-degenerate": lambda c: c.edit(
        lambda content: content.update(fl_x=40.0, k1=-1.5, camera_model="OPENCV")
    ),
    "pose-not-finite": lambda c: c.pose(not_finite),
    "pose-scaled": lambda c: c.pose(lambda matrix: scaled(matrix, 2.0)),
    "pose-not-orthonormal": lambda c: c.pose(sheared),
    "pose-left-handed": lambda c: c.pose(lambda matrix: turned(matrix, (-1, 1, 1))),
    "pose-bad": lambda c: c.edit(set_frame(3, transform_matrix=[[1, 2], [3, 4]])),
    "pose-outlier": lambda c: c.pose(far_away),
    "poses-duplicated": lambda c: c.edit(
        lambda content: content["frames"][3].update(transform_matrix=content["frames"][9]["transform_matrix"])
    ),
    "poses-identical": lambda c: [c.pose(at_one_point, rows=None, split=split) for split in ("train", "test")],
    "cameras-look-away": lambda c: c.pose(look_elsewhere, rows=(3, 5)),
    "axes-wrong": lambda c: [
        c.pose(lambda matrix: turned(matrix, (1, -1, -1)), None, split) for split in ("train", "test")
    ],
    "split-leakage": lambda c: shutil.copy(c.folder / "train/r_3.png", c.folder / "test/r_1.png"),
    "split-near-duplicates": nearly_copy,
    "splits-in-different-frames": lambda c: c.pose(shifted, None, "test"),
    "no-test-frames": lambda c: (c.folder / "transforms_test.json").unlink(),
}


ERRORS = """
unreadable image-unreadable size-mismatch size-swapped file-missing intrinsics-bad distortion-degenerate pose-not-finite
pose-scaled pose-not-orthonormal pose-left-handed pose-bad poses-identical axes-wrong splits-in-different-frames
""".split()
ELSEWHERE = """
exposure-varies poses-do-not-fit pose-contradicted axes-suspect points-behind points-outside near-far several-models
reprojection-high
""".split()
COMPANIONS = {  # what else a fault brings with it
    **dict.fromkeys(("principal-point", "focal-implausible", "focal-aspect", "distortion-degenerate"), {"lens-odd"}),
    "few-images": {"images-unregistered", "images-extra", "few-registered"},
    "few-registered": {"images-duplicated"},
    "images-duplicated": {"poses-duplicated"},
    "mask-size": {"masks-partial"},
    "mask-all-black": {"masks-partial"},
    "sizes-mixed": {"blurred"},
    "split-leakage": {"blurred"},
}


@pytest.mark.parametrize("code", FAULTS)
def test_finding(clean, tmp_path, code):
    capture = Corrupted(clean, tmp_path / "copy")
    FAULTS[code](capture)
    diagnosis = inspect_source(str(capture.folder))
    found = {finding.code: finding for finding in diagnosis.findings}
    assert code in found, found
    assert (found[code].severity == "error") == (code in ERRORS), found[code]
    serious = {f.code for f in diagnosis.findings if f.severity != "info"} - {code, "note", "images-missing"}
    assert serious <= COMPANIONS.get(code, set()), found
    if code != "unreadable":
        assert diagnosis.scene is not None or code in ("poses-identical", "size-mismatch"), found
    json.dumps(diagnosis.as_json(), allow_nan=False)


def codes(findings, severity=None):
    return {finding.code for finding in findings if severity in (None, finding.severity)}


@pytest.mark.parametrize("quick", [False, True])
def test_clean_captures_have_no_findings(clean, photos, quick):
    for folder in (clean, photos):
        assert examine(read_scene(str(folder)), quick=quick) == []


def test_all_bad_frames_are_named_at_once_and_the_rest_is_examined(clean, tmp_path):
    capture = Corrupted(clean, tmp_path / "copy")
    capture.pose(not_finite, [1])
    capture.pose(sheared, [2])
    capture.pose(far_away, [8])
    (capture.folder / "train/r_5.png").write_bytes(b"no image")
    diagnosis = inspect_source(str(capture.folder))
    errors = {(f.code, f.frame.split("/")[-1]) for f in diagnosis.findings if f.severity == "error"}
    assert errors == {("pose-not-finite", "r_1"), ("pose-not-orthonormal", "r_2"), ("image-unreadable", "r_5")}
    assert "pose-outlier" in codes(diagnosis.findings, "warning") and len(diagnosis.scene.frames) == VIEWS + 4 - 3
    assert error_from_findings(diagnosis.findings, capture.folder).exit_code == 2


def test_many_faults_of_a_kind_are_counted(clean, tmp_path):
    capture = Corrupted(clean, tmp_path / "copy")
    capture.pose(sheared, None)
    findings = [f for f in inspect_source(str(capture.folder)).findings if f.code == "pose-not-orthonormal"]
    assert len(findings) == 6 and findings[-1].problem.startswith(f"{VIEWS - 5} more frames")


def test_b59_the_convention_that_fits_is_named_with_its_residual(photos, tmp_path):
    capture = Corrupted(photos, tmp_path / "copy")
    for split in ("train", "test"):
        capture.pose(lambda matrix: turned(matrix, (1, -1, -1)), None, split)
    (finding,) = [f for f in examine(read_scene(str(capture.folder))) if f.severity == "error"]
    assert finding.code == "axes-wrong" and "OpenCV axes" in finding.problem and "px as read (opengl)" in finding.found
    assert "--convention=opencv" in finding.fix
    assert codes(inspect_source(str(capture.folder), convention="opencv").findings, "error") == set()
    # Where nothing else decides, the quick examination matches a few views too.
    assert "axes-wrong" in codes(examine(read_scene(str(capture.folder)), quick=True))


def test_b61_inverted_poses_are_named(photos, tmp_path):
    capture = Corrupted(photos, tmp_path / "copy")
    for split in ("train", "test"):
        capture.pose(np.linalg.inv, None, split)
    (finding,) = [f for f in examine(read_scene(str(capture.folder))) if f.code == "axes-wrong"]
    assert "world-to-camera with OpenGL axes" in finding.problem and "invert" in finding.fix


def test_b66_splits_of_photos_in_different_frames(photos, tmp_path):
    capture = Corrupted(photos, tmp_path / "copy")
    turn = np.array([[0, -1, 0, 0.3], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
    capture.pose(lambda matrix: turn @ matrix, None, "test")
    assert "splits-in-different-frames" in codes(examine(read_scene(str(capture.folder))), "error")


def test_b96_the_same_photos_in_two_splits(clean, tmp_path):
    capture = Corrupted(clean, tmp_path / "copy")
    FAULTS["split-leakage"](capture)
    (finding,) = [f for f in examine(read_scene(str(capture.folder)), quick=True) if f.code == "split-leakage"]
    assert "train/r_3 = test/r_1" in finding.found


def test_images_that_contradict_their_poses(photos, tmp_path):
    capture = Corrupted(photos, tmp_path / "copy")
    generator = np.random.default_rng(0)

    def shaken(matrix):
        q, _ = np.linalg.qr(generator.normal(size=(3, 3)))
        blend = matrix[:3, :3] + 0.25 * q
        left, _, right = np.linalg.svd(blend)
        matrix[:3, :3] = left @ right
        return matrix

    capture.pose(shaken, None)
    found = codes(examine(read_scene(str(capture.folder))))
    assert "poses-do-not-fit" in found and "axes-wrong" not in found


def test_cameras_that_look_outwards_are_suspect_where_images_tell_nothing(photos, tmp_path):
    capture = Corrupted(photos, tmp_path / "copy")
    for split, count in (("train", WORLD_VIEWS), ("test", 5)):
        capture.pose(lambda matrix: turned(matrix, (1, -1, -1)), None, split)
        for row in range(count):
            grey = Image.linear_gradient("L").resize((40, 40)).point(lambda value, row=row: value // 2 + 3 * row)
            capture.image(lambda a, grey=grey: grey, row, split)
    assert codes(examine(read_scene(str(capture.folder)), quick=True), "warning") >= {"axes-suspect"}


def test_brightness_that_varies(photos, tmp_path):
    capture = Corrupted(photos, tmp_path / "copy")
    for row in range(WORLD_VIEWS):
        capture.image(lambda a, row=row: Image.fromarray((a[..., :3] * 0.9 ** (row % 13)).astype(np.uint8)), row)
    assert "exposure-varies" in codes(examine(read_scene(str(capture.folder))), "warning")


def test_points_and_bounds(clean):
    scene = read_scene(str(clean))
    cloud = np.random.default_rng(0).uniform(-1, 1, (300, 3)).astype(np.float32)
    assert examine(replace(scene, points=cloud), quick=True) == []
    assert "points-outside" in codes(examine(replace(scene, points=20 * cloud), quick=True), "warning")
    # A flat room's cameras, and a cloud that is behind all of them.
    pose = scene.cameras.pose.copy()
    pose[:, :, :3] = np.eye(3)
    behind = replace(scene, cameras=scene.cameras.replace(pose=pose), points=cloud + np.float32([0, 0, 50]))
    assert codes(examine(behind, quick=True)) & {"points-behind", "axes-wrong"}
    for near, far in ((3.0, 2.0), (np.nan, 2.0), (-1.0, 2.0)):
        geometry = scene.geometry.replace(near=np.float32(near), far=np.float32(far))
        assert "near-far" in codes(examine(replace(scene, geometry=geometry), quick=True), "error")


def test_points_decide_the_convention(clean):
    scene = read_scene(str(clean))
    cloud = np.random.default_rng(0).uniform(-1, 1, (300, 3)).astype(np.float32)
    pose = scene.cameras.pose.copy()
    pose[:, :, 1:3] *= -1
    flipped = replace(scene, cameras=scene.cameras.replace(pose=pose), points=cloud)
    (finding,) = [f for f in examine(flipped, quick=True) if f.code == "axes-wrong"]
    assert "of the points fall into the images" in finding.found


def test_a_scene_made_by_hand_is_checked_too(clean):
    scene = read_scene(str(clean))
    pose = scene.cameras.pose.copy()
    pose[2, 0, 0] = np.nan
    assert "pose-not-finite" in codes(examine(replace(scene, cameras=scene.cameras.replace(pose=pose)), quick=True))
    turned_center = scene.cameras.replace(
        size=np.broadcast_to(np.int32([48, 64]), (len(scene.frames), 2)), center=scene.cameras.center * [[4 / 3, 1]]
    )
    assert "size-swapped" in codes(examine(replace(scene, cameras=turned_center), quick=True), "warning")


def test_single_poses_that_the_images_contradict_are_named(photos, tmp_path):
    """One camera of a pair that is matched is turned a little: less than shows in where it looks."""
    scene = read_scene(str(photos))
    first, second, *_ = diagnose(scene).convention.pairs[3]
    angle = np.radians(6.0)
    turn = np.array([[1, 0, 0], [0, np.cos(angle), -np.sin(angle)], [0, np.sin(angle), np.cos(angle)]])
    pose = scene.cameras.pose.copy()
    pose[first, :, :3] = pose[first, :, :3] @ turn
    wrong = replace(scene, cameras=scene.cameras.replace(pose=pose))
    findings = [f for f in examine(wrong) if f.code == "pose-contradicted"]
    assert findings and scene.frames[first].name in findings[0].found
    assert "pose-contradicted" not in codes(examine(scene))


def test_b08_several_models(clean, tmp_path):
    capture = Corrupted(clean, tmp_path / "copy")
    for name, count in (("0", 2), ("1", 20)):
        (capture.folder / "sparse" / name).mkdir(parents=True)
        (capture.folder / "sparse" / name / "images.bin").write_bytes(count.to_bytes(8, "little"))
    (finding,) = [f for f in inspect_source(str(capture.folder)).findings if f.code == "several-models"]
    assert "sparse/1: 20 images" in finding.found


def test_the_field_of_an_error_is_not_what_was_found(clean, tmp_path, capsys):
    capture = Corrupted(clean, tmp_path / "copy")
    capture.edit(set_frame(3, fl_x=-5.0))
    (finding,) = [f for f in inspect_source(str(capture.folder)).findings if f.code == "intrinsics-bad"]
    assert (finding.field, finding.found, finding.expected) == ("fl_x", "-5.0", "a positive number")
    print_findings([finding])
    assert re.search(r"field: +fl_x\n +frame: +\S+r_3\n +found: +-5.0\n", capsys.readouterr().err)


@pytest.mark.parametrize("missing", ["/nowhere/at/all", "analytic:sphres"])
def test_what_cannot_be_read_is_a_finding(missing):
    diagnosis = inspect_source(missing)
    assert diagnosis.scene is None and codes(diagnosis.findings, "error") == {"not-recognised"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("fox", {"images-missing"}), ("blender_lego_200", set()), ("ingp_fruit", set())],
)
def test_real_captures_are_clean(capture, name, expected):
    findings = examine(read_scene(str(capture(name))), quick=True)
    assert codes(findings) == expected and codes(findings, "error") == set()


def test_b59_backslash(capture):
    (finding,) = [
        f for f in examine(read_scene(str(capture("blender_backslash68"))), quick=True) if f.severity == "error"
    ]
    assert finding.code == "axes-wrong" and "OpenCV" in finding.problem
