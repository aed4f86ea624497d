"""The comparison as rows: edges that changed, matrices with their spectra, heads with their drift. For all outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import PAIR_DIMS, HeadLabel
from headspan.lenses import drift
from headspan.lenses.compare.rewiring import GAINED, LOST, STATUS
from headspan.storage import without_nan

SCHEMA = "headspan.compare/1"
EDGE_VALUES = (
    "kernel_before",
    "kernel_after",
    "change",
    "change_chance",
    "change_sd",
    "change_z",
    "p_value",
    "q_value",
    "q_before",
    "q_after",
)
SHOWN = 50


def wiring_pairings(result: xr.DataTree) -> list[str]:
    """The pairings whose edges were compared; none for a model of one layer."""
    return list(result["wiring"].children) if "wiring" in result.children else []


def edge_changes(result: xr.DataTree, pairing: str, status: str | None = None) -> pd.DataFrame:
    """The composing pairs of a pairing, largest change first: all, or those of one status (`gained`, `lost`, `kept`).

    Returns
    -------
    Table with `src`, `dst` (labels), the four indices, kernels before and after, the change with its chance value, z,
    p and q, the q-values of the edge itself before and after, and `status`. Ties keep the order of the heads.
    """
    node = result[f"wiring/{pairing}"].to_dataset()
    change = node["change"].transpose(*PAIR_DIMS).values
    chosen = ~np.isnan(change)
    if status is not None:
        chosen &= node["status"].transpose(*PAIR_DIMS).values == STATUS.index(status)
    where = np.argwhere(chosen)
    where = where[np.argsort(-np.abs(change[tuple(where.T)]), kind="stable")]
    at = tuple(where.T)
    layers = node["src_layer"].values[where[:, 0]], node["dst_layer"].values[where[:, 2]]
    columns: dict[str, Any] = {"pairing": pairing}
    for side, place in (("src", 0), ("dst", 1)):
        kv = bool(node.attrs[f"{side}_kv"])
        heads = where[:, 2 * place + 1]
        columns[side] = [str(HeadLabel(int(i), int(j), kv)) for i, j in zip(layers[place], heads, strict=True)]
        columns |= {f"{side}_layer": layers[place], f"{side}_head": heads}
    columns |= {name: node[name].transpose(*PAIR_DIMS).values[at] for name in EDGE_VALUES}
    columns["status"] = [STATUS[value] for value in node["status"].transpose(*PAIR_DIMS).values[at]]
    return pd.DataFrame(columns, index=range(len(where)))


def turnover(result: xr.DataTree, pairing: str) -> dict[str, int]:
    """How many edges were kept, gained and lost, and how many of the last two changed beyond the null."""
    node, level = result[f"wiring/{pairing}"].to_dataset(), float(result.attrs["level"])
    status, certain = node["status"].values, node["q_value"].values < level
    counts = {name: int((status == place).sum()) for place, name in enumerate(STATUS) if name != "absent"}
    turned = np.isin(status, (GAINED, LOST))
    return counts | {"beyond_null": int((turned & certain).sum()), "changed": int(certain.sum())}


def spectra_table(result: xr.DataTree) -> pd.DataFrame:
    """One row per matrix: distance of its two spectra, and what sums them up before and after."""
    parts = [_kind_table(kind, node.to_dataset()) for kind, node in result["spectra"].children.items()]
    return pd.concat(parts, ignore_index=True)


def _kind_table(kind: str, node: xr.Dataset) -> pd.DataFrame:
    axes = [str(axis) for axis in node["ks"].dims]
    names = [str(name) for name in node.data_vars if "rank" not in node[name].dims]
    grid = np.meshgrid(*(node[axis].values for axis in axes), indexing="ij") if axes else []
    size = node["ks"].size
    columns: dict[str, Any] = {"kind": [kind] * size}
    columns |= {name: np.full(size, -1) for name in ("layer", "head")}
    columns |= {"head" if axis == "kv_head" else axis: array.ravel() for axis, array in zip(axes, grid, strict=True)}
    columns |= {name: np.broadcast_to(node[name].values, node["ks"].shape).ravel() for name in names}
    return pd.DataFrame(columns)


def table(result: xr.DataTree) -> pd.DataFrame:
    """One row per head and role, as the drift gives it."""
    return drift.table(result["drift"].to_dataset())


def as_json(result: xr.DataTree, shown: int = SHOWN) -> dict[str, Any]:
    """Heads, matrices and, per pairing, how many edges turned over and the `shown` largest changes of each status."""
    wiring = {}
    for pairing in wiring_pairings(result):
        edges = {name: edge_changes(result, pairing, name)[:shown].to_dict("records") for name in ("gained", "lost")}
        largest = edge_changes(result, pairing)[:shown].to_dict("records")
        wiring[pairing] = {"counts": turnover(result, pairing), **edges, "largest_changes": largest}
    document = {
        "schema": SCHEMA,
        "provenance": dict(result.attrs),
        "heads": table(result).to_dict("records"),
        "wiring": wiring,
        "spectra": spectra_table(result).to_dict("records"),
    }
    plain: dict[str, Any] = without_nan(document)
    return plain
