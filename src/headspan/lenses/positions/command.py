"""`headspan positions`: the position and token tables, and what every layer does with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headspan.command import Command, Option, Rows, p_text
from headspan.finding import percent
from headspan.lenses.positions.schema import TABLE_NAMES

if TYPE_CHECKING:
    import xarray as xr

    from headspan.result import Result

COMMAND = Command(
    "Compare the position and token tables with each other and with every layer's matrices.",
    options={
        "k": Option("Leading directions that stand for a table; by default 30, or less for a narrow model.", int),
        "centering": Option(
            "Compare layers with the tables as stored, or centered: less their mean row.",
            names=("--centering", "--centring"),
        ),
        "full": Option("Keep overlaps entry by entry in a .nc file; large.", names=("--full",)),
        "layer": Option("The layer whose matrices are drawn; the first by default.", int),
        "smooth": Option("Blur of drawn overlaps: its standard deviation in directions."),
        "samples": Option("Queries and keys drawn for the logits of layer 0."),
    },
)


def show(result: Result) -> Iterator[Rows | str]:
    """Tables, then what they do to one another, then every layer, then what was left out."""
    data = result.dataset()
    columns = ["table", "", "rows", "mean row", "rank 90 %", "rank 99 %"]
    rows = [_table_row(record) for record in result.table("tables").to_dict("records")]
    yield Rows("Tables, in brackets what a random table has", columns, rows)
    if "decile_mass" in data:
        yield _deciles(result.table("deciles").to_dict("records"))
    if "logit_share" in data:
        yield _logits(data)
    for name in data["table"].values:
        ratio = (data["energy_alignment"] / data["energy_alignment_null"]).sel(table=name).values
        rows = [
            [str(layer), *(f"{value:.2f}" for value in row)]
            for layer, row in zip(data["layer"].values, ratio, strict=True)
        ]
        title = f"Energy shared with {TABLE_NAMES[str(name)]}, as a multiple of what a random matrix shares"
        yield Rows(title, ["layer", *map(str, data["matrix"].values)], rows)
    if "gain_auc" in data:
        yield _gains(data)
    for line in filter(None, result.attrs["left_out"].split("; ")):
        yield f"Left out: {line}"


def _table_row(record: dict[Any, Any]) -> list[str]:
    ranks = [f"{record[name]:g} ({record[f'{name}_null']:g})" for name in ("rank_90", "rank_99")]
    stored = record["centering"] == "stored"
    mean = f"{percent(record['mean_share'], 1)} ({percent(record['mean_share_null'], 1)})" if stored else "removed"
    return [TABLE_NAMES[record["table"]], record["centering"], str(record["rows"]), mean, *ranks]


def _deciles(records: list[dict[Any, Any]]) -> Rows:
    rows = [
        [
            row["centering"],
            str(row["capture_k"]),
            str(row["decile"] + 1),
            f"{row['decile_mass']:.2f}",
            f"{row['decile_mass_null']:.2f}",
            f"{row['decile_mass_z']:+.1f}",
            p_text(row["decile_mass_p"]),
        ]
        for row in records
        if row["decile"] in (0, 9)
    ]
    title = "Mass of the top position directions on the first and last tenth of the token directions"
    return Rows(title, ["tables", "k", "decile of E", "mass", "expected", "z", "p"], rows)


def _gains(data: xr.Dataset) -> Rows:
    names = ("gain_carrying", "gain_other", "gain_auc")
    rows = [
        [str(layer), *(f"{float(data[name].sel(layer=layer)):.3f}" for name in names), p_text(float(q))]
        for layer, q in zip(data["layer"].values, data["gain_auc_q"].values, strict=True)
    ]
    count = int(data["coordinate_count"].sel(centering="stored"))
    title = f"Gains of the norms on the {count} coordinates that carry positions, median, and on all others"
    return Rows(title, ["layer", "carrying", "others", "AUC (expected 0.5)", "q"], rows)


def _logits(data: xr.Dataset) -> Rows:
    first = data.isel(head=data["head_layer"].values == 0)
    short = [str(term).replace("token", "tok").replace("position", "pos") for term in data["term"].values]
    rows = [["expected", *(percent(share) for share in data["logit_share_null"].values), ""]]
    for label, shares, sd in zip(
        first["head"].values, first["logit_share"].values, first["logit_sd"].values, strict=True
    ):
        rows.append([str(label), *(percent(share) for share in shares), f"{sd:.2f}"])
    return Rows("Logits of layer 0: share of their variance within a query", ["head", *short, "sd"], rows)
