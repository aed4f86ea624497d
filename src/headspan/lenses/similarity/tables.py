"""The result as rows: one per head, one per layer, and the closest pairs. For tables, JSON and findings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import LAYER, HeadLabel
from headspan.storage import without_nan

SCHEMA = "headspan.similarity/1"
COLUMNS = {
    "rank_Q": "rank_Q",
    "rank_K": "rank_K",
    "degenerate": "degenerate",
    "grassmann": "grassmann",
    "grassmann_chance": "grassmann_chance",
    "grassmann_z": "grassmann_z",
    "projection_kernel": "projection_kernel",
    "projection_kernel_chance": "projection_kernel_chance",
    "projection_kernel_z": "projection_kernel_z",
    "p_value": "p_value",
    "q_value": "q_value",
    "own_key_place": "own_key_place",
    "shared_null_dimension": "null_dimension",
    "dimension": "dimension",
    "layer_cluster": "layer_cluster",
}


def table(result: xr.Dataset) -> pd.DataFrame:
    """One row per head: query space against key space, with chance; angles in degrees."""
    layers, heads = np.meshgrid(result[LAYER].values, result["head"].values, indexing="ij")
    labels = [str(HeadLabel(int(i), int(j))) for i, j in zip(layers.flat, heads.flat, strict=True)]
    columns: dict[str, Any] = {"label": labels, "layer": layers.ravel(), "head": heads.ravel()}
    columns |= {title: result[name].values.ravel() for name, title in COLUMNS.items()}
    angles = np.degrees(result["angles_RQ_RK"].values)
    angles = angles.reshape(-1, angles.shape[-1])
    # Ascending with NaN behind, so the first is the smallest; fmax passes over NaN without a warning.
    columns["smallest_angle"] = angles[:, 0]
    columns["largest_angle"] = np.fmax.reduce(angles, axis=1)
    return pd.DataFrame(columns)


def closest_pairs(result: xr.Dataset, count: int = 10) -> list[dict[str, Any]]:
    """The pairs of heads with the smallest distance for their chance value, over all layers or within each.

    Ranked by distance / chance, so that spaces of different dimensions, and heads that share a key, compare fairly.
    """
    prefix = "" if "distance" in result else "layer_"
    distance, chance, z = (result[f"{prefix}distance{part}"].values for part in ("", "_chance", "_z"))
    labels = _labels(result)
    if prefix:
        layer, src, dst = np.nonzero(np.broadcast_to(np.triu(np.ones(distance.shape[1:]), 1), distance.shape))
        index: tuple[np.ndarray, ...] = (layer, src, dst)
        first, second = labels[layer, src], labels[layer, dst]
    else:
        n = labels.size
        src, dst = np.triu_indices(n, 1)
        distance, chance, z = (values.reshape(n, n) for values in (distance, chance, z))
        index, first, second = (src, dst), labels.ravel()[src], labels.ravel()[dst]
    distance, chance, z = distance[index], chance[index], z[index]
    known = np.flatnonzero(np.isfinite(distance) & (chance > 0))
    order = known[np.argsort(distance[known] / chance[known], kind="stable")][:count]
    columns = {"src": first, "dst": second, "distance": distance, "chance": chance, "z": z}
    return [{name: values[k] for name, values in columns.items()} for k in order]


def _labels(result: xr.Dataset) -> np.ndarray:
    """[layer, head]: how heads are written."""
    return np.array(
        [[str(HeadLabel(int(i), int(j))) for j in result["head"].values] for i in result[LAYER].values], dtype=object
    )


def as_json(result: xr.Dataset) -> dict[str, Any]:
    """Heads, layers and closest pairs as plain values, NaN as None."""
    layers = [
        {
            "layer": int(layer),
            "diversity": float(result["diversity"].values[i]),
            "chance": float(result["diversity_chance"].values[i]),
            "z": float(result["diversity_z"].values[i]),
        }
        for i, layer in enumerate(result[LAYER].values)
    ]
    document = {
        "schema": SCHEMA,
        "provenance": dict(result.attrs),
        "heads": table(result).to_dict(orient="records"),
        "layers": layers,
        "closest_pairs": closest_pairs(result),
    }
    plain: dict[str, Any] = without_nan(document)
    return plain
