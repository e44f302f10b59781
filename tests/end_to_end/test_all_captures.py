"""Every real capture by its auto-detected format: what is read of it, what the doctor finds, or why it is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest
from capture_rows import captures, describe

from nerfjax.scenes.doctor import diagnosis

UNBOUNDED = 1000.0  # far, where nothing else is known


class Read(NamedTuple):
    """Images of ``size`` (of the most common one), their camera model, near and far, and codes that must be found."""

    format: str
    images: int
    size: tuple[int, int]
    model: str
    near: float = 0.05
    far: float = UNBOUNDED
    codes: tuple[str, ...] = ()


class Refused(NamedTuple):
    """The format that is recognised ("" for none) and words of the message."""

    format: str
    words: str


EXPECTED: dict[str, Read | Refused] = {
    "blender_backslash68": Read("transforms_json", 68, (1080, 1920), "pinhole", codes=("axes-wrong", "pose-outlier")),
    "blender_lego_200": Read("blender", 320, (200, 200), "pinhole", 2.02, 6.05),
    "blender_lego_dummy": Read("blender", 6, (800, 800), "pinhole", 2.02, 6.05, ("few-images",)),
    "blender_pen6": Read("blender", 18, (378, 504), "opencv", codes=("split-leakage",)),
    "bundler_kermit": Read("bundler", 9, (640, 480), "opencv", 0.319, codes=("images-unregistered",)),
    "colmap_fisheye_t265": Read("colmap", 6, (848, 800), "opencv_fisheye"),
    "colmap_txt_lund_door": Read("colmap", 12, (1296, 1936), "opencv", 0.427),
    "colmap_txt_maupertuis": Read("colmap", 4, (1919, 1079), "pinhole", 0.381),
    "exif_rotated_single": Refused("photos", ""),
    "fox": Read("transforms_json", 50, (1080, 1920), "opencv", codes=("images-missing",)),
    "idr_scan65_3": Read("idr", 3, (1600, 1200), "pinhole", near=0.56, codes=("images-missing", "few-images")),
    "ingp_building_rigs": Read("transforms_json", 13, (1080, 1920), "opencv", codes=("images-unregistered",)),
    "ingp_fotos6": Read(
        "transforms_json", 3, (1152, 864), "opencv",
        codes=("few-images", "principal-point", "focal-aspect", "images-unregistered"),
    ),
    "ingp_fruit": Read("transforms_json", 81, (605, 806), "opencv"),
    "ingp_rigcams": Read("transforms_json", 42, (640, 480), "opencv", codes=("lens-odd",)),
    "llff_beer": Read("llff", 71, (720, 1280), "opencv", 0.339),
    "metashape_mvs20": Read("metashape", 20, (600, 400), "opencv", near=0.417, codes=("intrinsics-scaled",)),
    "middlebury_temple": Read("middlebury", 16, (640, 480), "pinhole", near=0.694),
    "mobilebrick3": Read("scannet", 3, (1920, 1440), "pinhole", codes=("few-images",)),
    "openmvg_maupertuis": Read("openmvg", 4, (1600, 1200), "opencv", 0.274),
    "opensfm_berlin": Read("opensfm", 3, (3264, 2448), "opencv", 0.438, codes=("few-images",)),
    "phototourism_reichstag10": Read("phototourism", 10, (1048, 628), "pinhole", codes=("sizes-mixed",)),
    "record3d_door28": Read("record3d", 28, (1440, 1920), "pinhole"),
    "sevenscenes_stairs": Read("scannet", 12, (640, 480), "pinhole", codes=("intrinsics-assumed",)),
    "tnt_barn2": Refused("nsvf", "intrinsics are missing"),
    "meta_only/alicevision_sfm": Refused("", "not recognised"),
    "meta_only/alxfox_idr_npz": Refused("idr", "no cameras of this layout"),
    "meta_only/cattoy_json": Refused("transforms_json", "None of the images exists"),
    "meta_only/gtsfm_palace": Refused("colmap", "None of the images exists"),
    "meta_only/gtsfm_unsorted_colmap": Refused("colmap", "None of the images exists"),
    "meta_only/hypernerf_camera": Refused("nerfies", "no cameras"),
    "meta_only/idr_mismatched_npz": Refused("idr", "no images"),
    "meta_only/ingp_trex8_degenerate": Refused("transforms_json", "None of the images exists"),
    "meta_only/kapture_aachen_nvm_bundler": Refused("nvm", "Several files describe cameras"),
    "meta_only/kapture_cour_carree": Refused("", "not recognised"),
    "meta_only/nerfstudio_transforms": Refused("transforms_json", "None of the images exists"),
    "meta_only/robotwheel_poses_mm": Refused("", "not recognised"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_capture(capture, name, monkeypatch):
    monkeypatch.setattr(diagnosis, "QUICK_IMAGES", 12)
    expected = EXPECTED[name]
    source = capture(name)
    if expected.format == "phototourism":
        pytest.importorskip("h5py")
    row = describe(source)
    assert row.format == expected.format
    if isinstance(expected, Refused):
        assert expected.words in row.refusal and row.refusal
        return
    assert not row.refusal, row.refusal
    assert row.images == expected.images and row.models == (expected.model,)
    assert max(row.sizes, key=lambda size: row.sizes[size]) == expected.size
    assert row.near == pytest.approx(expected.near, rel=0.1) and row.far == pytest.approx(expected.far, rel=0.1)
    assert row.bounded == (expected.far < UNBOUNDED)
    assert set(expected.codes) <= set(row.codes)


def test_every_set_has_its_line(capture):
    root = capture("fox").parent
    found = {path.relative_to(root).as_posix() for path in captures(Path(root))}
    assert found == set(EXPECTED), f"{os.fspath(root)} and EXPECTED differ"
