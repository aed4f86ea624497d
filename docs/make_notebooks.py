"""The notebooks: `make notebooks` executes them all, `python -m docs.make_notebooks quick-tour` some.

1. A notebook is executed in an empty folder, where links stand in for the models on the Hub that it opens: the same
   name, from a copy at hand (`HEADSPAN_MODELS`).
2. Figures become pictures of 256 colors, empty outputs and times go, and cells are numbered, so that a file is small
   and a difference between two versions is one that was meant.
"""

from __future__ import annotations

import os
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

from docs.make_figures import GPT2, few_colors, model

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
LINKS = {"openai-community/gpt2": GPT2}
"""What notebooks open by its name on the Hub, and where it is."""
LIMIT = 600
"""Seconds for a cell, on a machine that does much else."""


def executed(path: Path, renderer: str = "png") -> Any:
    """The notebook with its outputs; plotly draws its figures as `renderer` says."""
    notebook = nbformat.read(path, as_version=4)
    variables = {"PLOTLY_RENDERER": renderer, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with TemporaryDirectory() as folder, _environment(variables):
        for name, there in LINKS.items():
            if any(name in cell.source for cell in notebook.cells):
                (Path(folder) / name).parent.mkdir()
                (Path(folder) / name).symlink_to(model(there), target_is_directory=True)
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=LIMIT, kernel_name="python3", resources=resources).execute()
    return notebook


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables for the kernel, which takes those of this process."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def tidied(notebook: Any) -> Any:
    """The notebook as it is kept."""
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    count = 0
    for number, cell in enumerate(notebook.cells, 1):
        cell.id, cell.metadata = f"cell-{number:02}", {}
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            said = [output for output in cell.outputs if output.output_type == "stream" or any(output.data.values())]
            cell.outputs = [_tidied_output(output, count) for output in _joined(said)]
    return notebook


def _joined(outputs: list[Any]) -> list[Any]:
    """Outputs, with text that was printed piece by piece in one."""
    joined: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and joined and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def _tidied_output(output: Any, count: int) -> Any:
    if output.output_type == "execute_result":
        output.execution_count = count
    if output.output_type == "stream":
        return output
    output.metadata = {}
    if "image/png" in output.data:
        output.data = {"image/png": b64encode(few_colors(b64decode(output.data["image/png"]))).decode()}
    return output


def main(wanted: list[str]) -> None:
    """Execute these notebooks, or all."""
    for path in [NOTEBOOKS / f"{name}.ipynb" for name in wanted] or sorted(NOTEBOOKS.glob("*.ipynb")):
        nbformat.write(tidied(executed(path)), path)
        sys.stdout.write(f"{path.name}: {path.stat().st_size / 1024:.0f} KB\n")


if __name__ == "__main__":
    main(sys.argv[1:])
