"""`headspan report`: everything about a checkpoint on one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli import options as shared
from headspan.cli.delivery import PART_FAILED, ImageFiles, image_files
from headspan.errors import one_line
from headspan.loading import uncollected

if TYPE_CHECKING:
    from headspan.heads import Heads
    from headspan.result import Result


def report(
    model: shared.Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path("report.html"),
    also: Annotated[
        list[str] | None, typer.Option("--also", help="A lens that takes minutes and is otherwise left out: validate.")
    ] = None,
    time_limit: shared.TimeLimit = None,
    figures: shared.Figures = None,
    figure_format: shared.FigureFormat = "svg",
    dark: shared.Dark = False,
    force: shared.Force = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Compute everything anew, also what an interrupted run had finished.")
    ] = False,
    config: shared.ConfigFile = None,
    stack: shared.Stack = None,
) -> None:
    """Run every analysis that applies to a checkpoint and write one interactive HTML report."""
    from headspan.atomic import check_writable, refuse_existing

    with uncollected():
        from headspan.explorer.reports import Settings, n_steps, reported_stacks, write_report
        from headspan.lenses.model import open_model
        from headspan.progress import Countdown

    check_writable(output)
    refuse_existing(output, force)
    images = image_files(figures, figure_format, dark)
    opened = open_model(model, config)
    results: list[Result] = []
    failed: dict[str, str] = {}
    settings = Settings(
        stack, also or (), time_limit, kept=True, fresh=fresh, watch=results.append, failed=failed.__setitem__
    )
    countdown = Countdown(n_steps(opened, settings))
    path = write_report(opened, output, settings, progress=lambda title: typer.echo(countdown.line(title), err=True))
    if images is not None:
        _draw(results, opened.heads(stack=reported_stacks(opened, settings)[0]), images)
    typer.echo(f"Report written to {path.resolve()}")
    for name, reason in failed.items():
        if reason:  # an error that nobody foresaw was warned of where it came up
            typer.echo(f"headspan: {name} failed: {one_line(reason)}", err=True)
    if failed:
        raise typer.Exit(PART_FAILED)


def _draw(results: list[Result], heads: Heads, images: ImageFiles) -> None:
    """The figures of all results as image files, colored by the classes that the page has."""
    from headspan.explorer.assembly import page_classes

    classes = next(iter(page_classes(heads, {result.lens.name: result for result in results})), None)
    named = None if classes is None else classes.of_head
    images.write({(one.lens.name, name): figure for one in results for name, figure in one.draw(named).items()})
