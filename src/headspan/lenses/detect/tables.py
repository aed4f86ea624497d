"""The result as rows and as JSON: every head with every score."""

from __future__ import annotations

from typing import Any

import pandas as pd
import xarray as xr

from headspan.dims import HeadLabel
from headspan.lenses.grid_rows import grid_rows
from headspan.lenses.saving import without_nan

SCHEMA = "headspan.detect/1"


def table(result: xr.Dataset) -> pd.DataFrame:
    """One row per head, detector and kind of prompt; and one per head for identity from the weights."""
    parts = [_scored(result)] if "score" in result else []
    rows = pd.concat([*parts, _identity(result)], ignore_index=True)
    rows = rows.sort_values(["layer", "head"], kind="stable", ignore_index=True)
    labels = [str(HeadLabel(layer, head)) for layer, head in zip(rows["layer"], rows["head"], strict=True)]
    return rows.drop(columns="layer").assign(head=labels)


def _scored(result: xr.Dataset) -> pd.DataFrame:
    names = ("score", "standard_error", "chance", "label")
    rows = grid_rows(result, names, ("layer", "head", "prompt", "detector"))
    return rows[["layer", "head", "detector", "prompt", *names]]


def _identity(result: xr.Dataset) -> pd.DataFrame:
    rows = grid_rows(result, ["identity_weights"], ("layer", "head"))
    score, sd = rows.pop("identity_weights"), float(result["identity_weights_sd"])
    return rows.assign(detector="identity", prompt="weights", score=score, chance=0.0, chance_sd=sd, z=score / sd)


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
