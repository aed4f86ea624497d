"""A chapter of a report: a summary and one figure, everything else unfolds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headspan.explorer.figure_block import figure_blocks, figure_id
from headspan.explorer.findings_section import finding_block
from headspan.explorer.html import Markup, element, folded
from headspan.explorer.page import Entry
from headspan.explorer.store import Store
from headspan.finding import Finding
from headspan.heads.classes import HeadClasses
from headspan.lenses.overview import card_maps
from headspan.result import Lens, Result

if TYPE_CHECKING:
    from headspan.explorer.assembly import LensPart


@dataclass(frozen=True)
class Chapter:
    """What a chapter is made of."""

    title: str
    parts: Sequence[LensPart]
    figures: Mapping[str, Mapping[str, go.Figure]]
    told: Sequence[Finding]
    """Findings that stand at the top of the page and are not told again."""
    classes: HeadClasses | None
    start: str
    """What identifiers begin with."""
    significant: Sequence[Finding] = ()
    """Findings of the page that are significant; the first one of a lens that is not at the top leads its part."""

    @property
    def identifier(self) -> str:
        return f"{self.start}chapter-{self.title.lower().replace(' ', '-')}"

    def entry(self) -> Entry:
        """Its line of the contents, with its lenses and their figures below."""
        return Entry(
            self.identifier,
            self.title,
            [
                Entry(
                    f"{self.start}{part.lens.name}",
                    part.lens.title,
                    [Entry(figure_id(f"{self.start}{part.lens.name}", name), name) for name in self.drawn(part)],
                )
                for part in self.parts
            ],
        )

    def drawn(self, part: LensPart) -> Mapping[str, go.Figure]:
        """The figures of one lens."""
        return self.figures.get(part.lens.name, {}) if part.result is not None else {}


def chapter_section(chapter: Chapter, store: Store, behind: Mapping[str, Mapping[str, str]]) -> Markup:
    """The chapter as a section: the first figure of its lenses, then one fold for each lens.

    Where that lens has maps of heads, they are what is shown, and all its figures unfold.
    """
    shown = next((part.lens.name for part in chapter.parts if chapter.drawn(part)), None)
    mapped = {part.lens.name for part in chapter.parts if part.result is not None and _has_maps(part.result)}
    blocks = []
    for part in chapter.parts:
        figures = _lens_figures(chapter, part, store, behind)
        first, rest = (figures[:1], figures[1:]) if part.lens.name == shown not in mapped else ([], figures)
        blocks.append(_lens_block(chapter, part, first, rest))
    return element("section", element("h2", chapter.title), *blocks, id_=chapter.identifier, class_="chapter")


def _lens_block(chapter: Chapter, part: LensPart, first: Sequence[Markup], rest: Sequence[Markup]) -> Markup:
    lens, result = part.lens, part.result
    summary = element("p", f"{lens.summary[0].upper()}{lens.summary[1:]}.", class_="lead")
    children: list[Markup] = [element("h3", lens.title, class_="lens"), summary]
    if result is None:
        children.append(element("p", f"Not computed: {part.problem}."))
        return element("section", *children, id_=f"{chapter.start}{lens.name}", class_="lens")
    found = [finding for finding in result.findings if not _among(finding, chapter.told)]
    leading = max((one for one in found if _among(one, chapter.significant)), key=lambda one: one.weight, default=None)
    if leading is not None:
        found.remove(leading)
        children.append(finding_block(leading))
    if _has_maps(result):
        children.append(element("div", data_maps=lens.name))
    children += first
    notes = [_classes_note(chapter.classes)] if chapter.classes is not None and _scores_pairs(result) else []
    notes += [_options_note(lens)] if lens.report_options else []
    inside = [*map(finding_block, found), *notes, *rest]
    if inside:
        counts = [(len(found), leading is not None, "finding"), (len(rest), bool(first), "figure")]
        children.append(folded(_fold_title(counts), *inside, class_="more"))
    return element("section", *children, id_=f"{chapter.start}{lens.name}", class_="lens")


def _among(finding: Finding, others: Sequence[Finding]) -> bool:
    return any(finding is one for one in others)


def _has_maps(result: Result) -> bool:
    return any(True for _ in card_maps({result.lens.name: result}))


def _fold_title(counts: Sequence[tuple[int, bool, str]]) -> str:
    """What unfolds: how many of each kind, and whether one of the kind is shown already."""
    told = [
        f"{count} {'more ' if shown else ''}{name}{'s' if count > 1 else ''}" for count, shown, name in counts if count
    ]
    return f"Show {' and '.join(told)}" if told else "Show notes"


def _lens_figures(
    chapter: Chapter, part: LensPart, store: Store, behind: Mapping[str, Mapping[str, str]]
) -> list[Markup]:
    if part.result is None:
        return []
    drawn, name = chapter.drawn(part), part.lens.name
    others = _alternatives(part.result, drawn, chapter.classes)
    return figure_blocks(drawn, store, f"{chapter.start}{name}", others, behind.get(name, {}))


def _scores_pairs(result: Result) -> bool:
    return bool(result.tables) and result.tables[0] == "pairs"


def _alternatives(
    result: Result, drawn: Mapping[str, go.Figure], classes: HeadClasses | None
) -> dict[str, dict[str, go.Figure]]:
    """Of figures that show one score, the same for each score that there is, where the lens offers that."""
    make = getattr(result.lens.part("figures"), "alternatives", None)
    if make is None:
        return {}
    found: dict[str, dict[str, go.Figure]] = make(result, None if classes is None else classes.of_head, tuple(drawn))
    return found


def _options_note(lens: Lens) -> Markup:
    given = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in lens.report_options.items())
    command = element("code", f"headspan {lens.name} {given}")
    return element("p", "This page shows ", command, ", which takes less time than the defaults.", class_="evidence")


def _classes_note(classes: HeadClasses) -> Markup:
    published = (
        ""
        if classes.source.startswith("detected")
        else " They were published for a model of this shape, and hold if it is this one."
    )
    return element("p", f"Head classes: {classes.source}.{published}", class_="evidence")
