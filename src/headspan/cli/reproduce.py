"""`headspan reproduce`: a paper's published numbers beside the computed ones."""

from __future__ import annotations

from typing import Annotated

import typer

from headspan.cli import options as shared

DISAGREES = 1


def reproduce(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="2601.10266, the projection-kernel paper.")],
    model: Annotated[str, typer.Option("--model", help="GPT-2 small: a checkpoint folder or file.")],
    config: shared.ConfigFile = None,
) -> None:
    """Print each published value beside the computed one; exit code 1 if one disagrees."""
    from headspan.checkpoint import open_checkpoint
    from headspan.cli.tables import print_table
    from headspan.ledger.reproduction import reproduction

    lines = reproduction(paper, open_checkpoint(model, config).heads())
    rows = [(line.statement, line.published, line.computed, "yes" if line.agrees else "NO") for line in lines]
    print_table(f"arXiv {paper}", ("what", "published", "computed", "agrees"), rows)
    if not all(line.agrees for line in lines):
        raise typer.Exit(DISAGREES)
