"""Which pairs of heads to test for cause: the strongest by each score, weak ones that match them, and random ones.

A weak pair matches a strong one where it has the same target, role and source layer, so that the two differ in the
source alone. Strong and weak pairs are the extremes of a score, which flatters any correlation with it; random pairs
say how a score ranks pairs at large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import HeadLabel, Role
from headspan.lenses.affinity.edges import pairings_of
from headspan.lenses.affinity.pair_tables import roles_of

SCORES = ("projection_kernel", "composition_score")
KEYS = ["src_layer", "src_head", "dst_layer", "dst_head"]


@dataclass(frozen=True)
class Pair:
    """One source, one target, the role through which it reads, and why the pair was chosen."""

    pairing: str
    source: HeadLabel
    target: HeadLabel
    role: Role
    chosen: str
    """`strong`, `weak`, or `random` for a pair that is neither."""
    drawn: bool
    """Whether it is among the random pairs, which may be strong or weak."""
    scores: tuple[float, ...]
    """In the order of SCORES."""


def chosen_pairs(affinity: xr.DataTree, strong: int, random: int, seed: int) -> list[Pair]:
    """Pairs of every pairing: `strong` by each score, as many matched weak ones, and `random` of all."""
    generator = np.random.default_rng(seed)
    found = []
    for pairing in pairings_of(affinity):
        table = _table(affinity[pairing].to_dataset())
        kinds: dict[int, str] = {}
        for score in SCORES:
            ranked = table.sort_values(score, ascending=False, kind="stable")
            for row in ranked.index[:strong]:
                kinds.setdefault(row, "strong")
        for row in list(kinds):
            weak = _matched(table, row, kinds)
            if weak is not None:
                kinds[weak] = "weak"
        drawn = {int(row) for row in generator.permutation(len(table))[:random]}
        for row in sorted(drawn):
            kinds.setdefault(row, "random")
        found += [_pair(affinity, pairing, table.loc[row], kind, row in drawn) for row, kind in kinds.items()]
    return found


def _table(node: xr.Dataset) -> pd.DataFrame:
    """Pairs that compose, both scores known."""
    frame = node[list(SCORES)].to_dataframe().reset_index()
    return frame[[*KEYS, *SCORES]].dropna().reset_index(drop=True)


def _matched(table: pd.DataFrame, row: int, taken: dict[int, str]) -> int | None:
    """The weakest pair with the same target and source layer, by the sum of its ranks; None where all are taken."""
    own = table.loc[row]
    alike = table[
        (table[["src_layer", "dst_layer", "dst_head"]] == own[["src_layer", "dst_layer", "dst_head"]]).all(axis=1)
    ]
    free = alike[~alike.index.isin(list(taken))]
    if free.empty:
        return None
    ranks = free[list(SCORES)].rank().sum(axis=1)
    return int(ranks.idxmin())


def _pair(affinity: xr.DataTree, pairing: str, row: pd.Series, kind: str, drawn: bool) -> Pair:
    role = roles_of(pairing)[1]
    grouped = affinity.attrs["n_kv_heads"] < affinity.attrs["n_heads"]
    return Pair(
        pairing,
        HeadLabel(int(row["src_layer"]), int(row["src_head"])),
        HeadLabel(int(row["dst_layer"]), int(row["dst_head"]), kv=grouped and role != "Q"),
        role,
        kind,
        drawn,
        tuple(float(row[name]) for name in SCORES),
    )
