"""`headspan families`: every kind of model that is described, and how it stores its attention."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from headspan.cli.arguments import AsJSON


def families(as_json: AsJSON = False) -> None:
    """List every supported model type with its layout, grouped heads, norm and position scheme."""
    from headspan.checkpoint.families.catalogue import catalogue

    rows = list(catalogue())
    if as_json:
        document = {"schema": "headspan.families/1", "families": [asdict(row) for row in rows]}
        typer.echo(json.dumps(document, indent=2))
        return
    from headspan.cli.tables import print_table

    columns = ("type", "stacks", "layout", "grouped", "norm", "positions", "besides")
    print_table(f"{len(rows)} families", columns, [tuple(asdict(row).values()) for row in rows])
