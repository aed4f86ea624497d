"""Which pairs of heads to test for cause: the strongest by each score, weak ones that match them, and random ones.

A weak pair matches a strong one where it has the same target, role and source layer, so that the two differ in the
source alone. Strong and weak pairs are the extremes of a score, which flatters any correlation with it; random pairs
say how a score ranks pairs at large.

Token buffers to measure behavior on: what the model itself writes, or repeated random tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from headspan.dims import HeadLabel, Role
from headspan.errors import ArgumentError, UnsupportedModel
from headspan.result import Result
from headspan.runtime import RunnableModel
from headspan.runtime.detectors import plain_tokens, repeated_tokens, surrounding_tokens
from headspan.runtime.prompt import end_tokens

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


KINDS = ("sampled", "repeated")


def token_buffers(
    model: RunnableModel, kind: str | None, count: int, length: int, seed: int
) -> tuple[str, Int[Tensor, "batch position"]]:
    """The kind of buffers and the tokens.

    Parameters
    ----------
    model
        Whose tokens they are.
    kind
        `sampled`: drawn from the model itself, token by token, at temperature 1: text as the model knows it.
        `repeated`: random tokens, the second half equal to the first: text on which copying can be seen. By default
        sampled where the model can write.
    count, length
        How many buffers, and of how many tokens; fewer where the context ends before.
    seed
        Fixes them.
    """
    chosen = kind or ("sampled" if model.writes else "repeated")
    if chosen not in KINDS:
        raise ArgumentError(f"buffers = {chosen!r} is not known; it is {' or '.join(KINDS)}")
    room = length if model.max_context is None else min(length, model.max_context)
    if chosen == "repeated":
        edges = sum(map(len, surrounding_tokens(model)))
        return chosen, repeated_tokens(model, (room - edges) // 2, count, seed)
    return chosen, _sampled(model, count, room, seed)


@torch.no_grad()
def _sampled(model: RunnableModel, count: int, length: int, seed: int) -> Int[Tensor, "batch position"]:
    if not model.writes:
        raise UnsupportedModel("an encoder writes nothing; ask for repeated buffers")
    generator = torch.Generator().manual_seed(seed)
    before, plain = surrounding_tokens(model)[0], plain_tokens(model)
    first = plain[torch.randint(len(plain), (count, 1), generator=generator)]
    tokens = torch.tensor(before).expand(count, -1) if before else first
    ends = torch.tensor(sorted(end_tokens(model)), dtype=torch.int64)
    given, cache = tokens.to(model.device), None
    while tokens.shape[1] < length:
        output = model.module(input_ids=given, past_key_values=cache, use_cache=True)
        logits = output.logits[:, -1].double().cpu()
        # All buffers are of one length, so none may end early.
        logits[:, ends] = -torch.inf
        drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator)
        tokens = torch.cat([tokens, drawn], dim=1)
        given, cache = drawn.to(model.device), output.past_key_values
    return tokens
