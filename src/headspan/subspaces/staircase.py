"""Which pairs of two lists have to be computed, as a staircase of rectangles.

Only pairs whose source layer lies strictly before the destination layer compose. With both lists sorted by layer, the
destinations of source i are a tail j0(i): of the list, and j0 does not decrease: a staircase. Cutting the sources into
blocks of rows and giving each block the tail of its first row covers every composing pair with rectangles, large
enough for one matrix product each, and skips nearly all others. The upper triangle of a symmetric table is the same
shape (j0(i) = i), and a full table is the staircase with j0 = 0.

Members need not come sorted, nor in one batch: `layer_order` names the runs of members that, one after another, are.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """Rectangles that cover the wanted pairs of n sorted rows and m sorted columns.

    Parameters
    ----------
    steps
        Disjoint blocks of rows, ascending.
    columns
        m, the length of the full row.
    """

    steps: tuple[Step, ...]
    columns: int

    @property
    def area(self) -> int:
        """The number of pairs inside the rectangles: what will be computed."""
        return sum((step.stop - step.start) * (self.columns - step.first) for step in self.steps)

    @property
    def rows(self) -> int:
        """One past the last row that any rectangle touches."""
        return max((step.stop for step in self.steps), default=0)

    @property
    def first_column(self) -> int:
        """The first column that any rectangle touches."""
        return min((step.first for step in self.steps), default=self.columns)


def _from_first_columns(first: list[int], columns: int, block: int) -> Staircase:
    steps = (
        Step(start, min(start + block, len(first)), first[start])
        for start in range(0, len(first), block)
        if first[start] < columns
    )
    return Staircase(tuple(steps), columns)


def full_table(rows: int, columns: int, block: int) -> Staircase:
    """All pairs."""
    return _from_first_columns([0] * rows, columns, block)


def upper_triangle(n: int, block: int) -> Staircase:
    """Pairs i <= j of one list with itself, and the few i > j inside diagonal blocks."""
    return _from_first_columns(list(range(n)), n, block)


def composing(src_layer: Int[Tensor, " n"], dst_layer: Int[Tensor, " m"], block: int) -> Staircase:
    """Pairs with src_layer < dst_layer; both must be sorted ascending.

    Rows whose source has no later destination are left out altogether.
    """
    first = torch.searchsorted(dst_layer.contiguous(), src_layer.contiguous(), right=True).tolist()
    useful = sum(start < len(dst_layer) for start in first)
    return _from_first_columns(first[:useful], len(dst_layer), block)


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
