"""The result as rows and as JSON: every head with every score."""

from __future__ import annotations

from typing import Any

import pandas as pd
import xarray as xr

from headspan.dims import HeadLabel
from headspan.lenses.saving import without_nan

SCHEMA = "headspan.detect/1"


def table(result: xr.Dataset) -> pd.DataFrame:
    """One row per head, detector and kind of prompt; and one per head for identity from the weights."""
    rows: list[dict[str, Any]] = []
    for layer in result["layer"].values:
        for head in result["head"].values:
            rows += _head_rows(result.sel(layer=layer, head=head), str(HeadLabel(int(layer), int(head))))
    return pd.DataFrame(rows)


def _head_rows(here: xr.Dataset, label: str) -> list[dict[str, Any]]:
    rows = []
    if "score" in here:
        for prompt in here["prompt"].values:
            for detector in here["detector"].values:
                one = here.sel(prompt=prompt, detector=detector)
                rows.append(
                    {
                        "head": label,
                        "detector": str(detector),
                        "prompt": str(prompt),
                        "score": float(one["score"]),
                        "standard_error": float(one["standard_error"]),
                        "chance": float(one["chance"]),
                        "label": bool(one["label"]),
                    }
                )
    sd = float(here["identity_weights_sd"])
    value = float(here["identity_weights"])
    weights = {"head": label, "detector": "identity", "prompt": "weights", "score": value, "chance": 0.0}
    return [*rows, {**weights, "chance_sd": sd, "z": value / sd}]


def labelled_heads(result: xr.Dataset) -> dict[str, dict[str, list[str]]]:
    """For each kind of prompt and detector, the labelled heads, strongest first."""
    rows = table(result)
    rows = rows[rows.get("label", pd.Series(index=rows.index, dtype=object)).eq(True)]
    prompts = result["prompt"].values if "prompt" in result.coords else ()
    found: dict[str, dict[str, list[str]]] = {str(prompt): {} for prompt in prompts}
    for (prompt, detector), group in rows.groupby(["prompt", "detector"], sort=False):
        found[str(prompt)][str(detector)] = group.sort_values("score", ascending=False)["head"].tolist()
    return found


def as_json(result: xr.Dataset) -> dict[str, Any]:
    """Everything as plain values, NaN as None."""
    document = {
        "schema": SCHEMA,
        "provenance": dict(result.attrs),
        "labelled": labelled_heads(result),
        "heads": table(result).to_dict("records"),
    }
    found: dict[str, Any] = without_nan(document)
    return found
