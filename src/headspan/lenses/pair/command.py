"""`headspan pair`: everything about one pair of heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headspan.command import Command, Facts, Option, Rows, p_text
from headspan.lenses.pair.schema import METRICS

if TYPE_CHECKING:
    from headspan.result import Result

COMMAND = Command(
    help="Show every score, angle, null and rank of one pair of heads.",
    options={"pairings": Option("Pairings such as OQ,OK,OV, or all.", names=("--pairings", "--pairing"))},
    arguments={
        "src": Option("A head such as L4H11.", metavar="SOURCE"),
        "dst": Option("A head of a later layer, such as L5H1.", metavar="DESTINATION"),
    },
)


def show(result: Result) -> Iterator[Rows | Facts]:
    """A row per pairing and score, then what the numbers depend on."""
    rows, made = [], result.attrs
    for pairing in result.data.children:
        node = result.dataset(str(pairing))
        angles = node["angle"].values
        for metric in METRICS:
            if metric in node:
                p_values = [float(node[f"{metric}_p"].sel(null=null)) for null in ("haar", "reverse")]
                rows.append(
                    (
                        str(pairing),
                        metric,
                        f"{float(node[metric]):.4f}",
                        f"{float(node[f'{metric}_null'].sel(null='haar')):.4f}",
                        f"{int(node[f'{metric}_rank']):,} of {int(node[f'{metric}_n_pairs']):,}",
                        *map(p_text, p_values),
                        f"{angles[0]:.1f} to {angles[-1]:.1f}" if metric == METRICS[0] and len(angles) else "",
                    )
                )
    columns = ("pairing", "metric", "score", "expected", "rank", "p (haar)", "p (reverse)", "angles (°)")
    yield Rows(f"{made['src']} -> {made['dst']}", columns, rows)
    facts = [
        (name, str(made[name]))
        for name in ("model", "file_hash", "fold", "dtype", "stored_dtype", "tolerance", "delta")
    ]
    yield Facts([*facts, ("reproduce with", made["command"])])
