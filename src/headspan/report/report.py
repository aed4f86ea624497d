"""A report: every lens that applies to a checkpoint, with its findings, as one HTML file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headspan.atomic import written_whole
from headspan.checkpoint import Checkpoint, summary
from headspan.finding import Finding
from headspan.findings import findings_of
from headspan.heads import Heads
from headspan.lenses import LENSES, Lens, obstacles
from headspan.report.html import Markup, element, facts, section
from headspan.report.model_section import model_section
from headspan.report.page import page


def write_report(checkpoint: Checkpoint, path: Path, progress: Callable[[str], None] = lambda lens: None) -> Path:
    """Run every lens that applies and write the page to `path`, whole or not at all.

    Parameters
    ----------
    checkpoint
        An opened checkpoint.
    path
        The HTML file to write.
    progress
        Called with the title of each lens before it runs.
    """
    about, hindered = summary(checkpoint), obstacles(checkpoint)
    heads = checkpoint.heads()
    sections = [model_section(about, hindered)]
    for lens in LENSES.values():
        if hindered[lens.name] is None:
            progress(lens.title)
            sections.append(_lens_section(lens, heads))
    sections.append(
        section(
            "provenance",
            "Where these numbers come from",
            facts((name, value) for name, value in heads.provenance().items() if value),
        )
    )
    stack = about.stacks[0]
    subtitle = f"{about.family}: {stack.n_layers} layers of {stack.n_heads} heads, {about.n_parameters:,} parameters"
    document = page(about.model, subtitle, sections)
    with written_whole(path) as temporary:
        temporary.write_text(document, encoding="utf-8")
    return path


def _lens_section(lens: Lens, heads: Heads) -> Markup:
    result = lens.compute(heads)
    found = [_finding(finding) for finding in findings_of(lens.name, result)]
    return section(lens.name, lens.title, element("p", f"{lens.summary[0].upper()}{lens.summary[1:]}."), *found)


def _finding(finding: Finding) -> Markup:
    chance = "" if finding.chance is None else f"Value {finding.value:g}; by chance {finding.chance:g}. "
    evidence = f"{chance}{finding.evidence}"
    return element("div", element("p", finding.statement), element("p", evidence, class_="evidence"), class_="finding")
