"""The result as rows and as JSON: heads, layers, the averaged maps; for a few-shot prompt also shots and clues."""

from __future__ import annotations

from typing import Any

import pandas as pd
import xarray as xr

from headspan.dims import HeadLabel
from headspan.lenses.attention.statistics import STATISTICS
from headspan.lenses.grid_rows import grid_rows
from headspan.lenses.saving import without_nan

SCHEMA = "headspan.attention/1"
HEAD_NAMES = ("write_share", *STATISTICS)
LAYER_NAMES = ("mean_cosine", "residual", "effective_rank", "mean_map_rank", "mean_map_relative_entropy")
ANGULAR = ("embedding_correlation", "embedding_p_value", "state_correlation", "state_p_value")
SHOT_NAMES = ("within", "within_chance", "within_sd", "within_p_value", "across", "own_word", "other_word")

Result = xr.Dataset | xr.DataTree


def maps_of(result: Result) -> xr.Dataset:
    """The maps of a prompt: the result itself, or its part `map` where the prompt has shots."""
    return result["map"].to_dataset() if isinstance(result, xr.DataTree) else result


def table(result: Result) -> pd.DataFrame:
    """One row per head: every statistic beside its chance value, and what stays within shots where there are any."""
    rows = head_table(maps_of(result))
    return rows.merge(shot_table(result), on="head") if isinstance(result, xr.DataTree) else rows


def head_table(maps: xr.Dataset) -> pd.DataFrame:
    """One row per head of the maps."""
    angular = [name for name in ANGULAR if name in maps]
    here = grid_rows(maps, [*HEAD_NAMES, "sink_position", "map_rank", *angular], ("layer", "head"))
    rows: dict[str, Any] = {"head": _labels(here)}
    for name in HEAD_NAMES:
        rows |= {name: here[name], f"{name}_chance": float(maps[f"{name}_chance"])}
    return pd.DataFrame(rows | {name: here[name] for name in ("sink_position", "map_rank", *angular)})


def _labels(rows: pd.DataFrame) -> list[str]:
    return [str(HeadLabel(layer, head)) for layer, head in zip(rows["layer"], rows["head"], strict=True)]


def layer_table(maps: xr.Dataset) -> pd.DataFrame:
    """One row per layer: how alike states are, and what becomes of the head average."""
    frame = pd.DataFrame({name: maps[name].values for name in LAYER_NAMES}, index=maps["layer"].values)
    frame["mean_relative_entropy"] = maps["relative_entropy"].mean("head").values
    frame["effective_rank_chance"] = float(maps["effective_rank_chance"])
    return frame.rename_axis("layer").reset_index()


def shot_table(result: xr.DataTree) -> pd.DataFrame:
    """One row per head of a few-shot prompt: what stays within shots, and what goes from clues to words."""
    here = grid_rows(result["shots"].to_dataset(), [*SHOT_NAMES, "own_word_chance"], ("layer", "head"))
    frame = here.drop(columns="layer").assign(head=_labels(here))
    frame["within_z"] = (frame["within"] - frame["within_chance"]) / frame["within_sd"].where(frame["within_sd"] > 0)
    return frame


def as_json(result: Result) -> dict[str, Any]:
    """Everything but the maps of single heads as plain values, NaN as None."""
    maps = maps_of(result)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "provenance": {**maps.attrs, **result.attrs},
        "texts": [str(text) for text in maps["query_text"].values],
        "heads": head_table(maps).to_dict("records"),
        "layers": layer_table(maps).to_dict("records"),
        "maps": {name: maps[name].values.tolist() for name in ("mean_map", "write_map", "left_out")},
    }
    if isinstance(result, xr.DataTree):
        within = shot_table(result).sort_values("within_z", ascending=False, kind="stable")
        document["few_shot"] = {
            "within": within.to_dict("records"),
            "shot_map": result["shots"].to_dataset()["shot_map"].values.tolist(),
            "clues": _records(result["clues"].to_dataset()),
            "likelihood": _records(result["likelihood"].to_dataset()),
        }
    found: dict[str, Any] = without_nan(document)
    return found


def _records(dataset: xr.Dataset) -> list[dict[str, Any]]:
    frame = dataset.to_dataframe().reset_index()
    records: list[dict[str, Any]] = frame.drop(columns="target", errors="ignore").to_dict("records")
    return records
