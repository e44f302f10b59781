"""The notebooks run from top to bottom, and are committed without outputs."""

from __future__ import annotations

import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def read(name: str):
    return nbformat.read(FOLDER / name, as_version=4)


def test_there_are_notebooks():
    assert {"compare_samplers.ipynb", "inside_a_ray.ipynb"} <= set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_outputs_are_stripped(name):
    notebook = read(name)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code and all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert notebook.metadata.kernelspec.name == "python3"
    assert [cell.metadata for cell in notebook.cells] == [{}] * len(notebook.cells)


@pytest.mark.filterwarnings("default")  # Jupyter's own
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs(name, monkeypatch, tmp_path):
    monkeypatch.setenv("NERFJAX_NOTEBOOK_SMALL", "1")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("XLA_FLAGS", "")  # one device, as a reader has
    notebook = read(name)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    pictures = [
        output
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]
    errors = [output for cell in notebook.cells for output in cell.get("outputs", []) if output.get("name") == "stderr"]
    assert len(pictures) >= 3 and errors == []
