"""`headspan report`: everything about a checkpoint on one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headspan.cli.arguments import ConfigFile, Model, Stack


def report(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path("report.html"),
    also: Annotated[
        list[str] | None, typer.Option("--also", help="A lens that takes minutes and is otherwise left out: validate.")
    ] = None,
    config: ConfigFile = None,
    stack: Stack = None,
) -> None:
    """Run every analysis that applies to a checkpoint and write one HTML page that opens offline."""
    from headspan.checkpoint import open_checkpoint
    from headspan.report.report import write_report

    checkpoint = open_checkpoint(model, config)
    path = write_report(
        checkpoint,
        output,
        progress=lambda title: typer.echo(f"{title} ...", err=True),
        stack=stack,
        also=also or (),
    )
    typer.echo(f"Report written to {path.resolve()}")
