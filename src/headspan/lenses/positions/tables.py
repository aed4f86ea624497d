"""The result as rows and as JSON: tables, deciles and corners, matrices of every layer, heads, directions, logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import LAYER, ROLES, HeadLabel, Role, head_axis
from headspan.lenses.grid_rows import grid_rows
from headspan.storage import without_nan

SCHEMA = "headspan.positions/1"
TABLE_NAMES = ("rank", "participation_ratio", "stable_rank", "rank_90", "rank_99")
ROW_NAMES = ("row_norm_variation", "cosine_mean", "cosine_sd")
SCORE_PARTS = ("", "_chance", "_z", "_log_p")


def table(result: xr.Dataset) -> pd.DataFrame:
    """One row per layer, matrix (whole, or one head of it) and table: its alignment with chance, z and p."""
    return pd.concat([_matrix_table(result), _head_table(result)], ignore_index=True)


def _matrix_table(result: xr.Dataset) -> pd.DataFrame:
    names = ("alignment", "energy_alignment")
    here = grid_rows(result, [name + part for name in names for part in SCORE_PARTS], (LAYER, "matrix", "table"))
    rows = {"layer": here[LAYER], "matrix": here["matrix"], "head": "all", "table": here["table"]}
    return pd.DataFrame(rows | _scores(here, names[0]) | _scores(here, names[1]))


def _head_table(result: xr.Dataset) -> pd.DataFrame:
    return pd.concat([_heads_of(result, role) for role in ROLES], ignore_index=True)


def _heads_of(result: xr.Dataset, role: Role) -> pd.DataFrame:
    axis, name = head_axis(role), f"head_alignment_{role}"
    grouped = axis == "kv_head" and result.sizes[axis] != result.sizes["head"]
    here = grid_rows(result, [name + part for part in SCORE_PARTS], (LAYER, axis, "table"))
    labels = [str(HeadLabel(layer, head, kv=grouped)) for layer, head in zip(here[LAYER], here[axis], strict=True)]
    rows = {"layer": here[LAYER], "matrix": role, "head": labels, "table": here["table"]}
    return pd.DataFrame(rows | _scores(here, name, "alignment"))


def _scores(here: pd.DataFrame, name: str, title: str | None = None) -> dict[str, Any]:
    """The columns of one score; the p-value takes the place of its logarithm."""
    title = name if title is None else title
    values = {title + part: here[name + part] for part in SCORE_PARTS[:-1]}
    return values | {f"{title}_p_value": [p_value(each) for each in here[name + SCORE_PARTS[-1]]]}


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
        "matrices": _matrix_table(result).to_dict("records"),
        "heads": _head_table(result).to_dict("records"),
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
