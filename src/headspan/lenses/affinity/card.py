"""What affinity says of every head in a phrase: its strongest significant partner, or that none stands out."""

from __future__ import annotations

import pandas as pd

from headspan.dims import HeadLabel
from headspan.lenses.affinity.schema import KERNEL
from headspan.lenses.affinity.wiring import composing_pairings, edges, graph_null, metrics_of
from headspan.result import Result

READ = {"Q": "queries", "K": "keys", "V": "values"}
STANDING = ("strong", "stands out")
NONE = "has no pair that stands out"


def phrases(result: Result) -> dict[str, str]:
    """Head label to a phrase; empty where no null tells edges from background."""
    used = [pairing for pairing in composing_pairings(result) if KERNEL in metrics_of(result, pairing)]
    null = graph_null(result)
    if null is None or not used:
        return {}
    tables = [edges(result, pairing).assign(pairing=pairing) for pairing in used]
    every = pd.concat(tables, ignore_index=True)
    # By score, as the lists of a card are: what is read most is not what is read most above its null.
    standing = every[every["tier"].isin(STANDING)].sort_values("score", ascending=False, kind="stable")
    found = {str(label): NONE for side in ("src", "dst") for label in every[side].unique()}
    group = int(result.attrs["n_heads"]) // int(result.attrs["n_kv_heads"])
    # What a kv head reads, the heads that share it read.
    reads = standing.assign(dst=[_readers(label, group) for label in standing["dst"]]).explode("dst")
    partners = {"src": standing.drop_duplicates("src").set_index("src"), "dst": reads.drop_duplicates("dst")}
    partners["dst"] = partners["dst"].set_index("dst")
    counts = standing["src"].value_counts().add(reads["dst"].value_counts(), fill_value=0)
    for label in counts.index:
        told = []
        if label in partners["dst"].index:
            edge = partners["dst"].loc[label]
            told.append(f"reads most from {edge['src']} through its {READ[edge['pairing'][1]]} {_numbers(edge, null)}")
        if label in partners["src"].index:
            edge = partners["src"].loc[label]
            told.append(f"writes most to the {READ[edge['pairing'][1]]} of {edge['dst']} {_numbers(edge, null)}")
        n = int(counts[label])
        found[str(label)] = f"{' and '.join(told)}; {n} of its pairs stand{'s' if n == 1 else ''} out"
    return found


def _readers(label: str, group: int) -> list[str]:
    """A head, and if it is a kv head also the heads that share it."""
    head = HeadLabel.parse(label)
    if not head.kv:
        return [label]
    return [label, *(str(HeadLabel(head.layer, head.head * group + place)) for place in range(group))]


def _numbers(edge: pd.Series, null: str) -> str:
    return f"(overlap {edge['score']:.1f} dimensions, expected {edge[f'null_{null}']:.1f})"
