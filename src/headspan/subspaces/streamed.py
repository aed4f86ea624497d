"""The squared overlaps ||A_i^T B_j||_F^2 of factors that need not fit into memory, by the two exact algorithms.

projector  <A_i A_i^T, B_j B_j^T> summed over squares of h x h entries. As many slabs of rows as the budget allows are
           held; against them every later slab is read once. Two slabs, held and read, give one square for all members,
           [n, h^2] and [m, h^2], and their product is added to the table. Squares off the diagonal count twice, those
           below it are never formed.
gram       Blocks of whole members against blocks of whole members, by `overlap`.

Operations are those of `overlap`. What is read again and again is read from a scratch file if the factors are in one:
about d / (2 h b) times all of them for b slabs held, and (members / members held) times for gram.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import MemoryBudgetError
from headspan.subspaces.overlap import pairwise_squared_overlap
from headspan.subspaces.precision import clip_rounding, epsilon
from headspan.subspaces.slabs import Slabs, TensorSlabs, slab_count
from headspan.subspaces.staircase import Staircase, full_table

HEIGHT = 128
"""Rows of a slab where memory allows: products of 128 x 128 squares run at three quarters of the peak."""
_STEP_ROWS = 256
"""Rows of a staircase's blocks: fewer waste less of its edge, more make larger products."""


def slab_height(columns: int, members: int, d: int, item: int, memory: int) -> int:
    """Rows of a slab such that a square of all members takes a quarter of the budget and four slabs another quarter.

    Parameters
    ----------
    columns, members
        Total width of all factors, and how many they are.
    d, item, memory
        Rows of a factor, bytes of a number, budget in bytes.
    """
    height = min(HEIGHT, d, int((memory // 4 // max(1, members * item)) ** 0.5), memory // 16 // max(1, columns * item))
    if height < 1:
        needed = 16 * item * max(columns, members)
        raise MemoryBudgetError(
            f"one row of {members:,} factors needs a budget of {needed:,} bytes, found {memory:,}; raise it"
        )
    return height


def streamed_overlaps(
    A: Slabs,
    Bs: Sequence[Slabs],
    *,
    sizes: tuple[Float[Tensor, " n"], Sequence[Float[Tensor, " _"]]],
    stairs: Sequence[Staircase] | None = None,
    memory: int,
) -> tuple[Float[Tensor, "n _"], ...]:
    """||A_i^T B_j||_F^2 by the projector algorithm, for one batch with each of several.

    Parameters
    ----------
    A, Bs
        Factors [n, d, p], and any number of [m, d, q], all in slabs of one height.
    sizes
        ||A_i^T A_i||_F of every member of A and of each of `Bs` (sqrt(rank) for a basis), which rounding is held
        against.
    stairs
        Which pairs of each table are wanted, members sorted by layer; all by default. Others are NaN.
    memory
        Bytes for slabs and squares together; tables not counted.

    Returns
    -------
    tuple of Tensor
        [n, m] for each of `Bs`, >= 0; by chance ||A||_F^2 ||B||_F^2 / d, for bases pq/d.
    """
    n, everyone = A.shape[0], (A, *Bs)
    wanted = [full_table(n, B.shape[0]) for B in Bs] if stairs is None else list(stairs)
    sample = sizes[0]
    tables = [torch.zeros(n, B.shape[0], dtype=A.dtype, device=sample.device) for B in Bs]
    rooms = [torch.empty(each.shape[0] * each.height**2, dtype=A.dtype, device=sample.device) for each in everyone]
    for left, right, weight in _squares(everyone, memory):
        parts = [_square(one, other, room) for one, other, room in zip(left, right, rooms, strict=True)]
        for table, part, stair in zip(tables, parts[1:], wanted, strict=True):
            for step in stair.steps(stair.rows if stair.is_rectangle else _STEP_ROWS):
                block = table[step.start : step.stop, step.first :]
                block.addmm_(parts[0][step.start : step.stop], part[step.first :].mT, alpha=weight)
    rounding = 64 * epsilon(tables[0]) if tables else 0.0
    return tuple(
        _only(clip_rounding(table, 0.0, torch.inf, rounding * sizes[0][:, None] * size, "squared overlap"), stair)
        for table, size, stair in zip(tables, sizes[1], wanted, strict=True)
    )


def _squares(everyone: Sequence[Slabs], memory: int) -> Iterator[tuple[list[Tensor], list[Tensor], float]]:
    """Pairs of slabs, each a list over the batches, that cover one triangle of the d x d square, with their weight."""
    count, held = slab_count(everyone[0]), _slabs_held(everyone, memory)
    for start in range(0, count, held):
        stop = min(start + held, count)
        left = [[each.slab(number) for each in everyone] for number in range(start, stop)]
        for i, rows in enumerate(left):
            yield rows, rows, 1.0
            for columns in left[i + 1 :]:
                yield rows, columns, 2.0
        for number in range(stop, count):
            right = [each.slab(number) for each in everyone]
            for rows in left:
                yield rows, right, 2.0
            del right
        # Nothing may hold on to these slabs while the next ones are read, or twice the memory would be taken.
        left.clear()
        rows = columns = []


def _slabs_held(everyone: Sequence[Slabs], memory: int) -> int:
    """How many slabs fit beside the squares and beside two more: the one read last, and the one read next."""
    if all(isinstance(each, TensorSlabs) for each in everyone):
        return slab_count(everyone[0])
    item, height = everyone[0].dtype.itemsize, everyone[0].height
    squares = sum(each.shape[0] for each in everyone) * height**2 * item
    slab = sum(each.shape[0] * each.shape[2] for each in everyone) * height * item
    return max(1, (memory - squares) // max(1, slab) - 3)


def _square(left: Tensor, right: Tensor, room: Tensor) -> Float[Tensor, "n entries"]:
    """[n, h h']: one square of entries of every member's projector, written into `room`."""
    shape = (len(left), left.shape[1], right.shape[1])
    part = room[: shape[0] * shape[1] * shape[2]].view(shape)
    torch.bmm(left, right.mT, out=part)
    return part.view(shape[0], -1)


def _only(table: Tensor, stair: Staircase) -> Tensor:
    """The table with NaN where no pair was wanted."""
    columns = torch.arange(stair.columns, device=table.device)
    first = torch.full((len(table),), stair.columns, device=table.device)
    first[: stair.rows] = torch.tensor(stair.first, dtype=first.dtype, device=table.device)
    return torch.where(columns < first[:, None], torch.nan, table)


def streamed_gram(A: Slabs, B: Slabs, memory: int) -> Float[Tensor, "n m"]:
    """||A_i^T B_j||_F^2 of all pairs by blocks of members, each block an eighth of the budget.

    Never negative; relative error about the machine's epsilon.
    """
    item, scratch = A.dtype.itemsize, memory // 4
    steps = [max(1, memory // 8 // max(1, item * each.shape[1] * each.shape[2])) for each in (A, B)]
    rows = []
    for i in range(0, A.shape[0], steps[0]):
        left = A.members(i, i + steps[0])
        parts = [
            pairwise_squared_overlap(left, B.members(j, j + steps[1]), algorithm="gram", memory=scratch)
            for j in range(0, B.shape[0], steps[1])
        ]
        rows.append(torch.cat(parts, dim=1))
    return torch.cat(rows)
