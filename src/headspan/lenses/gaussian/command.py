"""`headspan gaussian`: logits and attention entropies predicted from moments, beside measured ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli import arguments as shared
from headspan.cli.delivery import delivery
from headspan.cli.figure_files import image_files
from headspan.cli.prompts import file_text

if TYPE_CHECKING:
    import xarray as xr

SHOWN = 8


def gaussian(
    model: shared.Model,
    text: Annotated[
        Path | None, typer.Option(help="A text file to run the model on; random tokens by default.")
    ] = None,
    sequences: Annotated[int, typer.Option(help="How many sequences to sample.")] = 64,
    length: Annotated[int, typer.Option(help="Tokens per sequence.")] = 64,
    seed: shared.Seed = 0,
    output: shared.Output = None,
    figures: shared.Figures = None,
    figure_format: shared.FigureFormat = "svg",
    dark: shared.Dark = False,
    as_json: shared.AsJSON = False,
    config: shared.ConfigFile = None,
    stack: shared.Stack = None,
) -> None:
    """Predict every head's logits and attention entropy from means and covariances, and measure both."""
    from headspan.checkpoint import open_checkpoint
    from headspan.lenses import gaussian as lens

    to = delivery("gaussian", output, image_files(figures, figure_format, dark), as_json)
    words = None if text is None else file_text(text)
    heads = open_checkpoint(model, config).heads(stack=stack)
    result = lens.compute(heads, text=words, sequences=sequences, length=length, seed=seed)
    to.deliver(result, lens, _print)


def _print(result: xr.Dataset) -> None:
    """Agreement layer by layer, and the heads whose entropy departs most."""
    from headspan.cli.tables import print_table
    from headspan.lenses import gaussian as lens

    typer.echo(f"From {result.attrs['source']}")
    rows = []
    for layer in result["layer"].values:
        here = result.sel(layer=layer)
        spread = [f"{float(here['logit_sd_r2'].sel(pair=pair)):.2f}" for pair in lens.PAIRS]
        entropy = [f"{float(here[f'entropy_{name}']):.2f}" for name in ("r2", "ratio")]
        told = [f"{float(here[name][0]):.2f}" for name in ("information", "information_chance")]
        rows.append((str(int(layer)), *spread, *entropy, f"{told[0]} ({told[1]})"))
    columns = ("layer", *lens.PAIRS, "entropy", "ratio", "neighbours, nats")
    print_table("R² of predicted spreads of logits and of entropies over heads", columns, rows)
    table = lens.table(result)
    gap = (table["entropy_measured"] / table["entropy"]).map(abs)
    order = gap.where(gap >= 1, 1 / gap).sort_values(ascending=False, kind="stable").index[:SHOWN]
    cells = [
        (row["head"], *(f"{row[name]:.2f}" for name in ("entropy", "entropy_measured", "entropy_uniform")))
        for row in table.loc[order].to_dict("records")
    ]
    print_table("Entropies furthest from the prediction", ("head", "predicted", "measured", "uniform"), cells)
    if result.attrs["left_out"]:
        typer.echo(f"Left out: {result.attrs['left_out']}")
