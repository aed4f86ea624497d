"""`headspan evolution`: what changes along the steps that a sweep kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli import options as shared
from headspan.cli.delivery import print_all, print_json
from headspan.command import Rows, cell, p_text

if TYPE_CHECKING:
    import xarray as xr

    from headspan.finding import Finding

SHOWN = 12
LEVEL = 0.05
ENDINGS = (".html", ".nc", ".json")


def evolution(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of a sweep.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Also write it: .html a page, .nc all numbers, .json a summary."),
    ] = None,
    walks: Annotated[int, typer.Option(help="Random walks that change points are compared with.", min=19)] = 1999,
    force: shared.Force = False,
    as_json: shared.AsJSON = False,
) -> None:
    """When quantities change, which edges appear and how heads drift over the steps of a sweep."""
    from headspan.atomic import check_writable, refuse_existing
    from headspan.sweeps import evolution as course
    from headspan.sweeps.course.documents import document
    from headspan.sweeps.course.findings import findings

    if output is not None:
        check_writable(output, ENDINGS)
        refuse_existing(output, force)
    result = course(store, walks=walks)
    found = findings(result)
    if output is not None:
        _save(result, found, output)
    if as_json:
        print_json(document(result, found))
        return
    print_all(_blocks(result, found))
    if output is not None:
        typer.echo(f"Written to {output}")


def _save(result: xr.DataTree, found: Sequence[Finding], output: Path) -> None:
    from headspan.atomic import written_whole
    from headspan.storage import json_text, write_netcdf
    from headspan.sweeps.course.documents import document, write_page

    if output.suffix == ".html":
        write_page(result, found, output)
        return
    with written_whole(output) as temporary:
        if output.suffix == ".json":
            temporary.write_text(json_text(document(result, found)) + "\n", encoding="utf-8")
        else:
            write_netcdf(result, temporary)


def _blocks(result: xr.DataTree, found: Sequence[Finding]) -> Iterator[str | Rows]:
    """The clearest change points of every model, in order of time, and the findings."""
    for node in result.children.values():
        rows = _change_points(node["quantities"].to_dataset())
        if rows:
            columns = ["quantity", "step", "95 %", "before", "after", "p"]
            yield Rows(f"{node.attrs['model']}: clearest change points", columns, rows)
    yield from (f"- {finding.statement}" for finding in found)


def _change_points(table: xr.Dataset) -> list[list[str]]:
    clear = table.isel(quantity=(table["change_p"] <= LEVEL).values)
    clear = clear.isel(quantity=clear["change_p"].argsort(kind="stable").values[:SHOWN]).sortby("change")
    names = ("words", "change", "low", "high", "before", "after", "change_p")
    columns = [clear[name].values.tolist() for name in names]
    return [
        [
            str(words),
            f"{change:.0f}",
            f"{low:.0f} to {high:.0f}" if low == low else "-",
            cell(before),
            cell(after),
            p_text(p),
        ]
        for words, change, low, high, before, after, p in zip(*columns, strict=True)
    ]
