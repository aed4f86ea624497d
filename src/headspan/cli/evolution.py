"""`headspan evolution`: what changes along the steps that a sweep kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli import options as shared
from headspan.cli.delivery import Delivery

if TYPE_CHECKING:
    import xarray as xr

    from headspan.finding import Finding

SHOWN = 12
ENDINGS = (".html", ".nc", ".json")


def evolution(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of a sweep.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Also write it: .html a page, .nc all numbers, .json a summary."),
    ] = None,
    walks: Annotated[int, typer.Option(help="Random walks that change points are held against.", min=19)] = 199,
    as_json: shared.AsJSON = False,
) -> None:
    """Say when quantities change, which edges appear and how heads drift over the steps of a sweep."""
    from headspan.atomic import check_writable
    from headspan.findings import findings_of
    from headspan.sweeps.evolution import as_json as document
    from headspan.sweeps.evolution import evolution as course

    if output is not None:
        check_writable(output, ENDINGS)
    result = course(store, walks)
    found = findings_of("evolution", result)
    if output is not None:
        _save(result, found, output)
    to = Delivery("evolution", output, as_json=as_json)
    to.tell(lambda: document(result, found), lambda: _print(result, found))


def _save(result: xr.DataTree, found: Sequence[Finding], output: Path) -> None:
    from headspan.atomic import written_whole
    from headspan.lenses.saving import write_json
    from headspan.sweeps.evolution import as_json as document
    from headspan.sweeps.evolution.page import write_page

    if output.suffix == ".html":
        write_page(result, found, output)
        return
    with written_whole(output) as temporary:
        if output.suffix == ".json":
            write_json(document(result, found), temporary)
        else:
            result.to_netcdf(temporary, engine="h5netcdf")


def _print(result: xr.DataTree, found: Sequence[Finding]) -> None:
    """The clearest change points of every model, in order of time, and the findings."""
    from headspan.cli.tables import print_table

    for node in result.children.values():
        rows = _change_points(node["quantities"].to_dataset())
        if rows:
            title = f"{node.attrs['model']}: clearest change points"
            print_table(title, ["quantity", "step", "95 %", "before", "after", "p"], rows)
    for finding in found:
        typer.echo(f"- {finding.statement}")


def _change_points(table: xr.Dataset) -> list[list[str]]:
    clear = table.isel(quantity=(table["p_value"] <= 0.05).values)
    clear = clear.isel(quantity=clear["p_value"].argsort(kind="stable").values[:SHOWN]).sortby("change")
    return [
        [
            str(row["words"].values),
            f"{float(row['change']):.0f}",
            f"{float(row['low']):.0f} to {float(row['high']):.0f}" if row["low"] == row["low"] else "-",
            f"{float(row['before']):.3g}",
            f"{float(row['after']):.3g}",
            f"{float(row['p_value']):.3f}",
        ]
        for row in (clear.isel(quantity=place) for place in range(clear.sizes["quantity"]))
    ]
