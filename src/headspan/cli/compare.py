"""`headspan compare`: what changed between two checkpoints of one shape."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli import arguments as shared
from headspan.cli.delivery import delivery
from headspan.cli.figure_files import image_files

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
    seed: shared.Seed = 0,
    fold: shared.Fold = "none",
    output: shared.OutputOrPage = None,
    figures: shared.Figures = None,
    figure_format: shared.FigureFormat = "svg",
    dark: shared.Dark = False,
    force: shared.Force = False,
    as_json: shared.AsJSON = False,
    config: shared.ConfigFile = None,
    stack: shared.Stack = None,
) -> None:
    """Compare two checkpoints: how far every head moved, edges gained and lost, spectra; beside a random change."""
    from headspan.checkpoint import open_checkpoint
    from headspan.lenses import compare as lens

    images = image_files(figures, figure_format, dark)
    to = delivery("compare", output, images, as_json, more={".html": _write_page}, force=force)
    first, second = (open_checkpoint(source, config).heads(stack=stack).refolded(fold) for source in (before, after))
    result = lens.compute(first, second, leading=leading, null=null, level=level, draws=draws, seed=seed)
    to.deliver(result, lens, _print)


def _write_page(result: xr.DataTree, path: Path) -> None:
    from headspan.explorer.compare_page import write_compare_page

    write_compare_page(result, path)


def _print(result: xr.DataTree) -> None:
    """What stands out, the heads that moved furthest, and the edges that turned over."""
    from headspan.cli.tables import print_columns, print_facts, print_records
    from headspan.findings import findings_of
    from headspan.lenses import compare as lens
    from headspan.lenses.compare.tables import turnover

    print_facts([("", finding.statement) for finding in findings_of("compare", result)], "What changed")
    rows = lens.table(result)
    rows = rows[~rows["unchanged"] & rows["grassmann"].notna()]
    if rows.empty:
        return
    shown = rows.sort_values("grassmann", ascending=False, kind="stable")[:SHOWN].to_dict("records")
    title = f"Heads that moved furthest (Grassmann distance), {len(shown)} of {len(rows)}"
    print_columns(title, COLUMNS, shown)
    pairings = lens.wiring_pairings(result)
    print_records("Edges", [{"pairing": pairing, **turnover(result, pairing)} for pairing in pairings])
