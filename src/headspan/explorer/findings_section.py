"""What stands out: the findings of all lenses together, strongest first, and each one in its own section."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headspan.explorer.html import Markup, element, linked_text, section
from headspan.finding import Finding

SHOWN = 10
"""How many findings stand at the top of the page; all of them stand in their sections."""


def findings_section(
    found: Sequence[Finding], place: Callable[[Finding], tuple[str, str]] = lambda finding: (finding.lens, finding.lens)
) -> Markup:
    """The strongest findings over all lenses, each with its numbers and a link to its figure.

    Parameters
    ----------
    found
        Findings of all lenses.
    place
        For a finding, the id of the element that shows it and what that is called; by default its lens's section.
    """
    ranked = sorted(found, key=lambda finding: -finding.weight)
    if not ranked:
        return section("findings", "What stands out", element("p", "No analysis found anything to remark on."))
    items = [_item(finding, *place(finding)) for finding in ranked[:SHOWN]]
    more = len(ranked) - len(items)
    note = [element("p", f"{more} more in the sections below.", class_="subtitle")] if more else []
    return section("findings", "What stands out", element("ol", *items, class_="ranked"), *note)


def _item(finding: Finding, identifier: str, name: str) -> Markup:
    numbers = element("span", f"{_numbers(finding)} ", class_="evidence") if _numbers(finding) else Markup("")
    link = element("a", name, href=f"#{identifier}", class_="to-figure")
    return element("li", linked_text(finding.statement), " ", numbers, link)


def _numbers(finding: Finding) -> str:
    """Value, expected value and p, as far as there are any."""
    numbers = [] if finding.expected is None else [f"Value {finding.value:.4g}; expected {finding.expected:.4g}."]
    if finding.p is not None:
        # Zero is what is left of a number too small for a float.
        numbers.append(f"p = {finding.p:.2g}." if finding.p else "p < 1e-300.")
    return " ".join(numbers)


def finding_block(finding: Finding, linked: bool = True) -> Markup:
    """One finding with its numbers, what is expected, and its evidence; heads are links on a linked page."""
    words = linked_text if linked else str
    reference = f"Reference: {finding.reference}." if finding.reference else ""
    evidence = " ".join(part for part in (_numbers(finding), finding.evidence, reference) if part)
    return element(
        "div",
        element("p", words(finding.statement)),
        element("p", words(evidence), class_="evidence"),
        class_="finding",
    )
