"""`headspan compare`: what changed between two checkpoints of one shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli.arguments import AsJSON, ConfigFile, Fold, Force, Output, Stack
from headspan.cli.figure_files import Dark, FigureFormat, Figures, check_figures, save_figures

if TYPE_CHECKING:
    import xarray as xr

SHOWN = 10
SOURCE = "a checkpoint folder, a weight file, a name on the Hub (org/name@revision), or demo"
COLUMNS = {
    "label": ("head", "{}"),
    "role": ("role", "{}"),
    "grassmann": ("moved", "{:.3f}"),
    "grassmann_chance": ("random change", "{:.3f}"),
    "grassmann_z": ("z", "{:+.1f}"),
    "q_value": ("q", "{:.1g}"),
    "grassmann_unrelated": ("unrelated", "{:.2f}"),
    "largest_angle": ("largest angle", "{:.1f}°"),
    "relative_change": ("|dW|/|W|", "{:.3g}"),
    "outside_share": ("outside", "{:.0%}"),
}


def compare(
    before: Annotated[str, typer.Argument(metavar="A", help=f"The first: {SOURCE}.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The second, of the same shape: a later step, say.")],
    leading: Annotated[
        int | None,
        typer.Option(help="Follow this many leading directions of each head in place of its span.", show_default=False),
    ] = None,
    null: Annotated[str, typer.Option(help="Null under which a pair is an edge: haar or anticausal.")] = "haar",
    level: Annotated[float, typer.Option(help="A pair is an edge if its q-value is below this.")] = 0.05,
    draws: Annotated[int, typer.Option(help="Random changes per head.")] = 16,
    seed: Annotated[int, typer.Option(help="Fixes the random changes.")] = 0,
    fold: Fold = "none",
    output: Output = None,
    figures: Figures = None,
    figure_format: FigureFormat = "svg",
    dark: Dark = False,
    force: Force = False,
    as_json: AsJSON = False,
    config: ConfigFile = None,
    stack: Stack = None,
) -> None:
    """Compare two checkpoints: how far every head moved, edges gained and lost, spectra; beside a random change."""
    from headspan.atomic import check_writable, refuse_existing
    from headspan.checkpoint import open_checkpoint
    from headspan.lenses import compare as lens
    from headspan.lenses.saving import ENDINGS

    check_figures(figures, figure_format)
    if output is not None:
        check_writable(output, (*ENDINGS, ".html"))
        refuse_existing(output, force)
    first, second = (open_checkpoint(source, config).heads(stack=stack).refolded(fold) for source in (before, after))
    result = lens.compute(first, second, leading=leading, null=null, level=level, draws=draws, seed=seed)
    save_figures("compare", result, figures, figure_format, dark)
    if output is not None:
        _save(result, output)
    if as_json:
        typer.echo(json.dumps(lens.as_json(result), indent=2, allow_nan=False))
        return
    _print(result)
    if output is not None:
        typer.echo(f"Written to {output}")


def _save(result: xr.DataTree, output: Path) -> None:
    from headspan.lenses import compare as lens
    from headspan.lenses.saving import save_result
    from headspan.report.compare_page import write_compare_page

    pages = {".html": lambda path: write_compare_page(result, path)}
    save_result(result, output, table=lens.table, as_json=lens.as_json, more=pages)


def _print(result: xr.DataTree) -> None:
    """What stands out, the heads that moved furthest, and the edges that turned over."""
    from headspan.cli.tables import print_facts, print_records, print_table
    from headspan.findings import findings_of
    from headspan.lenses import compare as lens
    from headspan.lenses.compare.tables import turnover

    print_facts([("", finding.statement) for finding in findings_of("compare", result)], "What changed")
    rows = lens.table(result)
    rows = rows[~rows["unchanged"] & rows["grassmann"].notna()]
    if rows.empty:
        return
    shown = rows.sort_values("grassmann", ascending=False, kind="stable")[:SHOWN].to_dict("records")
    cells = [[form.format(row[name]) for name, (_, form) in COLUMNS.items()] for row in shown]
    title = f"Heads that moved furthest (Grassmann distance), {len(shown)} of {len(rows)}"
    print_table(title, [name for name, _ in COLUMNS.values()], cells)
    pairings = lens.wiring_pairings(result)
    print_records("Edges", [{"pairing": pairing, **turnover(result, pairing)} for pairing in pairings])
