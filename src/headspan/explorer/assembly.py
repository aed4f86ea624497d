"""A report put together: chapters in reading order out of the parts that the lenses brought.

1. What the model is; what stands out; the chapters; methods, references and provenance; downloads.
2. Figures, tables and the side panel share one store, so that numbers which several of them show travel once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from headspan.checkpoint import summary
from headspan.explorer.figure_block import figure_blocks, figure_id
from headspan.explorer.findings_section import finding_block, findings_section
from headspan.explorer.html import Markup, element, section
from headspan.explorer.methods import methods_section
from headspan.explorer.model_section import model_section
from headspan.explorer.page import linked_page
from headspan.explorer.page_tables import downloads_section, figure_tables
from headspan.explorer.record import HeadGrid, PageData, page_record
from headspan.explorer.store import Store
from headspan.finding import Finding
from headspan.heads import Heads
from headspan.heads.classes import HeadClasses, published_classes
from headspan.lenses.model import Model
from headspan.result import Lens, Result

Figures = Mapping[str, Mapping[str, go.Figure]]
"""By lens, then by name."""


@dataclass(frozen=True)
class LensPart:
    """A lens and its result, out of which findings, figures and tables of the page are made."""

    lens: Lens
    result: Result | None = None
    problem: str = ""
    """Why there is no result; empty where there is."""


@dataclass(frozen=True)
class ExtraSection:
    """A section that a report gets from elsewhere than a lens."""

    name: str
    """What links point to, and the `lens` of its findings."""
    title: str
    body: Callable[[Store], Markup]
    """The whole section, figures included, their numbers put into the page's store."""
    findings: Sequence[Finding] = ()


@dataclass(frozen=True)
class Front:
    """What a report is about, before any lens speaks."""

    title: str
    subtitle: str
    model: Markup
    """The section that says what the model is."""
    grid: HeadGrid
    provenance: Mapping[str, object]
    classes: Sequence[HeadClasses] = ()
    """Published or detected classes of heads; figures are colored by the first."""


def document(
    model: Model,
    stack: str | None,
    parts: Sequence[LensPart],
    reasons: Mapping[str, str | None],
    extra: Sequence[ExtraSection] = (),
) -> str:
    """The report of a model as HTML.

    Parameters
    ----------
    model, stack
        What it is about.
    parts
        What each lens that was run brought.
    reasons
        For every lens, why it was skipped, or None.
    extra
        Sections that no lens makes.
    """
    about, heads = summary(model.checkpoint), model.heads(stack=stack)
    which = f" {heads.stack.name}" if len(about.stacks) > 1 else ""
    size = f"{heads.n_layers} layers of {heads.n_heads} heads, {about.n_parameters:,} parameters"
    front = Front(
        title=about.model,
        subtitle=f"{about.family}{which}: {size}",
        model=model_section(about, reasons),
        grid=HeadGrid.of(heads),
        provenance=heads.provenance(),
        classes=page_classes(heads, _results(parts)),
    )
    return report_page(front, parts, reasons, extra)


def page_classes(heads: Heads, results: Mapping[str, Result]) -> list[HeadClasses]:
    """Published classes first, then those that a lens detected; empty where there are neither."""
    found = [published_classes(heads)]
    for result in results.values():
        part = result.lens.part("classes")
        if part is not None:
            try:
                own = part.detected_classes(result)
            except Exception:  # noqa: BLE001 without classes, figures are drawn in one color
                continue
            found.append(
                HeadClasses({name.replace("_", " "): heads for name, heads in own.classes.items()}, own.source)
            )
    return [each for each in found if each is not None]


def _results(parts: Sequence[LensPart]) -> dict[str, Result]:
    return {part.lens.name: part.result for part in parts if part.result is not None}


def report_page(
    front: Front, parts: Sequence[LensPart], reasons: Mapping[str, str | None], extra: Sequence[ExtraSection] = ()
) -> str:
    """A report as HTML out of its front and its parts."""
    store, shown = Store(), front.classes[0] if front.classes else None
    parts, figures = _drawn(parts, None if shown is None else shown.of_head)
    results = _results(parts)
    tables, behind = figure_tables(results, figures)
    record = page_record(PageData(front.grid, results, names_by_head(front.classes), tables), store)
    chapters = _chapters(parts)
    found = [finding for each in extra for finding in each.findings]
    found += [finding for result in results.values() for finding in result.findings]
    titles = {"model": "Model", "findings": "What stands out", "methods": "Methods", "downloads": "Downloads"}
    titles |= {_identifier(title): title for title in chapters} | {each.name: each.title for each in extra}
    sections = {
        "model": front.model,
        "findings": findings_section(found, lambda finding: _place(finding, figures, parts)),
        **{each.name: each.body(store) for each in extra},
        **{
            _identifier(title): section(
                _identifier(title), title, *(_lens_section(part, figures, shown, store, behind) for part in own)
            )
            for title, own in chapters.items()
        },
        "methods": methods_section([part.lens for part in parts], reasons, front.provenance),
        "downloads": downloads_section(record, front.title),
    }
    contents = {name: titles[name] for name in sections}
    return linked_page(front.title, front.subtitle, contents, list(sections.values()), record, store)


def failed_part(lens: Lens, problem: Exception) -> LensPart:
    """The part of a lens that failed with an error nobody foresaw: its chapter says so, and a warning does."""
    told = f"{type(problem).__name__}: {problem}"
    warnings.warn(f"{lens.name} failed: {told}", stacklevel=2)
    return LensPart(lens, problem=f"failed with an internal error ({told})")


def _drawn(parts: Sequence[LensPart], classes: Mapping[str, str] | None) -> tuple[list[LensPart], Figures]:
    """The parts and their figures; one whose findings or figures cannot be made says so and leaves the others alone."""
    kept, figures = [], {}
    for part in parts:
        if part.result is not None:
            try:
                part.result.findings  # noqa: B018 made here to see whether they can be
                figures[part.lens.name] = part.result.draw(classes)
            except Exception as problem:  # noqa: BLE001 whatever a lens fails with, the other chapters are written
                part = failed_part(part.lens, problem)
        kept.append(part)
    return kept, figures


def names_by_head(sources: Sequence[HeadClasses]) -> dict[str, list[str]]:
    """Head label -> all its classes."""
    found: dict[str, list[str]] = {}
    for source in sources:
        for name, labels in source.classes.items():
            for label in labels:
                found.setdefault(label, []).append(name)
    return found


def _chapters(parts: Sequence[LensPart]) -> dict[str, list[LensPart]]:
    """Parts by the chapter that their lens names, in the order of the lenses."""
    found: dict[str, list[LensPart]] = {}
    for part in parts:
        found.setdefault(part.lens.chapter, []).append(part)
    return found


def _identifier(title: str) -> str:
    return f"chapter-{title.lower().replace(' ', '-')}"


def _place(finding: Finding, figures: Figures, parts: Sequence[LensPart]) -> tuple[str, str]:
    """Where a finding is shown: its figure, or the section of its lens."""
    named = finding.figure or next(iter(figures.get(finding.lens, {})), "")
    if named not in figures.get(finding.lens, {}):
        titles = {part.lens.name: part.lens.title for part in parts}
        return finding.lens, titles.get(finding.lens, finding.lens)
    return figure_id(finding.lens, named), named


def _lens_section(
    part: LensPart,
    figures: Figures,
    classes: HeadClasses | None,
    store: Store,
    behind: Mapping[str, Mapping[str, str]],
) -> Markup:
    lens, result = part.lens, part.result
    children = [element("p", f"{lens.summary[0].upper()}{lens.summary[1:]}.", class_="lead")]
    if result is None:
        children.append(element("p", f"Not computed: {part.problem}."))
    else:
        drawn = figures[lens.name]
        blocks = figure_blocks(
            drawn, store, lens.name, _alternatives(result, drawn, classes), behind.get(lens.name, {})
        )
        colored = [_classes_note(classes)] if classes is not None and _is_wiring(result) else []
        children += [*map(finding_block, result.findings), *colored, *blocks]
    return element("section", element("h2", lens.title, class_="lens"), *children, id_=lens.name)


def _is_wiring(result: Result) -> bool:
    return bool(result.tables) and result.tables[0] == "pairs"


def _alternatives(
    result: Result, drawn: Mapping[str, go.Figure], classes: HeadClasses | None
) -> dict[str, dict[str, go.Figure]]:
    """Of figures that show one score, the same for each score that there is, where the lens offers that."""
    make = getattr(result.lens.part("figures"), "alternatives", None)
    if make is None:
        return {}
    found: dict[str, dict[str, go.Figure]] = make(result, None if classes is None else classes.of_head)
    return {name: each for name, each in found.items() if name in drawn}


def _classes_note(classes: HeadClasses) -> Markup:
    published = (
        ""
        if classes.source.startswith("detected")
        else " They were published for a model of this shape, and hold if it is this one."
    )
    return element("p", f"Head classes: {classes.source}.{published}", class_="evidence")
