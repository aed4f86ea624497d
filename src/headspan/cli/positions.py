"""`headspan positions`: the position and token tables, and what every layer does with them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headspan.cli.arguments import AsJSON, ConfigFile, Fold, Memory, Model, Output, Stack
from headspan.cli.figure_files import Dark, FigureFormat, Figures, check_figures, save_figures

if TYPE_CHECKING:
    import xarray as xr

WORDS = {"P": "positions", "E": "tokens"}


def positions(
    model: Model,
    k: Annotated[
        int | None,
        typer.Option(
            "--k",
            help="Leading directions that stand for a table; by default 30, or less for a narrow model.",
            show_default=False,
        ),
    ] = None,
    centring: Annotated[
        str, typer.Option(help="Compare layers with the tables as stored, or centred: less their mean row.")
    ] = "stored",
    full: Annotated[bool, typer.Option("--full", help="Keep overlaps entry by entry in a .nc file; large.")] = False,
    seed: Annotated[int, typer.Option(help="Fixes chance draws and samples.")] = 0,
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
    """Positions and tokens: where both tables lie, and how every layer's matrices lie to them, each beside chance."""
    from headspan.atomic import check_writable
    from headspan.checkpoint import open_checkpoint
    from headspan.errors import UnsupportedModel
    from headspan.heads.memory import working_memory
    from headspan.lenses import lens as registered
    from headspan.lenses import positions as lens
    from headspan.lenses.saving import ENDINGS, save_result

    check_figures(figures, figure_format)
    if output is not None:
        check_writable(output, ENDINGS)
    checkpoint = open_checkpoint(model, config)
    obstacle = registered("positions").obstacle(checkpoint.stack(stack))
    if obstacle is not None:
        raise UnsupportedModel(f"the positions lens does not apply to '{checkpoint.source}': {obstacle}")
    heads = checkpoint.heads(stack=stack).refolded(fold)
    result = lens.compute(heads, k=k, centring=centring, full=full, seed=seed, memory=working_memory(memory))
    save_figures("positions", result, figures, figure_format, dark)
    if output is not None:
        save_result(result, output, table=lens.table, as_json=lens.as_json)
    document = lens.as_json(result)
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    _print(result, document)
    if output is not None:
        typer.echo(f"Written to {output}")


def _print(result: xr.Dataset, document: dict[str, Any]) -> None:
    """Tables, then what they do to one another, then every layer, then what was left out."""
    from headspan.cli.tables import print_table

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
