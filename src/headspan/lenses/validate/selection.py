"""Which sources and targets to test for cause.

A *block* is a group of heads of one layer, the sources, with a group of heads of a later layer, the targets, and the
role through which those read. The heads of every layer are dealt into groups once, so that heads meet the same others
in all blocks. Blocks are tested whole: those that hold the strongest pairs by each score, and random ones, which say
how a score ranks pairs at large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from headspan.dims import HeadLabel, Role
from headspan.result import Result

SCORES = ("projection_kernel", "composition_score")
Group = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Block:
    """Sources of one layer, targets of a later one, and the role through which these read."""

    pairing: str
    role: Role
    sources: tuple[HeadLabel, ...]
    targets: tuple[HeadLabel, ...]
    scores: npt.NDArray[np.float64]
    """[score, source, target], in the order of SCORES."""
    chosen: npt.NDArray[np.object_]
    """[source, target]: `strong`, `weak` (the weakest source of a target that has a strong one), or `other`."""
    drawn: bool
    """Whether it is among the random blocks, which may hold strong pairs."""


def chosen_blocks(affinity: Result, strong: int, random: int, group: int, seed: int) -> list[Block]:
    """Blocks of every pairing: those of the `strong` strongest pairs by each score, and `random` of all.

    Parameters
    ----------
    affinity
        Scores of all composing pairs.
    strong, random
        Pairs per score, and blocks, of every pairing.
    group
        How many heads of a layer are in a group, at most.
    seed
        Fixes the groups and the random blocks.
    """
    generator = np.random.default_rng(seed)
    table = affinity.table().dropna(subset=list(SCORES))
    groups = {side: _groups(table, side, group, generator) for side in ("src", "dst")}
    found = []
    for pairing, rows in table.groupby("pairing", sort=False):
        own = rows.assign(sources=rows["src"].map(groups["src"]), targets=rows["dst"].map(groups["dst"]))
        own = own[(own["sources"].map(len) > 1) & (own["targets"].map(len) > 1)]
        best = {row for score in SCORES for row in own.nlargest(strong, score).index}
        blocks = [(key, block) for key, block in own.groupby(["sources", "targets"], sort=False)]
        blocks = [(key, block) for key, block in blocks if len(block) == len(key[0]) * len(key[1])]
        drawn = set(generator.permutation(len(blocks))[:random].tolist())
        for place, (key, block) in enumerate(blocks):
            if place in drawn or best & set(block.index):
                found.append(_block(str(pairing), key, block, best, place in drawn))
    return found


def _groups(table: pd.DataFrame, side: str, size: int, generator: np.random.Generator) -> dict[str, Group]:
    """The group of every head: those of a layer (kv heads apart), dealt at random into parts of about equal size."""
    found: dict[str, Group] = {}
    for _, own in table.assign(kind=table[side].str.contains("K")).groupby([f"{side}_layer", "kind"]):
        heads = generator.permutation(sorted(set(own[side])))
        for part in np.array_split(heads, -(-len(heads) // size)):
            members = tuple(sorted(map(str, part)))
            found |= dict.fromkeys(members, members)
    return found


def _block(pairing: str, key: Any, rows: pd.DataFrame, best: set[Any], drawn: bool) -> Block:
    sources, targets = key
    own = rows.assign(strong=rows.index.isin(best), ranks=rows[list(SCORES)].rank().sum(axis=1))

    def square(column: str) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = own.pivot(index="src", columns="dst", values=column)
        return found.loc[list(sources), list(targets)].to_numpy()  # type: ignore[attr-defined, no-any-return]

    is_strong, ranks = square("strong").astype(bool), square("ranks")
    chosen = np.where(is_strong, "strong", "other").astype(object)
    for column in np.flatnonzero(is_strong.any(0) & ~is_strong.all(0)):
        chosen[np.where(is_strong[:, column], np.inf, ranks[:, column]).argmin(), column] = "weak"
    labels = [tuple(HeadLabel.parse(name) for name in side) for side in (sources, targets)]
    scores = np.stack([square(score).astype(np.float64) for score in SCORES])
    return Block(pairing, _ROLES[pairing[1]], labels[0], labels[1], scores, chosen, drawn)


_ROLES: dict[str, Role] = {"Q": "Q", "K": "K", "V": "V"}
