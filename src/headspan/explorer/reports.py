"""A report: every lens that applies to a model, with its findings and figures, as one HTML file.

1. Each lens runs in turn, or its result is taken from an earlier run that was interrupted (`kept_results`). One that
   fails, or takes longer than it may, leaves its reason in its chapter; the others go on.
2. The page is put together out of the results (`assembly`) and written whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from headspan.atomic import check_writable, written_whole
from headspan.errors import ArgumentError, DegenerateSubspace, HeadspanError, MissingTensor, NotRun, UnsupportedModel
from headspan.explorer.assembly import ExtraSection, LensPart, StackParts, document, failed_part
from headspan.explorer.kept_results import KeptResults
from headspan.lenses.catalog import lens
from headspan.lenses.model import Model, open_model
from headspan.lenses.run import Opening, run
from headspan.progress import progress_bar
from headspan.result import Lens, Result


@dataclass(frozen=True)
class Settings:
    """What a report may leave out, keep and tell on the way."""

    stack: str | None = None
    """Which stack; all that there are by default."""
    also: Sequence[str] = ()
    """Names of lenses that a report leaves out unless they are asked for."""
    time_limit: float | None = None
    """Seconds that each lens may take."""
    kept: bool = False
    """Whether results are kept until the page is written; an interrupted run is then resumed by the next."""
    fresh: bool = False
    """Forget what an interrupted run had kept."""
    watch: Callable[[Result], None] | None = None
    """Called with each result."""
    failed: Callable[[str, str], None] | None = None
    """Called with the name of each lens that applied and failed, and why; "" where a warning said it already."""


def report(
    model: Any,
    path: str | Path = "report.html",
    *,
    stack: str | None = None,
    also: Sequence[str] = (),
    time_limit: float | None = None,
    progress: bool | None = None,
) -> Path:
    """Write one interactive HTML page with everything that the lenses say about a model.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned.
    path
        The file; it is written whole or not at all.
    stack
        Which stack, for a model with several; by default all of them, with a switch.
    also
        Lenses that take minutes and run only if they are named here.
    time_limit
        Seconds that each lens may take; one that takes longer is left out, with the reason.
    progress
        A bar while the lenses run; by default on a terminal and in a notebook.

    >>> import headspan, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "tiny.html"
    >>> headspan.report("synthetic:tiny", file).name
    'tiny.html'
    """
    opened = open_model(model)
    settings = Settings(stack, also, time_limit, kept=True)
    with progress_bar(n_steps(opened, settings), shown=progress is not False) as step:
        return write_report(opened, Path(path), settings, progress=step)


def n_steps(model: Model, settings: Settings) -> int:
    """How many lenses a report runs, over all its stacks."""
    reasons = [skip_reasons(model, settings, stack) for stack in reported_stacks(model, settings)]
    return sum(list(each.values()).count(None) for each in reasons)


def reported_stacks(model: Model, settings: Settings) -> list[str | None]:
    """The stack that was asked for, or all that the model has."""
    if settings.stack is not None or len(model.stacks) < 2 or model.has_chosen_heads:
        return [settings.stack]
    return list(model.stacks)


def write_report(
    model: Model,
    path: Path,
    settings: Settings | None = None,
    *,
    progress: Callable[[str], None] = lambda title: None,
    extra_sections: Sequence[ExtraSection] = (),
) -> Path:
    """Run every lens that applies and write the page to `path`, whole or not at all.

    Parameters
    ----------
    model, path, settings
        What is reported on, where to, and how.
    progress
        Called with the title of each lens before it runs.
    extra_sections
        Sections that no lens makes, such as the lab's; they stand before those of the lenses.
    """
    check_writable(path)
    settings = settings or Settings()
    stacks, kept = [], []
    for stack in reported_stacks(model, settings):
        own = KeptResults.of(model.heads(stack=stack)) if settings.kept else None
        stacks.append(_stack_parts(model, stack, settings, own, progress))
        kept += [] if own is None else [own]
    page = document(model, stacks, extra_sections)
    with written_whole(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    for own in kept:
        own.clear()
    return path


def _stack_parts(
    model: Model, stack: str | None, settings: Settings, kept: KeptResults | None, progress: Callable[[str], None]
) -> StackParts:
    """What the lenses bring for one stack."""
    if settings.fresh and kept is not None:
        kept.clear()
    reasons, parts = skip_reasons(model, settings, stack), []
    for each in (lens(name) for name, reason in reasons.items() if reason is None):
        progress(each.title if stack is None else f"{stack}: {each.title}")
        parts.append(_part(each, model, stack, settings, kept))
        if settings.watch is not None and parts[-1].result is not None:
            settings.watch(parts[-1].result)
    reasons |= {part.lens.name: part.problem for part in parts if part.problem}
    return StackParts(stack, parts, reasons)


def skip_reasons(model: Model, settings: Settings, stack: str | None = None) -> dict[str, str | None]:
    """For every lens that needs nothing but a model, None if it runs, else why it is left out."""
    asked = {name: lens(name) for name in settings.also}
    for each in asked.values():
        if _choices(each):
            raise ArgumentError(
                f"also={each.name!r}: a report cannot choose its {' and '.join(_choices(each))}; run it by itself"
            )
    found = {}
    for name, reason in model.skip_reasons(stack).items():
        each = lens(name)
        if not _choices(each):
            left_out = f"{each.on_request}; use --also {name}" if each.on_request and name not in asked else None
            found[name] = reason or left_out
    return found


def _choices(lens: Lens) -> list[str]:
    """What a lens's function must be told besides its subjects."""
    given = list(signature(lens.function).parameters.values())[lens.subjects :]
    return [one.name for one in given if one.default is Parameter.empty and one.kind is not Parameter.VAR_KEYWORD]


def _part(lens: Lens, model: Model, stack: str | None, settings: Settings, kept: KeptResults | None) -> LensPart:
    """A lens's result, or why it has none: one analysis that fails leaves the others alone."""
    opening: Opening = {"stack": stack, "time_limit": settings.time_limit}

    def compute() -> Result:
        return run(lens, [model], lens.report_options, opening, unasked=True)

    try:
        result = compute() if kept is None else kept.result(lens, compute)
    except (NotRun, DegenerateSubspace, MissingTensor, UnsupportedModel) as reason:
        return LensPart(lens, problem=str(reason))
    except HeadspanError as reason:
        _tell(settings, lens, str(reason))
        return LensPart(lens, problem=str(reason))
    except Exception as problem:  # noqa: BLE001 whatever a lens fails with, the other chapters are written
        _tell(settings, lens, "")
        return failed_part(lens, problem)
    return LensPart(lens, result)


def _tell(settings: Settings, lens: Lens, reason: str) -> None:
    if settings.failed is not None:
        settings.failed(lens.name, reason)
