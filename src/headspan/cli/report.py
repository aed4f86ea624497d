"""`headspan report`: everything about a checkpoint on one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headspan.cli.arguments import ConfigFile, Force, Model, Stack
from headspan.cli.figure_files import Dark, FigureFormat, Figures, check_figures, write_all


def report(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path("report.html"),
    also: Annotated[
        list[str] | None, typer.Option("--also", help="A lens that takes minutes and is otherwise left out: validate.")
    ] = None,
    figures: Figures = None,
    figure_format: FigureFormat = "svg",
    dark: Dark = False,
    force: Force = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Compute everything anew, also what an interrupted run had finished.")
    ] = False,
    config: ConfigFile = None,
    stack: Stack = None,
) -> None:
    """Run every analysis that applies to a checkpoint and write one HTML page that opens offline."""
    from headspan.atomic import check_writable, refuse_existing
    from headspan.checkpoint import open_checkpoint
    from headspan.report.classes_of_heads import page_classes
    from headspan.report.kept_results import KeptResults
    from headspan.report.lens_figures import lens_figures
    from headspan.report.report import write_report

    check_writable(output)
    refuse_existing(output, force)
    check_figures(figures, figure_format)
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
    if figures is not None:
        classes = next(iter(page_classes(checkpoint.heads(stack=stack), results)), None)
        drawn = {
            (lens, name): one for lens in results for name, one in lens_figures(lens, results[lens], classes).items()
        }
        write_all(drawn, figures, figure_format, dark)
    typer.echo(f"Report written to {path.resolve()}")
