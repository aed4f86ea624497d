"""From codes to numbers: weight = (value(code) - zero) * scale, and the error that a code leaves.

1. Codes are unpacked a few rows at a time, so that a matrix takes its own size in float32 and little more.
2. A code stands for an integer, or for an entry of a code book (nf4, fp4, fp8).
3. Scales and zero points stand for blocks of entries (`Grid`), or for columns in any order (GPTQ's act-order).

The error of a rounded number: its code stands for all numbers nearer to it than to the next. With half gaps a and b to
its neighbors, and numbers spread evenly between, its mean square is (a^3 + b^3) / (3 (a + b)); 1/12 for integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headspan.checkpoint.formats.packed.weight import Groups
from headspan.errors import CheckpointError

ENTRIES = 2**20
"""Entries that are unpacked at once."""
INTEGER_ERROR = 1 / 12
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""The sixteen numbers of four bits with two of exponent and one of mantissa (OCP Microscaling, 2023)."""
Rows = Callable[[int, int], tuple[Tensor, Tensor | float]]
"""First row and the one after the last -> values of the codes [rows, columns], freshly made, and the mean square of the
error of one; where that differs, [rows, columns], or sums of pairs [rows, columns / 2]."""


@dataclass(frozen=True)
class Grid:
    """Numbers [R, C] for blocks of a matrix; `order` says the C of each column where they do not follow one another."""

    numbers: Tensor
    groups: Groups
    order: Tensor | None = None

    def at(self, start: int, stop: int, width: int) -> Tensor:
        """The numbers of some rows, [rows, runs, 1]: each for a run of columns, or of one column in any other order."""
        own = self.numbers[start:stop]
        if self.groups.rows > 1:
            own = self.numbers[torch.arange(start, stop) // self.groups.rows]
        if self.order is not None:
            own = own.index_select(1, self.order)
        elif own.shape[1] * self.groups.columns > width and own.shape[1] > 1:
            own = own.repeat_interleave(self.groups.columns, 1)[:, :width]
        return own.unsqueeze(2)


def group_order(order: Tensor, name: str, n_groups: int, group: int) -> Tensor | None:
    """The group of every column; None where groups simply follow one another."""
    own = order.int()
    if bool(((own < 0) | (own >= n_groups)).any()):
        raise CheckpointError(f"tensor '{name}' names a group outside 0..{n_groups - 1}; the file is damaged")
    return None if torch.equal(own, torch.arange(own.numel(), dtype=torch.int32) // group) else own


def zero_points(zeros: Tensor, name: str, bits: int) -> Tensor:
    """Signed zero points in float32, refused where a code of that many bits cannot be one."""
    numbers, least = zeros.float(), -(1 << (bits - 1))
    if not bool(((numbers >= least) & (numbers < -least)).all()):
        raise CheckpointError(f"tensor '{name}' holds a zero point outside {least}..{-least - 1}; the file is damaged")
    return numbers


def dequantize(shape: tuple[int, int], values: Rows, scale: Grid, zero: Grid | None = None) -> tuple[Tensor, float]:
    """A matrix in float32, and the root mean square error of its entries."""
    n_rows, width = shape
    weight, total = torch.empty(shape), 0.0
    step = max(1, ENTRIES // max(width, 1))
    for start in range(0, n_rows, step):
        stop = min(n_rows, start + step)
        value, error = values(start, stop)
        own = scale.at(start, stop, width)
        runs = value.view(*own.shape[:2], -1)
        if zero is not None:
            runs -= zero.at(start, stop, width)
        torch.mul(runs, own, out=weight[start:stop].view(runs.shape))
        one = isinstance(error, float)
        errors = error * runs.shape[2] if one else torch.as_tensor(error).view(*own.shape[:2], -1).sum(2)
        total += float((own.squeeze(2).square() * errors).sum(dtype=torch.float64))
    return weight, (total / max(weight.numel(), 1)) ** 0.5


def fields(words: Tensor, bits: int, count: int) -> Tensor:
    """The first `count` codes of each row, of `bits` bits each, lowest bits first, across the words' borders."""
    stream = words.contiguous().view(torch.uint8)
    mask = (1 << bits) - 1
    if bits == 8:
        return stream[:, :count]
    if 8 % bits == 0:
        return torch.stack([(stream >> shift) & mask for shift in range(0, 8, bits)], dim=2).flatten(1)[:, :count]
    first = torch.arange(count) * bits
    padded = torch.nn.functional.pad(stream, (0, 1)).to(torch.int16)
    pair = padded[:, first // 8] | (padded[:, first // 8 + 1] << 8)
    return ((pair >> (first % 8)) & mask).to(torch.uint8)


def packed_integers(words: Tensor, bits: int, width: int, order: Tensor | None = None) -> Rows:
    """Rows of integers packed into words; `order` says which field of each eight comes first."""

    def rows(start: int, stop: int) -> tuple[Tensor, float]:
        codes = fields(words[start:stop], bits, width)
        return (codes if order is None else ordered(codes, order)).float(), INTEGER_ERROR

    return rows


def ordered(codes: Tensor, order: Tensor) -> Tensor:
    """Every run of codes in another order."""
    return codes.reshape(codes.shape[0], -1, order.numel()).index_select(2, order).flatten(1)


def code_pairs(codes: Tensor, book: Tensor, low_first: bool) -> Rows:
    """Rows of two four-bit codes in a byte, by a book of sixteen numbers."""
    byte = torch.arange(256)
    halves = (byte & 15, byte >> 4) if low_first else (byte >> 4, byte & 15)
    # Two numbers of four bytes are looked up as one of eight.
    numbers = torch.stack([book[half] for half in halves], dim=1).view(torch.float64).squeeze(1)
    errors = sum(code_errors(book)[half] for half in halves)

    def rows(start: int, stop: int) -> tuple[Tensor, Tensor]:
        index = codes[start:stop].reshape(-1).int()
        pairs = numbers.index_select(0, index).view(torch.float32)
        return pairs.view(stop - start, -1), torch.as_tensor(errors).index_select(0, index).view(stop - start, -1)

    return rows


def small_integers(codes: Tensor) -> Rows:
    """Rows of integers."""
    return lambda start, stop: (codes[start:stop].float(), INTEGER_ERROR)


def small_floats(codes: Tensor) -> Rows:
    """Rows of floating numbers of eight bits."""
    book = torch.arange(256, dtype=torch.uint8).view(codes.dtype).float()
    errors = code_errors(book)

    def rows(start: int, stop: int) -> tuple[Tensor, Tensor]:
        own = codes[start:stop].contiguous()
        index = own.view(torch.uint8).reshape(-1).int()
        return book.index_select(0, index).view(own.shape), errors.index_select(0, index).view(own.shape)

    return rows


def code_errors(book: Tensor) -> Tensor:
    """Mean square of the error that each entry of a code book leaves; 0 for codes that are no numbers."""
    numbers, place = torch.unique(book[torch.isfinite(book)], return_inverse=True)
    gaps = numbers.diff() / 2
    if not gaps.numel():
        return torch.zeros_like(book)
    below, above = torch.cat([gaps[:1], gaps]), torch.cat([gaps, gaps[-1:]])
    found = torch.zeros_like(book)
    found[torch.isfinite(book)] = ((below**3 + above**3) / (3 * (below + above)))[place]
    return found


def scale_numbers(scale: Tensor, name: str, may_be_zero: bool = False) -> Tensor:
    """Scales in float32, exponents of two written out, refused where one cannot be a scale."""
    if scale.dtype == torch.uint8:
        numbers = torch.ldexp(torch.ones(scale.shape), scale.int() - 127)
        numbers[scale == 255] = float("nan")
    else:
        numbers = scale.float()
    if not bool(torch.isfinite(numbers).all()):
        raise CheckpointError(
            f"tensor '{name}' holds a scale that is NaN or Inf; the file is damaged: download it again"
        )
    if not may_be_zero and bool((numbers == 0).any()):
        raise CheckpointError(f"tensor '{name}' holds a scale of 0; the file is damaged: download it again")
    return numbers
