"""`headspan mixing`: how alike tokens become from layer to layer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headspan.command import RUN, Command, Option, Rows

if TYPE_CHECKING:
    import xarray as xr

    from headspan.result import Result

COMMAND = Command(
    "How alike tokens become through the attention layers, with and without skips, compared with random weights.",
    RUN,
    options={
        "text": Option("A text file to take tokens from; random tokens by default.", Path, metavar="FILE"),
        "sequences": Option("How many sequences to follow."),
        "length": Option("Tokens per sequence."),
        "inverse_temperatures": Option(
            "Factors on the logits; 1 is the model as it is.",
            str,
            ("--inverse-temperatures", "--inverse-temperature"),
            metavar="NUMBERS",
        ),
        "biases": Option("Keep the biases of attention and norms, which make tokens alike without mixing them."),
    },
)


def prepare(options: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The text of the file."""
    from headspan.input_files import file_text

    return {**options, "text": None if given["text"] is None else file_text(given["text"])}


def show(result: Result) -> Iterator[str | Rows]:
    """Mean cosine and effective rank by depth, one table for each setting of skips, and the running model."""
    yield f"Tokens from {result.attrs['source']}"
    found = result.dataset()
    for skip in found["skip"].values:
        yield _table(found.sel(skip=skip), f"Mean cosine of tokens, {skip} (random weights in brackets)")
    yield _information(found)
    if "run" in result:
        node = result.dataset("run")
        rows = [
            (str(depth), *(_beside(node.sel(depth=depth), name) for name in ("cosine", "effective_rank")))
            for depth in node["depth"].values
        ]
        yield Rows("The whole running model (untrained twin in brackets)", ("depth", "cosine", "effective rank"), rows)


def _table(found: xr.Dataset, title: str) -> Rows:
    betas = [float(beta) for beta in found["inverse_temperature"].values]
    rows = [
        (str(depth), *(_beside(found.sel(depth=depth, inverse_temperature=beta), "cosine") for beta in betas))
        for depth in found["depth"].values
    ]
    return Rows(title, ("depth", *(f"logits x {beta:g}" for beta in betas)), rows)


def _information(found: xr.Dataset) -> Rows:
    """What one attention pass adds to the information between neighbors: its change from depth to depth."""
    beta = float(min(found["inverse_temperature"].values, key=lambda each: abs(each - 1.0)))
    own = found.sel(inverse_temperature=beta)
    skips = own["skip"].values
    gained = own["information"].diff("depth")
    rows = []
    for depth in own["depth"].values:
        cells = [str(depth)]
        for skip in skips:
            cells.append(_beside(own.sel(depth=depth, skip=skip), "information"))
            cells.append("-" if depth == 0 else f"{float(gained.sel(depth=depth, skip=skip)):+.3f}")
        rows.append(tuple(cells))
    columns = [name for skip in skips for name in (str(skip), "gained by the pass")]
    return Rows("Information between neighbors, nats (random weights in brackets)", ("depth", *columns), rows)


def _beside(cell: xr.Dataset, name: str) -> str:
    return f"{float(cell[name]):.3f} ({float(cell[f'{name}_null']):.3f})"
