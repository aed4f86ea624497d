"""Reports of models that do not exist: results in, a page on the disk out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import xarray as xr
from headspan.explorer.head_grid import HeadGrid
from headspan.explorer.lens_part import LensPart
from headspan.lenses.affinity.head_classes import HeadClasses

from headspan.explorer.assembly import Front, report_page
from headspan.explorer.html import element, section
from headspan.finding import Finding
from headspan.lenses import LENSES


def write_page(
    path: Path,
    title: str,
    grid: HeadGrid,
    results: Mapping[str, xr.Dataset | xr.DataTree],
    findings: Sequence[Finding] = (),
    classes: Sequence[HeadClasses] = (),
) -> Path:
    """A report with these results; findings stand with the first lens."""
    parts = [
        LensPart(LENSES[name], findings if place == 0 else (), result)
        for place, (name, result) in enumerate(results.items())
    ]
    front = Front(
        title=title,
        subtitle=f"{len(grid.layers)} layers of {grid.n_heads} heads",
        model=section("model", "What this model is", element("p", title)),
        grid=grid,
        provenance={"model": title},
        classes=classes,
    )
    path.write_text(report_page(front, parts, dict.fromkeys(results)), encoding="utf-8")
    return path
