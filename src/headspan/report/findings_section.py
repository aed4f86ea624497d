"""What stands out: the findings of all lenses together, strongest first, and each one in its own section."""

from __future__ import annotations

from collections.abc import Sequence

from headspan.finding import Finding
from headspan.report.html import Markup, element, section

SHOWN = 10
"""How many findings stand at the top of the page; all of them stand in their sections."""


def findings_section(found: Sequence[Finding]) -> Markup:
    """The strongest findings over all lenses, each with a link to where its evidence and figures are."""
    ranked = sorted(found, key=lambda finding: -finding.weight)
    if not ranked:
        return section("findings", "What stands out", element("p", "No analysis found anything to remark on."))
    items = [
        element("li", finding.statement, " ", element("a", finding.lens, href=f"#{finding.lens}"))
        for finding in ranked[:SHOWN]
    ]
    more = len(ranked) - len(items)
    note = [element("p", f"{more} more in the sections below.", class_="subtitle")] if more else []
    return section("findings", "What stands out", element("ol", *items, class_="ranked"), *note)


def finding_block(finding: Finding) -> Markup:
    """One finding with the number it rests on, its chance value and its evidence."""
    numbers = "" if finding.chance is None else f"Value {finding.value:.4g}; by chance {finding.chance:.4g}. "
    if finding.p_value is not None:
        # Zero is what is left of a number too small for a float.
        numbers += f"p = {finding.p_value:.2g}. " if finding.p_value else "p < 1e-300. "
    reference = f" Reference: {finding.reference}." if finding.reference else ""
    evidence = f"{numbers}{finding.evidence}{reference}"
    return element("div", element("p", finding.statement), element("p", evidence, class_="evidence"), class_="finding")
