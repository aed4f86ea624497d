"""`headspan report`: everything about a checkpoint on one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headspan.cli import arguments as shared
from headspan.cli.figure_files import ImageFiles, image_files

if TYPE_CHECKING:
    from headspan.heads import Heads


def report(
    model: shared.Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path("report.html"),
    also: Annotated[
        list[str] | None, typer.Option("--also", help="A lens that takes minutes and is otherwise left out: validate.")
    ] = None,
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
    """Run every analysis that applies to a checkpoint and write one HTML page that opens offline."""
    from headspan.atomic import check_writable, refuse_existing
    from headspan.checkpoint import open_checkpoint
    from headspan.explorer.kept_results import KeptResults
    from headspan.explorer.report import write_report

    check_writable(output)
    refuse_existing(output, force)
    images = image_files(figures, figure_format, dark)
    checkpoint = open_checkpoint(model, config)
    kept = KeptResults.of(checkpoint.heads(stack=stack))
    if fresh:
        kept.clear()
    results: dict[str, Any] = {}
    path = write_report(
        checkpoint,
        output,
        progress=lambda title: typer.echo(f"{title} ...", err=True),
        stack=stack,
        also=also or (),
        kept=kept,
        watch=results.__setitem__,
    )
    if images is not None:
        _draw(results, checkpoint.heads(stack=stack), images)
    typer.echo(f"Report written to {path.resolve()}")


def _draw(results: dict[str, Any], heads: Heads, images: ImageFiles) -> None:
    """The figures of all results as image files, coloured by the classes that the page has."""
    from headspan.explorer.classes_of_heads import page_classes
    from headspan.explorer.lens_figures import lens_figures

    classes = next(iter(page_classes(heads, results)), None)
    images.write(
        {(lens, name): one for lens in results for name, one in lens_figures(lens, results[lens], classes).items()}
    )
