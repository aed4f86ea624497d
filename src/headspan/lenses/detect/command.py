"""`headspan detect`: which heads do what when the model runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headspan.command import RUN, Command, Option, Rows
from headspan.lenses.detect.schema import DETECTORS

if TYPE_CHECKING:
    import xarray as xr

    from headspan.result import Result

SHOWN = 5

COMMAND = Command(
    "Find previous-token, duplicate-token, induction, identity and first-token heads by running the model.",
    RUN,
    options={
        "text": Option("Also score heads on the text of this file, in pieces.", Path),
        "threshold": Option("A head above this score is labeled.", float),
        "length": Option("Tokens of a random segment, which is repeated once; by default 32.", int),
        "batch": Option("Segments per draw.", int),
        "seeds": Option("How many draws; standard errors are over these.", int),
        "seed": Option("Random seed of the first draw.", int),
        "weights_only": Option("Only the identity score of the weights; runs nothing.", bool),
    },
)


def show(result: Result) -> Iterator[Rows]:
    """The strongest heads of every detector, labeled ones marked, then identity from the weights."""
    data = result.dataset()
    if "prompt" in data.coords:
        yield Rows(
            f"Strongest heads per detector, score ± standard error; * labeled, above {result.attrs['threshold']}",
            ["prompt", "detector", "uniform", "heads"],
            [_detector_row(data, str(prompt), name) for prompt in data["prompt"].values for name in DETECTORS],
        )
    rows = data[["identity_weights", "identity_weights_z"]].to_dataframe().dropna().sort_values("identity_weights")
    ends = [*rows.head(SHOWN).itertuples(), *rows.tail(max(0, min(SHOWN, len(rows) - SHOWN))).itertuples()]
    sd = float(data["identity_weights_null_sd"])
    yield Rows(
        f"Identity from the weights, lowest and highest of {len(rows)} heads; random weights: 0 ± {sd:.4f}",
        ["head", "score", "z"],
        [[str(row.Index), f"{row.identity_weights:+.3f}", f"{row.identity_weights_z:+.1f}"] for row in ends],
    )


def _detector_row(data: xr.Dataset, prompt: str, name: str) -> list[str]:
    here = data.sel(prompt=prompt)
    rows = here[[name, f"{name}_se", f"{name}_label"]].to_dataframe().dropna(subset=name)
    if rows.empty:
        return [prompt, name, "-", "nothing to see in these prompts"]
    best = rows.sort_values(name, ascending=False, kind="stable").head(SHOWN)
    named = [
        f"{head} {score:.2f}±{error:.2f}{'*' if label else ''}"
        for head, score, error, label in zip(
            best.index, *(best[f"{name}{part}"] for part in ("", "_se", "_label")), strict=True
        )
    ]
    more = int(rows[f"{name}_label"].sum()) - SHOWN
    uniform = f"{float(here[f'{name}_null']):.3f}"
    return [prompt, name, uniform, ", ".join(named) + (f", {more} more*" if more > 0 else "")]
