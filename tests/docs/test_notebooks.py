"""The notebooks run and print what they show; their files are small, and an export shows every output."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from docs.make_notebooks import NOTEBOOKS, executed
from docs.notebook_pages import markdown
from tests.docs.pages import DOCS, agree

NAMES = ("learning", "paper-claim", "quantization", "quick-tour", "vocabulary", "wiring")
PATHS = [NOTEBOOKS / f"{name}.ipynb" for name in NAMES]
MOST_BYTES = 250_000

every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


def texts(cell: dict[str, Any]) -> str:
    """What a cell prints, and its outputs as text; not the figures."""
    printed = ""
    for output in cell.get("outputs", []):
        said = output["text"] if output["output_type"] == "stream" else output["data"].get("text/plain", "")
        printed += "".join(said) + "\n"
    return printed


def test_every_notebook_is_tested_and_has_its_page() -> None:
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")) == list(NAMES)
    for name in NAMES:
        assert (DOCS / "notebooks" / f"{name}.md").read_text() == f"```{{notebook}} {name}\n```\n"


@every_notebook
def test_a_notebook_is_small_executed_and_names_no_folder_of_its_author(path: Path) -> None:
    assert path.stat().st_size < MOST_BYTES
    code = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert [cell["id"] for cell in cells(path)] == [f"cell-{n:02}" for n in range(1, len(cells(path)) + 1)]
    assert all(part not in texts(cell) for cell in code for part in ("/home/", "/tmp/", "/root/", "site-packages"))


@pytest.mark.slow
@every_notebook
def test_a_notebook_prints_what_it_shows(path: Path, stories: Path) -> None:
    """Beside the text, the session that a reader would have: figures for the notebook, each with HTML for exports."""
    notebook = executed(path, renderer="plotly_mimetype")
    for kept, now in zip(cells(path), notebook.cells, strict=True):
        assert agree(texts(kept), texts(now)), f"{kept['source']} prints\n{texts(now)}"


class Seen(HTMLParser):
    """Pictures of a page, and what it loads from elsewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.pictures, self.text = 0, ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.pictures += tag == "img" and (dict(attrs).get("src") or "").startswith("data:image/png")

    def handle_data(self, data: str) -> None:
        self.text += data


@every_notebook
def test_an_export_shows_every_output(path: Path) -> None:
    from nbconvert import HTMLExporter

    page, _ = HTMLExporter(template_name="basic").from_filename(str(path))
    outputs = [output for cell in cells(path) for output in cell.get("outputs", [])]
    seen = Seen(page)
    assert seen.pictures == sum("image/png" in output.get("data", {}) for output in outputs)
    for output in outputs:
        if output["output_type"] == "stream":
            assert "".join(output["text"]).strip() in seen.text


@every_notebook
def test_a_page_of_the_documentation_has_every_cell_and_output(path: Path) -> None:
    page = markdown(json.loads(path.read_text(encoding="utf-8")))
    for cell in cells(path):
        assert "".join(cell["source"]) in page
        for output in cell.get("outputs", []):
            if output["output_type"] == "stream":
                assert "".join(output["text"]).rstrip() in page
