"""Records hold each step once, whatever happened to the process before."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import textwrap

import pytest
from rich.console import Console

from nerfjax.errors import UserError
from nerfjax.telemetry.writers import JsonlWriter, ProgressWriter, TensorBoardWriter, open_writers, summary_line

REPORT = {
    **{"step": 100, "loss": 0.01234, "psnr": 24.123, "rays_per_second": 10_240.0, "samples_per_ray": 48.0},
    **{"data_wait": 0.034, "eta_seconds": 200.0, "loss/color": 0.01, "learning_rate": 0.01, "seconds": 12.5},
}


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_jsonl_is_strict_json_line_by_line(tmp_path):
    writer = JsonlWriter(tmp_path / "deep" / "metrics.jsonl")
    writer.write({"step": 1, "loss": float("nan"), "psnr": float("inf"), "n": 3})
    assert lines(tmp_path / "deep" / "metrics.jsonl") == [{"step": 1, "loss": None, "psnr": None, "n": 3}]  # at once
    writer.write({"step": 2, "loss": 0.5})
    writer.close()
    writer.close()
    assert [row["step"] for row in lines(tmp_path / "deep" / "metrics.jsonl")] == [1, 2]


def test_jsonl_drops_what_came_after_the_restored_step(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 10}\n{"step": 20}\n{"step": "x"}\nnonsense\n{"step": 30}\n{"note": 1}\n{"step": 2')
    writer = JsonlWriter(path, resume_step=20)
    writer.write({"step": 30, "again": True})
    writer.close()
    assert lines(path) == [{"step": 10}, {"step": 20}, {"note": 1}, {"step": 30, "again": True}]
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_jsonl_of_a_new_run_begins_empty(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 10}\n')
    JsonlWriter(tmp_path / "metrics.jsonl").close()
    assert lines(tmp_path / "metrics.jsonl") == []


def events(folder):
    from tensorboard.compat.proto import event_pb2

    (path,) = folder.iterdir()
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        found.append(event_pb2.Event.FromString(data[12 : 12 + length]))
        data = data[12 + length + 4 :]
    return found


def test_tensorboard_events(tmp_path):
    writer = TensorBoardWriter(tmp_path / "tensorboard", resume_step=50)
    writer.write({"step": 60, "loss": 0.25, "psnr": float("nan"), "name": "x"})
    first, start, event = events(tmp_path / "tensorboard")  # readable before it is closed
    writer.close()
    assert first.file_version == "brain.Event:2"
    assert start.session_log.status == start.session_log.START and start.step == 51
    assert event.step == 60 and [(v.tag, v.simple_value) for v in event.summary.value] == [("loss", 0.25)]


def test_tensorboard_itself_reads_them_and_forgets_what_was_redone(tmp_path):
    program = """
        import sys
        from nerfjax.telemetry.writers import TensorBoardWriter
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        for resume, steps in ((0, (10, 20, 30)), (20, (30, 40))):
            writer = TensorBoardWriter(sys.argv[1], resume_step=resume)
            for step in steps:
                writer.write({"step": step, "loss": 1.0 * step + resume})
            writer.close()
        found = EventAccumulator(sys.argv[1]).Reload()
        print([(e.step, e.value) for e in found.Scalars("loss")])
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[(10, 10.0), (20, 20.0), (30, 50.0), (40, 60.0)]"


def test_tensorflow_is_never_imported(tmp_path):
    trap = tmp_path / "trap" / "tensorflow"
    trap.mkdir(parents=True)
    (trap / "__init__.py").write_text("raise SystemExit('tensorflow was imported')")
    program = """
        import sys
        import nerfjax.telemetry.writers as writers
        assert not any(name.split(".")[0] == "tensorboard" for name in sys.modules)
        writer = writers.TensorBoardWriter(sys.argv[1])
        writer.write({"step": 1, "loss": 1.0})
        writer.close()
        assert "tensorflow" not in sys.modules
    """
    program = f"import sys\nsys.path.insert(0, {str(trap.parent)!r})\n" + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "tb")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(events(tmp_path / "tb")) == 3


def console(**options) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=120, **options), text


def test_plain_lines_when_not_on_a_terminal():
    output, text = console()
    writer = ProgressWriter(1500, console=output)
    writer.write(REPORT)
    writer.write({"step": 100, "eval/psnr": 25.5, "eval/views": 7})
    writer.note("a [note] that is no markup")
    writer.close()
    shown = text.getvalue()
    assert "\x1b" not in shown
    first, second, third = shown.splitlines()
    for part in ("step 100/1500", "loss 0.01234", "psnr 24.12", "10.2k rays/s", "48.0 samples/ray", "wait 3%", "3m20s"):
        assert part in first
    assert second == "step 100/1500  eval/psnr 25.5  eval/views 7" and third == "a [note] that is no markup"


def test_live_line_on_a_terminal(monkeypatch):
    for name in ("NO_COLOR", "TERM", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    output, text = console(force_terminal=True, force_interactive=True)
    writer = ProgressWriter(1500, initial_step=40, console=output)
    assert "compiling" in text.getvalue() and "40/1500" in text.getvalue()
    writer.write(REPORT)
    writer.write({"step": 100, "eval/psnr": 25.5})
    writer.close()
    assert "100/1500" in text.getvalue() and "psnr 24.12" in text.getvalue() and "eval/psnr 25.5" in text.getvalue()


def test_no_color_is_respected(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("TERM", raising=False)
    output, text = console(force_terminal=True, color_system="truecolor")
    writer = ProgressWriter(10, console=output)
    writer.write({"step": 5, "loss": 1.0})
    writer.close()
    assert "\x1b[38;" not in text.getvalue() and "5/10" in text.getvalue()


def test_summary_of_unusual_reports():
    assert summary_line({"step": 3}) == ""
    assert "loss nan" in summary_line({"step": 3, "loss": float("nan")})
    assert "compiled in 12s" in summary_line({"step": 3, "loss": 1.0, "compile_seconds": 12.0})


def test_open_writers(tmp_path):
    writers = open_writers(tmp_path / "run", total_steps=10)
    for writer in writers:
        writer.write(REPORT)
        writer.close()
    assert {p.name for p in (tmp_path / "run").iterdir()} == {"metrics.jsonl", "tensorboard"}
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        open_writers(tmp_path / "file" / "run", total_steps=10)
