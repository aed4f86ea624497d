"""The composing pairs of an affinity result as a ranked table: the common ground of graphs, tables and reports."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import PAIR_DIMS, HeadLabel
from headspan.errors import ShapeError
from headspan.lenses.affinity.lens import NULLS, VARIABLES


def pairings_of(result: xr.DataTree) -> list[str]:
    """The pairings an affinity result holds."""
    return list(result.children)


def pairing_node(result: xr.DataTree, pairing: str) -> xr.Dataset:
    """One pairing's dataset."""
    if pairing not in result.children:
        raise ShapeError(f"pairing {pairing} was not computed; this result holds {', '.join(pairings_of(result))}")
    return result[pairing].to_dataset()


def is_sketched(result: xr.DataTree) -> bool:
    """Whether the result holds verified pairs only, not a table of all pairs."""
    return bool(result.attrs.get("algorithm") == "sketch")


def edges(result: xr.DataTree, pairing: str, metric: str = "pk", top: int | None = None) -> pd.DataFrame:
    """The composing pairs of a pairing, highest score first: all of them, or the `top` strongest.

    Returns
    -------
    Table with `src`, `dst` (labels such as L4H7; L4K3 for a kv head of a grouped model), the four indices, `score`, and
    for each null `p_value_<null>` and `q_value_<null>`. Ties keep the order of the heads. Of a sketch, the pairs that
    were verified.
    """
    node = pairing_node(result, pairing)
    name = VARIABLES[metric][0]
    if name not in node:
        only = "a sketch has" if is_sketched(result) else f"pairing {pairing} has"
        raise ShapeError(f"{only} no {metric}; the composition score is defined for OQ, OK and OV, of all pairs")
    if is_sketched(result):
        return _verified_edges(node, metric, top)
    scores = node[name].transpose(*PAIR_DIMS).values
    where = np.argwhere(~np.isnan(scores))
    order = np.argsort(-scores[tuple(where.T)], kind="stable")
    where = where[order[:top]]
    at = tuple(where.T)
    src_layer, dst_layer = node["src_layer"].values[where[:, 0]], node["dst_layer"].values[where[:, 2]]
    columns = {
        "src": head_labels(src_layer, where[:, 1], bool(node.attrs["src_kv"])),
        "dst": head_labels(dst_layer, where[:, 3], bool(node.attrs["dst_kv"])),
        "src_layer": src_layer,
        "src_head": where[:, 1],
        "dst_layer": dst_layer,
        "dst_head": where[:, 3],
        "score": scores[at],
    }
    for null in NULLS:
        for kind in ("p_value", "q_value"):
            values = node[kind].sel(metric=metric, null=null).transpose(*PAIR_DIMS).values
            columns[f"{kind}_{null}"] = values[at]
    return pd.DataFrame(columns)


def head_labels(layers: np.ndarray, heads: np.ndarray, kv: bool = False) -> np.ndarray:
    """`L4H7` for every layer and head as an array of strings; each distinct one is written once, for speed."""
    width = int(heads.max(initial=0)) + 1
    codes, places = np.unique(layers.astype(np.int64) * width + heads, return_inverse=True)
    written = [str(HeadLabel(int(code) // width, int(code) % width, kv)) for code in codes]
    return np.array(written, dtype=object)[places]


def _verified_edges(node: xr.Dataset, metric: str, top: int | None) -> pd.DataFrame:
    """The pairs of a sketch, which are in order already."""
    node = node.isel(pair=slice(top))
    places = {name: node[f"pair_{name}"].values for name in ("src_layer", "src_head", "dst_layer", "dst_head")}
    columns = {
        "src": head_labels(places["src_layer"], places["src_head"], bool(node.attrs["src_kv"])),
        "dst": head_labels(places["dst_layer"], places["dst_head"], bool(node.attrs["dst_kv"])),
        **places,
        "score": node["projection_kernel"].values,
    }
    for null in NULLS:
        for kind in ("p_value", "q_value"):
            columns[f"{kind}_{null}"] = node[kind].sel(metric=metric, null=null).values
    return pd.DataFrame(columns)


def top_edges(result: xr.DataTree, pairing: str, metric: str = "pk", top: int = 20) -> pd.DataFrame:
    """The `top` strongest pairs, or all of them where there are fewer."""
    if top < 1:
        raise ShapeError(f"top = {top} asks for no pair; it is at least 1")
    return edges(result, pairing, metric, top)
