"""`headspan gaussian`: logits and attention entropies predicted from moments, beside measured ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headspan.command import RUN, Command, Option, Rows
from headspan.lenses.gaussian.schema import PAIRS

if TYPE_CHECKING:
    from headspan.result import Result

SHOWN = 8
COMMAND = Command(
    "Predict every head's logits and attention entropy from means and covariances, and measure both.",
    RUN,
    options={
        "text": Option("A text file to run the model on; random tokens by default.", Path, metavar="FILE"),
        "sequences": Option("How many sequences to sample."),
        "length": Option("Tokens per sequence."),
    },
)


def prepare(options: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The text of the file."""
    from headspan.input_files import file_text

    return {**options, "text": None if given["text"] is None else file_text(given["text"])}


def show(result: Result) -> Iterator[str | Rows]:
    """Agreement layer by layer, and the heads whose entropy departs most."""
    yield f"From {result.attrs['source']}"
    rows, found = [], result.dataset()
    for layer in found["layer"].values:
        here = found.sel(layer=layer)
        spread = [f"{float(here['logit_sd_r2'].sel(pair=pair)):.2f}" for pair in PAIRS]
        entropy = [f"{float(here[f'entropy_{name}']):.2f}" for name in ("r2", "ratio")]
        told = [f"{float(here[name][0]):.2f}" for name in ("information", "information_null")]
        rows.append((str(int(layer)), *spread, *entropy, f"{told[0]} ({told[1]})"))
    columns = ("layer", *PAIRS, "entropy", "ratio", "neighbors, nats")
    yield Rows("R² of predicted spreads of logits and of entropies over heads", columns, rows)
    heads = result.table()
    uniform = found["entropy_uniform"].to_series()
    gap = (heads["entropy_measured"] / heads["entropy"]).abs()
    order = gap.where(gap >= 1, 1 / gap).sort_values(ascending=False, kind="stable").index[:SHOWN]
    cells = [
        (
            row["head"],
            *(f"{value:.2f}" for value in (row["entropy"], row["entropy_measured"], uniform[row["head_layer"]])),
        )
        for row in heads.loc[order].to_dict("records")
    ]
    yield Rows("Entropies furthest from the prediction", ("head", "predicted", "measured", "uniform"), cells)
    if result.attrs["left_out"]:
        yield f"Left out: {result.attrs['left_out']}"
