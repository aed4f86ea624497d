"""An affinity result as one table of pairs and as the JSON document of the command line."""

from __future__ import annotations

from typing import Any

import pandas as pd
import xarray as xr

from headspan.lenses.affinity.edges import edges, pairing_node, pairings_of
from headspan.lenses.affinity.hubs import hub_scores, ranked_hubs
from headspan.lenses.affinity.lens import METRICS, VARIABLES

SUMMARY = ("n_pairs", "mean", "mean_low", "mean_high", "std", "chance_mean", "chance_std", "kl")
DIRECTION = ("direction", "direction_p_value", "direction_ks")


def table(result: xr.DataTree) -> pd.DataFrame:
    """Every composing pair of every pairing and metric, strongest first within each."""
    parts = []
    for pairing in pairings_of(result):
        for metric in metrics_of(result, pairing):
            part = edges(result, pairing, metric)
            part.insert(0, "metric", metric)
            part.insert(0, "pairing", pairing)
            parts.append(part)
    return pd.concat(parts, ignore_index=True)


def metrics_of(result: xr.DataTree, pairing: str) -> list[str]:
    """The metrics a pairing has."""
    return [metric for metric in METRICS if VARIABLES[metric][0] in pairing_node(result, pairing)]


def as_json(result: xr.DataTree, top: int = 20, null: str = "haar") -> dict[str, Any]:
    """`{"schema": "headspan.affinity/1", "provenance", "pairings": {"OQ": {"pk": {...}, "cs": {...}}}, "hubs": [...]}`.

    p- and q-values of the `top` pairs are under `null`; what a score does not define is NaN, null in the file.
    """
    pairings = {
        pairing: {metric: _metric_json(result, pairing, metric, top, null) for metric in METRICS}
        for pairing in pairings_of(result)
    }
    return {
        "schema": "headspan.affinity/1",
        "provenance": dict(result.attrs),
        "null": null,
        "pairings": pairings,
        "hubs": _hubs_json(result),
    }


def _metric_json(result: xr.DataTree, pairing: str, metric: str, top: int, null: str) -> dict[str, Any] | None:
    if metric not in metrics_of(result, pairing):
        return None
    node = pairing_node(result, pairing)
    best = edges(result, pairing, metric, top)
    numbers = {name: float(node[name].sel(metric=metric)) for name in (*SUMMARY, *DIRECTION) if name in node}
    return {
        **numbers,
        "n_pairs": int(numbers["n_pairs"]),
        "top": [
            {
                "src": edge["src"],
                "dst": edge["dst"],
                "score": edge["score"],
                "p_value": edge[f"p_value_{null}"],
                "q_value": edge[f"q_value_{null}"],
            }
            for edge in best.to_dict("records")
        ],
    }


def _hubs_json(result: xr.DataTree) -> list[dict[str, Any]]:
    composing = [pairing for pairing in ("OQ", "OK", "OV") if pairing in pairings_of(result)]
    if not composing or any("pk" not in metrics_of(result, pairing) for pairing in composing):
        return []
    hubs: list[dict[str, Any]] = ranked_hubs(hub_scores(result)).to_dict("records")
    return hubs
