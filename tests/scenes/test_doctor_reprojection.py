"""Reconstructions that contradict their own observations, as a whole and in single images."""

from __future__ import annotations

from dataclasses import replace

from colmap_samples import sample_model
from colmap_samples import write_images as write_colmap_images

from nerfjax.scenes import read_scene
from nerfjax.scenes.colmap_write import write_model
from nerfjax.scenes.doctor import examine


def codes(findings):
    return {finding.code for finding in findings}


def test_one_wrong_pose_of_a_reconstruction_is_named(tmp_path):
    """The median over all images does not see it; its own observations do."""
    names = [f"{i:03d}.png" for i in range(12)]
    write_colmap_images(tmp_path / "images", names, (40, 30))
    model = sample_model(names)
    write_model(tmp_path / "sparse/0", model)
    clean = read_scene(str(tmp_path))
    assert clean.provenance["reprojection_outliers_px"] == {} and "reprojection-high" not in codes(examine(clean))
    third = sorted(model.images)[2]
    wrong = replace(model.images[third], translation=model.images[third].translation + [0.3, 0, 0])
    write_model(tmp_path / "sparse/0", replace(model, images={**model.images, third: wrong}))
    scene = read_scene(str(tmp_path))
    (finding,) = [f for f in examine(scene, quick=True) if f.code == "reprojection-high"]
    assert finding.frame == wrong.name and "1 of 12 images" in finding.problem and "px" in finding.found
    assert scene.provenance["reprojection_error_px"] < 0.01
    behind = replace(model.images[third], quaternion=model.images[third].quaternion[[2, 3, 0, 1]] * [-1, 1, 1, -1])
    write_model(tmp_path / "sparse/0", replace(model, images={**model.images, third: behind}))
    findings = [f for f in examine(read_scene(str(tmp_path)), quick=True) if f.code == "reprojection-high"]
    assert [f.frame for f in findings] == [wrong.name]


def test_a_reconstruction_that_contradicts_itself(tmp_path):
    names = [f"{i:03d}.png" for i in range(6)]
    write_colmap_images(tmp_path / "images", names, (40, 30))
    model = sample_model(names)
    write_model(tmp_path / "sparse/0", replace(model, positions=model.positions * [-1, 1, 1]))
    found = {f.code: f for f in examine(read_scene(str(tmp_path)), quick=True)}
    assert "in the median" in found["reprojection-high"].found
