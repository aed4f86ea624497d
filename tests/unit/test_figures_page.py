"""A page of one lens's figures: its findings and figures, and no links to what only the report has."""

from __future__ import annotations

from pathlib import Path

import headspan
from headspan.explorer.figures_page import write_figures_page
from tests.browser.page_elements import asks_nothing, page_elements


def test_heads_are_named_but_not_linked_where_no_panel_can_open(tmp_path: Path) -> None:
    result = headspan.similarity("demo", maps=False)
    write_figures_page(result, tmp_path / "similarity.html")
    html = (tmp_path / "similarity.html").read_text(encoding="utf-8")
    named = [one.statement for one in result.findings if "L0H" in one.statement + one.evidence]
    assert named
    assert not [element for element in page_elements(html) if "data-head" in element.attributes]
    assert asks_nothing(html)
