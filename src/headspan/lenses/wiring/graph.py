"""The result as edges between named nodes, and as a graph: what is exported, drawn and told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headspan.lenses.graph import BACKGROUND, UNKNOWN, edge_graph
from headspan.lenses.wiring.parts import part_id
from headspan.lenses.wiring.schema import ROTATION
from headspan.result import Result

if TYPE_CHECKING:
    import networkx as nx

INSIDE = "inside"
"""The relation of edges that lead through a part: Q, K and V of a head to its O, an MLP's in to its out."""
NEURON_SIDES = ("gate", "up", "in", "out")


def relations(result: Result) -> list[str]:
    """The kinds of edges that a result holds, such as `MLP to Q`."""
    return [str(name) for name in result.data.children if " to " in str(name)]


def ends(relation: str) -> tuple[str, str]:
    """Source and destination of a relation."""
    src, _, dst = relation.partition(" to ")
    return src, dst


def edges(result: Result, relation: str, null: str | None = None) -> pd.DataFrame:
    """The edges of one kind, highest share first.

    Parameters
    ----------
    result
        A wiring result.
    relation
        Such as `MLP to Q`.
    null
        Under which null; the relation's first by default.

    Returns
    -------
    DataFrame
        `relation`, `src`, `dst` (nodes: `L4H11.O`, `L3MLP.in`, `W_E`), `src_label`, `dst_label`, their layers (NaN for
        tables and logits), `score`, `expected`, `z`, `p`, `q`, `rotation` (what a random rotation gives on average),
        `tier`, `null`.
    """
    node = result.dataset(relation)
    null = str(node["null"].values[0]) if null is None else null
    values = node["share"].values
    known = np.flatnonzero(~np.isnan(values))
    at = known[np.argsort(-values.ravel()[known], kind="stable")]
    places = dict(zip(("src", "dst"), np.unravel_index(at, values.shape), strict=True))
    kinds = dict(zip(("src", "dst"), ends(relation), strict=True))
    columns: dict[str, Any] = {"relation": relation}
    for side in ("src", "dst"):
        kind = "MLP" if kinds[side] in NEURON_SIDES else kinds[side]
        labels = np.array([part_id(kind, str(label), side) for label in node[side].values], dtype=object)
        columns[side] = labels[places[side]]
        columns[f"{side}_label"] = node[side].values[places[side]]
        layer = f"{side}_layer"
        columns[layer] = node[layer].values[places[side]].astype(float) if layer in node.coords else np.nan
    columns["score"] = values.ravel()[at]
    for name, part in (("expected", "null"), ("z", "z"), ("p", "p"), ("q", "q")):
        columns[name] = node[f"share_{part}"].sel(null=null).values.ravel()[at]
    columns["rotation"] = node["share_null"].sel(null=ROTATION).values.ravel()[at]
    tier = node["tier"].values.ravel()[at] if null == str(node["null"].values[0]) else UNKNOWN
    table = pd.DataFrame({**columns, "tier": tier, "null": null}, index=range(len(at)))
    return table[["relation", "src", "dst", *(name for name in table if name not in ("relation", "src", "dst"))]]


def shown_edges(table: pd.DataFrame, top: int) -> pd.DataFrame:
    """The edges that stand out, and the `top` of the highest share."""
    return table[table["tier"].isin((BACKGROUND, UNKNOWN)).to_numpy() <= (np.arange(len(table)) < top)]


def wiring_graph(result: Result, top: int | None = None) -> nx.MultiDiGraph:
    """Directed graph of all parts: of each kind of edge those that stand out and the `top` of the highest share.

    Nodes have `kind`, `layer`, `label`, `dimension`; edges, keyed by their relation, have `score`, `expected`, `z`,
    `p`, `q`, `tier` and `null`. Edges of the relation `inside` lead through a head or an MLP, so that a path can be
    followed from the tables to the logits.
    """
    top = int(result.attrs["top"]) if top is None else top
    parts = {str(row.pop("part")): row for row in result.table("parts").to_dict("records")}
    nodes = {
        name: {"kind": row["kind"], "layer": row["part_layer"], "label": row["label"], "dimension": row["dimension"]}
        for name, row in parts.items()
    }
    chosen: list[dict[str, Any]] = []
    for relation in relations(result):
        table = shown_edges(edges(result, relation), top)
        chosen += table.drop(columns=["src_label", "dst_label", "src_layer", "dst_layer", "rotation"]).to_dict(
            "records"
        )
    if not result.attrs["neurons"]:
        chosen += list(_inside(result, nodes))
    graph = edge_graph(nodes, chosen, "relation", model=result.attrs.get("model", ""), fold=result.attrs["fold"])
    if not result.attrs["neurons"]:
        graph.add_nodes_from((name, data) for name, data in nodes.items() if name not in graph)
    return graph


def _inside(result: Result, nodes: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Edges through heads and MLPs; every query head of a group has its own to the keys and values that it uses."""
    group = int(result.attrs["n_heads"]) // int(result.attrs["n_kv_heads"])
    for name, data in nodes.items():
        if data["kind"] == "MLP in" and f"{data['label']}.out" in nodes:
            yield {"src": name, "dst": f"{data['label']}.out", "relation": INSIDE}
        if data["kind"] != "O":
            continue
        layer, _, head = data["label"][1:].partition("H")
        shared = data["label"] if group == 1 else f"L{layer}K{int(head) // group}"
        for role, label in (("Q", data["label"]), ("K", shared), ("V", shared)):
            if f"{label}.{role}" in nodes:
                yield {"src": f"{label}.{role}", "dst": name, "relation": INSIDE}
