"""The lens models of COLMAP: what their parameters mean, against the table and against pycolmap."""

from __future__ import annotations

import numpy as np
import pytest
from colmap_samples import (
    SIZE,
    sample_model,
    write_capture,
)

from nerfjax.errors import UserError
from nerfjax.geometry import cameras as lens
from nerfjax.geometry.poses import transform_points
from nerfjax.scenes import read_scene
from nerfjax.scenes.colmap_files import read_model
from nerfjax.scenes.colmap_model import LENS_MODELS, ColmapCamera, reprojection
from nerfjax.scenes.colmap_write import camera_from, write_model
from nerfjax.types import DISTORTION

# Parameters in COLMAP's order, and what they are in our terms.
F, C = (36.0, 38.0), (21.0, 14.5)
LENSES = {
    "SIMPLE_PINHOLE": ([36.0, *C], {}),
    "PINHOLE": ([*F, *C], {}),
    "SIMPLE_RADIAL": ([36.0, *C, 0.1], dict(k1=0.1)),
    "RADIAL": ([36.0, *C, 0.1, 0.02], dict(k1=0.1, k2=0.02)),
    "OPENCV": ([*F, *C, 0.1, 0.02, 0.003, -0.004], dict(k1=0.1, k2=0.02, p1=0.003, p2=-0.004)),
    "OPENCV_FISHEYE": ([*F, *C, 0.1, 0.02, 0.003, -0.004], dict(k1=0.1, k2=0.02, k3=0.003, k4=-0.004)),
    "FULL_OPENCV": (
        [*F, *C, 0.1, 0.02, 0.003, -0.004, 0.005, 0.06, 0.007, 0.008],
        dict(k1=0.1, k2=0.02, p1=0.003, p2=-0.004, k3=0.005, k4=0.06, k5=0.007, k6=0.008),
    ),
    "FOV": ([*F, *C, 0.8], dict(k1=0.8)),
    "SIMPLE_RADIAL_FISHEYE": ([36.0, *C, 0.1], dict(k1=0.1)),
    "RADIAL_FISHEYE": ([36.0, *C, 0.1, 0.02], dict(k1=0.1, k2=0.02)),
    "THIN_PRISM_FISHEYE": (
        [*F, *C, 0.1, 0.02, 0.003, -0.004, 0.005, 0.006, 0.007, 0.008],
        dict(k1=0.1, k2=0.02, p1=0.003, p2=-0.004, k3=0.005, k4=0.006, s1=0.007, s3=0.008),
    ),
    "RAD_TAN_THIN_PRISM_FISHEYE": (
        [*F, *C, 0.1, 0.02, 0.03, 0.004, 0.005, 0.006, 0.007, 0.008, 0.009, 0.01, 0.011, 0.012],
        dict(k1=0.1, k2=0.02, k3=0.03, k4=0.004, k5=0.005, k6=0.006, p2=0.007, p1=0.008, s1=0.009, s2=0.01, s3=0.011,
             s4=0.012),
    ),
    "SIMPLE_DIVISION": ([36.0, *C, -0.1], dict(k1=-0.1)),
    "DIVISION": ([*F, *C, -0.1], dict(k1=-0.1)),
    "SIMPLE_FISHEYE": ([36.0, *C], {}),
    "FISHEYE": ([*F, *C], {}),
    "EUCM": ([*F, *C, 0.6, 1.1], dict(k1=0.6, k2=1.1)),
    "EQUIRECTANGULAR": ([40.0, 30.0], {}),
}  # fmt: skip


def camera_of(name):
    return ColmapCamera(name, SIZE, np.array(LENSES[name][0]))


def test_the_table_knows_every_lens():
    assert set(LENSES) == set(LENS_MODELS)
    assert sorted(model.number for model in LENS_MODELS.values()) == list(range(18))


@pytest.mark.parametrize("name", LENSES)
def test_b33_parameters_of_every_lens_mean_what_the_table_says(name):
    calibration = camera_of(name).calibration()
    parameters, coefficients = LENSES[name]
    if name != "EQUIRECTANGULAR":
        fy = parameters[0] if LENS_MODELS[name].parameters[0] == "f" else parameters[1]
        assert calibration.focal.tolist() == [parameters[0], fy]
        assert calibration.center.tolist() == list(C)
    assert calibration.distortion.tolist() == [coefficients.get(column, 0.0) for column in DISTORTION]
    assert set(coefficients) <= set(lens.COEFFICIENTS_OF[calibration.model])


@pytest.mark.parametrize("name", LENSES)
def test_b33_our_projection_is_that_of_pycolmap(name):
    pycolmap = pytest.importorskip("pycolmap")
    if name not in pycolmap.CameraModelId.__members__:
        pytest.skip(f"this pycolmap has no {name}")
    camera = camera_of(name)
    theirs = pycolmap.Camera(model=name, width=SIZE[0], height=SIZE[1], params=camera.parameters)
    rng = np.random.default_rng(0)
    points = np.stack([*rng.uniform(-0.5, 0.5, (2, 20)), rng.uniform(1, 2, 20)], axis=-1)
    expected = np.array([theirs.img_from_cam(point) for point in points])
    ours = lens.project_camera(one_camera(camera, 20), points * (1, -1, -1), xp=np)
    np.testing.assert_allclose(ours.pixels, expected, atol=1e-5)
    assert ours.valid.all()


def one_camera(camera, count):
    c = camera.calibration()
    return lens.cameras_from(
        np.tile(np.eye(3, 4), (count, 1, 1)), c.focal, c.center, size=camera.size, model=c.model,
        distortion=c.distortion,
    ).replace(distortion=np.tile(c.distortion, (count, 1)))  # fmt: skip


@pytest.mark.parametrize("text", [True, False])
def test_b36_mixed_lenses_survive_both_forms_and_reproject(tmp_path, text):
    names = [f"{name.lower()}.png" for name in LENSES]
    size = SIZE
    cameras = [camera_of(name) for name in LENSES]
    source, model = write_capture(tmp_path, names=names, cameras=cameras, text=text, size=size)
    again = read_model(tmp_path / "sparse/0")
    assert again.cameras.keys() == model.cameras.keys() and again.images.keys() == model.images.keys()
    assert reprojection(again).median < 1e-6
    scene = read_scene(source)
    assert len(scene.frames) == 18 and set(scene.cameras.models) == set(
        lens.COEFFICIENTS_OF) - {"orthographic"}  # fmt: skip
    seen = {image.name: image for image in model.images.values()}
    points = transform_points(scene.to_scene, model.positions)
    for row, frame in enumerate(scene.frames):
        image = lens.project(scene.cameras[np.full(len(points), row)], points, xp=np)
        # The model's float64 cameras became float32.
        np.testing.assert_allclose(image.pixels, seen[frame.name].pixels, atol=2e-4)


def test_writer_finds_a_lens_for_each_of_our_models():
    for name in LENSES:
        calibration = camera_of(name).calibration()
        camera = camera_from(calibration.model, SIZE, calibration.focal, calibration.center, calibration.distortion)
        again = camera.calibration()
        for ours, theirs in zip(again, calibration, strict=True):
            assert np.array_equal(ours, theirs) or calibration.model == "equirectangular"
    with pytest.raises(UserError, match="k4"):
        camera_from("opencv", SIZE, F, C, (0, 0, 0, 0.1))
    with pytest.raises(UserError, match="no such lens"):
        camera_from("orthographic", SIZE, F, C, (0,))


def test_pycolmap_reads_what_we_write_and_we_read_what_it_writes(tmp_path):
    pycolmap = pytest.importorskip("pycolmap")
    names = [f"a/{i}.png" for i in range(4)]
    model = sample_model(names, camera=camera_of("FULL_OPENCV"))
    for text in (True, False):
        write_model(tmp_path / f"ours{text}", model, text=text)
        theirs = pycolmap.Reconstruction(str(tmp_path / f"ours{text}"))
        assert sorted(image.name for image in theirs.images.values()) == names
        out = tmp_path / f"theirs{text}"
        out.mkdir()
        theirs.write_text(str(out)) if text else theirs.write_binary(str(out))
        again = read_model(out)
        for identity, image in model.images.items():
            np.testing.assert_allclose(again.images[identity].translation, image.translation, atol=1e-12)
            dot = abs(again.images[identity].quaternion @ image.quaternion)
            assert dot == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(again.cameras[3].parameters, model.cameras[3].parameters)
        np.testing.assert_allclose(np.sort(again.positions, 0), np.sort(model.positions, 0), atol=1e-12)
