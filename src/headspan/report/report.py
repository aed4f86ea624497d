"""A report: every lens that applies to a checkpoint, with its findings and figures, as one HTML file.

1. Each lens is computed in turn; of its result only findings and figures are kept.
2. The page says what stands out over all lenses, what the model is, then one section per lens, then provenance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headspan.atomic import check_writable, written_whole
from headspan.checkpoint import Checkpoint, summary
from headspan.errors import DegenerateSubspace, UnsupportedModel
from headspan.finding import Finding
from headspan.findings import findings_of
from headspan.heads import Heads
from headspan.lenses import LENSES, Lens, lens, obstacles
from headspan.report.extra_section import ExtraSection
from headspan.report.figure_block import drawing_scripts
from headspan.report.findings_section import finding_block, findings_section
from headspan.report.html import Markup, element, facts, section
from headspan.report.lens_figures import lens_figures
from headspan.report.model_section import model_section
from headspan.report.page import page
from headspan.report.subjects import NotRun, Subjects

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class LensPart:
    """What one lens contributes to the page."""

    lens: Lens
    findings: Sequence[Finding] = ()
    figures: Sequence[Markup] = ()
    obstacle: str = ""
    """Why the lens found nothing to compute; empty where it did."""


def write_report(
    checkpoint: Checkpoint,
    path: Path,
    progress: Callable[[str], None] = lambda lens: None,
    stack: str | None = None,
    also: Sequence[str] = (),
    extra_sections: Sequence[ExtraSection] = (),
) -> Path:
    """Run every lens that applies and write the page to `path`, whole or not at all.

    Parameters
    ----------
    checkpoint
        An opened checkpoint.
    path
        The HTML file to write.
    progress
        Called with the title of each lens before it runs.
    stack
        Which stack, for a model with several.
    also
        Names of lenses that a report leaves out unless they are asked for.
    extra_sections
        Sections that no lens makes, such as the lab's; they stand before those of the lenses.
    """
    check_writable(path)
    hindered, heads, parts = obstacles(checkpoint, stack), checkpoint.heads(stack=stack), []
    asked = {lens(name).name for name in also}
    subjects = Subjects(heads)
    for each in LENSES.values():
        if hindered[each.name] is None and each.on_request and each.name not in asked:
            hindered[each.name] = f"it takes minutes and was not asked for; use --also {each.name}"
        if hindered[each.name] is None:
            progress(each.title)
            parts.append(_part(each, subjects))
    hindered |= {part.lens.name: part.obstacle for part in parts if part.obstacle}
    document = _document(checkpoint, heads, parts, hindered, extra_sections)
    with written_whole(path) as temporary:
        temporary.write_text(document, encoding="utf-8")
    return path


def _part(lens: Lens, subjects: Subjects) -> LensPart:
    """A lens's findings and figures. Weights too small for a quantity are a fact about the model, not a failure."""
    try:
        result = _result(lens, subjects)
    except (DegenerateSubspace, NotRun, UnsupportedModel) as reason:
        return LensPart(lens, obstacle=str(reason))
    return LensPart(lens, findings_of(lens.name, result), lens_figures(lens, result, subjects.heads))


def _result(lens: Lens, subjects: Subjects) -> xr.Dataset | xr.DataTree:
    if lens.runs:
        return lens.compute(subjects.running)
    if not lens.without_running:
        return lens.compute(subjects.heads)
    try:
        return lens.compute(subjects.heads, running=subjects.running)
    except NotRun as reason:
        return lens.compute(subjects.heads, running=str(reason))


def _document(
    checkpoint: Checkpoint,
    heads: Heads,
    parts: Sequence[LensPart],
    hindered: dict[str, str | None],
    extra: Sequence[ExtraSection] = (),
) -> str:
    about = summary(checkpoint)
    provenance = facts((name, str(value)) for name, value in heads.provenance().items() if value)
    sections = {
        "findings": findings_section([*_findings(extra), *_findings(parts)]),
        "model": model_section(about, hindered),
        **{one.name: one.body for one in extra},
        **{part.lens.name: _lens_section(part) for part in parts},
        "provenance": section("provenance", "Where these numbers come from", provenance),
    }
    titles = {"findings": "What stands out", "model": "Model", "provenance": "Provenance"}
    titles |= {one.name: one.title for one in extra}
    contents = {name: titles[name] if name in titles else LENSES[name].title for name in sections}
    which = f" {heads.stack.name}" if len(about.stacks) > 1 else ""
    subtitle = (
        f"{about.family}{which}: {heads.n_layers} layers of {heads.n_heads} heads, {about.n_parameters:,} parameters"
    )
    scripts = drawing_scripts() if extra or any(part.figures for part in parts) else ()
    return page(about.model, subtitle, contents, list(sections.values()), scripts)


def _findings(parts: Sequence[LensPart] | Sequence[ExtraSection]) -> list[Finding]:
    return [finding for part in parts for finding in part.findings]


def _lens_section(part: LensPart) -> Markup:
    lens = part.lens
    about = element("p", f"{lens.summary[0].upper()}{lens.summary[1:]}.")
    if part.obstacle:
        return section(lens.name, lens.title, about, element("p", f"Does not apply: {part.obstacle}."))
    return section(lens.name, lens.title, about, *map(finding_block, part.findings), *part.figures)
