"""Nodes of the wiring besides heads: embeddings, MLPs and logits, with the edges that begin or end at them.

Any lens brings them whose result has a table `parts` (every end of an edge with its kind and layer) and a table `edges`
(src, dst, relation, its first metric with expected value, p and q, and a tier).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from headspan.result import Result

HEAD = re.compile(r"L\d+[HK]\d+")
KINDS = {"MLP in": "mlp", "MLP out": "mlp", "W_E": "embedding", "W_pos": "embedding", "logits": "logits"}
"""Kind of a part to the kind of node that it belongs to."""
MOST_EDGES = 5000


@dataclass(frozen=True)
class MoreNodes:
    """What the diagram has besides heads."""

    nodes: list[dict[str, Any]]
    edges: pd.DataFrame
    """src, dst, relation, score, expected, p, q, tier; strongest first."""
    metric: str
    words: str


def more_nodes(results: Mapping[str, Result]) -> MoreNodes | None:
    """The first such result's nodes and edges; None where no lens brings any."""
    for result in results.values():
        if {"parts", "edges"} <= set(result.tables):
            nodes = _nodes(result.table("parts"))
            edges = result.table("edges")
            known = {node["id"] for node in nodes}
            own = edges[edges["src"].isin(known) | edges["dst"].isin(known)]
            if nodes and len(own):
                metric = result.lens.schema.metrics[0]
                return MoreNodes(nodes, _plain(own, metric), metric, _words(result, metric))
    return None


def _nodes(parts: pd.DataFrame) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in parts.to_dict("records"):
        label, kind = str(row["label"]), str(row["kind"])
        if not HEAD.fullmatch(label) and kind in KINDS:
            layer = row["part_layer"]
            number = None if layer is None or layer != layer else int(layer)
            found.setdefault(label, {"id": label, "kind": KINDS[kind], "layer": number, "label": label})
    return list(found.values())


def _plain(edges: pd.DataFrame, metric: str) -> pd.DataFrame:
    names = {metric: "score", f"{metric}_null": "expected", f"{metric}_p": "p", f"{metric}_q": "q"}
    kept = ["src", "dst", "relation", "tier", *(name for name in names if name in edges)]
    plain = edges[kept].rename(columns=names)
    return plain.sort_values("score", ascending=False, kind="stable").head(MOST_EDGES).reset_index(drop=True)


def _words(result: Result, metric: str) -> str:
    for variables in result.lens.schema.nodes.values():
        for variable in variables:
            if variable.name == metric:
                return variable.long_name
    return metric
