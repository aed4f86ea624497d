"""`headspan similarity`: attention heads as subspaces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli.arguments import AsJSON, ConfigFile, Fold, Memory, Model, Output, Stack
from headspan.cli.figure_files import Dark, FigureFormat, Figures, check_figures, save_figures

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 10
COLUMNS = {
    "label": ("head", "{}"),
    "projection_kernel": ("kernel", "{:.2f}"),
    "projection_kernel_chance": ("chance", "{:.2f}"),
    "projection_kernel_z": ("z", "{:+.1f}"),
    "p_value": ("p", "{:.0e}"),
    "grassmann": ("Grassmann", "{:.2f}"),
    "grassmann_chance": ("chance", "{:.2f}"),
    "smallest_angle": ("angles", "{:.1f}°"),
    "largest_angle": ("to", "{:.1f}°"),
}


def similarity(
    model: Model,
    space: Annotated[
        str, typer.Option(help="The space of a head: sum (query and key space together), intersection, or qk.")
    ] = "sum",
    metric: Annotated[
        str,
        typer.Option(
            help="Distance of two spaces: grassmann, chordal, projection, fubini-study, binet-cauchy, spectral or "
            "procrustes."
        ),
    ] = "grassmann",
    across: Annotated[
        bool | None,
        typer.Option(
            "--across-layers/--within-layers",
            help="Compare heads of different layers too, or not; by default up to 400 heads.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes chance draws and maps.")] = 0,
    fold: Fold = "none",
    memory: Memory = "4GB",
    output: Output = None,
    figures: Figures = None,
    figure_format: FigureFormat = "svg",
    dark: Dark = False,
    as_json: AsJSON = False,
    config: ConfigFile = None,
    stack: Stack = None,
) -> None:
    """Compare heads as subspaces: query against key, head against head, each beside chance."""
    from headspan.atomic import check_writable
    from headspan.checkpoint import open_checkpoint
    from headspan.heads.memory import working_memory
    from headspan.lenses import similarity as lens
    from headspan.lenses.saving import ENDINGS, save_result

    check_figures(figures, figure_format)
    if output is not None:
        check_writable(output, ENDINGS)
    heads = open_checkpoint(model, config).heads(stack=stack).refolded(fold)
    # Maps take seconds, and of all outputs only netCDF and figures hold them.
    maps = figures is not None or (output is not None and output.suffix == ".nc")
    result = lens.compute(
        heads, space=space, metric=metric, across_layers=across, seed=seed, maps=maps, memory=working_memory(memory)
    )
    save_figures("similarity", result, figures, figure_format, dark)
    if output is not None:
        save_result(result, output, table=lens.table, as_json=lens.as_json)
    if as_json:
        typer.echo(json.dumps(lens.as_json(result), indent=2, allow_nan=False))
        return
    _print(lens.table(result), lens.as_json(result)["closest_pairs"])
    if output is not None:
        typer.echo(f"Written to {output}")


def _print(heads: pd.DataFrame, pairs: list[dict[str, object]]) -> None:
    """The heads whose query and key spaces depart most from chance, and the pairs of heads that are closest."""
    from headspan.cli.tables import print_records, print_table

    defined = heads[heads["projection_kernel_z"].notna()]
    order = defined["projection_kernel_z"].abs().sort_values(ascending=False, kind="stable").index[:SHOWN]
    print_table(
        f"Query and key spaces furthest from chance, {len(order)} of {len(heads)} heads",
        [name for name, _ in COLUMNS.values()],
        [
            [form.format(row[name]) for name, (_, form) in COLUMNS.items()]
            for row in defined.loc[order].to_dict("records")
        ],
    )
    if len(defined) < len(heads):
        typer.echo(
            f"{len(heads) - len(defined)} heads have no z-score: no query or key space, or nothing left to chance."
        )
    print_records("Closest attention spaces", pairs)
