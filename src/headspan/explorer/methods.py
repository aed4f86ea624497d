"""Methods: how the numbers of each lens are defined, where that comes from, and what exactly was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import yaml

from headspan.explorer.html import Markup, element, facts, section
from headspan.explorer.inlined import asset
from headspan.explorer.mathml import formula
from headspan.explorer.model_section import analyses_table


@dataclass(frozen=True)
class Method:
    """One quantity: what it is called, its formula, the formula in words with what chance gives, and a reference."""

    name: str
    formula: str
    words: str
    reference: str = ""


@cache
def methods() -> dict[str, tuple[Method, ...]]:
    """By lens, in the order in which they are read; the texts are in `assets/methods.yaml`."""
    listed = yaml.safe_load(asset("methods.yaml"))
    return {lens: tuple(Method(**each) for each in entries) for lens, entries in listed.items()}


def methods_section(lenses: Sequence[str], hindered: dict[str, str | None], provenance: Mapping[str, object]) -> Markup:
    """Formulas of the lenses on the page, references, the analyses, provenance."""
    used = [method for lens in lenses for method in methods().get(lens, ())]
    references = sorted({method.reference for method in used if method.reference})
    origin = facts((name, str(value)) for name, value in provenance.items() if value)
    listed = element("ul", *(element("li", reference) for reference in references))
    return section(
        "methods",
        "Methods and provenance",
        element("div", *map(_method, used), class_="methods"),
        *([element("h3", "References"), listed] if references else []),
        element("h3", "Analyses"),
        analyses_table(hindered),
        element("div", element("h3", "Where these numbers come from"), origin, id_="provenance"),
    )


def _method(method: Method) -> Markup:
    return element("div", element("h3", method.name), formula(method.formula), element("p", method.words))
