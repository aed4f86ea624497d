"""`headspan similarity`: attention heads as subspaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli import arguments as shared
from headspan.cli.delivery import delivery
from headspan.cli.figure_files import image_files

if TYPE_CHECKING:
    import xarray as xr

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

Space = Annotated[
    str,
    typer.Option("--space", help="The space of a head: sum (query and key space together), intersection, or qk."),
]
Metric = Annotated[
    str,
    typer.Option(
        "--metric",
        help="Distance of two spaces: grassmann, chordal, projection, fubini-study, binet-cauchy, spectral or "
        "procrustes.",
    ),
]
Across = Annotated[
    bool | None,
    typer.Option(
        "--across-layers/--within-layers",
        help="Compare heads of different layers too, or not; by default up to 400 heads.",
        show_default=False,
    ),
]


def similarity(
    model: shared.Model,
    space: Space = "sum",
    metric: Metric = "grassmann",
    across: Across = None,
    seed: shared.Seed = 0,
    fold: shared.Fold = "none",
    memory: shared.Memory = "4GB",
    output: shared.Output = None,
    figures: shared.Figures = None,
    figure_format: shared.FigureFormat = "svg",
    dark: shared.Dark = False,
    as_json: shared.AsJSON = False,
    config: shared.ConfigFile = None,
    stack: shared.Stack = None,
) -> None:
    """Compare heads as subspaces: query against key, head against head, each beside chance."""
    from headspan.checkpoint import open_checkpoint
    from headspan.heads.memory import working_memory
    from headspan.lenses import similarity as lens

    to = delivery("similarity", output, image_files(figures, figure_format, dark), as_json)
    heads = open_checkpoint(model, config).heads(stack=stack).refolded(fold)
    # Maps take seconds, and of all outputs only netCDF and figures hold them.
    maps = figures is not None or (output is not None and output.suffix == ".nc")
    result = lens.compute(
        heads, space=space, metric=metric, across_layers=across, seed=seed, maps=maps, memory=working_memory(memory)
    )
    to.deliver(result, lens, _print)


def _print(result: xr.Dataset) -> None:
    """The heads whose query and key spaces depart most from chance, and the pairs of heads that are closest."""
    from headspan.cli.tables import print_columns, print_records
    from headspan.lenses import similarity as lens

    heads = lens.table(result)
    defined = heads[heads["projection_kernel_z"].notna()]
    order = defined["projection_kernel_z"].abs().sort_values(ascending=False, kind="stable").index[:SHOWN]
    print_columns(
        f"Query and key spaces furthest from chance, {len(order)} of {len(heads)} heads",
        COLUMNS,
        defined.loc[order].to_dict("records"),
    )
    if len(defined) < len(heads):
        typer.echo(
            f"{len(heads) - len(defined)} heads have no z-score: no query or key space, or nothing left to chance."
        )
    print_records("Closest attention spaces", lens.as_json(result)["closest_pairs"])
