"""Which pairs of two lists have to be computed, as a staircase cut into rectangles.

Only pairs whose source layer lies strictly before the destination layer compose. With both lists sorted by layer, the
destinations of source i are a tail j0(i): of the list, and j0 does not decrease: a staircase. The upper triangle of a
symmetric table is the same shape (j0(i) = i), and a full table is the staircase with j0 = 0. It is cut into rectangles,
large enough for one matrix product each, in one of two ways:

steps   Blocks of rows, each with the tail of its first row; some pairs below the staircase are computed too.
halves  The largest rectangle that ends in the corner, from the middle row on, then the same for the two staircases that
        it leaves. Fewer and squarer rectangles, hardly a pair too many.

Members need not come sorted, nor in one batch: `layer_order` names the runs of members that, one after another, are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from headspan.errors import ShapeError


@dataclass(frozen=True)
class Rectangle:
    """Rows `start:stop` against columns `first:last`."""

    start: int
    stop: int
    first: int
    last: int

    @property
    def area(self) -> int:
        """The number of pairs inside."""
        return (self.stop - self.start) * (self.last - self.first)


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

    def steps(self, rows: int) -> Iterator[Rectangle]:
        """Blocks of at most so many rows, each up to the last column."""
        for start in range(0, self.rows, rows):
            yield Rectangle(start, min(start + rows, self.rows), self.first[start], self.columns)

    def halves(self, rows: int) -> Iterator[Rectangle]:
        """Rectangles by halving, until a staircase of at most so many rows is left, which is taken whole."""
        yield from self._halved(0, self.rows, self.columns, rows)

    def _halved(self, start: int, stop: int, last: int, rows: int) -> Iterator[Rectangle]:
        if start == stop:
            return
        if stop - start <= rows:
            yield Rectangle(start, stop, self.first[start], last)
            return
        corner = self.first[(start + stop - 1) // 2]
        above, below = (cut(self.first, corner, start, stop) for cut in (bisect_left, bisect_right))
        yield Rectangle(start, below, corner, last)
        yield from self._halved(start, above, corner, rows)
        yield from self._halved(below, stop, last, rows)


def _staircase(first: Iterable[int], columns: int) -> Staircase:
    return Staircase(tuple(column for column in first if column < columns), columns)


def full_table(rows: int, columns: int) -> Staircase:
    """All pairs."""
    return _staircase([0] * rows, columns)


def upper_triangle(n: int) -> Staircase:
    """Pairs i <= j of one list with itself."""
    return _staircase(range(n), n)


def composing(src_layer: Int[Tensor, " n"], dst_layer: Int[Tensor, " m"]) -> Staircase:
    """Pairs with src_layer < dst_layer; both must be sorted ascending."""
    first = torch.searchsorted(dst_layer.contiguous(), src_layer.contiguous(), right=True).tolist()
    return _staircase(first, len(dst_layer))


@dataclass(frozen=True)
class Run:
    """Members `start:stop` of one batch."""

    batch: int
    start: int
    stop: int


@dataclass(frozen=True)
class LayerOrder:
    """The members of several batches as one list, ascending by layer.

    Parameters
    ----------
    runs
        Members that stay together, in the order of the list.
    layer
        Layer of each member, in the order of the list.
    places
        For each batch, where in the list its members stand.
    """

    runs: tuple[Run, ...]
    layer: Int[Tensor, " n"]
    places: tuple[Int[Tensor, " _"], ...]


def layer_order(layers: Sequence[Int[Tensor, " _"]]) -> LayerOrder:
    """The order of several batches that is ascending by layer and keeps the order given within a layer."""
    sizes = [len(layer) for layer in layers]
    layer, order = torch.cat(list(layers)).sort(stable=True)
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))[order.cpu()]
    member = torch.cat([torch.arange(size) for size in sizes])[order.cpu()]
    breaks = ((batch.diff() != 0) | (member.diff() != 1)).nonzero().flatten() + 1
    runs = [
        Run(int(b[0]), int(m[0]), int(m[-1]) + 1)
        for b, m in zip(batch.tensor_split(breaks), member.tensor_split(breaks), strict=True)
        if len(m)
    ]
    return LayerOrder(tuple(runs), layer, tuple(torch.split(order.argsort(), sizes)))


def require_layers(layer: Tensor | None, count: int, side: str) -> None:
    """Raise unless there is one layer number per member."""
    if layer is not None and tuple(layer.shape) != (count,):
        raise ShapeError(f"{side}_layer needs one layer per {side} member, {count}, found shape {tuple(layer.shape)}")
