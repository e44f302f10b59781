"""A run folder that was renamed, whose capture lies elsewhere too, is evaluated, resumed, rendered and compared."""

from __future__ import annotations

import json
import shutil

import pytest
from small_runs import FLAGS, STEPS, record, shared_programs, train_small

from nerfjax.cli.main import main
from nerfjax.scenes.analytic import write_blender_capture
from nerfjax.train.run import load_run

HALF = STEPS // 2


@pytest.fixture(autouse=True, scope="module")
def programs():
    with shared_programs():
        yield


def test_a_moved_run_is_evaluated_resumed_and_rendered(tmp_path, capsys):
    here, there = tmp_path / "here", tmp_path / "there"
    write_blender_capture("spheres", here / "capture", views=3, size=12, val=0, test=1)
    length = {"schedule.log_lerp.steps": STEPS}
    for name, steps in {"whole": STEPS, "half": HALF}.items():
        train_small(here / name, **{"scene.source": str(here / "capture"), "train.steps": steps, **length})
    there.mkdir()
    shutil.move(here / "half", there / "renamed")
    shutil.move(here / "capture", there / "photos")
    folder, source = there / "renamed", f"--source={there / 'photos'}"
    capsys.readouterr()

    assert main(["eval", str(folder)]) == 2
    assert "--source" in capsys.readouterr().err
    assert main(["eval", str(folder), source, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["run"], result["step"], result["n"]) == ("renamed", HALF, 1)
    assert main(["render", str(folder), source, "--frames=2", "--size=16x16"]) == 0
    assert (folder / "renders" / "orbit.mp4").stat().st_size

    flags = [*FLAGS, f"--config.scene.source={there / 'photos'}", f"--config.schedule.log_lerp.steps={STEPS}"]
    assert main(["train", *flags, f"--workdir={folder}"]) == 0
    restart = json.loads((folder / "manifest.json").read_text())["restarts"][-1]
    assert restart["step"] == HALF and "scene_fingerprint" not in restart["differs"]
    assert record(folder) == record(here / "whole")
    # From now on it knows where its capture is.
    assert load_run(folder).step == STEPS
    assert main(["status", str(folder)]) == 0
