"""The gallery of notebooks executes, and shows the kinds of outputs that are stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def kinds_of_outputs(cell):
    return {kind for output in cell["outputs"] for kind in (output["output_type"], *output.get("data", {}))}


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_show_what_was_certified(path):
    notebook = json.loads(path.read_text())
    kinds = set().union(*map(kinds_of_outputs, code_cells(notebook)))
    assert "stream" in kinds and "error" not in kinds
    assert "with probability" in json.dumps(notebook, ensure_ascii=False) or path.stem == "prism_model"


@pytest.mark.nightly
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_executes(path, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(path, as_version=4)
    stored = [kinds_of_outputs(cell) for cell in code_cells(notebook)]
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [kinds_of_outputs(cell) for cell in code_cells(notebook)] == stored
