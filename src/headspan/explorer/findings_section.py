"""What stands out: a few significant findings at the top of a page, and every other one once, in its chapter."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from headspan.explorer.html import Markup, element, linked_text
from headspan.finding import Finding
from headspan.lenses.catalog import lens as lens_of
from headspan.statistics.permutation import q_values

SHOWN = 5
"""How many findings stand at the top of the page; the others stand in their chapters."""
KEPT = (2, 3)
"""How many of them a phone, and a small window, show before the others are unfolded; the style sheet hides the rest."""
OF_ONE_LENS = 2
"""How many of these one lens may have, so that the top of a page is not three sentences of one kind."""
SIGNIFICANT = 0.05
"""False-discovery rate of the findings at the top, over all findings of a page that are tested."""
REMARKABLE = 0.5
"""Least weight of a finding at the top that has no p- or q-value, such as a count of significant pairs."""
NOTHING = "Nothing stands out: no analysis found a significant effect."


def significant_findings(found: Sequence[Finding]) -> list[Finding]:
    """Those that may stand at the top: q, or else p, significant among all that a page tests; the others by weight.

    A page of a dozen lenses tests some thirty findings. Each at 0.05 by itself, an untrained model's page would show
    one or two; over all of them (Benjamini and Hochberg) one such page in twenty shows any.
    """
    tested = [finding for finding in found if _chance(finding) is not None]
    q = q_values(np.array([_chance(finding) for finding in tested], dtype=np.float64)) if tested else ()
    passed = {id(finding) for finding, value in zip(tested, q, strict=True) if value < SIGNIFICANT}
    return [one for one in found if (one.weight >= REMARKABLE if _chance(one) is None else id(one) in passed)]


def _chance(finding: Finding) -> float | None:
    return finding.q if finding.q is not None else finding.p


def top_findings(found: Sequence[Finding]) -> list[Finding]:
    """The significant findings that stand at the top, strongest first, of equal weight the surest first."""
    chosen: list[Finding] = []
    for finding in sorted(significant_findings(found), key=_order):
        if sum(one.lens == finding.lens for one in chosen) < OF_ONE_LENS:
            chosen.append(finding)
    return chosen[:SHOWN]


def _order(finding: Finding) -> tuple[float, float]:
    chance = _chance(finding)
    return -finding.weight, 1.0 if chance is None else chance


def findings_list(
    top: Sequence[Finding], place: Callable[[Finding], tuple[str, str]] = lambda finding: (finding.lens, finding.lens)
) -> Markup:
    """The findings at the top, one sentence each with a link to its figure; one sentence where there are none.

    On a small screen the diagram would be below the first screen, so that the later ones fold there (`details.fold`).

    Parameters
    ----------
    top
        Of `top_findings`.
    place
        For a finding, the id of the element that shows it and what that is called; by default its lens's section.
    """
    if not top:
        return element("p", NOTHING, class_="nothing")
    ranked = element("ol", *(_item(finding, *place(finding)) for finding in top), class_="ranked")
    more = [(kept, len(top) - kept) for kept in KEPT if len(top) > kept]
    words = [element("span", f"{n} more finding{'s' if n > 1 else ''}", class_=f"beyond-{kept}") for kept, n in more]
    fold = [element("details", element("summary", *words), class_="fold")] if words else []
    return element("div", ranked, *fold, class_="findings")


def _item(finding: Finding, identifier: str, name: str) -> Markup:
    link = element("a", "Show", href=f"#{identifier}", class_="to-figure", title=name, aria_label=f"Show {name}")
    return element("li", linked_text(finding.statement), " ", link)


def _numbers(finding: Finding) -> str:
    """p and q as far as the sentence does not give them; the value and its null stand in the sentence."""
    numbers = []
    for name, value in (("p", finding.p), ("q", finding.q)):
        if value is not None and not re.search(rf"\b{name} [=<]", finding.statement):
            # Zero is what is left of a number too small for a float.
            numbers.append(f"{name} = {value:.2g}." if value else f"{name} < 1e-300.")
    return " ".join(numbers)


def finding_block(finding: Finding, linked: bool = True) -> Markup:
    """One finding with its p and q and its evidence; heads are links on a linked page."""
    words = linked_text if linked else str
    reference = f"Reference: {finding.reference}." if finding.reference else ""
    evidence = " ".join(part for part in (_numbers(finding), finding.evidence, reference) if part)
    return element(
        "div",
        element("p", words(finding.statement)),
        element("p", words(evidence), class_="evidence"),
        class_="finding",
    )


def skipped_line(reasons: Mapping[str, str | None], link: str = "methods") -> Markup | None:
    """How many analyses were skipped, and the commonest reason, in one line that unfolds to all of them.

    None where none was; those left out by default do not count.
    """
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if reason is not None and not lens_of(name).on_request:
            by_reason.setdefault(reason.removesuffix("."), []).append(name)
    if not by_reason:
        return None
    groups = sorted(by_reason.items(), key=lambda group: -len(group[1]))
    count = sum(map(len, by_reason.values()))
    words = f"Skipped {count} analys{'es' if count > 1 else 'is'}"
    lines = [element("li", f"{', '.join(names)}: {reason}.") for reason, names in groups]
    return element(
        "details",
        element("summary", words, element("span", f": {groups[0][0]}", class_="why")),
        element("ul", *lines),
        element("p", element("a", "All analyses", href=f"#{link}")),
        class_="skipped",
    )
