"""A report put together: chapters in reading order out of the parts that the lenses brought.

1. What the model is; what stands out; the chapters; methods, references and provenance; downloads.
2. Figures, tables and the side panel share one store, so that numbers which several of them show travel once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from headspan.checkpoint import Checkpoint, summary
from headspan.explorer.chapters import Chapter, chapters_of
from headspan.explorer.classes_of_heads import names_by_head, page_classes
from headspan.explorer.downloads import downloads_section
from headspan.explorer.extra_section import ExtraSection
from headspan.explorer.figure_block import figure_blocks, figure_id
from headspan.explorer.figure_data import figure_tables
from headspan.explorer.findings_section import finding_block, findings_section
from headspan.explorer.head_grid import HeadGrid
from headspan.explorer.html import Markup, element, section
from headspan.explorer.lens_figures import by_metric, lens_figures
from headspan.explorer.lens_part import LensPart
from headspan.explorer.linked import linked_page
from headspan.explorer.methods import methods_section
from headspan.explorer.model_section import model_section
from headspan.explorer.record import PageData, page_record
from headspan.explorer.store import Store
from headspan.finding import Finding
from headspan.heads import Heads
from headspan.lenses import LENSES
from headspan.lenses.affinity.head_classes import HeadClasses

Figures = Mapping[str, Mapping[str, go.Figure]]
"""By lens, then by name."""


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
    """Published or detected classes of heads; figures are coloured by the first."""


def document(
    checkpoint: Checkpoint,
    heads: Heads,
    parts: Sequence[LensPart],
    hindered: dict[str, str | None],
    extra: Sequence[ExtraSection] = (),
) -> str:
    """The report of a checkpoint as HTML.

    Parameters
    ----------
    checkpoint, heads
        The model.
    parts
        What each lens that was run brought.
    hindered
        For every lens, why it does not apply, or None.
    extra
        Sections that no lens makes.
    """
    about = summary(checkpoint)
    which = f" {heads.stack.name}" if len(about.stacks) > 1 else ""
    size = f"{heads.n_layers} layers of {heads.n_heads} heads, {about.n_parameters:,} parameters"
    results = {part.lens.name: part.result for part in parts if part.result is not None}
    front = Front(
        title=about.model,
        subtitle=f"{about.family}{which}: {size}",
        model=model_section(about, hindered),
        grid=HeadGrid.of(heads),
        provenance=heads.provenance(),
        classes=page_classes(heads, results),
    )
    return report_page(front, parts, hindered, extra)


def report_page(
    front: Front, parts: Sequence[LensPart], hindered: dict[str, str | None], extra: Sequence[ExtraSection] = ()
) -> str:
    """A report as HTML out of its front and its parts."""
    store, shown = Store(), front.classes[0] if front.classes else None
    results = {part.lens.name: part.result for part in parts if part.result is not None}
    figures = {name: lens_figures(name, result, shown) for name, result in results.items()}
    tables, behind = figure_tables(results, figures, front.grid.grouped)
    record = page_record(PageData(front.grid, results, names_by_head(front.classes), tables), store)
    chapters = chapters_of(part.lens.name for part in parts)
    found = [finding for each in extra for finding in each.findings]
    found += [finding for part in parts for finding in part.findings]
    titles = {"model": "Model", "findings": "What stands out", "methods": "Methods", "downloads": "Downloads"}
    titles |= {each.name: each.title for each in chapters} | {each.name: each.title for each in extra}
    sections = {
        "model": front.model,
        "findings": findings_section(found, lambda finding: _place(finding, figures, titles)),
        **{each.name: each.body(store) for each in extra},
        **{each.name: _chapter(each, parts, figures, shown, store, behind) for each in chapters},
        "methods": methods_section([part.lens.name for part in parts], hindered, front.provenance),
        "downloads": downloads_section(record, front.title),
    }
    contents = {name: titles[name] for name in sections}
    return linked_page(front.title, front.subtitle, contents, list(sections.values()), record, store)


def _place(finding: Finding, figures: Figures, titles: Mapping[str, str]) -> tuple[str, str]:
    """Where a finding is shown: its figure, or the section of its lens."""
    named = finding.figure or next(iter(figures.get(finding.lens, {})), "")
    if named not in figures.get(finding.lens, {}):
        known = {name: lens.title for name, lens in LENSES.items()} | dict(titles)
        return finding.lens, known.get(finding.lens, finding.lens)
    return figure_id(finding.lens, named), named


def _chapter(
    chapter: Chapter,
    parts: Sequence[LensPart],
    figures: Figures,
    classes: HeadClasses | None,
    store: Store,
    behind: Mapping[str, Mapping[str, str]],
) -> Markup:
    own = {part.lens.name: part for part in parts if part.lens.name in chapter.lenses}
    sections = [
        _lens_section(own[name], figures.get(name, {}), classes, store, behind.get(name, {})) for name in chapter.lenses
    ]
    return section(chapter.name, chapter.title, *sections)


def _lens_section(
    part: LensPart,
    figures: Mapping[str, go.Figure],
    classes: HeadClasses | None,
    store: Store,
    behind: Mapping[str, str],
) -> Markup:
    lens = part.lens
    about = element("p", f"{lens.summary[0].upper()}{lens.summary[1:]}.", class_="lead")
    if part.obstacle:
        children = [about, element("p", f"Does not apply: {part.obstacle}.")]
    else:
        alternatives = {} if part.result is None else by_metric(lens.name, part.result, figures, classes)
        blocks = figure_blocks(figures, store, lens.name, alternatives, behind)
        notes = [_classes_note(classes)] if classes is not None and lens.name == "affinity" else []
        children = [about, *map(finding_block, part.findings), *notes, *blocks]
    return element("section", element("h2", lens.title, class_="lens"), *children, id_=lens.name)


def _classes_note(classes: HeadClasses) -> Markup:
    published = (
        ""
        if classes.source.startswith("detected")
        else (" They were published for a model of this shape, and hold if it is this one.")
    )
    return element("p", f"Head classes: {classes.source}.{published}", class_="evidence")
