"""`headspan wiring`: its options, what it prints, and the graph that it writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headspan.command import Command, Option, Rows, p_text

if TYPE_CHECKING:
    import networkx as nx

    from headspan.result import Result

COMMAND = Command(
    help="Show what tables, heads and MLPs can write to heads, MLPs and logits. "
    "Which heads read the embedding directly: --from W_E --to heads. Which write to the logits: --from heads --to "
    "logits. Which MLPs feed which heads: --from mlp --to heads. Where position information goes: --from W_pos. Which "
    "neurons listen to a head: --neurons L4H11.",
    options={
        "src": Option(
            "Edges from W_E, W_pos, heads, mlp, a head (L4H11) or an MLP (L3MLP); several with commas.",
            str,
            ("--from", "--src"),
        ),
        "dst": Option(
            "Edges to heads, Q, K, V, mlp, logits, a head (L4H11) or an MLP (L3MLP); several with commas.",
            str,
            ("--to", "--dst"),
        ),
        "neurons": Option("The neurons that listen to this head, and those that it reads, such as L4H11.", str),
        "null": Option(
            "peers (heads are compared with those of their layer) or rotation (a random rotation that keeps spectra)."
        ),
        "centering": Option("Tables and logits as stored, or centered: without the mean row that all tokens share."),
        "top": Option("How many edges of each kind to show, and to export beside those that stand out.", int),
    },
)


def graph(result: Result) -> nx.MultiDiGraph:
    """The parts and their strongest edges."""
    from headspan.lenses.wiring.graph import wiring_graph

    return wiring_graph(result)


def _write_graph(result: Result, path: Path) -> None:
    from headspan.lenses.graph import write_graphml

    write_graphml(graph(result), path)


ENDINGS = {".graphml": _write_graph}


def show(result: Result, *, top: int = 20) -> Iterator[str | Rows]:
    """The strongest edges of every kind, and what they say."""
    from headspan.lenses.wiring.graph import relations

    reasons: dict[str, list[str]] = {}
    for relation in relations(result):
        if int(result[relation]["n_edges"]):
            yield _edges(result, relation, top)
        reason = str(result[relation]["null_reason"].values)
        if reason:
            reasons.setdefault(reason, []).append(relation)
    yield from (f"{', '.join(names)}: {reason}." for reason, names in reasons.items())
    yield from (finding.statement for finding in result.findings)


def _edges(result: Result, relation: str, top: int) -> Rows:
    from headspan.lenses.wiring.graph import edges

    node, table = result[relation], edges(result, relation)
    null, count = str(node["null"].values[0]), int(node["n_significant"][0])
    title = f"{relation}: q < 0.05 in {count:,} of {len(table):,} edges ({null} null)"
    rows = [
        (
            edge["src_label"],
            edge["dst_label"],
            f"{edge['score']:.4f}",
            f"{edge['expected']:.4f}",
            f"{edge['rotation']:.4f}",
            f"{edge['z']:.1f}",
            p_text(edge["p"]),
            p_text(edge["q"]),
            edge["tier"] or "-",
        )
        for edge in table.head(top).to_dict("records")
    ]
    return Rows(title, ("src", "dst", "share", f"expected ({null})", "rotation", "z", "p", "q", "tier"), rows)
