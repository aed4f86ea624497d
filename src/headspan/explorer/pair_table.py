"""The pairs of heads that a page carries: all of them, or of a large model the strongest."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import COMPOSING, PAIR_DIMS
from headspan.lenses.affinity import VARIABLES
from headspan.lenses.affinity.edges import head_labels, pairing_node, pairings_of
from headspan.lenses.affinity.lens import NULLS
from headspan.lenses.affinity.tables import metrics_of

STRONGEST_PAIRS = 5000


def carried_pairings(result: xr.DataTree) -> list[str]:
    """OQ, OK and OV as far as a result holds them."""
    return [pairing for pairing in COMPOSING if pairing in pairings_of(result)]


def pair_table(result: xr.DataTree, most: int | None = None) -> pd.DataFrame:
    """Every composing pair of OQ, OK and OV, with both scores, their chance values, p and q.

    Parameters
    ----------
    result
        An affinity result.
    most
        Of how many pairs at most: equally many of each pairing, the strongest by either score.
    """
    pairings = carried_pairings(result)
    parts = [_part(result, pairing, None if most is None else most // len(pairings)) for pairing in pairings]
    return pd.concat(parts, ignore_index=True)


def _part(result: xr.DataTree, pairing: str, most: int | None) -> pd.DataFrame:
    node, metrics = pairing_node(result, pairing), metrics_of(result, pairing)
    scores = {metric: node[VARIABLES[metric][0]].transpose(*PAIR_DIMS).values for metric in metrics}
    there = np.flatnonzero(~np.isnan(next(iter(scores.values()))).ravel())
    if most is not None:
        there = _strongest(there, [values.ravel()[there] for values in scores.values()], most)
    at = np.unravel_index(there, next(iter(scores.values())).shape)
    src_layer, dst_layer = node["src_layer"].values[at[0]], node["dst_layer"].values[at[2]]
    columns = {
        "pairing": np.full(len(there), pairing, dtype=object),
        "src": head_labels(src_layer, at[1], bool(node.attrs["src_kv"])),
        "dst": head_labels(dst_layer, at[3], bool(node.attrs["dst_kv"])),
        "src_layer": src_layer,
        "src_head": at[1],
        "dst_layer": dst_layer,
        "dst_head": at[3],
    }
    for metric, values in scores.items():
        columns |= _metric_columns(node, metric, values[at], at)
    return pd.DataFrame(columns)


def _metric_columns(
    node: xr.Dataset, metric: str, scores: np.ndarray, at: tuple[np.ndarray, ...]
) -> dict[str, np.ndarray]:
    name = VARIABLES[metric][0]
    columns = {name: scores, f"{name}_chance": np.full(len(scores), float(node["chance_mean"].sel(metric=metric)))}
    for null in NULLS:
        for kind in ("p_value", "q_value"):
            values = node[kind].sel(metric=metric, null=null).transpose(*PAIR_DIMS).values
            columns[f"{name}_{kind[0]}_{null}"] = values[at]
    return columns


def _strongest(there: np.ndarray, scores: list[np.ndarray], most: int) -> np.ndarray:
    """The `most` of `there` that rank highest by whichever score ranks them higher, in their own order."""
    ranks = [np.argsort(np.argsort(-values, kind="stable"), kind="stable") for values in scores]
    return there[np.sort(np.argsort(np.min(ranks, axis=0), kind="stable")[:most])]
