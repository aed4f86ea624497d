"""`headspan validate`: whether the geometry of the weights predicts what the model does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headspan.cli import arguments as shared
from headspan.cli.delivery import delivery, figures_page
from headspan.cli.figure_files import image_files

if TYPE_CHECKING:
    import xarray as xr

SHOWN = 12


def validate(
    model: shared.Model,
    buffers: Annotated[
        str | None,
        typer.Option(help="Tokens to measure on: sampled from the model (default), or random ones repeated."),
    ] = None,
    count: Annotated[int, typer.Option(help="How many buffers of tokens.")] = 8,
    length: Annotated[int, typer.Option(help="Tokens of a buffer.")] = 48,
    strong: Annotated[int, typer.Option(help="Pairs per pairing and score, strongest first; weak ones match.")] = 10,
    random: Annotated[int, typer.Option(help="Random pairs per pairing.")] = 30,
    controls: Annotated[int, typer.Option(help="Control removals per pair.")] = 4,
    permutations: Annotated[int, typer.Option(help="Of the Mantel test; also draws of bootstraps.")] = 999,
    dtype: Annotated[str, typer.Option(help="float32, or float64 for smaller rounding.")] = "float32",
    fold: shared.Fold = "none",
    seed: shared.Seed = 0,
    output: shared.OutputOrPage = None,
    figures: shared.Figures = None,
    figure_format: shared.FigureFormat = "svg",
    dark: shared.Dark = False,
    as_json: shared.AsJSON = False,
    config: shared.ConfigFile = None,
    stack: shared.Stack = None,
) -> None:
    """Test the geometry of a model on its behaviour: null spaces, distances of heads, and messages between them."""
    from headspan.lenses import validate as lens
    from headspan.progress import progress_bar
    from headspan.runtime import open_runnable

    images = image_files(figures, figure_format, dark)
    to = delivery("validate", output, images, as_json, more=figures_page("validate"))
    running = open_runnable(model, config=config, stack=stack, dtype=dtype)
    with progress_bar() as progress:
        result = lens.compute(
            running,
            buffers=buffers,
            count=count,
            length=length,
            strong=strong,
            random=random,
            controls=controls,
            permutations=permutations,
            fold=fold,
            seed=seed,
            progress=progress,
        )
    to.deliver(result, lens, _print)


def _print(result: xr.DataTree) -> None:
    """What each question found, and why another was not asked."""
    from headspan.cli.tables import print_facts, print_records
    from headspan.findings import findings_of
    from headspan.lenses import validate as lens

    document = lens.as_json(result)
    print_facts(
        [("", finding.statement) for finding in findings_of("validate", result)], "Does geometry predict behaviour?"
    )
    if "distance" in document:
        rows = document["distance"]["layers"]
        print_records("Distance of attention spaces against divergence of patterns", rows)
    if "cause" in document:
        rows = _rankings(document["cause"]["ranking"])
        print_records("How scores rank the effects of a removed message: Spearman, 95% interval", rows)
        strongest = sorted(document["cause"]["pairs"], key=lambda row: -(row["removed_share"] or 0.0))
        rows = [_pair_row(row) for row in strongest[:SHOWN]]
        print_records(f"Pairs whose message is read most, {len(rows)} of {len(strongest)}; changes in nats", rows)
    for name in ("invariance", "distance", "cause"):
        reason = document["provenance"][f"{name}_obstacle"]
        if reason:
            typer.echo(f"{name.capitalize()} does not apply to this model: {reason}.")


def _rankings(ranking: list[dict[str, Any]]) -> list[dict[str, str]]:
    """One row per pairing, sample and outcome, with both scores side by side."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for row in ranking:
        key = (row["pairing"], row["sample"], row["outcome"])
        if row["spearman"] is not None:
            named = dict(zip(("pairing", "pairs", "effect"), (key[0], key[1], key[2].replace("_", " ")), strict=True))
            told = f"{row['spearman']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}]"
            rows.setdefault(key, {**named, "projection kernel": "-", "composition score": "-"})
            rows[key][row["score"].replace("_", " ")] = told
    return list(rows.values())


def _pair_row(row: dict[str, Any]) -> dict[str, str]:
    """A tested pair with names and numbers short enough for a terminal."""
    names = {"": "pairing", "from": "source", "to": "target", "pair": "chosen"}
    numbers = {"kernel": "projection_kernel", "read": "removed_share", "pattern": "pattern_change"}
    numbers |= {"(control)": "pattern_control", "loss": "loss_change", "(its)": "loss_control"}
    told = {name: "-" if row[key] is None else f"{row[key]:.2g}" for name, key in numbers.items()}
    return {**{name: str(row[key]) for name, key in names.items()}, **told}
