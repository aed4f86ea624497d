"""Overlaps of factors [n, d, p] that need not fit into memory, kept in slabs of rows.

A slab is a range of the d rows, for all members at once: what one step of the projector algorithm needs. The scratch
file keeps each slab in one piece, so that reading it is one sweep; it is read into buffers and not mapped, since mapped
pages would count as memory of the process. The file has no name from the moment it is made (it is unlinked while open):
whatever becomes of the process, the disk gets its space back.

The squared overlaps ||A_i^T B_j||_F^2 come by the two exact algorithms of `overlap`:

projector  <A_i A_i^T, B_j B_j^T> summed over squares of h x h entries. As many slabs of rows as the budget allows are
           held; against them every later slab is read once. Two slabs, held and read, give one square for all members,
           [n, h^2] and [m, h^2], and their product is added to the table. Squares off the diagonal count twice, those
           below it are never formed.
gram       Blocks of whole members against blocks of whole members, by `overlap`.

Operations are those of `overlap`. What is read again and again is read from a scratch file if the factors are in one:
about d / (2 h b) times all of them for b slabs held, and (members / members held) times for gram.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import HeadspanError, MemoryBudgetError, ShapeError
from headspan.subspaces.overlap import squared_overlaps
from headspan.subspaces.rank import clip_rounding, epsilon
from headspan.subspaces.staircase import Staircase, full_table

HEIGHT = 128
"""Rows of a slab where memory allows: products of 128 x 128 squares run at three quarters of the peak."""
_STEP_ROWS = 256
"""Rows of a staircase's blocks: fewer waste less of its edge, more make larger products."""


class TensorSlabs:
    """Factors that are in memory, in slabs of `height` rows, the last of which may have fewer."""

    def __init__(self, factors: Float[Tensor, "n d p"], height: int) -> None:
        self.factors, self.height, self.dtype = factors, height, factors.dtype
        self.shape = (factors.shape[0], factors.shape[1], factors.shape[2])

    def slab(self, number: int) -> Float[Tensor, "n h p"]:
        """The rows `number * height` and following of every member."""
        return self.factors[:, number * self.height : (number + 1) * self.height]

    def members(self, start: int, stop: int) -> Float[Tensor, "k d p"]:
        """Some members, whole."""
        return self.factors[start:stop]


class ScratchSlabs:
    """Factors in a nameless file; filled by `append`, in order. Made by `scratch_slabs`."""

    def __init__(
        self, file: IO[bytes], shape: tuple[int, int, int], height: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.shape, self.height, self.dtype = shape, height, dtype
        self._file, self._device, self._filled = file, device, 0

    def append(self, factors: Float[Tensor, "k d p"]) -> None:
        """The next members."""
        n, d, p = self.shape
        if tuple(factors.shape[1:]) != (d, p) or self._filled + len(factors) > n:
            raise ShapeError(f"scratch space is for {n} factors [{d}, {p}], found {tuple(factors.shape)} more")
        for number in range(slab_count(self)):
            part = factors[:, number * self.height : (number + 1) * self.height].to("cpu", self.dtype).contiguous()
            self._write(part, self._place(number, self._filled))
        self._filled += len(factors)

    def slab(self, number: int) -> Float[Tensor, "n h p"]:
        """The rows `number * height` and following of every member, read anew."""
        return self._read(number, 0, self.shape[0])

    def members(self, start: int, stop: int) -> Float[Tensor, "k d p"]:
        """Some members, whole, read anew."""
        stop = min(stop, self.shape[0])
        parts = [self._read(number, start, stop) for number in range(slab_count(self))]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _rows(self, number: int) -> int:
        return min(self.height, self.shape[1] - number * self.height)

    def _place(self, number: int, member: int) -> int:
        """Where in the file a member's part of a slab begins, in bytes."""
        n, _, p = self.shape
        return (number * self.height * n + member * self._rows(number)) * p * self.dtype.itemsize

    def _read(self, number: int, start: int, stop: int) -> Tensor:
        buffer = torch.empty(stop - start, self._rows(number), self.shape[2], dtype=self.dtype)
        view, place = _as_bytes(buffer), self._place(number, start)
        while len(view):
            done = os.preadv(self._file.fileno(), [view], place)
            if done == 0:
                raise HeadspanError("the scratch file ends before its content does; is the disk it lies on damaged?")
            view, place = view[done:], place + done
        return buffer.to(self._device)

    def _write(self, part: Tensor, place: int) -> None:
        view = _as_bytes(part)
        try:
            while len(view):
                done = os.pwrite(self._file.fileno(), view, place)
                view, place = view[done:], place + done
        except OSError as problem:
            raise HeadspanError(
                f"scratch space in {tempfile.gettempdir()} ran out ({problem.strerror}); set TMPDIR to a larger disk, "
                "or raise the memory budget"
            ) from problem


Slabs = TensorSlabs | ScratchSlabs
"""n factors of shape [d, p], handed out by slabs of rows or by ranges of members."""


def slab_count(slabs: Slabs) -> int:
    """How many slabs cover all rows."""
    return -(-slabs.shape[1] // slabs.height)


@contextmanager
def scratch_slabs(
    shape: tuple[int, int, int],
    height: int,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    *,
    filled: bool = True,
) -> Iterator[ScratchSlabs]:
    """Scratch space for n factors [d, p], in the system's folder for temporary files (TMPDIR); gone afterwards.

    With `filled`, all of it will be used, and is refused at once if the disk has not that much.
    """
    needed = shape[0] * shape[1] * shape[2] * dtype.itemsize
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if filled and needed > free:
        raise HeadspanError(
            f"{needed:,} bytes of scratch space are needed and {tempfile.gettempdir()} has {free:,}; set TMPDIR to a "
            "larger disk, or raise the memory budget"
        )
    with tempfile.TemporaryFile(prefix="headspan-", buffering=0) as file:
        yield ScratchSlabs(file, shape, height, dtype, torch.device(device))


def _as_bytes(tensor: Tensor) -> memoryview:
    return tensor.numpy().reshape(-1).view(np.uint8).data


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


def slab_overlaps(
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
        [n, m] for each of `Bs`, >= 0; under the null ||A||_F^2 ||B||_F^2 / d, for bases pq/d.
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


def slab_gram(A: Slabs, B: Slabs, memory: int) -> Float[Tensor, "n m"]:
    """||A_i^T B_j||_F^2 of all pairs by blocks of members, each block an eighth of the budget.

    Never negative; relative error about the machine's epsilon.
    """
    item, scratch = A.dtype.itemsize, memory // 4
    steps = [max(1, memory // 8 // max(1, item * each.shape[1] * each.shape[2])) for each in (A, B)]
    rows = []
    for i in range(0, A.shape[0], steps[0]):
        left = A.members(i, i + steps[0])
        parts = [
            squared_overlaps(left, [B.members(j, j + steps[1])], algorithm="gram", memory=scratch)[0]
            for j in range(0, B.shape[0], steps[1])
        ]
        rows.append(torch.cat(parts, dim=1))
    return torch.cat(rows)
