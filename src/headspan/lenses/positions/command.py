"""`headspan positions`: the position and token tables, and what every layer does with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headspan.cli import arguments as shared
from headspan.cli.delivery import delivery
from headspan.cli.figure_files import image_files

if TYPE_CHECKING:
    import xarray as xr

WORDS = {"P": "positions", "E": "tokens"}

Leading = Annotated[
    int | None,
    typer.Option(
        "--k",
        help="Leading directions that stand for a table; by default 30, or less for a narrow model.",
        show_default=False,
    ),
]
Centring = Annotated[
    str,
    typer.Option("--centring", help="Compare layers with the tables as stored, or centred: less their mean row."),
]

Full = Annotated[bool, typer.Option("--full", help="Keep overlaps entry by entry in a .nc file; large.")]


def positions(
    model: shared.Model,
    k: Leading = None,
    centring: Centring = "stored",
    full: Full = False,
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
    """Positions and tokens: where both tables lie, and how every layer's matrices lie to them, each beside chance."""
    from headspan.checkpoint import open_checkpoint
    from headspan.errors import UnsupportedModel
    from headspan.heads.memory import working_memory
    from headspan.lenses import lens as registered
    from headspan.lenses import positions as lens

    to = delivery("positions", output, image_files(figures, figure_format, dark), as_json)
    checkpoint = open_checkpoint(model, config)
    obstacle = registered("positions").obstacle(checkpoint.stack(stack))
    if obstacle is not None:
        raise UnsupportedModel(f"the positions lens does not apply to '{checkpoint.source}': {obstacle}")
    heads = checkpoint.heads(stack=stack).refolded(fold)
    result = lens.compute(heads, k=k, centring=centring, full=full, seed=seed, memory=working_memory(memory))
    to.deliver(result, lens, _print)


def _print(result: xr.Dataset) -> None:
    """Tables, then what they do to one another, then every layer, then what was left out."""
    from headspan.cli.tables import print_table
    from headspan.lenses import positions as lens

    document = lens.as_json(result)
    rows = [_table_row(record) for record in document["tables"]]
    print_table(
        "Tables, each number beside its chance", ["table", "", "rows", "mean row", "rank 90 %", "rank 99 %"], rows
    )
    if "deciles" in document:
        _print_deciles(document["deciles"])
    if "logits" in document:
        _print_logits(document["logits"])
    for name in result["table"].values:
        matrices = [str(matrix) for matrix in result["matrix"].values]
        ratio = (result["energy_alignment"] / result["energy_alignment_chance"]).sel(table=name).values
        rows = [
            [str(layer), *(f"{value:.2f}" for value in row)]
            for layer, row in zip(result["layer"].values, ratio, strict=True)
        ]
        print_table(f"Energy shared with {WORDS[str(name)]}, as a multiple of chance", ["layer", *matrices], rows)
    for line in document["left_out"]:
        typer.echo(f"Left out: {line}")


def _table_row(record: dict[str, Any]) -> list[str]:
    ranks = [f"{record[name]:g} ({record[f'{name}_chance']:g})" for name in ("rank_90", "rank_99")]
    mean = (
        f"{record['mean_share']:.1%} ({record['mean_share_chance']:.1%})"
        if record["centring"] == "stored"
        else "removed"
    )
    return [WORDS[record["table"]], record["centring"], str(record["rows"]), mean, *ranks]


def _print_deciles(records: list[dict[str, Any]]) -> None:
    from headspan.cli.tables import p_text, print_table

    rows = [
        [row["centring"], str(row["k"]), str(row["decile"]), *_numbers(row), p_text(_defined(row["p_value"]))]
        for row in records
        if row["decile"] in (1, 10)
    ]
    columns = ["tables", "k", "decile of E", "mass", "chance", "z", "p"]
    print_table(
        "Mass of the top position directions on the first and last tenth of the token directions", columns, rows
    )


def _numbers(row: dict[str, Any]) -> list[str]:
    forms = {"mass": "{:.2f}", "chance": "{:.2f}", "z": "{:+.1f}"}
    return [form.format(_defined(row[name])) for name, form in forms.items()]


def _defined(value: float | None) -> float:
    return float("nan") if value is None else value


def _print_logits(logits: dict[str, Any]) -> None:
    from headspan.cli.tables import print_table

    terms = list(logits["chance"])
    short = [term.replace("token", "tok").replace("position", "pos") for term in terms]
    rows = [["chance", *(f"{logits['chance'][term]:.0%}" for term in terms), ""]]
    rows += [
        [row["head"], *(f"{_defined(row[term]):.0%}" for term in terms), f"{row['logit_sd']:.2f}"]
        for row in logits["heads"]
    ]
    print_table("Logits of layer 0: share of their variance within a query", ["head", *short, "sd"], rows)
