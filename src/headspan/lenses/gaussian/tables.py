"""The Gaussian lens's result as a table with a row per head, and as JSON."""

from __future__ import annotations

from typing import Any

import pandas as pd
import xarray as xr

from headspan.dims import HEAD, LAYER, HeadLabel
from headspan.lenses.gaussian.pairs import PAIRS
from headspan.lenses.saving import without_nan

PAIR, DISTANCE = "pair", "distance"
MOMENTS = ("mean", "sd", "excess_kurtosis")
AGREEMENT = tuple(f"{what}_{measure}" for what in ("logit_sd", "entropy") for measure in ("r2", "slope", "ratio"))


def table(result: xr.Dataset) -> pd.DataFrame:
    """One row per head: logits of each kind of pair and entropy, predicted and measured."""
    rows = []
    for layer in result[LAYER].values:
        here = result.sel({LAYER: layer})
        for head in range(result.sizes[HEAD]):
            one = here.isel({HEAD: head})
            row: dict[str, Any] = {"head": str(HeadLabel(int(layer), head)), "layer": int(layer)}
            for pair in PAIRS:
                for name in MOMENTS:
                    for suffix in ("", "_measured"):
                        row[f"{pair}_{name}{suffix}"] = float(one[f"logit_{name}{suffix}"].sel({PAIR: pair}))
            row |= {name: float(one[name]) for name in ("entropy", "entropy_measured", "entropy_uniform")}
            rows.append(row)
    return pd.DataFrame(rows)


def as_json(result: xr.Dataset) -> dict[str, Any]:
    """The result as JSON: agreement per layer, and a record per head; undefined numbers as null."""
    names = (*AGREEMENT, "information", "information_chance")
    layers = [
        {"layer": int(layer), **{name: result[name].sel({LAYER: layer}).values.tolist() for name in names}}
        for layer in result[LAYER].values
    ]
    plain: dict[str, Any] = without_nan(
        {
            "schema": "headspan.gaussian/1",
            "provenance": dict(result.attrs),
            "pairs": list(PAIRS),
            "distances": result[DISTANCE].values.tolist(),
            "all": {name: result[f"{name}_all"].values.tolist() for name in AGREEMENT},
            "layers": layers,
            "heads": table(result).to_dict(orient="records"),
        }
    )
    return plain
