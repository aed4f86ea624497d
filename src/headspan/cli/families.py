"""`headspan families`: every kind of model that is described, and how it stores its attention."""

from __future__ import annotations

from dataclasses import asdict

from headspan.cli import options as shared
from headspan.cli.delivery import print_json


def families(as_json: shared.AsJSON = False) -> None:
    """List every supported model type with its layout, grouped heads, norm and position scheme."""
    from headspan.checkpoint.families import catalog

    rows = list(catalog())
    if as_json:
        document = {"schema": "headspan.families/1", "families": [asdict(row) for row in rows]}
        print_json(document)
        return
    from headspan.cli.tables import print_table

    columns = ("type", "stacks", "layout", "grouped", "norm", "positions", "besides")
    print_table(f"{len(rows)} families", columns, [tuple(asdict(row).values()) for row in rows])
