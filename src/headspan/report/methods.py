"""Methods: how each number is defined, where it comes from, and the identity of what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headspan.report.html import Markup, element, facts, section
from headspan.report.model_section import analyses_table


def methods_section(lenses: Sequence[str], hindered: dict[str, str | None], provenance: Mapping[str, object]) -> Markup:
    """Formulas of the lenses on the page, references, provenance."""
    origin = facts((name, str(value)) for name, value in provenance.items() if value)
    return section(
        "methods",
        "Methods and provenance",
        element("h3", "Analyses"),
        analyses_table(hindered),
        element("div", element("h3", "Where these numbers come from"), origin, id_="provenance"),
    )
