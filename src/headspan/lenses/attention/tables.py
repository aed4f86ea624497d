"""The result as rows and as JSON: heads, layers, and the averaged maps."""

from __future__ import annotations

from typing import Any

import pandas as pd
import xarray as xr

from headspan.dims import HeadLabel
from headspan.lenses.attention.statistics import STATISTICS
from headspan.lenses.saving import without_nan

SCHEMA = "headspan.attention/1"
HEAD_NAMES = ("write_share", *STATISTICS)
LAYER_NAMES = ("mean_cosine", "residual", "effective_rank", "mean_map_rank", "mean_map_relative_entropy")
ANGULAR = ("embedding_correlation", "embedding_p_value", "state_correlation", "state_p_value")


def head_table(result: xr.Dataset) -> pd.DataFrame:
    """One row per head: every statistic, with its chance value beside it."""
    rows = []
    for layer in result["layer"].values:
        for head in result["head"].values:
            here = result.sel(layer=layer, head=head)
            row: dict[str, Any] = {"head": str(HeadLabel(int(layer), int(head)))}
            for name in HEAD_NAMES:
                row |= {name: float(here[name]), f"{name}_chance": float(result[f"{name}_chance"])}
            row |= {"sink_position": float(here["sink_position"]), "map_rank": int(here["map_rank"])}
            row |= {name: float(here[name]) for name in ANGULAR if name in result}
            rows.append(row)
    return pd.DataFrame(rows)


table = head_table


def layer_table(result: xr.Dataset) -> pd.DataFrame:
    """One row per layer: how alike states are, and what becomes of the head average."""
    frame = pd.DataFrame({name: result[name].values for name in LAYER_NAMES}, index=result["layer"].values)
    frame["mean_relative_entropy"] = result["relative_entropy"].mean("head").values
    frame["effective_rank_chance"] = float(result["effective_rank_chance"])
    return frame.rename_axis("layer").reset_index()


def as_json(result: xr.Dataset) -> dict[str, Any]:
    """Everything but the maps of single heads as plain values, NaN as None."""
    document = {
        "schema": SCHEMA,
        "provenance": dict(result.attrs),
        "texts": [str(text) for text in result["query_text"].values],
        "heads": head_table(result).to_dict("records"),
        "layers": layer_table(result).to_dict("records"),
        "maps": {name: result[name].values.tolist() for name in ("mean_map", "write_map", "left_out")},
    }
    found: dict[str, Any] = without_nan(document)
    return found
