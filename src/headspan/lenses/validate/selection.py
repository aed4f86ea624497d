"""Which pairs of heads to test for cause: the strongest by each score, weak ones that match them, and random ones.

A weak pair matches a strong one where it has the same target, role and source layer, so that the two differ in the
source alone. Strong and weak pairs are the extremes of a score, which flatters any correlation with it; random pairs
say how a score ranks pairs at large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from headspan.dims import HeadLabel, Role
from headspan.result import Result

SCORES = ("projection_kernel", "composition_score")


@dataclass(frozen=True)
class Pair:
    """One source, one target, the role through which it reads, and why the pair was chosen."""

    pairing: str
    src: HeadLabel
    dst: HeadLabel
    role: Role
    chosen: str
    """`strong`, `weak`, or `random` for a pair that is neither."""
    drawn: bool
    """Whether it is among the random pairs, which may be strong or weak."""
    scores: tuple[float, ...]
    """In the order of SCORES."""


def chosen_pairs(affinity: Result, strong: int, random: int, seed: int) -> list[Pair]:
    """Pairs of every pairing: `strong` by each score, as many matched weak ones, and `random` of all."""
    generator = np.random.default_rng(seed)
    found = []
    for pairing, rows in affinity.table().groupby("pairing", sort=False):
        table = rows.dropna(subset=list(SCORES)).reset_index(drop=True)
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
        found += [_pair(str(pairing), table.loc[row], kind, row in drawn) for row, kind in kinds.items()]
    return found


def _matched(table: pd.DataFrame, row: int, taken: dict[int, str]) -> int | None:
    """The weakest pair with the same target and source layer, by the sum of its ranks; None where all are taken."""
    own = table.loc[row]
    alike = table[(table[["src_layer", "dst"]] == own[["src_layer", "dst"]]).all(axis=1)]
    free = alike[~alike.index.isin(list(taken))]
    if free.empty:
        return None
    ranks = free[list(SCORES)].rank().sum(axis=1)
    return int(ranks.idxmin())


def _pair(pairing: str, row: pd.Series, kind: str, drawn: bool) -> Pair:
    src, dst = (HeadLabel.parse(str(row[side])) for side in ("src", "dst"))
    return Pair(pairing, src, dst, _ROLES[pairing[1]], kind, drawn, tuple(float(row[name]) for name in SCORES))


_ROLES: dict[str, Role] = {"Q": "Q", "K": "K", "V": "V"}
