"""What the small models learn: the numbers that fix a task, checked.

Copying: a sequence of independent tokens in which one block appears again (and again). Addition: sums modulo a number,
their operands in context. Text: a user's file. Training and in-distribution test draw from the same law; the
out-of-distribution test changes it while the rule stays: other tokens and longer blocks, or sums never trained on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import HeadspanError

KINDS = ("copying", "addition", "text")
DISTRIBUTIONS = ("zipf", "two-level", "uniform")
ZIPF_SHIFT = 2.7
LEVEL_RATIO = 4.0
LARGEST_VOCABULARY, LONGEST_SEQUENCE = 1_000_000, 65_536


@dataclass(frozen=True)
class Task:
    """The law of training and test sequences.

    Parameters
    ----------
    kind
        `copying`, `addition` or `text`.
    vocabulary, length
        Number of tokens, and of positions in a sequence.
    shortest, longest
        Length of the repeated block, drawn uniformly between the two.
    ood_block
        Length of the block in the out-of-distribution test.
    distribution, ood_distribution
        Of the tokens in training and in the out-of-distribution test.
    repeats
        The block appears between 2 and this many times.
    """

    kind: str = "copying"
    vocabulary: int = 64
    length: int = 64
    shortest: int = 10
    longest: int = 19
    ood_block: int = 25
    distribution: str = "zipf"
    ood_distribution: str = "uniform"
    repeats: int = 2

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise HeadspanError(f"there is no task {self.kind!r}; tasks are {', '.join(KINDS)}")
        if not 2 <= self.vocabulary <= LARGEST_VOCABULARY:
            raise HeadspanError(
                f"a vocabulary of {self.vocabulary} leaves nothing to predict or to store; it needs 2 to "
                f"{LARGEST_VOCABULARY:,} tokens"
            )
        if not 4 <= self.length <= LONGEST_SEQUENCE:
            raise HeadspanError(f"a sequence needs 4 to {LONGEST_SEQUENCE:,} positions, found {self.length}")
        for name in (self.distribution, self.ood_distribution):
            if name not in DISTRIBUTIONS:
                raise HeadspanError(f"there is no distribution {name!r}; they are {', '.join(DISTRIBUTIONS)}")
        if self.kind != "addition":
            self._check_blocks()
        elif self.vocabulary < 3 or self.length < 8:
            raise HeadspanError(
                f"modular addition needs at least 3 tokens and 8 positions, found {self.vocabulary} and {self.length}"
            )

    def _check_blocks(self) -> None:
        if not 2 <= self.shortest <= self.longest:
            raise HeadspanError(
                f"block lengths need 2 <= shortest <= longest, found {self.shortest} and {self.longest}"
            )
        if self.repeats < 2:
            raise HeadspanError(f"a block that is copied appears at least 2 times, found {self.repeats}")
        for block, times in ((self.longest, self.repeats), (self.ood_block, 2)):
            if block * times > self.length:
                raise HeadspanError(
                    f"a block of {block} does not fit {times} times into {self.length} positions; "
                    f"use blocks of at most {self.length // times} or longer sequences"
                )
        if self.ood_block < 2:
            raise HeadspanError(f"the block of the out-of-distribution test needs 2 tokens, found {self.ood_block}")


def token_probabilities(distribution: str, vocabulary: int) -> Float[Tensor, " token"]:
    """The law of one background token.

    `zipf`: p_i proportional to 1 / (i + 2.7), i from 0. `two-level`: tokens of the first half four times as likely as
    the others. `uniform`: all alike.

    Returns
    -------
    Tensor
        [token], float64, in (0, 1), sums to 1; 1/vocabulary each for `uniform`.
    """
    rank = torch.arange(vocabulary, dtype=torch.float64)
    if distribution == "zipf":
        weight = 1.0 / (rank + ZIPF_SHIFT)
    elif distribution == "two-level":
        weight = torch.where(rank < (vocabulary + 1) // 2, LEVEL_RATIO, 1.0).double()
    else:
        weight = torch.ones(vocabulary, dtype=torch.float64)
    return weight / weight.sum()
