"""A report: every lens that applies to a checkpoint, with its findings and figures, as one HTML file.

1. Each lens is computed in turn, or its result taken from an earlier run that was interrupted (`kept_results.py`).
2. The page is put together out of the results (`assembly.py`) and written whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headspan.atomic import check_writable, written_whole
from headspan.checkpoint import Checkpoint
from headspan.errors import DegenerateSubspace, UnsupportedModel
from headspan.explorer.assembly import document
from headspan.explorer.extra_section import ExtraSection
from headspan.explorer.kept_results import KeptResults
from headspan.explorer.lens_part import LensPart
from headspan.explorer.subjects import NotRun, Subjects
from headspan.findings import findings_of
from headspan.lenses import LENSES, Lens, lens, obstacles

if TYPE_CHECKING:
    import xarray as xr


def write_report(
    checkpoint: Checkpoint,
    path: Path,
    progress: Callable[[str], None] = lambda lens: None,
    stack: str | None = None,
    also: Sequence[str] = (),
    kept: KeptResults | None = None,
    watch: Callable[[str, xr.Dataset | xr.DataTree], None] | None = None,
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
    kept
        Where results are kept until the page is written; an interrupted run is then taken up by the next.
    watch
        Called with the name of each lens and its result.
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
            parts.append(_part(each, subjects, kept))
            if watch is not None and parts[-1].result is not None:
                watch(each.name, parts[-1].result)
    hindered |= {part.lens.name: part.obstacle for part in parts if part.obstacle}
    page = document(checkpoint, heads, parts, hindered, extra_sections)
    with written_whole(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    if kept is not None:
        kept.clear()
    return path


def _part(lens: Lens, subjects: Subjects, kept: KeptResults | None) -> LensPart:
    """A lens's result and findings. Weights too small for a quantity are a fact about the model, not a failure."""
    try:
        result = _result(lens, subjects) if kept is None else kept.result(lens.name, lambda: _result(lens, subjects))
    except (DegenerateSubspace, NotRun, UnsupportedModel) as reason:
        return LensPart(lens, obstacle=str(reason))
    return LensPart(lens, findings_of(lens.name, result), result)


def _result(lens: Lens, subjects: Subjects) -> xr.Dataset | xr.DataTree:
    if lens.runs:
        return lens.compute(subjects.running)
    if not lens.without_running:
        return lens.compute(subjects.heads)
    try:
        return lens.compute(subjects.heads, running=subjects.running)
    except NotRun as reason:
        return lens.compute(subjects.heads, running=str(reason))
