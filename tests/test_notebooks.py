"""The notebooks run from top to bottom, and show what they say."""

import nbformat
import pytest
from nbclient import NotebookClient


@pytest.mark.parametrize("name", ["first_run", "what_if"])
@pytest.mark.filterwarnings("ignore")
def test_notebook_runs(repo, name):
    notebook = nbformat.read(repo / f"notebooks/{name}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(repo / "notebooks")}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) >= {"first_run": 3, "what_if": 1}[name]


def test_notebooks_are_kept_without_outputs(repo):
    for path in (repo / "notebooks").glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        assert all(not cell.get("outputs") for cell in cells), (
            f"{path.name} holds outputs: clear them before committing"
        )
