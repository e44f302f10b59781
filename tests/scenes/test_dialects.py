"""Dialects that the field has: miniature versions of published layouts, read as they are or refused with advice."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import test_scannet
from colmap_samples import SIZE, sample_model
from colmap_samples import write_images as write_colmap_images
from PIL import Image
from ring_capture import CENTER, COUNT, FOCAL, K, check, opencv, opengl, write_image, write_json, write_text

from nerfjax.errors import UserError
from nerfjax.scenes import READERS, read_scene
from nerfjax.scenes.colmap_model import ColmapCamera
from nerfjax.scenes.colmap_write import write_model
from nerfjax.scenes.doctor import inspect_source
from nerfjax.scenes.llff import rows_from_poses

NAMES = [f"{i:03d}.png" for i in range(9)]


def format_of(source):
    return next((name for name, reader in READERS.items() if reader.sniff(str(source))), None)


def write_colmap(folder, names=NAMES, images="images", model="sparse/0", **options):
    write_colmap_images(folder / images, names, SIZE)
    write_model(folder / model, sample_model(names, **options))
    return str(folder)


def has(scene, text):
    return any(text in note for note in scene.notes)


# --- COLMAP ----------------------------------------------------------------------------------------------------------


def test_folders_of_cameras_with_a_lens_each(tmp_path):
    names = [f"cam{i % 2}/{i:03d}.png" for i in range(6)]
    cameras = [ColmapCamera("PINHOLE", SIZE, np.array([36.0 + i % 2, 38, 21, 14.5])) for i in range(6)]
    scene = read_scene(write_colmap(tmp_path, names, cameras=cameras))
    assert [frame.name for frame in scene.frames] == sorted(names)
    assert scene.cameras.focal[:, 0].tolist() == [36.0] * 3 + [37.0] * 3


@pytest.mark.parametrize("beside", [False, True])
def test_only_the_smaller_copies_are_there(tmp_path, beside):
    """Mip-NeRF 360 and LLFF without their full images: the intrinsics are those of images four times as large."""
    large = ColmapCamera("PINHOLE", (160, 120), np.array([144.0, 152, 84, 58]))
    write_colmap(tmp_path, images="images_4", camera=large)
    if beside:
        poses = [np.eye(4)[:3] + np.eye(3, 4, 3) * i for i in range(9)]
        np.save(tmp_path / "poses_bounds.npy", rows_from_poses(poses, (160, 120), 144.0, (1.0, 9.0)))
    for downscale in (1, 4):
        scene = read_scene(str(tmp_path), downscale=downscale)
        assert scene.format == ("llff" if beside else "colmap") and scene.frames[0].image.size == SIZE
        np.testing.assert_allclose(scene.cameras.focal[0], [36, 38])
        assert has(scene, "Only images_4 is there")


@pytest.mark.parametrize("where", ["", "sparse/0"])
def test_a_list_of_test_images(tmp_path, where):
    """3-D Gaussian splatting puts test.txt into the model's folder, nerfbaselines lists into the root."""
    source = write_colmap(tmp_path)
    name = "test.txt" if where else "test_list.txt"
    (tmp_path / where / name).write_text("003.png\n005\n")
    scene = read_scene(source)
    assert scene.split_names()["test"] == ["003.png", "005.png"] and len(scene.indices("train")) == 7
    assert has(scene, f"splits are those of {name}")
    (tmp_path / "train_list.txt").write_text("000.png\n001.png\n")
    if not where:
        scene = read_scene(source)
        assert scene.split_names()["train"] == ["000.png", "001.png"] and len(scene.frames) == 4
        assert has(scene, "5 images are not listed")
        (tmp_path / "train_list.txt").write_text("000.png\n003.png\n")
        with pytest.raises(UserError, match="in two splits"):
            read_scene(source)


def test_notes_are_no_lists(tmp_path):
    source = write_colmap(tmp_path)
    (tmp_path / "test.txt").write_text("the second lens was dusty\n000.png\nask Ann\n")
    assert read_scene(source).split_names()["test"] == ["000.png", "008.png"]


def test_phototourism_of_nerf_in_the_wild(tmp_path):
    """dense/ with its own model and images, and a table with the splits."""
    write_colmap(tmp_path / "dense", model="sparse")
    rows = ["filename\tid\tsplit\tdataset"]
    rows += [f"{name}\t{i}\t{'test' if i == 4 else 'train'}\tsacre" for i, name in enumerate(NAMES[:7])]
    (tmp_path / "sacre.tsv").write_text("\n".join([*rows, f"{NAMES[7]}\t\ttrain\tsacre"]) + "\n")
    scene = read_scene(str(tmp_path))
    assert scene.format == "colmap" and scene.split_names()["test"] == ["004.png"]
    assert len(scene.frames) == 7 and has(scene, "2 images are not listed in sacre.tsv")


@pytest.mark.parametrize("folder", ["input", "images", "rgb"])
def test_layouts_of_gaussian_splatting(tmp_path, folder):
    scene = read_scene(write_colmap(tmp_path, images=folder, model="distorted/sparse/0"))
    assert len(scene.frames) == 9


# --- transforms.json -------------------------------------------------------------------------------------------------


def frame(index, path, **more):
    return {"file_path": path, "transform_matrix": opengl(index).tolist(), **more}


INTRINSICS = {"fl_x": FOCAL[0], "fl_y": FOCAL[1], "cx": CENTER[0], "cy": CENTER[1], "w": 8, "h": 6}


def write_scannetpp(folder, kind=""):
    """dslr/nerfstudio/transforms*.json with bare names, test_frames, bad frames and masks in folders beside it."""
    for suffix in ("", "_undistorted"):
        for i in range(COUNT + 2):
            write_image(folder / f"dslr/resized{suffix}_images/DSC{i:05d}.JPG", i)
            mask = np.full((6, 8), 255, np.uint8)
            mask[:, :4] = 0
            path = folder / f"dslr/resized{suffix}_anon_masks/DSC{i:05d}.png"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(mask).save(path)
    names = [(f"DSC{i:05d}.JPG", f"DSC{i:05d}.png") for i in range(COUNT + 2)]
    frames = [frame(i, n, mask_path=m, is_bad=i == COUNT) for i, (n, m) in enumerate(names)]
    content = {**INTRINSICS, "camera_model": "PINHOLE", "has_mask": True, "frames": frames[:3] + frames[4:5]}
    content["test_frames"] = frames[3:4] + frames[5:]
    path = folder / f"dslr/nerfstudio/transforms{kind}.json"
    write_json(path, content)
    return path


@pytest.mark.parametrize("kind", ["", "_undistorted"])
def test_scannetpp(tmp_path, kind):
    path = write_scannetpp(tmp_path, kind)
    scene = read_scene(str(path))
    assert scene.format == "transforms_json"
    assert scene.split_names() == {"train": [f"DSC{i:05d}.JPG" for i in range(3)], "val": [],
                                   "test": ["DSC00003.JPG", "DSC00005.JPG"]}  # fmt: skip
    assert scene.frames[0].image.path.parent.name == f"resized{kind}_images"
    assert scene.frames[0].mask.path.parent.name == f"resized{kind}_anon_masks"
    assert not scene.frames[0].valid()[:, :4].any() and scene.frames[0].valid()[:, 4:].all()
    assert has(scene, "1 frames are marked as bad") and has(scene, f"images are those of resized{kind}_images")


def test_polycam_and_other_exports_of_nerfstudio(tmp_path):
    """ns-process-data: settings of its own, points, a transform that was applied."""
    applied = [[1.0, 0, 0, 0], [0, 0, 1, 0], [0, -1, 0, 0]]
    for i in range(COUNT):
        write_image(tmp_path / f"images/frame_{i + 1:05d}.png", i)
    frames = [frame(i, f"images/frame_{i + 1:05d}.png", colmap_im_id=i + 1) for i in range(COUNT)]
    content = {**INTRINSICS, "camera_model": "OPENCV", "k1": 0, "k2": 0, "p1": 0, "p2": 0, "frames": frames,
               "applied_transform": applied, "ply_file_path": "sparse_pc.ply", "orientation_override": "none",
               "fisheye_crop_radius": 1400, "auto_scale_poses_override": False}  # fmt: skip
    write_json(tmp_path / "transforms.json", content)
    scene = read_scene(str(tmp_path))
    assert len(scene.frames) == COUNT and has(scene, "sparse_pc.ply is missing")


def test_nerfcapture(tmp_path):
    """A phone's own poses: intrinsics and depth of every frame, names without extension, sixteen-bit depths."""
    frames = []
    for i in range(COUNT):
        write_image(tmp_path / f"images/{i}.png", i)
        Image.fromarray(np.full((3, 4), 1500, np.uint16)).save(tmp_path / f"images/{i}.depth.png")
        own = {"fl_x": FOCAL[0], "fl_y": FOCAL[1], "cx": CENTER[0], "cy": CENTER[1], "w": 8.0, "h": 6.0}
        frames.append(frame(i, f"images/{i}", depth_path=f"images/{i}.depth.png", timestamp=0.1 * i, **own))
    write_json(tmp_path / "transforms.json", {"integer_depth_scale": 0.001, "n_frames": COUNT, "frames": frames})
    scene = read_scene(str(tmp_path))
    check(scene)
    scale = np.cbrt(np.linalg.det(scene.to_scene[:3, :3]))
    np.testing.assert_allclose(scene.frames[0].depth.read((8, 6)), 1.5 * scale, rtol=1e-5)


# --- folders of text -------------------------------------------------------------------------------------------------


def write_nerf_plus_plus(folder, splits=("train", "validation", "test")):
    """A matrix of 16 numbers in a line: camera-to-world in pose/, 4x4 calibrations in intrinsics/."""
    full = np.eye(4)
    full[:3, :3] = K
    for i in range(COUNT + 2):
        split = folder / splits[max(0, i - COUNT + 1)]
        write_image(split / f"rgb/{i:06d}.png", i)
        write_text(split / f"pose/{i:06d}.txt", [opencv(i).ravel()])
        write_text(split / f"intrinsics/{i:06d}.txt", [full.ravel()])
    (folder / "camera_path/pose").mkdir(parents=True)
    return str(folder)


def test_nerf_plus_plus_and_nerf_osr(tmp_path):
    source = write_nerf_plus_plus(tmp_path)
    scene = read_scene(source)
    assert scene.format == "scannet" and "train/ with rgb/" in READERS["scannet"].sniff(source)
    assert {split: len(names) for split, names in scene.split_names().items()} == {"train": COUNT, "val": 1, "test": 1}
    check(scene, range(COUNT + 2))
    assert scene.frames[0].name == "train/rgb/000000.png"


def test_a_folder_of_a_split_alone_is_read_by_itself(tmp_path):
    write_nerf_plus_plus(tmp_path)
    scene = read_scene(str(tmp_path / "train"))
    assert len(scene.frames) == COUNT and scene.indices("test")


def test_scannet_with_lost_frames_and_a_shared_calibration(tmp_path):
    test_scannet.write_scannet(tmp_path, shared=True)
    assert read_scene(str(tmp_path)).format == "scannet"


# --- refused, with advice --------------------------------------------------------------------------------------------


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_image(path) if path.suffix in (".png", ".jpg") else path.write_text("1 2 3\n")


LAYOUTS = {
    "MVSNet": ["blended_images/00000000.jpg", "cams/00000000_cam.txt", "cams/pair.txt"],
    "Replica": ["results/frame000000.jpg", "traj.txt"],
    "TUM": ["rgb/1.5.png", "rgb/2.5.png", "rgb/3.5.png", "rgb.txt", "groundtruth.txt", "depth.txt"],
    "EuRoC": ["mav0/cam0/data/1.png", "mav0/cam0/sensor.yaml"],
    "Stray Scanner": ["odometry.csv", "camera_matrix.csv", "rgb.mp4"],
    "kapture": ["sensors/sensors.txt", "sensors/records_data/a.jpg"],
    "Meshroom": ["cameras.sfm", "photos/a.jpg"],
    "archive": ["capture.zip"],
    "Gaussian splatting run": ["cameras.json", "point_cloud/iteration_7000/point_cloud.ply", "cfg_args"],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_not_read_is_called_by_its_name(tmp_path, name):
    touch(tmp_path, *LAYOUTS[name])
    assert format_of(tmp_path) is None
    with pytest.raises(UserError, match="not recognised: it seems to be") as caught:
        read_scene(str(tmp_path))
    assert name.split()[0] in str(caught.value) and caught.value.fix and caught.value.found
    (finding,) = inspect_source(str(tmp_path)).findings
    assert finding.code == "not-recognised" and finding.fix == caught.value.fix


def test_xmp_files_are_cameras_only_where_they_say_so(tmp_path):
    touch(tmp_path, *(f"{i}.jpg" for i in range(4)))
    (tmp_path / "0.xmp").write_text("<x:xmpmeta><crs:Exposure>1</crs:Exposure></x:xmpmeta>")
    assert format_of(tmp_path) == "photos"
    (tmp_path / "0.xmp").write_text("<x:xmpmeta><xcr:Position>1 2 3</xcr:Position></x:xmpmeta>")
    assert format_of(tmp_path) is None
    with pytest.raises(UserError, match=r"(?s)RealityCapture.*Internal/External"):
        read_scene(str(tmp_path))


def test_an_archive_itself_and_a_folder_of_nothing(tmp_path):
    shutil.make_archive(str(tmp_path / "set"), "zip", tmp_path)
    with pytest.raises(UserError, match=r"(?s)archive.*unpack it"):
        read_scene(str(tmp_path / "set.zip"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"(?s)found: +nothing"):
        read_scene(str(tmp_path / "empty"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.md").write_text(json.dumps({}))
    with pytest.raises(UserError, match=r"(?s)found: +a\.md.*give the format"):
        read_scene(str(tmp_path / "notes"))
