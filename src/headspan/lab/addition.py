"""Modular addition with the operands in context: a relative of copying in which the answer must be worked out.

A sequence is a row of sums `a b = c`, c = (a + b) mod p, with p one less than the vocabulary; the last token is the
equals sign. A fixed fifth of all pairs (a, b) is never trained on: the in-distribution test draws from the trained
pairs, the out-of-distribution test from the others.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor

from headspan.lab.sequences import Sequences
from headspan.lab.task import Task

SUM = 4
"""Positions of one sum."""
HELD_OUT_SHARE, HELD_OUT_SEED = 0.2, 2025


def held_out_pairs(p: int) -> Bool[Tensor, "p p"]:
    """Pairs that training never shows, the same for every run: a fifth of them, at least one and never all."""
    count = min(max(int(HELD_OUT_SHARE * p * p), 1), p * p - 1)
    order = torch.randperm(p * p, generator=torch.Generator().manual_seed(HELD_OUT_SEED))
    out = torch.zeros(p * p, dtype=torch.bool)
    out[order[:count]] = True
    return out.view(p, p)


def addition_sequences(task: Task, count: int, generator: torch.Generator, ood: bool = False) -> Sequences:
    """Draw rows of sums; the sums' results are the scored tokens.

    Parameters
    ----------
    task : Task
        `vocabulary` is p + 1; `length` positions hold `length // 4` whole sums, the rest repeats the equals sign.
    count, generator, ood
        How many sequences, the source of randomness, and whether to draw the held-out pairs.

    Returns
    -------
    Sequences
        `origin` is each position's own: nothing here is a copy.
    """
    p = task.vocabulary - 1
    held_out = held_out_pairs(p)
    pairs = (held_out if ood else ~held_out).nonzero()
    sums = task.length // SUM
    drawn = pairs[torch.randint(len(pairs), (count * sums,), generator=generator)].view(count, sums, 2)
    tokens = torch.full((count, task.length), p)
    scored = torch.zeros(count, task.length, dtype=torch.bool)
    for place, values in enumerate((drawn[..., 0], drawn[..., 1], None, drawn.sum(-1) % p)):
        if values is not None:
            tokens[:, place : sums * SUM : SUM] = values
    scored[:, SUM - 1 : sums * SUM : SUM] = True
    return Sequences(tokens, scored, torch.arange(task.length).expand(count, -1).clone())
