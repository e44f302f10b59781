"""``nerfjax prepare`` at the command line."""

from __future__ import annotations

from nerfjax.cli.main import main
from nerfjax.scenes import read_scene

SOURCE = "analytic:spheres?views=3&size=16&val=0&test=1"


def test_a_capture_is_prepared_once_and_recognised(tmp_path, capsys):
    out = tmp_path / "set"
    command = ["prepare", SOURCE, f"--out={out}", "--downscale=2", "--layout=rays"]
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("prepared 4 images (3 train, 1 test), fingerprint ")
    assert main(command) == 0
    assert capsys.readouterr().out.startswith(f"already prepared: {out}")
    scene = read_scene(str(out))
    assert scene.fingerprint() == read_scene(SOURCE, downscale=2).fingerprint()
    assert scene.frames[0].image.read().shape == (8, 8, 4)


def test_wrong_input_is_one_message(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    for arguments, word in (
        (["nowhere"], "no such scene"),
        ([SOURCE, f"--out={tmp_path}"], "something else"),
        ([SOURCE, f"--out={tmp_path / 'set'}", "--layout=ray"], "--layout"),
        ([SOURCE, f"--out={tmp_path / 'set'}", "--downscale=0"], "downscale"),
        ([SOURCE, f"--out={tmp_path / 'set'}", "--format=blendr"], "blender"),
    ):
        assert main(["prepare", *arguments]) == 2
        message = capsys.readouterr().err
        assert word in message and "Traceback" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
