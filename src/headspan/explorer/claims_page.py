"""The claims ledger as a page: what became of every claim, the curves behind two chapters, one table per document.

Beside it the page of one study, the divergence along great circles.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from headspan.distributions import PathStudy
from headspan.explorer.figure_block import drawing_scripts, figure_blocks
from headspan.explorer.html import Markup, element, section, table
from headspan.explorer.page import page
from headspan.ledger import Examination
from headspan.ledger.claim import DOCUMENTS
from headspan.ledger.examination import check_text, summary
from headspan.ledger.figures import divergence_along_paths, figures


def paths_page(studies: Sequence[PathStudy]) -> str:
    """The divergence along great circles as one HTML document."""
    blocks = figure_blocks({"KL along great circles": divergence_along_paths(studies)})
    return page("Great circles", "softmax on a sphere", {}, [section("paths", "Curves", *blocks)], drawing_scripts())


HEADER = ("Claim", "Status", "What it says, and what is right", "Check")


def claims_page(examinations: Sequence[Examination]) -> str:
    """The page as one HTML document."""
    sections = {"ledger": section("ledger", "What became of the claims", element("p", summary(examinations)))}
    contents = {"ledger": "Summary", "curves": "Curves"}
    sections["curves"] = section("curves", "Curves behind the claims", *figure_blocks(figures(examinations)))
    for document, group in groupby(examinations, key=lambda one: one.claim.document):
        name = f"document-{document}"
        title = f"{document}: {DOCUMENTS[document]}"
        sections[name], contents[name] = section(name, title, _document(list(group))), document
    return page("Claims", "checked again, each with its numbers", contents, list(sections.values()), drawing_scripts())


def _document(examinations: Sequence[Examination]) -> Markup:
    rows = []
    for one in examinations:
        claim = one.claim
        right = f" Right: {claim.correction}" if claim.correction else ""
        within = f" Tolerance: {claim.tolerance}." if claim.tolerance else ""
        rows.append((claim.id, claim.status, f"{claim.statement}{right}{within}", check_text(one)))
    return table(HEADER, rows)
