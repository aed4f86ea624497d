"""The wiring graph: heads as nodes, the strongest or most significant affinities as directed edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import networkx as nx
import pandas as pd
import xarray as xr

from headspan.dims import COMPOSING, HeadLabel
from headspan.errors import ShapeError
from headspan.lenses.affinity.edges import edges, pairings_of
from headspan.lenses.affinity.lens import NULLS


def wiring_graph(
    result: xr.DataTree,
    *,
    metric: str = "pk",
    pairings: Sequence[str] | None = None,
    top: int | None = 20,
    above: float | None = None,
    q_below: float | None = None,
    null: str = "anticausal",
    classes: Mapping[str, str] | None = None,
) -> nx.MultiDiGraph:
    """Directed graph of head pairs, one edge per pair and pairing.

    Parameters
    ----------
    result
        An affinity result.
    metric
        `pk` or `cs`.
    pairings
        By default those of OQ, OK, OV that the result holds.
    top
        How many edges per pairing, strongest first; None for no limit (then give `above` or `q_below`).
    above
        Only edges with at least this score.
    q_below, null
        Only edges with at most this q-value under the named null.
    classes
        Head label -> class, kept as a node attribute.

    Returns
    -------
    Graph whose nodes are labels (`L4H7`) with `layer` and `head`, and whose edges, keyed by pairing, have `score`,
    `p_value` and `q_value` under `null`. A head without an edge is not in it.
    """
    if null not in NULLS:
        raise ShapeError(f"unknown null {null!r}; nulls are {', '.join(NULLS)}")
    if top is None and above is None and q_below is None:
        raise ShapeError("a wiring graph needs a limit: top, above or q_below")
    graph = nx.MultiDiGraph(metric=metric, null=null, model=result.attrs.get("model", ""))
    for pairing in pairings or [name for name in COMPOSING if name in pairings_of(result)]:
        table = _chosen(edges(result, pairing, metric), top, above, q_below, null)
        for edge in table.to_dict("records"):
            for side in ("src", "dst"):
                label = edge[side]
                graph.add_node(label, layer=int(edge[f"{side}_layer"]), head=int(edge[f"{side}_head"]))
            significance = {kind: float(edge[f"{kind}_{null}"]) for kind in ("p_value", "q_value")}
            graph.add_edge(
                edge["src"], edge["dst"], key=pairing, pairing=pairing, score=float(edge["score"]), **significance
            )
    for label, name in (classes or {}).items():
        if label in graph:
            graph.nodes[label]["class"] = name
    return graph


def _chosen(
    table: pd.DataFrame, top: int | None, above: float | None, q_below: float | None, null: str
) -> pd.DataFrame:
    if above is not None:
        table = table[table["score"] >= above]
    if q_below is not None:
        table = table[table[f"q_value_{null}"] <= q_below]
    return table if top is None else table.head(top)


def communities(graph: nx.MultiDiGraph, seed: int = 0) -> list[list[str]]:
    """Groups of heads that are wired among themselves more than to others (Louvain on the undirected scores).

    Largest first, heads in order of layer. Under chance a graph of this size has communities too: they describe the
    drawing, they prove nothing.
    """
    flat = nx.Graph()
    for src, dst, score in graph.edges(data="score"):
        weight = flat.get_edge_data(src, dst, {"weight": 0.0})["weight"]
        flat.add_edge(src, dst, weight=weight + score)
    groups: Iterable[set[str]] = nx.community.louvain_communities(flat, seed=seed) if flat else []
    return sorted((sorted(group, key=HeadLabel.parse) for group in groups), key=lambda group: (-len(group), group))


def write_graphml(graph: nx.MultiDiGraph, path: Path) -> None:
    """The graph as GraphML, which Gephi, Cytoscape and igraph read. NaN attributes are left out."""
    plain = nx.MultiDiGraph(**graph.graph)
    plain.add_nodes_from(graph.nodes(data=True))
    for src, dst, key, data in graph.edges(keys=True, data=True):
        plain.add_edge(src, dst, key=key, **{name: value for name, value in data.items() if value == value})
    nx.write_graphml(plain, path)
