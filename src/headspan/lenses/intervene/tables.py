"""The result as rows and as JSON: every setting and layer, and every head."""

from __future__ import annotations

from typing import Any

import pandas as pd
import xarray as xr

from headspan.lenses.saving import without_nan

SCHEMA = "headspan.intervene/1"
MEASURES = ("entropy", "relative_entropy", "kl", "jsd", "self_mass", "argmax_mass")


def table(result: xr.Dataset) -> pd.DataFrame:
    """One row per setting, layer and head."""
    frame = result[list(MEASURES)].to_dataframe().reset_index()
    return frame[["setting", "layer", "head", *MEASURES]]


def layer_table(result: xr.Dataset) -> pd.DataFrame:
    """One row per setting and layer: means over heads, and the relative entropy of the heads' mean pattern."""
    means = result[list(MEASURES)].mean("head")
    frame = means.assign(averaged_relative_entropy=result["averaged_relative_entropy"]).to_dataframe().reset_index()
    return frame[["setting", "layer", *MEASURES, "averaged_relative_entropy"]]


def setting_table(result: xr.Dataset) -> pd.DataFrame:
    """One row per setting: means over layers and heads, perplexity, continuation, notes."""
    means = result[[*MEASURES]].mean(("layer", "head"))
    own = result[["alpha", "perplexity", "continuation", "notes"]]
    averaged = result["averaged_relative_entropy"].mean("layer")
    frame = means.merge(own).assign(averaged_relative_entropy=averaged).to_dataframe().reset_index()
    columns = ["setting", "alpha", *MEASURES, "averaged_relative_entropy", "perplexity", "continuation", "notes"]
    return frame[columns]


def as_json(result: xr.Dataset) -> dict[str, Any]:
    """Everything as plain values, NaN as None."""
    document = {
        "schema": SCHEMA,
        "provenance": dict(result.attrs),
        "chance": {name: float(result[f"{name}_chance"]) for name in ("self_mass", "argmax_mass")},
        "settings": setting_table(result).to_dict("records"),
        "layers": layer_table(result).to_dict("records"),
        "heads": table(result).to_dict("records"),
    }
    found: dict[str, Any] = without_nan(document)
    return found
