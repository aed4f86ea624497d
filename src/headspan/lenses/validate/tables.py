"""The result as rows and as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import HeadLabel
from headspan.lenses.saving import without_nan

SCHEMA = "headspan.validate/1"


def table(result: xr.DataTree) -> pd.DataFrame:
    """One row per tested pair of heads; where cause does not apply, one per head for invariance."""
    return pairs(result) if "cause" in result else invariance_table(result)


def pairs(result: xr.DataTree) -> pd.DataFrame:
    """Every pair that was tested for cause, with its scores and effects."""
    return result["cause"].to_dataset().to_dataframe().reset_index(drop=True)


def ranking(result: xr.DataTree) -> pd.DataFrame:
    """How each score ranks each effect."""
    return result["ranking"].to_dataset().to_dataframe().reset_index(drop=True)


def invariance_table(result: xr.DataTree) -> pd.DataFrame:
    """One row per head: relative changes of its scores."""
    if "invariance" not in result:
        return pd.DataFrame()
    frame = result["invariance"].to_dataset().to_dataframe().reset_index()
    labels = [str(HeadLabel(int(layer), int(head))) for layer, head in zip(frame["layer"], frame["head"], strict=True)]
    return frame.drop(columns=["layer", "head"]).assign(head=labels)[["head", *frame.columns[2:]]]


def distance_table(result: xr.DataTree) -> pd.DataFrame:
    """One row per layer: correlation of distance and behaviour, with interval and p-value."""
    own = result["distance"].to_dataset()
    layers = own[["spearman", "low", "high", "p_value"]].to_dataframe().reset_index()
    return layers.replace({np.nan: None})


def as_json(result: xr.DataTree) -> dict[str, Any]:
    """Everything as plain values, NaN as None."""
    document: dict[str, Any] = {"schema": SCHEMA, "provenance": dict(result.attrs)}
    if "invariance" in result:
        document["invariance"] = invariance_table(result).to_dict("records")
    if "distance" in result:
        own = result["distance"].to_dataset()
        document["distance"] = {
            "layers": distance_table(result).to_dict("records"),
            "mean_spearman": float(own["mean_spearman"]),
            "mean_p_value": float(own["mean_p_value"]),
        }
    if "cause" in result:
        document["cause"] = {
            "pairs": pairs(result).to_dict("records"),
            "ranking": ranking(result).to_dict("records"),
        }
    found: dict[str, Any] = without_nan(document)
    return found
