"""Sequences in which a block appears again, and which of their tokens can be predicted.

1. Draw every position independently from the task's token law.
2. Draw a block length, how often the block appears, and non-overlapping places for it (the free positions fall into the
   gaps before, between and after the blocks, by sorted uniform draws).
3. Overwrite every later place by the block at the first.

`origin` says for each position where its token was first drawn. A token is predictable by copying where the model has
seen enough of a later block to know that it repeats (`BURN_IN` tokens). The token behind a block is not: a model that
goes on copying there is wrong by design, so it is not scored.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headspan.lab.task import Task, token_probabilities

BURN_IN = 4
"""Tokens of a later block that are seen before its next ones are scored; all but the last of a shorter block."""


@dataclass(frozen=True)
class Sequences:
    """Token sequences and which of them can be predicted.

    Attributes
    ----------
    tokens : Tensor [sequence, position], int64
    scored : Tensor [sequence, position], bool
        Where the token can be predicted from those before it; accuracy counts these.
    origin : Tensor [sequence, position], int64
        Position at which the token was first drawn: its own for background.
    """

    tokens: Int[Tensor, "sequence position"]
    scored: Bool[Tensor, "sequence position"]
    origin: Int[Tensor, "sequence position"]

    def __len__(self) -> int:
        return len(self.tokens)

    def to(self, device: torch.device) -> Sequences:
        """The same sequences on a device."""
        return Sequences(self.tokens.to(device), self.scored.to(device), self.origin.to(device))

    def continuations(self) -> Bool[Tensor, "sequence query key"]:
        """Where an induction head attends: at earlier positions with the origin's copy of the *next* token.

        Only at positions whose next token is scored; False elsewhere.
        """
        T = self.tokens.shape[1]
        following = self.origin.roll(-1, dims=1)
        causal = torch.ones(T, T, dtype=torch.bool, device=self.tokens.device).tril()
        aim = self.scored.roll(-1, dims=1).clone()
        aim[:, -1] = False
        return (self.origin[:, None, :] == following[:, :, None]) & causal & aim[:, :, None]


def copying_sequences(task: Task, count: int, generator: torch.Generator, ood: bool = False) -> Sequences:
    """Draw sequences with a repeated block.

    Parameters
    ----------
    task : Task
        Lengths and token laws.
    count : int
        How many sequences.
    generator : torch.Generator
        The source of randomness (on the CPU); the same state gives the same sequences.
    ood : bool
        The out-of-distribution law: `ood_distribution` tokens, blocks of `ood_block`, twice.

    Returns
    -------
    Sequences
        `count` sequences of `task.length` tokens.
    """
    law = token_probabilities(task.ood_distribution if ood else task.distribution, task.vocabulary)
    T, repeats = task.length, 2 if ood else task.repeats
    background = torch.multinomial(law, count * T, replacement=True, generator=generator).view(count, T)
    low, high = (task.ood_block, task.ood_block) if ood else (task.shortest, task.longest)
    block = torch.randint(low, high + 1, (count,), generator=generator)
    times = torch.full((count,), 2)
    if repeats > 2:
        times = torch.randint(2, repeats + 1, (count,), generator=generator)
    starts = _block_starts(T, block, times, repeats, generator)
    return _with_copies(background, block, times, starts)


def _block_starts(
    T: int, block: Int[Tensor, " n"], times: Int[Tensor, " n"], most: int, generator: torch.Generator
) -> Int[Tensor, "n most"]:
    """First positions of the blocks, ascending and at least a block apart; T for blocks a sequence does not have."""
    free = T - block * times
    draws = (torch.rand(len(block), most, generator=generator, dtype=torch.float64) * (free + 1)[:, None]).long()
    place = torch.arange(most)
    unused = place >= times[:, None]
    gaps = draws.masked_fill(unused, T).sort(dim=1).values
    return (gaps + place * block[:, None]).masked_fill(unused, T)


def _with_copies(
    background: Int[Tensor, "n T"], block: Int[Tensor, " n"], times: Int[Tensor, " n"], starts: Int[Tensor, "n most"]
) -> Sequences:
    position = torch.arange(background.shape[1])
    origin = position.expand_as(background).clone()
    scored = torch.zeros_like(background, dtype=torch.bool)
    burn_in = torch.minimum(torch.tensor(BURN_IN), block - 1)[:, None]
    for copy in range(1, starts.shape[1]):
        inside = position - starts[:, copy, None]
        within = (inside >= 0) & (inside < block[:, None])
        origin = torch.where(within, starts[:, :1] + inside, origin)
        scored |= within & (inside >= burn_in)
    return Sequences(background.gather(1, origin), scored, origin)
