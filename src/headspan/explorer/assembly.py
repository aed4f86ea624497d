"""A report put together: the top of the page, the component's payload, and chapters out of what the lenses brought.

1. Name and facts; a few significant findings; what was skipped, in one line. Below them the component shows the wiring
   and the card of the most interesting head.
2. A chapter is a summary and one figure; its other findings and figures unfold. A finding is told once: at the top, or
   in its chapter. The last chapters are methods and provenance, and downloads.
3. A model with several stacks has all of this once for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from headspan.checkpoint import summary
from headspan.explorer.chapters import Chapter, chapter_section
from headspan.explorer.figure_block import figure_id
from headspan.explorer.findings_section import findings_list, significant_findings, skipped_line, top_findings
from headspan.explorer.html import Markup
from headspan.explorer.methods import methods_section
from headspan.explorer.model_name import model_name
from headspan.explorer.model_section import facts_block, facts_line
from headspan.explorer.page import Entry, View, linked_page
from headspan.explorer.page_tables import downloads_section, figure_tables, pairs_command, pairs_result
from headspan.explorer.payload import HeadGrid, PageData, payload
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
class StackParts:
    """What the lenses brought for one stack."""

    stack: str | None
    parts: Sequence[LensPart]
    reasons: Mapping[str, str | None]
    """For every lens, why it was skipped, or None."""


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
    grid: HeadGrid
    provenance: Mapping[str, object]
    classes: Sequence[HeadClasses] = ()
    """Published or detected classes of heads; figures are colored by the first."""
    about: Sequence[Markup] = ()
    """All facts of the model, for the methods."""
    source: str = ""
    """What the model was opened by, for commands; the title by default."""


def document(model: Model, stacks: Sequence[StackParts], extra: Sequence[ExtraSection] = ()) -> str:
    """The report of a model as HTML.

    Parameters
    ----------
    model
        What it is about.
    stacks
        What each lens that was run brought, for the stack that was asked for or for all.
    extra
        Sections that no lens makes; they stand before the chapters of the first stack.
    """
    about, name = summary(model.checkpoint), model_name(model)
    only = model.heads(stack=stacks[0].stack).stack.name if len(stacks) == 1 else None
    line, views = facts_line(about, only), []
    for place, one in enumerate(stacks):
        heads = model.heads(stack=one.stack)
        front = Front(
            title=name,
            subtitle=line,
            grid=HeadGrid.of(heads),
            provenance=heads.provenance(),
            classes=page_classes(heads, _results(one.parts)),
            about=[facts_block(about)],
            source=model.source,
        )
        stack = "" if only else heads.stack.name
        views.append(report_view(front, one.parts, one.reasons, extra if place == 0 else (), stack))
    return linked_page(name, line, views)


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
    """A report of one stack as HTML out of its front and its parts."""
    return linked_page(front.title, front.subtitle, [report_view(front, parts, reasons, extra)])


def report_view(
    front: Front,
    parts: Sequence[LensPart],
    reasons: Mapping[str, str | None],
    extra: Sequence[ExtraSection] = (),
    stack: str = "",
) -> View:
    """One stack's part of a page."""
    shown, start = front.classes[0] if front.classes else None, f"{stack}-" if stack else ""
    parts, figures = _drawn(parts, None if shown is None else shown.of_head)
    results = _results(parts)
    store = Store()
    later = Store(store)
    tables, behind = figure_tables(results, figures)
    data = PageData(front.grid, results, names_by_head(front.classes), tables, front.title)
    record = payload(data, store, later)
    found = [finding for each in extra for finding in each.findings]
    found += [finding for result in results.values() for finding in result.findings]
    top = top_findings(found)
    chapters = _chapters(parts, figures, top, shown, start, significant_findings(found))
    pairs = record["pairs"]
    command = "" if pairs is None or pairs["whole"] else pairs_command(pairs["lens"], front.source or front.title)
    skipped = skipped_line(reasons, f"{start}methods")
    return View(
        payload=record,
        opening=[
            findings_list(top, lambda finding: _place(finding, figures, parts, start)),
            *([] if skipped is None else [skipped]),
        ],
        sections=[
            *(each.body(later) for each in extra),
            *(chapter_section(chapter, later, behind) for chapter in chapters),
            methods_section([each.lens for each in parts], reasons, front.provenance, front.about, f"{start}methods"),
            downloads_section(record["tables"], command, f"{start}downloads"),
        ],
        contents=[
            *([Entry(f"{start}diagram", "Wiring diagram")] if pairs else []),
            *(Entry(each.name, each.title) for each in extra),
            *(chapter.entry() for chapter in chapters),
            Entry(f"{start}methods", "Methods and provenance"),
            Entry(f"{start}downloads", "Downloads"),
        ],
        store=store,
        figures=later,
        stack=stack,
    )


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
                # The component draws the wiring itself.
                drawn = part.result.draw(classes)
                figures[part.lens.name] = {name: one for name, one in drawn.items() if not _is_wiring(one)}
            except Exception as problem:  # noqa: BLE001 whatever a lens fails with, the other chapters are written
                part = failed_part(part.lens, problem)
        kept.append(part)
    return kept, figures


def _is_wiring(figure: go.Figure) -> bool:
    return isinstance(figure.layout.meta, dict) and "wiring" in figure.layout.meta


def _has_wiring(part: LensPart) -> bool:
    return part.result is not None and pairs_result({part.lens.name: part.result}) is not None


def names_by_head(sources: Sequence[HeadClasses]) -> dict[str, list[str]]:
    """Head label -> all its classes."""
    found: dict[str, list[str]] = {}
    for source in sources:
        for name, labels in source.classes.items():
            for label in labels:
                found.setdefault(label, []).append(name)
    return found


def _chapters(
    parts: Sequence[LensPart],
    figures: Figures,
    told: Sequence[Finding],
    classes: HeadClasses | None,
    start: str,
    significant: Sequence[Finding],
) -> list[Chapter]:
    """Parts by the chapter that their lens names, in the order of the lenses."""
    by_title: dict[str, list[LensPart]] = {}
    for part in parts:
        by_title.setdefault(part.lens.chapter, []).append(part)
    return [Chapter(title, own, figures, told, classes, start, significant) for title, own in by_title.items()]


def _place(finding: Finding, figures: Figures, parts: Sequence[LensPart], start: str) -> tuple[str, str]:
    """Where a finding is shown: its figure, or the section of its lens."""
    drawn = figures.get(finding.lens, {})
    if not finding.figure and any(part.lens.name == finding.lens and _has_wiring(part) for part in parts):
        return f"{start}diagram", "Wiring diagram"
    named = finding.figure or next(iter(drawn), "")
    if named not in drawn:
        titles = {part.lens.name: part.lens.title for part in parts}
        return f"{start}{finding.lens}", titles.get(finding.lens, finding.lens)
    return figure_id(f"{start}{finding.lens}", named), named
