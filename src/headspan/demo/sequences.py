"""What the demo model is trained and measured on: random segments, tiled.

Algorithm, per sequence:

1. draw a token distribution over the 62 letters and digits (one of three kinds, see `token_distributions`);
2. draw a period, uniformly from the shortest to the longest;
3. draw a segment of that many tokens, independently, from the distribution;
4. repeat the segment until the sequence is full.

From the second occurrence of the segment on, every token can be predicted by copying: find where the current
token stood one period ago, and repeat what came after it. Token frequencies tell little, since every sequence
has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Distribution = Literal["training", "uniform", "zipf"]

DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
N_LETTERS = 62
LENGTH = 64
SHORTEST_PERIOD, LONGEST_PERIOD = 8, 32
# With such logits the effective vocabulary (exp of entropy) is mostly between 13 and 57 of the 62 tokens.
NARROWEST_SPREAD, WIDEST_SPREAD = 0.5, 1.5


@dataclass(frozen=True)
class TiledSequences:
    """Sequences that repeat themselves, and the period of each.

    Attributes
    ----------
    tokens : Tensor [sequence, position], int64
        Token ids, all of them letters or digits.
    period : Tensor [sequence], int64
        `tokens[s, i] == tokens[s, i - period[s]]` for every `i >= period[s]`.
    """

    tokens: Int[Tensor, "sequence position"]
    period: Int[Tensor, " sequence"]

    def repeated(self) -> Bool[Tensor, "sequence position"]:
        """Where a token is one that stood a period ago: the positions an induction head can serve."""
        position = torch.arange(self.tokens.shape[1])
        return position >= self.period[:, None]


def token_distributions(
    count: int,
    kind: Distribution,
    generator: torch.Generator,
) -> Float[Tensor, "sequence token"]:
    """One token distribution per sequence.

    `training`: softmax of normal logits, their spread drawn from [0.5, 1.5]. `uniform`: all tokens alike.
    `zipf`: probability proportional to 1 / rank, ranks shuffled per sequence. Training shows only the first.

    Parameters
    ----------
    count : int
        How many sequences.
    kind : {"training", "uniform", "zipf"}
        Which family the distributions come from.
    generator : torch.Generator
        The source of randomness.

    Returns
    -------
    Tensor [sequence, token], float32
        Rows in [0, 1] that sum to one; 1/62 everywhere for `uniform`.
    """
    if kind == "uniform":
        return torch.full((count, N_LETTERS), 1.0 / N_LETTERS)
    noise = torch.randn(count, N_LETTERS, generator=generator)
    if kind == "zipf":
        rank = noise.argsort(dim=-1).argsort(dim=-1) + 1
        return (1.0 / rank) / (1.0 / rank).sum(dim=-1, keepdim=True)
    spread = torch.rand(count, 1, generator=generator) * (WIDEST_SPREAD - NARROWEST_SPREAD) + NARROWEST_SPREAD
    return torch.softmax(noise * spread, dim=-1)


def tiled_sequences(
    count: int,
    generator: torch.Generator,
    kind: Distribution = "training",
) -> TiledSequences:
    """Draw sequences of 64 tokens, each a random segment repeated with a period between 8 and 32.

    Parameters
    ----------
    count : int
        How many sequences.
    generator : torch.Generator
        The source of randomness; the same state gives the same sequences.
    kind : {"training", "uniform", "zipf"}
        Which family of token distributions the segments are drawn from.

    Returns
    -------
    TiledSequences
        `count` sequences with their periods. Every one holds its segment at least twice.
    """
    distribution = token_distributions(count, kind, generator)
    segment = torch.multinomial(distribution, LONGEST_PERIOD, replacement=True, generator=generator)
    period = torch.randint(SHORTEST_PERIOD, LONGEST_PERIOD + 1, (count,), generator=generator)
    place = torch.arange(LENGTH) % period[:, None]
    return TiledSequences(tokens=segment.gather(1, place), period=period)
