"""What the small models learn: the numbers that fix a task, checked.

Copying: a sequence of independent tokens in which one block appears again (and again). Addition: sums modulo a number,
their operands in context. Text: a user's file. Training and in-distribution test draw from the same law; the
out-of-distribution test changes it while the rule stays: other tokens and longer blocks, or sums never trained on.

The plateau before the transition is compared with the best predictor that ignores all context. Copies have the law of
what they copy, so every position of a training sequence is distributed as one background token. The best context-free
prediction is that law p itself: its loss is the entropy of p in distribution, and the cross-entropy of the OOD law q
under p out of it. No context-free predictor does better than the entropy of q there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.lab.settings import check_settings, one_of

KINDS = ("copying", "addition", "text")
DISTRIBUTIONS = ("zipf", "two-level", "uniform")
ZIPF_SHIFT = 2.7
LEVEL_RATIO = 4.0
DIGIT_SYMBOLS = (0, 1)
"""Tokens behind the ten digits: the equals sign and the colon that ends a scratchpad."""
MOST_DIGITS = 12
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
    digits, scratchpad
        Of addition: sums of so many digits (0: modulo a number instead), and whether they are worked out digit by digit
        before the result.
    shuffled
        Of addition: every sum has the result of another one, as a control.
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
    digits: int = 0
    scratchpad: bool = False
    shuffled: bool = False

    def __post_init__(self) -> None:
        least_tokens, least_length = (3, 8) if self.kind == "addition" else (2, 4)
        tokens_needed = f"{least_tokens} to {LARGEST_VOCABULARY:,} tokens"
        length_needed = f"{least_length} to {LONGEST_SEQUENCE:,} positions"
        check_settings(
            self,
            kind=(self.kind in KINDS, one_of(KINDS)),
            vocabulary=(least_tokens <= self.vocabulary <= LARGEST_VOCABULARY, tokens_needed),
            length=(least_length <= self.length <= LONGEST_SEQUENCE, length_needed),
            distribution=(self.distribution in DISTRIBUTIONS, one_of(DISTRIBUTIONS)),
            ood_distribution=(self.ood_distribution in DISTRIBUTIONS, one_of(DISTRIBUTIONS)),
        )
        if self.kind != "addition":
            self._check_blocks()
        self._check_sums()

    def _check_blocks(self) -> None:
        check_settings(
            self,
            shortest=(2 <= self.shortest <= self.longest, f"2 to {self.longest} (longest)"),
            repeats=(self.repeats >= 2, "at least 2"),
            longest=(self.longest * self.repeats <= self.length, self._fitting(self.repeats)),
            ood_block=(2 <= self.ood_block <= self.length // 2, f"at least 2 and {self._fitting(2)}"),
        )

    def _check_sums(self) -> None:
        addition, size = self.kind == "addition", (5 if self.scratchpad else 3) * self.digits
        size += 3 if self.scratchpad else 2
        check_settings(
            self,
            digits=(
                self.digits == 0 or (addition and 2 <= self.digits <= MOST_DIGITS),
                _of_sums(f"2 to {MOST_DIGITS}"),
            ),
            scratchpad=(not self.scratchpad or self.digits > 0, "no, unless the task has digits"),
            shuffled=(not self.shuffled or addition, "no, unless the task is addition"),
        )
        if self.digits:
            check_settings(
                self,
                vocabulary=(self.vocabulary >= 12, "at least 12: ten digits, the equals sign and the colon"),
                length=(self.length >= size, f"at least {size}, one sum of {self.digits} digits"),
            )

    def _fitting(self, times: int) -> str:
        return f"at most {self.length // times}, to fit {times} times into {self.length} positions"


def _of_sums(needed: str) -> str:
    return f"0, or {needed} in the task addition"


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


def marginal_losses(task: Task) -> dict[str, float]:
    """Losses of context-free predictors in nats.

    Returns
    -------
    dict
        `id`: entropy of the training law. `ood`: cross-entropy of the OOD law under the training law. `ood_best`:
        entropy of the OOD law. log(vocabulary) each where all tokens are alike.
    """
    if task.kind != "copying":
        raise ArgumentError(f"the marginal law is known for the task copying, not for {task.kind!r}")
    p = token_probabilities(task.distribution, task.vocabulary)
    q = token_probabilities(task.ood_distribution, task.vocabulary)
    return {
        "id": float(-(p * p.log()).sum()),
        "ood": float(-(q * p.log()).sum()),
        "ood_best": float(-(q * q.log()).sum()),
    }


def marginal_accuracy(task: Task) -> dict[str, float]:
    """Accuracy of always guessing the most likely training token, ID and OOD."""
    p = token_probabilities(task.distribution, task.vocabulary)
    q = token_probabilities(task.ood_distribution, task.vocabulary)
    guess = int(p.argmax())
    return {"id": float(p[guess]), "ood": float(q[guess])}
