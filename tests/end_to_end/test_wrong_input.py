"""What a user can get wrong costs one helpful message and exit code 2; nothing compiles, nothing is lost."""

import json

import pytest

from nerfjax.cli.main import main
from nerfjax.scenes.analytic import write_blender_capture

TINY = [
    "--config=demo",
    "--config.scene.source=analytic:spheres?views=3&size=12&val=0&test=1",
    "--config.train.steps=2",
    "--config.train.batch_rays=16",
    "--config.train.steps_per_dispatch=1",
    "--config.parallel.devices=1",
    "--config.sampler.name=stratified",
    "--config.sampler.stratified.num_samples=4",
    "--config.field.instant_ngp.levels=2",
    "--config.field.instant_ngp.log2_size=8",
]


def refused(capsys, *arguments):
    """Runs ``train`` and returns its message."""
    assert main(["train", *arguments]) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    assert captured.err.count("\n\n") == 0
    return captured.err


def test_a_scene_that_is_not_there(capsys, tmp_path):
    message = refused(capsys, *TINY, "--config.scene.source=no/such/place", f"--workdir={tmp_path / 'run'}")
    assert "no/such/place" in message and "scene.source" in message
    assert not (tmp_path / "run").exists()


def test_a_pose_that_is_not_a_number(capsys, tmp_path):
    write_blender_capture("spheres", tmp_path / "capture", views=3, size=12, test=1, val=1)
    path = tmp_path / "capture" / "transforms_train.json"
    document = json.loads(path.read_text())
    document["frames"][1]["transform_matrix"][0][3] = float("nan")
    path.write_text(json.dumps(document))
    message = refused(capsys, *TINY, f"--config.scene.source={tmp_path / 'capture'}", f"--workdir={tmp_path / 'run'}")
    assert "transforms_train.json" in message and document["frames"][1]["file_path"].split("/")[-1] in message
    assert "transform_matrix" in message or "pose" in message


def test_an_unknown_sampler(capsys, tmp_path):
    message = refused(capsys, *TINY, "--config.sampler.name=stratfied", f"--workdir={tmp_path / 'run'}")
    assert "did you mean 'stratified'?" in message


@pytest.mark.parametrize("key", ["train.stesp", "sampler.stratified.num_sample", "scene.downscal"])
def test_a_misspelt_key(capsys, tmp_path, key):
    message = refused(capsys, *TINY, f"--config.{key}=3", f"--workdir={tmp_path / 'run'}")
    right = {
        "train.stesp": "train.steps",
        "sampler.stratified.num_sample": "num_samples",
        "scene.downscal": "downscale",
    }
    assert "did you mean" in message and right[key] in message


def test_a_run_folder_of_another_config(capsys, tmp_path):
    workdir = tmp_path / "run"
    assert main(["train", *TINY, f"--workdir={workdir}"]) == 0
    before = sorted((path.relative_to(workdir), path.stat().st_mtime_ns) for path in workdir.rglob("*"))
    capsys.readouterr()
    message = refused(capsys, *TINY, "--config.sampler.stratified.num_samples=5", f"--workdir={workdir}")
    assert "sampler.stratified.num_samples" in message and "4" in message and "5" in message and "--workdir" in message
    message = refused(
        capsys, *TINY, "--config.scene.source=analytic:spheres?views=3&size=14&val=0&test=1", f"--workdir={workdir}"
    )
    assert "scene" in message
    assert before == sorted((path.relative_to(workdir), path.stat().st_mtime_ns) for path in workdir.rglob("*"))
