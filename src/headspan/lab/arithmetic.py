"""Sums: modulo a number, or of several digits with or without a scratchpad.

Modulo p, one less than the vocabulary: a row of `a b = c`, c = (a + b) mod p; the last token is the equals sign. A
fixed fifth of all pairs (a, b) is never trained on: the in-distribution test draws from the trained pairs, the
out-of-distribution test from the others.

Of n digits: `a b = c`, each number with its largest digit first and c with n + 1 digits. The result's first digit
depends on every carry. With a scratchpad the sum is worked out first, from the smallest digit on: behind the equals
sign the last digit of each place's sum and its carry, then a colon, then the result. Sums whose carry starts at the
last digit and runs through all others are never trained on; they are the out-of-distribution test. In training a carry
runs through some places, never through all.

In both, `shuffled` hands every sum the result (and the scratchpad) of another one: same tokens, nothing to learn. It is
the control for what training makes of any data.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.lab.sequences import Sequences
from headspan.lab.task import DIGIT_SYMBOLS, Task

SUM = 4
"""Positions of one sum modulo p."""
HELD_OUT_SHARE, HELD_OUT_SEED = 0.2, 2025
BASE = 10
EQUALS, COLON = DIGIT_SYMBOLS


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
        Without digits `vocabulary` is p + 1, and `length` positions hold `length // 4` whole sums; the rest repeats the
        equals sign. With digits a sequence is one sum (`digit_sequences`).
    count, generator, ood
        How many sequences, the source of randomness, and whether to draw the held-out pairs.

    Returns
    -------
    Sequences
        `origin` is each position's own: nothing here is a copy.
    """
    if task.digits:
        return digit_sequences(task, count, generator, ood)
    p = task.vocabulary - 1
    held_out = held_out_pairs(p)
    pairs = (held_out if ood else ~held_out).nonzero()
    sums = task.length // SUM
    drawn = pairs[torch.randint(len(pairs), (count * sums,), generator=generator)].view(count, sums, 2)
    result = drawn.sum(-1) % p
    if task.shuffled:
        result = result.flatten()[torch.randperm(result.numel(), generator=generator)].view_as(result)
    tokens = torch.full((count, task.length), p)
    scored = torch.zeros(count, task.length, dtype=torch.bool)
    for place, values in enumerate((drawn[..., 0], drawn[..., 1], None, result)):
        if values is not None:
            tokens[:, place : sums * SUM : SUM] = values
    scored[:, SUM - 1 : sums * SUM : SUM] = True
    return Sequences(tokens, scored, torch.arange(task.length).expand(count, -1).clone())


@dataclass(frozen=True)
class DigitLayout:
    """Where the parts of one sum of n digits stand in its sequence."""

    digits: int
    scratchpad: bool

    @property
    def result(self) -> int:
        """Position of the result's first digit."""
        return 2 * self.digits + 1 + (2 * self.digits + 1 if self.scratchpad else 0)

    @property
    def length(self) -> int:
        return self.result + self.digits + 1

    def result_place(self, place: int) -> int:
        """Position of the result's digit at a place, counted from the smallest."""
        return self.result + self.digits - place

    def scratch_place(self, place: int) -> int:
        """Position of that digit in the scratchpad; its carry stands behind it."""
        return 2 * self.digits + 1 + 2 * place


def layout_of(task: Task) -> DigitLayout:
    """The layout of a task with digits."""
    if task.kind != "addition" or not task.digits:
        raise ArgumentError("sums of digits need the task addition with digits, such as --preset digits")
    return DigitLayout(task.digits, task.scratchpad)


def digit_sequences(task: Task, count: int, generator: torch.Generator, ood: bool = False) -> Sequences:
    """Draw sums of several digits, one a sequence; the result's digits are the scored tokens."""
    layout, n = layout_of(task), task.digits
    a, b = _operands(n, count, generator, ood)
    sums, carry = column_sums(a, b)
    if task.shuffled:
        order = torch.randperm(count, generator=generator)
        sums, carry = sums[order], carry[order]
    tokens = torch.full((count, task.length), BASE + EQUALS)
    tokens[:, :n], tokens[:, n : 2 * n] = a.flip(1), b.flip(1)
    if layout.scratchpad:
        start = layout.scratch_place(0)
        tokens[:, start : start + 2 * n] = torch.stack((sums, carry), dim=2).flatten(1)
        tokens[:, layout.result - 1] = BASE + COLON
    tokens[:, layout.result : layout.length] = torch.cat((sums, carry[:, -1:]), dim=1).flip(1)
    scored = torch.zeros(count, task.length, dtype=torch.bool)
    scored[:, layout.result : layout.length] = True
    return Sequences(tokens, scored, torch.arange(task.length).expand(count, -1).clone())


def column_sums(a: Int[Tensor, "n place"], b: Int[Tensor, "n place"]) -> tuple[Tensor, Tensor]:
    """Digits of a + b and the carry out of each place, [n, place] each, the smallest place first."""
    sums, carries, carry = [], [], torch.zeros_like(a[:, 0])
    for place in range(a.shape[1]):
        total = a[:, place] + b[:, place] + carry
        carry = (total >= BASE).long()
        sums.append(total % BASE)
        carries.append(carry)
    return torch.stack(sums, dim=1), torch.stack(carries, dim=1)


def _operands(n: int, count: int, generator: torch.Generator, ood: bool) -> tuple[Tensor, Tensor]:
    """Digits of two numbers, the smallest place first: with a carry through every place, or with any other."""
    draws = torch.randint(BASE, (2, count, n), generator=generator)
    if ood:
        pairs = (torch.arange(BASE)[:, None] + torch.arange(BASE) >= BASE).nonzero()
        draws[1, :, 1:] = BASE - 1 - draws[0, :, 1:]
        draws[:, :, 0] = pairs[torch.randint(len(pairs), (count,), generator=generator)].T
        return draws[0], draws[1]
    while bool((held_out := carried_through(draws[0], draws[1])).any()):
        draws[:, held_out] = torch.randint(BASE, (2, int(held_out.sum()), n), generator=generator)
    return draws[0], draws[1]


def carried_through(a: Int[Tensor, "n place"], b: Int[Tensor, "n place"]) -> Bool[Tensor, " n"]:
    """Whether a carry starts at the smallest place and is handed on by every other one."""
    total = a + b
    return (total[:, 0] >= BASE) & (total[:, 1:] == BASE - 1).all(1)
