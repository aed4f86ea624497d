"""Nodes besides heads: any lens brings them whose result has tables of parts and edges."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd

from headspan.explorer.more_nodes import more_nodes
from headspan.schema import Variable


def result(parts: pd.DataFrame, edges: pd.DataFrame, tables: tuple[str, ...] = ("edges", "parts")) -> Any:
    """A stand-in for the result of such a lens."""
    schema = SimpleNamespace(metrics=("share",), nodes={"": (Variable("share", ("src", "dst"), "share of energy"),)})
    frames = {"parts": parts, "edges": edges}
    return SimpleNamespace(tables=tables, table=frames.__getitem__, lens=SimpleNamespace(schema=schema))


PARTS = pd.DataFrame(
    {
        "label": ["W_E", "L0H1", "L0MLP", "L0MLP", "logits", "L0H1"],
        "kind": ["W_E", "Q", "MLP in", "MLP out", "logits", "O"],
        "part_layer": [float("nan"), 0.0, 0.0, 0.0, float("nan"), 0.0],
    }
)
EDGES = pd.DataFrame(
    {
        "src": ["W_E", "L0H1", "L0H1", "L0MLP"],
        "dst": ["L0H1", "L1H0", "L0MLP", "logits"],
        "relation": ["W_E to Q", "O to Q", "O to MLP", "MLP to logits"],
        "share": [0.2, 0.9, 0.4, 0.3],
        "share_null": [0.1] * 4,
        "share_p": [0.01] * 4,
        "share_q": [0.02] * 4,
        "tier": ["stands out", "strong", "background", ""],
    }
)


def test_nodes_are_what_is_no_head_and_edges_are_theirs() -> None:
    found = more_nodes({"wiring": result(PARTS, EDGES)})
    assert found is not None
    assert [(node["id"], node["kind"], node["layer"]) for node in found.nodes] == [
        ("W_E", "embedding", None),
        ("L0MLP", "mlp", 0),
        ("logits", "logits", None),
    ]
    assert list(found.edges["relation"]) == ["O to MLP", "MLP to logits", "W_E to Q"], (
        "strongest first, pairs of heads out"
    )
    assert list(found.edges.columns) == ["src", "dst", "relation", "tier", "score", "expected", "p", "q"]
    assert found.words == "share of energy"


def test_a_page_without_such_a_lens_has_heads_alone() -> None:
    assert more_nodes({}) is None
    assert more_nodes({"other": result(PARTS, EDGES, tables=("edges",))}) is None
    assert more_nodes({"wiring": result(PARTS[:0], EDGES)}) is None
