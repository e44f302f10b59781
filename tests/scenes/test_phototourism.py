from __future__ import annotations

import sys

import numpy as np
import pytest
from ring_capture import COUNT, FOCAL, check, opencv, write_image

from nerfjax.errors import UserError
from nerfjax.scenes import READERS, read_scene

h5py = pytest.importorskip("h5py")
MATRIX = np.array([[FOCAL[0], 0, 4.0], [0, FOCAL[1], 3.0], [0, 0, 1]])


def write(folder, **change):
    (folder / "calibration").mkdir(parents=True)
    for i in range(COUNT):
        view = np.linalg.inv(opencv(i))
        arrays = {"K": MATRIX, "R": view[:3, :3], "T": view[:3, 3], **change}
        with h5py.File(folder / f"calibration/calibration_{i:02d}_a.h5", "w") as file:
            for key, value in arrays.items():
                if value is not None:
                    file[key] = value
        write_image(folder / f"images/{i:02d}_a.jpg", i)
    return str(folder)


def test_world_to_camera_with_opencv_axes(tmp_path):
    scene = read_scene(write(tmp_path))
    check(scene, center=(4, 3), names=[f"images/{i:02d}_a.jpg" for i in range(COUNT)])
    assert scene.format == "phototourism"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(K=None), "incomplete"),
        (dict(R=np.eye(3) * 2), "scaled"),
        (dict(T=np.full(3, np.nan)), "not finite"),
        (dict(K=np.zeros((3, 3))), "calibration matrix"),
    ],
)
def test_bad_calibrations(tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        read_scene(write(tmp_path, **change))


def test_broken_file_and_missing_package(tmp_path, monkeypatch):
    source = write(tmp_path)
    path = tmp_path / "calibration/calibration_01_a.h5"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="cannot be read"):
        read_scene(source)
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert READERS["phototourism"].sniff(source)
    with pytest.raises(UserError, match="not installed") as caught:
        read_scene(source)
    assert "nerfjax[formats]" in caught.value.fix


def test_set_inside_dense(tmp_path):
    write(tmp_path / "dense")
    assert len(read_scene(str(tmp_path)).frames) == COUNT
