"""Methods: how the numbers of each lens are defined, where that comes from, and what exactly was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headspan.explorer.html import Markup, element, facts, section
from headspan.explorer.mathml import formula
from headspan.explorer.model_section import analyses_table
from headspan.result import Lens
from headspan.schema import Variable


def methods(lens: Lens) -> Iterator[Variable]:
    """The variables of a lens that say how they are defined, each once."""
    seen = set()
    for variables in lens.schema.nodes.values():
        for variable in variables:
            if (variable.formula or variable.text) and variable.long_name not in seen:
                seen.add(variable.long_name)
                yield variable


def methods_section(
    lenses: Sequence[Lens], reasons: Mapping[str, str | None], provenance: Mapping[str, object]
) -> Markup:
    """Formulas of the lenses on the page, references, the analyses, provenance."""
    used = [variable for lens in lenses for variable in methods(lens)]
    references = sorted({variable.reference for variable in used if variable.reference})
    origin = facts((name, str(value)) for name, value in provenance.items() if value)
    listed = element("ul", *(element("li", reference) for reference in references))
    return section(
        "methods",
        "Methods and provenance",
        element("div", *map(_method, used), class_="methods"),
        *([element("h3", "References"), listed] if references else []),
        element("h3", "Analyses"),
        analyses_table(reasons),
        element("div", element("h3", "Where these numbers come from"), origin, id_="provenance"),
    )


def _method(variable: Variable) -> Markup:
    title = f"{variable.long_name[0].upper()}{variable.long_name[1:]}"
    beside = {"Range": variable.range, "Null": variable.null}
    told = [f"{name}: {said.removesuffix('.')}." for name, said in beside.items() if said]
    words = " ".join(part for part in (variable.text, *told) if part)
    drawn = [formula(variable.formula)] if variable.formula else []
    return element("div", element("h3", title), *drawn, element("p", words))
