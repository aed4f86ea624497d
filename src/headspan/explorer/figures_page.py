"""One lens's figures and findings by themselves, as an HTML file that opens offline."""

from __future__ import annotations

from pathlib import Path

from headspan.explorer.figure_block import drawing_scripts, figure_blocks
from headspan.explorer.findings_section import finding_block
from headspan.explorer.html import element, facts, section
from headspan.explorer.page import page
from headspan.result import Result


def write_figures_page(result: Result, path: Path) -> None:
    """Write what a lens's result says and shows to `path`."""
    about = result.lens
    provenance = facts((str(key), str(value)) for key, value in result.attrs.items() if str(value))
    body = [
        section(
            about.name,
            about.title,
            element("p", f"{about.summary[0].upper()}{about.summary[1:]}."),
            *(finding_block(one, linked=False) for one in result.findings),
            *figure_blocks(result.figures),
        ),
        section("provenance", "Where these numbers come from", provenance),
    ]
    contents = {about.name: about.title, "provenance": "Provenance"}
    path.write_text(page(str(result.attrs["model"]), about.title, contents, body, drawing_scripts()), encoding="utf-8")
