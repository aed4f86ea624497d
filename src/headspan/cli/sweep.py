"""`headspan sweep`: lenses over many checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli import options as shared
from headspan.cli.delivery import PART_FAILED, print_json

if TYPE_CHECKING:
    from headspan.sweeps import Summary


def sweep(
    spec: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC...",
            help="Checkpoints: a YAML list, a folder of them by step, 'repo@{step1,step2}', or several names.",
        ),
    ],
    store: Annotated[Path, typer.Option("-o", "--output", help="Folder of the results; the same command resumes it.")],
    lenses: Annotated[
        str | None,
        typer.Option(help="Names of lenses, separated by commas; all that read weights alone by default."),
    ] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a running Dask scheduler, tcp://host:port.")] = None,
    workers: Annotated[int | None, typer.Option(help="Local processes; one per core by default.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    time_limit: shared.TimeLimit = None,
    fold: shared.Fold = "none",
    stack: shared.Stack = None,
    as_json: shared.AsJSON = False,
) -> None:
    """Run lenses over many checkpoints; interrupted or not, the next call goes on where this one ended."""
    from headspan.sweeps import sweep as run_sweep

    summary = run_sweep(
        spec,
        store,
        lenses=lenses,
        scheduler=scheduler,
        workers=workers,
        fold=fold,
        stack=stack,
        time_limit=time_limit,
        progress=not quiet,
    )
    if as_json:
        print_json(summary.to_json())
    else:
        _print(summary)
    if summary.failures:
        raise typer.Exit(PART_FAILED)


def _print(summary: Summary) -> None:
    for model, reasons in summary.skipped.items():
        for lens, reason in reasons.items():
            typer.echo(f"Skipped {lens} of {model}: {reason}")
    for line in (*summary.identical, *summary.notes):
        typer.echo(line)
    for failure in summary.failures:
        typer.echo(f"{failure.state}: {failure.what}: {failure.reason}")
    typer.echo(
        f"{summary.done} results computed, {summary.reused} found finished, {len(summary.failures)} failed; "
        f"kept in {summary.store}"
    )
