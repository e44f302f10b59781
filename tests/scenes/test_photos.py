"""Photos without poses: what is asked, refused and kept; structure from motion itself where pycolmap is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest
from colmap_samples import sample_model, write_images
from PIL import Image

from nerfjax.errors import UserError
from nerfjax.scenes import READERS, photos, read_scene
from nerfjax.scenes.colmap_write import write_model
from nerfjax.scenes.images import open_image
from nerfjax.scenes.video_frames import extract_frames

NAMES = [f"{i}.png" for i in range(8)]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("NERFJAX_CACHE", str(folder))
    return folder


@pytest.fixture
def solver(monkeypatch):
    """Structure from motion that knows the cameras of the first ``solver.count`` images."""

    class Solver:
        count, calls = len(NAMES), []

        def __call__(self, images, names, work, options, say=None):
            self.calls.append((names, options))
            (work / "sparse").mkdir()
            if self.count:
                write_model(work / "sparse/0", sample_model(names[: self.count]))
            return self.count

    made = Solver()
    made.calls = []
    monkeypatch.setattr(photos, "solve", made)
    monkeypatch.setattr(photos, "load_pycolmap", lambda: None)
    return made


def test_photos_are_solved_once_and_found_again(tmp_path, solver, cache):
    write_images(tmp_path / "images", NAMES)
    assert "8 images and no poses" in READERS["photos"].sniff(str(tmp_path))
    scene = read_scene(str(tmp_path))
    assert scene.format == "photos" and len(scene.frames) == 8 and scene.points is not None
    assert any("8 of 8 images" in note for note in scene.notes) and scene.name == tmp_path.name
    names, options = solver.calls[0]
    assert names == NAMES and options.single_camera and options.lens == "SIMPLE_RADIAL"
    read_scene(str(tmp_path / "images"), downscale=2)
    assert len(solver.calls) == 1  # the same photos
    assert read_scene(str(tmp_path), lens="OPENCV") and len(solver.calls) == 2
    Image.new("RGB", (40, 30), "red").save(tmp_path / "images/0.png")
    read_scene(str(tmp_path))
    assert len(solver.calls) == 3 and not list(cache.rglob("*.partial"))


def test_a_result_that_registers_too_little_is_refused(tmp_path, solver, cache):
    write_images(tmp_path, NAMES)
    solver.count = 3
    with pytest.raises(UserError) as caught:
        read_scene(str(tmp_path))
    assert all(word in str(caught.value) for word in ("3 of 8", "50%", "least_share", "overlap"))
    scene = read_scene(str(tmp_path), least_share=0.3)
    assert len(scene.frames) == 3 and any("5 of 8 images were not registered" in note for note in scene.notes)
    solver.count = 0
    with pytest.raises(UserError, match="could not place"):
        read_scene(str(tmp_path), matching="exhaustive")
    assert not list(cache.rglob("*.partial"))


def test_mixed_sizes_are_several_cameras(tmp_path, solver):
    write_images(tmp_path, NAMES[:4])
    write_images(tmp_path, ["7.png"], (30, 40))
    with pytest.raises(UserError):  # the made-up model has one camera
        read_scene(str(tmp_path))
    assert not solver.calls[0][1].single_camera


def test_too_few_photos_and_bad_options(tmp_path, solver):
    write_images(tmp_path, NAMES[:2])
    with pytest.raises(UserError, match="too few images"):
        read_scene(str(tmp_path))
    for options in (dict(matching="all"), dict(least_share=0.0), dict(lens="PINHOEL")):
        with pytest.raises(UserError):
            read_scene(str(tmp_path), **options)
    assert not solver.calls


def test_without_pycolmap_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycolmap", None)
    write_images(tmp_path, NAMES)
    with pytest.raises(UserError) as caught:
        read_scene(str(tmp_path))
    assert "pycolmap is not installed" in str(caught.value) and "nerfjax[sfm]" in str(caught.value)


def test_folders_with_a_format_of_their_own_are_not_photos(tmp_path):
    write_images(tmp_path / "images", NAMES)
    write_model(tmp_path / "sparse/0", sample_model(NAMES))
    assert next(name for name, reader in READERS.items() if reader.sniff(str(tmp_path))) == "colmap"
    (tmp_path / "sparse/0/images.bin").unlink()
    with pytest.raises(UserError, match="no whole COLMAP model"):
        read_scene(str(tmp_path))
    assert list(READERS)[-1] == "photos"


def write_video(path, count=12):
    import imageio_ffmpeg

    frames = np.random.default_rng(0).integers(0, 255, (count, 48, 64, 3), np.uint8)
    command = [
        imageio_ffmpeg.get_ffmpeg_exe(),
        "-v",
        "error",
        "-y",
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-s",
        "64x48",
    ]
    command += ["-r", "6", "-i", "-", "-pix_fmt", "yuv420p", str(path)]
    subprocess.run(command, input=frames.tobytes(), check=True, capture_output=True)


def test_videos_become_frames(tmp_path, solver):
    write_video(tmp_path / "a.mp4")
    frames = extract_frames(tmp_path / "a.mp4", tmp_path / "frames", 4)
    assert [frame.name for frame in frames] == [f"{i:06d}.png" for i in range(4)]
    assert len(list((tmp_path / "frames").iterdir())) == 4 and open_image(frames[0]).size == (64, 48)
    assert "video" in READERS["photos"].sniff(str(tmp_path / "a.mp4"))
    shutil.rmtree(tmp_path / "frames")
    assert "video" in READERS["photos"].sniff(str(tmp_path))
    scene = read_scene(str(tmp_path / "a.mp4"), video_frames=4)
    assert len(scene.frames) == 4 and scene.name == "a"
    names, options = solver.calls[0]
    assert len(names) == 4 and options.matching == "sequential"
    (tmp_path / "b.mp4").write_bytes(b"no video")
    with pytest.raises(UserError, match="no video"):
        read_scene(str(tmp_path / "b.mp4"))


def test_structure_from_motion_finds_the_cameras_of_real_photos(tmp_path, capture):
    pytest.importorskip("pycolmap")
    truth = read_scene(str(capture("colmap_txt_lund_door")))
    rows = range(3, 9)
    for row in rows:
        reference = truth.frames[row].image
        picture = Image.fromarray(reference.read(size=(324, 484)))
        picture.save(tmp_path / f"{row}.png")
    lines = []
    scene = read_scene(str(tmp_path), max_size=484, say=lines.append)
    assert len(scene.frames) >= 5 and scene.provenance["reprojection_error_px"] < 1
    assert any("finding features" in line for line in lines) and any("placing cameras" in line for line in lines)
    ours = np.array(scene.cameras.pose[:, :, 3], np.float64)
    theirs = np.array([truth.cameras.pose[int(frame.name[:-4]), :, 3] for frame in scene.frames], np.float64)
    ours, theirs = ours - ours.mean(0), theirs - theirs.mean(0)
    left, scales, right = np.linalg.svd(theirs.T @ ours)
    signs = np.array([1, 1, np.sign(np.linalg.det(left @ right))])
    aligned = (scales * signs).sum() / (ours**2).sum() * ours @ (left * signs @ right).T
    assert np.linalg.norm(aligned - theirs) < 0.05 * np.linalg.norm(theirs)
