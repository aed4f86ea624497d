"""Edges between parts of a model: their tiers, a directed graph of them, and GraphML; for pairs of heads and for all.

An edge is `strong` (mirror FDR at most 0.1), or it `stands out` (q < 0.05), or it is `background`; its tier is empty
where no null tells it from the background.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import networkx as nx

SIGNIFICANT, STRONG = 0.05, 0.10
TIERS = IS_STRONG, STANDS_OUT, BACKGROUND = ("strong", "stands out", "background")
UNKNOWN = ""


def tier_names(
    q: npt.NDArray[np.float64], mirror: npt.NDArray[np.float64] | None, known: npt.NDArray[np.bool_]
) -> npt.NDArray[np.object_]:
    """The tier of every edge from its q-value and, where there is one, its mirror FDR; empty where not `known`.

    Strong edges are some of those that stand out: in a heavy upper tail a mirror FDR can be small where q is not.
    """
    named = np.where(q < SIGNIFICANT, STANDS_OUT, BACKGROUND).astype(object)
    if mirror is not None:
        named[(mirror <= STRONG) & (q < SIGNIFICANT)] = IS_STRONG
    named[~known] = UNKNOWN
    return named


def edge_graph(
    nodes: Mapping[str, Mapping[str, Any]], edges: Iterable[Mapping[str, Any]], key: str, **about: Any
) -> nx.MultiDiGraph:
    """A directed graph of edges with `src` and `dst`, keyed by their `key`.

    Parameters
    ----------
    nodes
        Attributes of every node that an edge may name; a node without an edge is not in the graph.
    edges
        Records; everything but src and dst becomes an attribute.
    key
        Which entry of a record tells edges between the same nodes apart.
    **about
        Attributes of the graph.
    """
    import networkx as nx

    graph = nx.MultiDiGraph(**about)
    for edge in edges:
        for end in (edge["src"], edge["dst"]):
            graph.add_node(end, **nodes[end])
        data = {name: value for name, value in edge.items() if name not in ("src", "dst")}
        graph.add_edge(edge["src"], edge["dst"], key=edge[key], **data)
    return graph


def write_graphml(graph: nx.MultiDiGraph, path: Path) -> None:
    """The graph as GraphML, which Gephi, Cytoscape and igraph read. NaN and None are left out."""
    import networkx as nx

    plain = nx.MultiDiGraph(**graph.graph)
    plain.add_nodes_from((name, _known(data)) for name, data in graph.nodes(data=True))
    for src, dst, key, data in graph.edges(keys=True, data=True):
        plain.add_edge(src, dst, key=key, **_known(data))
    nx.write_graphml(plain, path)


def _known(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value is not None and value == value}
