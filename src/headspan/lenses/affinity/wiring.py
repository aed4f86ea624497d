"""The wiring: a result's pairs as ranked edges, the graph of the strongest, and hubs.

A hub is a head that many heads reach and that reaches many. With K(s, t) a pair's kernel, c its value expected under
the haar null and x+ = max(x, 0), its score is by definition

- `excess` (default, no cut to choose): inlet(h) = mean over OQ, OK, OV of (mean over sources of K(s, h) - c)+, and
  outlet(h) the same over destinations; the score is the geometric mean of the two;
- `kernel`: inlet and outlet are the plain means of K, the score is their sum;
- `degree`: inlet and outlet count the head's edges in the union of the top-k graphs, the score is their sum.

A pair is `strong`, or it `stands out`, or it is `background`: see `headspan.lenses.graph`.

Of a sketch the means are those of its unbiased estimates. In a grouped model a pair through K or V ends at a kv head;
its kernel counts for every query head that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import COMPOSING, PAIR_DIMS, PAIRINGS, HeadLabel
from headspan.errors import ArgumentError
from headspan.lenses.affinity.schema import (
    KERNEL,
    METRICS,
    NULLS,
    REVERSE,
    SCHEMA,
    TWO_WAY,
)
from headspan.lenses.graph import UNKNOWN, edge_graph, tier_names
from headspan.result import Result
from headspan.statistics.permutation import Array

if TYPE_CHECKING:
    import networkx as nx

DEFINITIONS = ("excess", "kernel", "degree")


def pairings_of(result: Result) -> list[str]:
    """The pairings an affinity result holds."""
    return [str(name) for name in result.data.children if name in PAIRINGS]


def composing_pairings(result: Result) -> list[str]:
    """Those of OQ, OK and OV that a result holds."""
    return [pairing for pairing in COMPOSING if pairing in result]


def is_sketched(result: Result) -> bool:
    """Whether the result holds verified pairs only, not a table of all pairs."""
    return any("top" in result[pairing].children for pairing in pairings_of(result))


def first_null(result: Result, pairing: str) -> str:
    """The null that is shown where one is."""
    return str(pairs_node(result, pairing)["null"].values[0])


def graph_null(result: Result) -> str | None:
    """The null that tells an edge from the background: two-way, or reverse order in a small model; None in a sketch."""
    known = {str(null) for pairing in pairings_of(result) for null in pairs_node(result, pairing)["null"].values}
    return next((null for null in (TWO_WAY, REVERSE) if null in known), None)


def tiers(pairs: pd.DataFrame) -> list[str]:
    """Of every row of `edges`: strong, stands out or background; empty where no null makes a graph.

    Strong: mirror FDR at most 0.1. Stands out: q < 0.05 under the two-way null, or under reverse order in a model too
    small for it, where no pair is called strong.
    """
    null = next((null for null in (TWO_WAY, REVERSE) if f"q_{null}" in pairs), None)
    if null is None:
        return [UNKNOWN] * len(pairs)
    mirror = pairs["mirror_fdr"].to_numpy(float) if "mirror_fdr" in pairs else None
    everything = np.ones(len(pairs), dtype=bool)
    return [str(name) for name in tier_names(pairs[f"q_{null}"].to_numpy(float), mirror, everything)]


def metrics_of(result: Result, pairing: str) -> list[str]:
    """The scores that a pairing has."""
    node = pairs_node(result, pairing)
    return [metric for metric in METRICS if metric in node]


def pairs_node(result: Result, pairing: str) -> xr.Dataset:
    """The dataset that holds a pairing's scores: over (src, dst), or over the verified pairs of a sketch."""
    if pairing not in result:
        raise ArgumentError(f"pairing {pairing!r} was not computed; this result has {', '.join(pairings_of(result))}")
    return result.dataset(f"{pairing}/top" if "top" in result[pairing].children else pairing)


def edges(result: Result, pairing: str, metric: str = KERNEL, top: int | None = None) -> pd.DataFrame:
    """The composing pairs of a pairing, highest score first: all of them, or the `top` strongest.

    Returns
    -------
    DataFrame
        `src`, `dst` (labels), `src_layer`, `src_index`, `dst_layer`, `dst_index`, `score`, and for each null the result
        has `null_<null>` (the expected score), `z_<null>`, `p_<null>` and `q_<null>`; `mirror_fdr` where it is known,
        and `tier`. Ties keep the order of the heads. Of a sketch, the pairs that were verified.
    """
    name, node = SCHEMA.metric(metric), pairs_node(result, pairing)
    if name not in node:
        there = ", ".join(metrics_of(result, pairing))
        raise ArgumentError(f"metric {name!r} was not computed for {pairing}; this result has {there}")
    scores = node[name].values
    where = np.flatnonzero(~np.isnan(scores))
    at = where[np.argsort(-scores.ravel()[where], kind="stable")[:top]]
    places = dict(zip(node[name].dims, np.unravel_index(at, scores.shape), strict=True))
    columns = {
        f"{side}{part}": node[f"{side}{part}"].values[places.get(side, places.get("pair"))]
        for side in ("src", "dst")
        for part in ("", "_layer", "_index")
    }
    columns["score"] = scores.ravel()[at]
    for null in node["null"].values:
        for part in ("null", "z", "p", "q"):
            columns[f"{part}_{null}"] = node[f"{name}_{part}"].sel(null=null).values.ravel()[at]
    if f"{name}_mirror_fdr" in node:
        columns["mirror_fdr"] = node[f"{name}_mirror_fdr"].values.ravel()[at]
    order = ["src", "dst", *(name for name in columns if name not in ("src", "dst"))]
    table = pd.DataFrame(columns)[order]
    return table.assign(tier=tiers(table))


def wiring_graph(
    result: Result,
    *,
    metric: str = KERNEL,
    pairings: Sequence[str] | None = None,
    top: int | None = 20,
    above: float | None = None,
    q_below: float | None = None,
    null: str | None = None,
    classes: Mapping[str, str] | None = None,
) -> nx.MultiDiGraph:
    """Directed graph of head pairs, one edge per pair and pairing.

    Parameters
    ----------
    result
        An affinity result.
    metric
        `projection_kernel` or `composition_score`.
    pairings
        By default those of OQ, OK, OV that the result holds.
    top
        How many edges per pairing, strongest first; None for no limit (then give `above` or `q_below`).
    above
        Only edges with at least this score.
    q_below, null
        Only edges with at most this q-value under the named null; by default the two-way null, or the one that takes
        its place.
    classes
        Head label -> class, kept as a node attribute.

    Returns
    -------
    MultiDiGraph
        Its nodes are labels (`L4H7`) with `layer` and `head`; its edges, keyed by pairing, have `score`, `tier`, and
        `p` and `q` under `null`. A head without an edge is not in it.
    """
    if null not in (None, *NULLS):
        raise ArgumentError(f"null={null!r} is unknown; nulls are {', '.join(NULLS)}")
    if top is None and above is None and q_below is None:
        raise ArgumentError("a wiring graph needs a limit: top, above or q_below")
    used = pairings or composing_pairings(result)
    null = null or graph_null(result) or first_null(result, used[0])
    chosen: list[dict[str, Any]] = []
    nodes: dict[str, dict[str, Any]] = {}
    for pairing in used:
        table = edges(result, pairing, metric)
        if above is not None:
            table = table[table["score"] >= above]
        if q_below is not None:
            table = table[table[f"q_{null}"] <= q_below]
        for edge in table.head(len(table) if top is None else top).to_dict("records"):
            for side in ("src", "dst"):
                nodes[edge[side]] = {"layer": int(edge[f"{side}_layer"]), "head": int(edge[f"{side}_index"])}
            numbers = {name: float(edge.get(f"{name}_{null}", np.nan)) for name in ("p", "q")}
            ends = {"src": edge["src"], "dst": edge["dst"], "pairing": pairing, "tier": edge["tier"]}
            chosen.append({**ends, **numbers, "score": float(edge["score"])})
    for label, name in (classes or {}).items():
        if label in nodes:
            nodes[label]["class"] = name
    return edge_graph(nodes, chosen, "pairing", metric=metric, null=null, model=result.attrs.get("model", ""))


def communities(graph: nx.MultiDiGraph, seed: int = 0) -> list[list[str]]:
    """Groups of heads that are wired among themselves more than to others (Louvain on the undirected scores).

    Largest first, heads in order of layer. A random graph of this size has communities too: they describe the drawing
    and are no evidence of structure.
    """
    import networkx as nx

    flat = nx.Graph()
    for src, dst, score in graph.edges(data="score"):
        weight = flat.get_edge_data(src, dst, {"weight": 0.0})["weight"]
        flat.add_edge(src, dst, weight=weight + score)
    groups: Iterable[set[str]] = nx.community.louvain_communities(flat, seed=seed) if flat else []
    return sorted((sorted(group, key=HeadLabel.parse) for group in groups), key=lambda group: (-len(group), group))


def has_hubs(result: Result, metric: str = KERNEL) -> bool:
    """Whether every one of OQ, OK, OV that the result holds has the score that hubs are made of."""
    used = composing_pairings(result)
    return bool(used) and all(metric in metrics_of(result, pairing) for pairing in used)


def hub_scores(result: Result, definition: str = "excess", metric: str = KERNEL, top: int = 20) -> xr.Dataset:
    """Inlet, outlet, hub score and rank of every head.

    Returns
    -------
    Dataset
        `inlet`, `outlet`, `hub_score` and `hub_rank` [head], and `n_ranked`. All >= 0; expected under the haar null is
        0 for `excess`, twice the expected kernel for `kernel`. The inlet of the first layer and the outlet of the last
        are NaN: no pair.
    """
    if definition not in DEFINITIONS:
        raise ArgumentError(f"definition={definition!r} of a hub is unknown; known are {', '.join(DEFINITIONS)}")
    used, metric = composing_pairings(result), SCHEMA.metric(metric)
    if not has_hubs(result, metric):
        raise ArgumentError(f"hubs need {metric} of at least one of the pairings OQ, OK, OV in the result")
    if definition == "degree":
        inlet, outlet = _degrees(result, used, metric, top)
    else:
        sides = [_mean_in_and_out(result, pairing, metric, definition == "excess") for pairing in used]
        inlet, outlet = (np.mean([side[i] for side in sides], axis=0).ravel() for i in (0, 1))
    score = np.sqrt(inlet * outlet) if definition == "excess" else inlet + outlet
    rank, known = np.full(len(score), np.nan), np.flatnonzero(~np.isnan(score))
    rank[known[np.argsort(-score[known], kind="stable")]] = np.arange(1, len(known) + 1)
    values = {"hub_score": score, "hub_rank": rank, "inlet": inlet, "outlet": outlet}
    labels = head_node(result, used[0])
    return xr.Dataset(
        {**{name: ("head", each) for name, each in values.items()}, "n_ranked": len(known)},
        coords={f"head{part}": ("head", labels[f"src{part}"].values) for part in ("", "_layer", "_index")},
    )


def head_node(result: Result, pairing: str) -> xr.Dataset:
    """The dataset that has a pairing's sources and destinations as axes."""
    return result.dataset(f"{pairing}/heads" if "heads" in result[pairing].children else pairing)


def ranked_hubs(hubs: xr.Dataset) -> pd.DataFrame:
    """Hubs as a table, highest score first; heads without a score come last."""
    names = ("head", "inlet", "outlet", "hub_score")
    table = pd.DataFrame({name: hubs[name].values for name in names})
    return table.sort_values("hub_score", ascending=False, na_position="last", kind="stable").reset_index(drop=True)


def _mean_in_and_out(result: Result, pairing: str, metric: str, excess: bool) -> tuple[Array, Array]:
    """Mean incoming and outgoing score of every query head, [layer, head], less the null's and clipped if asked."""
    if "heads" in result[pairing].children:
        node = result.grid(f"{pairing}/heads")
        received, outgoing = node["incoming"].values, node["outgoing"].values
    else:
        scores = result.grid(pairing)[metric].transpose(*PAIR_DIMS).values
        received, outgoing = _mean(scores, (0, 1)), _mean(scores, (2, 3))
    incoming = np.repeat(received, outgoing.shape[1] // received.shape[1], axis=1)
    if excess:
        expected = float(result[pairing][f"{metric}_mean_null"])
        incoming, outgoing = np.maximum(incoming - expected, 0), np.maximum(outgoing - expected, 0)
    return incoming, outgoing


def _mean(scores: Array, axes: tuple[int, int]) -> Array:
    """Mean over the pairs that exist; NaN where there is none."""
    known = ~np.isnan(scores)
    count = known.sum(axes).astype(float)
    total = np.where(known, scores, 0.0).sum(axes)
    mean: Array = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    return mean


def _degrees(result: Result, pairings: Sequence[str], metric: str, top: int) -> tuple[Array, Array]:
    """Edges that end and that start at every head in the graphs of the strongest pairs."""
    places = {label: place for place, label in enumerate(head_node(result, pairings[0])["src"].values)}
    inlet, outlet = np.zeros((2, len(places)))
    for pairing in pairings:
        sizes = head_node(result, pairing).sizes
        group = sizes["src"] // sizes["dst"]
        for edge in edges(result, pairing, metric, top).to_dict("records"):
            outlet[places[edge["src"]]] += 1
            first = places[str(HeadLabel(edge["dst_layer"], edge["dst_index"] * group))]
            inlet[first : first + group] += 1
    return inlet, outlet
