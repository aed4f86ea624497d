"""Notebooks as pages: a block `{notebook} name` stands for `notebooks/name.ipynb`, read as it is, with its outputs.

Nothing is executed and nothing is loaded from elsewhere. Of an output's forms the first of picture, HTML and text is
taken. The text of a page is exchanged before it is parsed, so that headings are those of the page.
"""

import json
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
BLOCK = re.compile(r"^```\{notebook\} ([\w-]+)\n```$", re.MULTILINE)


def markdown(notebook: dict[str, Any]) -> str:
    """The cells as a MyST page."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else _fenced("python", source))
        parts += [_output(output) for output in cell.get("outputs", [])]
    return "\n\n".join(parts)


def _fenced(language: str, text: str) -> str:
    return f"````{language}\n{text.rstrip()}\n````"


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _fenced("text", "".join(output["text"]))
    forms = {kind: "".join(value) for kind, value in output["data"].items()}
    if "image/png" in forms:
        picture = forms["image/png"].replace("\n", "")
        return _fenced("{raw} html", f'<img alt="figure" src="data:image/png;base64,{picture}">')
    if "text/html" in forms:
        return _fenced("{raw} html", f'<div class="notebook-output">{forms["text/html"]}</div>')
    return _fenced("text", forms["text/plain"])


def exchange(app: Sphinx, name: str, source: list[str]) -> None:
    """Put notebooks in the places that ask for them."""

    def page(found: re.Match[str]) -> str:
        path = NOTEBOOKS / f"{found[1]}.ipynb"
        app.env.note_dependency(str(path))
        return markdown(json.loads(path.read_text(encoding="utf-8")))

    source[0] = BLOCK.sub(page, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the exchange."""
    app.connect("source-read", exchange)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
