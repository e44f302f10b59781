"""The files of COLMAP: text dialects, and broken files of both forms."""

from __future__ import annotations

import numpy as np
import pytest
from colmap_samples import (
    SIZE,
    cloud,
    original_poses,
    write_capture,
)

from nerfjax.errors import UserError
from nerfjax.scenes import read_scene
from nerfjax.scenes.colmap_files import read_model
from nerfjax.scenes.colmap_model import ColmapCamera
from nerfjax.scenes.colmap_write import write_model
from nerfjax.scenes.doctor import examine


def test_commas_blank_lines_and_missing_second_lines_are_read(tmp_path):
    source, _ = write_capture(tmp_path, 4, text=True, seen=False)
    path = tmp_path / "sparse/0/images.txt"
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    poses = original_poses(read_scene(source))
    first = [", ".join(line.split(" ", 9)) for line in lines]
    for text in ("\n\n".join(lines), "\n".join(lines), "\n\n".join(first) + "\n\n", "# x\n\n" + "\n\n\n".join(first)):
        path.write_text(text)
        scene = read_scene(source)
        assert len(scene.frames) == 4
        np.testing.assert_allclose(original_poses(scene), poses, atol=1e-6)


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("cameras.txt", lambda t: t.replace("PINHOLE", "PINHOEL"), "PINHOLE"),
        ("cameras.txt", lambda t: t.replace(" 14.5", ""), "bad parameters"),
        ("cameras.txt", lambda t: t.replace("14.5", "nan"), "bad parameters"),
        ("cameras.txt", lambda t: t.replace("40 30", "forty 30"), "cannot be read"),
        ("cameras.txt", lambda t: t.replace("40 30", "0 30"), "impossible size"),
        ("cameras.txt", lambda t: t + t.splitlines()[-1], "occurs twice"),
        ("cameras.txt", lambda t: t.replace("3 PINHOLE", "4 PINHOLE"), "camera that the model lacks"),
        ("images.txt", lambda t: t.replace(" 3 000.png", " 000.png"), "cannot be read"),
        ("images.txt", lambda t: t.replace("000.png", "001.png"), "have one name"),
        ("images.txt", lambda t: "", "no registered image"),
        ("images.txt", lambda t: zero_rotation(t), "no rotation"),
        ("images.txt", lambda t: nan_translation(t), "not finite"),
        ("images.txt", lambda t: t.replace("000.png", "0" * 300), "name of an image"),
        ("images.txt", lambda t: t.replace(" 3 000.png", " 1e99 000.png"), "cannot be read"),
        ("points3D.txt", lambda t: t + "12 0 x 0", "cannot be read"),
    ],
)
def test_broken_text_files_are_refused_by_name(tmp_path, file, change, words):
    source, _ = write_capture(tmp_path, 4, text=True, seen=False)
    path = tmp_path / "sparse/0" / file
    path.write_text(change(path.read_text()))
    with pytest.raises(UserError, match=words) as caught:
        read_scene(source)
    assert "sparse/0" in str(caught.value)


def zero_rotation(text):
    lines = text.splitlines()
    words = lines[2].split()
    lines[2] = " ".join([words[0], "0", "0", "0", "0", *words[5:]])
    return "\n".join(lines)


def nan_translation(text):
    lines = text.splitlines()
    words = lines[2].split()
    lines[2] = " ".join([*words[:5], "nan", *words[6:]])
    return "\n".join(lines)


def test_truncated_binary_files_are_refused_at_every_length(tmp_path):
    source, _ = write_capture(tmp_path, 4)
    rng = np.random.default_rng(0)
    for name in ("cameras.bin", "images.bin", "points3D.bin"):
        path = tmp_path / "sparse/0" / name
        whole = path.read_bytes()
        for length in [0, 4, 8, 9, *rng.integers(10, len(whole), 6).tolist()]:
            path.write_bytes(whole[:length])
            with pytest.raises(UserError, match="ends early"):
                read_scene(source)
        path.write_bytes(whole)
    path = tmp_path / "sparse/0/cameras.bin"
    content = bytearray(path.read_bytes())
    content[12] = 99
    path.write_bytes(bytes(content))
    with pytest.raises(UserError, match="Unknown camera model"):
        read_scene(source)


def test_a_model_that_contradicts_its_observations_is_found_out(tmp_path):
    source, model = write_capture(tmp_path, 4)
    swapped = ColmapCamera("PINHOLE", SIZE, np.array([36.0, 38.0, 14.5, 30.0]))
    write_model(tmp_path / "sparse/0", type(model)({3: swapped}, model.images, model.point_ids, model.positions))
    assert read_scene(source).provenance["reprojection_error_px"] > 5
    assert "reprojection-high" in {finding.code for finding in examine(read_scene(source), quick=True)}


@pytest.mark.parametrize("text", [True, False])
def test_damaged_bytes_give_a_scene_or_a_message(tmp_path, text):
    source, _ = write_capture(tmp_path, 3, text=text, points=cloud(8))
    rng = np.random.default_rng(0)
    for path in sorted((tmp_path / "sparse/0").iterdir()):
        whole = path.read_bytes()
        for _ in range(8):
            damaged = bytearray(whole)
            at = int(rng.integers(len(damaged)))
            number = np.float64(rng.choice([np.nan, np.inf, 1e300, 0.0, -1.0])).tobytes()
            damaged[at : at + 8] = rng.choice([b"nan", b"", b"1e300 "]) if text else number
            path.write_bytes(bytes(damaged))
            try:
                scene = read_scene(source)
            except UserError:
                continue
            assert np.isfinite(scene.cameras.pose).all() and 0 < scene.geometry.near < scene.geometry.far < np.inf
        path.write_bytes(whole)


@pytest.mark.parametrize("number", ["1_0", "\u0661\u0662"])
def test_numbers_that_only_python_would_read_are_refused(tmp_path, number):
    (tmp_path / "cameras.txt").write_text(f"1 PINHOLE 64 48 {number} 50 32 24\n")
    (tmp_path / "images.txt").write_text("1 1 0 0 0 0 0 0 1 a.png\n\n")
    (tmp_path / "points3D.txt").write_text("")
    with pytest.raises(UserError, match="cameras.txt"):
        read_model(tmp_path)
