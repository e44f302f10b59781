"""``nerfjax inspect``: what it prints, the JSON document against its schema, the page, the exit codes."""

from __future__ import annotations

import importlib.resources
import json
import re

import numpy as np
import pytest

from nerfjax.cli.main import main
from nerfjax.scenes.analytic import write_blender_capture

TYPES = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int,
    "number": (int, float),
}  # fmt: skip


@pytest.fixture
def capture_folder(tmp_path):
    return write_blender_capture("spheres", tmp_path / "ball", views=8, size=32, test=3, val=0, antialias=1)


def break_a_pose(folder):
    path = folder / "transforms_train.json"
    content = json.loads(path.read_text())
    content["frames"][2]["transform_matrix"][0][3] = float("nan")
    path.write_text(json.dumps(content))


def violations(value, schema, where="$"):
    """What of JSON Schema this schema uses, checked."""
    kinds = schema.get("type", list(TYPES))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    is_flag = isinstance(value, bool)
    if not any(isinstance(value, TYPES[kind]) and (kind == "boolean" or not is_flag) for kind in kinds):
        return [f"{where} is {type(value).__name__}, not {kinds}"]
    if value not in schema.get("enum", [value]) or not re.search(schema.get("pattern", ""), str(value)):
        return [f"{where} is {value!r}"]
    found = []
    if isinstance(value, dict):
        known = schema.get("properties", {})
        found += [f"{where} lacks {key}" for key in schema.get("required", ()) if key not in value]
        for key, item in value.items():
            more = known.get(key, schema.get("additionalProperties", {}))
            found += [f"{where} has {key}"] if more is False else violations(item, more, f"{where}.{key}")
    if isinstance(value, list):
        found += [line for item in value for line in violations(item, schema.get("items", {}), f"{where}[]")]
    if isinstance(value, int | float) and not is_flag:
        low, high = schema.get("minimum", -np.inf), schema.get("maximum", np.inf)
        found += [] if low <= value <= high else [f"{where} is {value}"]
    return found


def document_of(capsys, *arguments):
    code = main(["inspect", *arguments, "--json"])
    document = json.loads(capsys.readouterr().out)
    schema = json.loads(importlib.resources.files("nerfjax.schemas").joinpath("inspect.schema.json").read_text())
    assert violations(document, schema) == []
    return code, document


def test_a_clean_capture(capture_folder, capsys):
    assert main(["inspect", str(capture_folder)]) == 0
    out = capsys.readouterr().out
    assert "blender (holds transforms_train.json)" in out and "8 train, 3 test" in out
    assert "nothing to complain about" in out


def test_json_is_one_document_that_the_schema_describes(capture_folder, capsys):
    code, document = document_of(capsys, str(capture_folder))
    assert code == 0 and document["counts"] == {"error": 0, "warning": 0, "info": 0}
    assert document["scene"]["splits"] == {"train": 8, "val": 0, "test": 3}
    assert document["scene"]["coverage"]["facing"] == "inward"
    break_a_pose(capture_folder)
    code, document = document_of(capsys, str(capture_folder))
    assert code == 2 and document["readable"] and document["scene"]["images"] == 10
    (finding,) = document["findings"]
    assert finding["code"] == "pose-not-finite" and finding["frame"] == "train/r_2" and finding["fix"]
    code, document = document_of(capsys, "/nowhere")
    assert code == 2 and document["scene"] is None and not document["readable"]


def test_findings_are_printed_with_the_fix_and_exit_with_2(capture_folder, capsys):
    break_a_pose(capture_folder)
    assert main(["inspect", str(capture_folder)]) == 2
    out = capsys.readouterr().out
    assert "[pose-not-finite]" in out and "train/r_2" in out and "fix:" in out and "1 error" in out


@pytest.mark.parametrize("broken", [False, True])
def test_the_page_stands_alone(capture_folder, tmp_path, capsys, broken):
    if broken:
        break_a_pose(capture_folder)
    page = tmp_path / "pages" / "ball.html"
    assert main(["inspect", str(capture_folder), f"--html={page}"]) == (2 if broken else 0)
    text = page.read_text()
    assert text.count("<svg") == 4 and text.count("data:image/jpeg") == (10 if broken else 11)
    assert not re.search(r"(src|href)=\"(?!data:)", text) and "<script" not in text
    assert ("pose-not-finite" in text) == broken and ("fit for training" in text) != broken


def test_a_page_of_what_cannot_be_read(tmp_path):
    page = tmp_path / "page.html"
    assert main(["inspect", str(tmp_path), f"--html={page}"]) == 2
    assert "not recognised" in page.read_text()


def test_a_name_cannot_inject_markup(tmp_path, capture_folder):
    hostile = capture_folder.rename(tmp_path / "<img src=x onerror=alert(1)>")
    page = tmp_path / "page.html"
    assert main(["inspect", str(hostile), f"--html={page}"]) == 0
    assert "<img src=x" not in page.read_text()


def test_a_prepared_set_is_called_one(capture_folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["prepare", str(capture_folder), f"--out={out}"]) == 0
    capsys.readouterr()
    assert main(["inspect", str(out)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("format"))
    assert "prepared (metadata.json of a prepared data set, made from a capture of the format blender)" in line
    code, document = document_of(capsys, str(out))
    assert code == 0 and document["format"] == "prepared" and "blender" in document["reason"]
    assert document["scene"]["splits"]["test"] == 3


def test_what_cannot_be_read_says_what_it_was_taken_for(capture_folder, capsys):
    (capture_folder / "transforms_train.json").write_text("{")
    code, document = document_of(capsys, str(capture_folder))
    assert code == 2 and document["format"] == "blender" and document["reason"] == "holds transforms_train.json"
    assert main(["inspect", str(capture_folder)]) == 2
    assert "cannot be read (as blender: holds transforms_train.json)" in capsys.readouterr().out


def test_without_test_frames_there_is_nothing_to_evaluate(capture_folder, capsys):
    (capture_folder / "transforms_test.json").unlink()
    assert main(["inspect", str(capture_folder)]) == 0
    out = capsys.readouterr().out
    assert "nothing to evaluate" in out and "transforms_test.json" in out
    source = "analytic:spheres?views=6&size=16&val=2&test=0"
    assert main(["inspect", source]) == 0
    out = capsys.readouterr().out
    assert "nothing to evaluate" in out and "?test=8" in out and "--split=val" in out


def test_the_field_stands_beside_what_was_found(capture_folder, capsys):
    path = capture_folder / "transforms_train.json"
    content = json.loads(path.read_text())
    content["frames"][1]["fl_x"] = "wide"
    path.write_text(json.dumps(content))
    code, document = document_of(capsys, str(capture_folder))
    (finding,) = [f for f in document["findings"] if f["severity"] == "error"]
    assert code == 2 and finding["field"] == "fl_x" and finding["found"] == "wide"


@pytest.mark.parametrize(
    "flags",
    [["--format=blendr"], ["--convention=openvc"], ["--fromat=auto"], ["--options=focal=3"], ["--holdout=often"]],
)
def test_wrong_flags(capture_folder, flags, capsys):
    assert main(["inspect", str(capture_folder), *flags]) == 2
