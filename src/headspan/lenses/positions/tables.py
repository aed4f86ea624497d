"""The result as rows and as JSON: tables, deciles and corners, matrices of every layer, heads, directions, logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import LAYER, ROLES, HeadLabel, head_axis
from headspan.lenses.saving import without_nan

SCHEMA = "headspan.positions/1"
TABLE_NAMES = ("rank", "participation_ratio", "stable_rank", "rank_90", "rank_99")
ROW_NAMES = ("row_norm_variation", "cosine_mean", "cosine_sd")


def table(result: xr.Dataset) -> pd.DataFrame:
    """One row per layer, matrix (whole, or one head of it) and table: its alignment with chance, z and p."""
    return pd.DataFrame([*_matrix_rows(result), *_head_rows(result)])


def _matrix_rows(result: xr.Dataset) -> list[dict[str, Any]]:
    rows = []
    for layer in result[LAYER].values:
        for matrix in result["matrix"].values:
            for name in result["table"].values:
                here = result.sel({LAYER: layer, "matrix": matrix, "table": name})
                row = {"layer": int(layer), "matrix": str(matrix), "head": "all", "table": str(name)}
                row |= _scores(here, "alignment") | _scores(here, "energy_alignment")
                rows.append(row)
    return rows


def _head_rows(result: xr.Dataset) -> list[dict[str, Any]]:
    rows = []
    for role in ROLES:
        axis = head_axis(role)
        grouped = axis == "kv_head" and result.sizes[axis] != result.sizes["head"]
        for layer in result[LAYER].values:
            for head in result[axis].values:
                for name in result["table"].values:
                    here = result.sel({LAYER: layer, axis: head, "table": name})
                    label = str(HeadLabel(int(layer), int(head), kv=grouped))
                    row = {"layer": int(layer), "matrix": role, "head": label, "table": str(name)}
                    rows.append(row | _scores(here, f"head_alignment_{role}", "alignment"))
    return rows


def _scores(here: xr.Dataset, name: str, title: str | None = None) -> dict[str, float]:
    title = name if title is None else title
    values = {title + part: float(here[name + part]) for part in ("", "_chance", "_z")}
    return values | {f"{title}_p_value": p_value(float(here[f"{name}_log_p"]))}


def p_value(log_p: float) -> float:
    """exp(log p), 0 where that is too small for a float."""
    return math.exp(log_p) if math.isfinite(log_p) or log_p < 0 else float("nan")


def as_json(result: xr.Dataset) -> dict[str, Any]:
    """Everything but the overlaps as plain values, NaN as None."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "provenance": dict(result.attrs),
        "left_out": [line for line in result.attrs["left_out"].split("; ") if line],
        "tables": _tables(result),
        "matrices": _matrix_rows(result),
        "heads": _head_rows(result),
    }
    if "capture" in result:
        document |= {"deciles": _deciles(result), "corners": _corners(result), "angles": _angles(result)}
        document["mean_rows"] = {
            name: float(result[name])
            for name in ("mean_cosine", "mean_cosine_sd_chance", "mean_capture", "mean_capture_chance")
        }
    if "sparsity_gini" in result:
        document["position_directions"] = _directions(result)
    if "logit_share" in result:
        document["logits"] = _logits(result)
    cleaned: dict[str, Any] = without_nan(document)
    return cleaned


def _tables(result: xr.Dataset) -> list[dict[str, Any]]:
    rows = []
    for name in result["table"].values:
        for centring in result["centring"].values:
            here = result.sel(table=name, centring=centring)
            row: dict[str, Any] = {"table": str(name), "centring": str(centring), "rows": int(here["rows"])}
            row |= {"mean_share": float(here["mean_share"]), "mean_share_chance": float(here["mean_share_chance"])}
            for title in (*TABLE_NAMES, *ROW_NAMES):
                row |= {title: float(here[title]), f"{title}_chance": float(here[f"{title}_chance"])}
            rows.append(row)
    return rows


def _deciles(result: xr.Dataset) -> list[dict[str, Any]]:
    rows = []
    for centring in result["centring"].values:
        for choice in result["k_choice"].values:
            here = result.sel(centring=centring, k_choice=choice)
            for place in range(here.sizes["decile"]):
                row = {
                    "centring": str(centring),
                    "k": int(here["capture_k"]),
                    "k_choice": str(choice),
                    "decile": place + 1,
                }
                cell = here.isel(decile=place)
                row |= {title: float(cell[f"decile{part}"]) for title, part in _PARTS.items()}
                rows.append(row | {"p_value": p_value(float(cell["decile_log_p"]))})
    return rows


_PARTS = {"mass": "", "chance": "_chance", "z": "_z"}


def _corners(result: xr.Dataset) -> list[dict[str, Any]]:
    rows = []
    for centring in result["centring"].values:
        for token in result["token_side"].values:
            for position in result["table_side"].values:
                here = result.sel(centring=centring, token_side=token, table_side=position)
                row: dict[str, Any] = {"centring": str(centring), "E": str(token), "P": str(position)}
                row |= {title: float(here[f"table_corner{part}"]) for title, part in _PARTS.items()}
                rows.append(row | {"p_value": p_value(float(here["table_corner_log_p"]))})
    return rows


def _angles(result: xr.Dataset) -> list[dict[str, Any]]:
    """Principal angles in degrees."""
    return [
        {
            "centring": str(centring),
            "degrees": np.degrees(result["angle"].sel(centring=centring).values).tolist(),
            "degrees_chance": np.degrees(result["angle_chance"].sel(centring=centring).values).tolist(),
            "kernel": float(result["top_kernel"].sel(centring=centring)),
            "kernel_chance": float(result["top_kernel_chance"].sel(centring=centring)),
        }
        for centring in result["centring"].values
    ]


def _directions(result: xr.Dataset) -> list[dict[str, Any]]:
    names = [str(name) for name in result.data_vars if result[name].dims == ("centring", "top_direction")]
    return [
        {"centring": str(centring), "direction": place + 1}
        | {name: float(result[name].sel(centring=centring).values[place]) for name in names}
        for centring in result["centring"].values
        for place in range(result.sizes["top_direction"])
    ]


def _logits(result: xr.Dataset) -> dict[str, Any]:
    terms = [str(term) for term in result["term"].values]
    return {
        "chance": dict(zip(terms, result["logit_share_chance"].values.tolist(), strict=True)),
        "heads": [
            {"head": str(HeadLabel(0, int(head))), "logit_sd": float(result["logit_sd"].values[i])}
            | dict(zip(terms, result["logit_share"].values[i].tolist(), strict=True))
            for i, head in enumerate(result["head"].values)
        ],
    }
