"""Reports of models that do not exist: results in, a page on the disk out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headspan.explorer.assembly import Front, LensPart, report_page
from headspan.explorer.payload import HeadGrid
from headspan.finding import Finding
from headspan.heads.classes import HeadClasses
from headspan.result import Result


def write_page(
    path: Path,
    title: str,
    grid: HeadGrid,
    results: Sequence[Result],
    findings: Sequence[Finding] = (),
    classes: Sequence[HeadClasses] = (),
) -> Path:
    """A report with these results; findings are those given, and stand with the first lens."""
    for place, result in enumerate(results):
        result.findings = list(findings) if place == 0 else []
    parts = [LensPart(result.lens, result) for result in results]
    front = Front(
        title=title,
        subtitle=f"{len(grid.layers)} layers of {grid.n_heads} heads",
        grid=grid,
        provenance={"model": title},
        classes=classes,
    )
    path.write_text(report_page(front, parts, dict.fromkeys(result.lens.name for result in results)), encoding="utf-8")
    return path
