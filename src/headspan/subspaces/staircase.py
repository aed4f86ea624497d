"""Which pairs of two lists have to be computed, as a staircase of rectangles.

Only pairs whose source layer lies strictly before the destination layer compose. With both lists sorted by layer, the
destinations of source i are a tail j0(i): of the list, and j0 does not decrease: a staircase. Cutting the sources into
blocks of rows and giving each block the tail of its first row covers every composing pair with rectangles, large
enough for one matrix product each, and skips nearly all others. The upper triangle of a symmetric table is the same
shape (j0(i) = i), and a full table is the staircase with j0 = 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from headspan.errors import ShapeError


@dataclass(frozen=True)
class Step:
    """Rows `start:stop` against columns `first:`."""

    start: int
    stop: int
    first: int


@dataclass(frozen=True)
class Staircase:
    """The wanted pairs of n sorted rows and m sorted columns.

    Parameters
    ----------
    first
        The first wanted column of every row, ascending; rows without any are left out at the end.
    columns
        m, the length of the full row.
    """

    first: tuple[int, ...]
    columns: int

    @property
    def area(self) -> int:
        """The number of wanted pairs."""
        return sum(self.columns - first for first in self.first)

    @property
    def rows(self) -> int:
        """The number of rows with wanted pairs."""
        return len(self.first)

    @property
    def first_column(self) -> int:
        """The first column with wanted pairs."""
        return self.first[0] if self.first else self.columns

    @property
    def is_rectangle(self) -> bool:
        """Whether all rows start at one column."""
        return bool(self.first) and self.first[0] == self.first[-1]

    def steps(self, rows: int) -> Iterator[Step]:
        """Blocks of at most so many rows."""
        for start in range(0, self.rows, rows):
            yield Step(start, min(start + rows, self.rows), self.first[start])


def _staircase(first: Iterable[int], columns: int) -> Staircase:
    return Staircase(tuple(column for column in first if column < columns), columns)


def full_table(rows: int, columns: int) -> Staircase:
    """All pairs."""
    return _staircase([0] * rows, columns)


def upper_triangle(n: int) -> Staircase:
    """Pairs i <= j of one list with itself."""
    return _staircase(range(n), n)


def composing_pairs(src_layer: Int[Tensor, " n"], dst_layer: Int[Tensor, " m"]) -> Staircase:
    """Pairs with src_layer < dst_layer; both must be sorted ascending."""
    first = torch.searchsorted(dst_layer.contiguous(), src_layer.contiguous(), right=True).tolist()
    return _staircase(first, len(dst_layer))


def require_layers(layer: Tensor | None, count: int, side: str) -> None:
    """Raise unless there is one layer number per member."""
    if layer is not None and tuple(layer.shape) != (count,):
        raise ShapeError(f"{side}_layer needs one layer per {side} member, {count}, found shape {tuple(layer.shape)}")
