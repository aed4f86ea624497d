"""The squared overlap ||A_i^T B_j||_F^2 of every pair of two batches of factors, by the cheaper of two algorithms.

With A: [n, d, p] and B: [m, d, q]:

gram       One product [t p, d] x [d, t q] per tile of t x t pairs, then sums of squares of its p x q blocks.
           2 d p q operations per pair. Never negative; relative error about eps.
projector  ||A^T B||_F^2 = <A A^T, B B^T>, the inner product of two symmetric d x d matrices. Rectangles of rows and
           columns of these are formed for all members at once, [n, r c], and each contributes one product
           [n, r c] x [r c, m] to the table. Rectangles left of the diagonal repeat those right of it, so the latter
           count twice and the former are never formed; memory is bounded by the rectangle, not by d^2.
           d^2 operations per pair and d^2 p or d^2 q per member. Absolute error about eps ||A A^T||_F ||B B^T||_F.

For heads of width 64 in R^768 a pair costs a tenth by the second algorithm, once the members' own cost is spread over
enough pairs. The cost model `projector_is_cheaper` puts the cross-over at 26 heads a side; measured on one core it lies
between 16 and 32 for both precisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.errors import ArgumentError, MemoryBudgetError, ShapeError
from headspan.subspaces.rank import DEFAULT_MEMORY, clip_rounding, common_dtype, epsilon
from headspan.subspaces.staircase import (
    Staircase,
    Step,
    composing_pairs,
    full_table,
    require_layers,
    upper_triangle,
)

Algorithm = Literal["auto", "gram", "projector"]

# Rows of pairs per matrix product. Measured: products near 1000 x 1000 stay in cache for gram; the projector form
# needs some 50 rows for its product to run at full speed, and more rows waste more of the staircase's edge.
_GRAM_SIDE = 1024
_PROJECTOR_ROWS = 48
_RECTANGLE = (96, 192)
_DIAGONAL = 48
# Forming projectors is a batch of thin products, which run at about half the speed of one large product.
_FORMING_PENALTY = 2.0


def projector_is_cheaper(pairs: int, d: int, columns_A: int, columns_B: int, p: int, q: int) -> bool:
    """The cost model: operations of the projector form against those of the gram form.

    Parameters
    ----------
    pairs
        Number of pairs computed.
    d, p, q
        Ambient dimension and widths of the two sides.
    columns_A, columns_B
        Total widths n p and m q of the members whose projectors must be formed.
    """
    gram = 2 * pairs * p * q * d
    projector = pairs * d * d + _FORMING_PENALTY * d * d * (columns_A + columns_B)
    return projector < gram


def _gram_overlap(A: Tensor, B: Tensor, stairs: Staircase, out: Tensor, memory: int) -> None:
    (_, d, p), q, item = A.shape, B.shape[-1], A.element_size()
    for step in stairs.steps(_gram_rows(A, B, memory)):
        t = step.stop - step.start
        # Scratch: the rows, one tile of columns, and the tile with its square; columns shrink until it fits.
        room = memory - item * t * p * d
        width = min(max(1, _GRAM_SIDE // max(q, 1)), room // max(1, item * q * (d + 2 * t * p)))
        if width < 1:
            needed = item * (t * p * d + q * (d + 2 * t * p))
            raise MemoryBudgetError(
                f"one tile of overlaps needs {needed} bytes, the budget is {memory}; raise `memory`"
            )
        rows = A[step.start : step.stop].mT.reshape(t * p, d)
        for j in range(step.first, stairs.columns, width):
            part = B[j : j + width]
            tile = (rows @ part.transpose(0, 1).reshape(d, -1)).square_()
            sums = tile.view(t, p, len(part) * q).sum(1).view(t, len(part), q).sum(-1)
            out[step.start : step.stop, j : j + len(part)] = sums


def _rectangles(start: int, stop: int, height: int, width: int) -> Iterator[tuple[slice, slice, float]]:
    """Rows, columns and weight of rectangles that cover one triangle of the square start:stop, by halving it.

    Rectangles off the diagonal stand also for their mirror image (weight 2); small squares on it are taken whole.
    """
    if stop - start <= min(_DIAGONAL, height, width):
        yield slice(start, stop), slice(start, stop), 1.0
        return
    middle = (start + stop) // 2
    for top in range(start, middle, height):
        for left in range(middle, stop, width):
            yield slice(top, min(top + height, middle)), slice(left, min(left + width, stop)), 2.0
    yield from _rectangles(start, middle, height, width)
    yield from _rectangles(middle, stop, height, width)


def _rectangle_limits(members: int, item: int, memory: int) -> tuple[int, int]:
    entries = memory // max(1, members * item)
    if entries < 1:
        raise MemoryBudgetError(
            f"one entry of {members} projectors needs {members * item} bytes, the budget is {memory}; raise `memory`"
        )
    height = min(_RECTANGLE[0], int(entries**0.5))
    return height, min(_RECTANGLE[1], entries // height)


@dataclass(frozen=True)
class _Table:
    """One table to fill: of which members besides A, which pairs, and where to."""

    B: Tensor
    stairs: Staircase
    out: Tensor


def _projector_overlap(A: Tensor, tables: Sequence[_Table], memory: int) -> None:
    symmetric = len(tables) == 1 and tables[0].B is A
    # Members that no pair needs are left out, unless one set of projectors serves both sides.
    n = len(A) if symmetric else max(table.stairs.rows for table in tables)
    offsets = [0 if symmetric else table.stairs.first_column for table in tables]
    most = max(len(table.B) - j0 for table, j0 in zip(tables, offsets, strict=True))
    height, width = _rectangle_limits(n if symmetric else n + most, A.element_size(), memory)
    # Fresh memory costs a page fault per 4 kB, as much as the product that fills it; two buffers serve all rectangles.
    left_room = A.new_empty(n * height * width)
    right_room = left_room if symmetric else A.new_empty(most * height * width)
    for table, j0 in zip(tables, offsets, strict=True):
        table.out[: table.stairs.rows, j0:] = 0
    for rows, columns, weight in _rectangles(0, A.shape[1], height, width):
        left = _projector_part(A[:n], rows, columns, left_room)
        for table, j0 in zip(tables, offsets, strict=True):
            right = left if symmetric else _projector_part(table.B[j0:], rows, columns, right_room)
            for step in _projector_steps(table.stairs):
                block = table.out[step.start : step.stop, step.first :]
                block.addmm_(left[step.start : step.stop], right[step.first - j0 :].mT, alpha=weight)


def _projector_steps(stairs: Staircase) -> Iterator[Step]:
    """Blocks of rows; a rectangle is one, for it wastes no pair."""
    return stairs.steps(stairs.rows if stairs.is_rectangle else _PROJECTOR_ROWS)


def _projector_part(A: Tensor, rows: slice, columns: slice, room: Tensor) -> Tensor:
    """[n, r c]: the entries `rows`, `columns` of every A_i A_i^T, written into `room`."""
    shape = (len(A), rows.stop - rows.start, columns.stop - columns.start)
    part = room[: shape[0] * shape[1] * shape[2]].view(shape)
    torch.bmm(A[:, rows], A[:, columns].mT, out=part)
    return part.view(len(A), shape[1] * shape[2])


def _without_rounding_negatives(out: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """Clip the negative values that rounding leaves in <A A^T, B B^T>; raise if one is larger than rounding."""
    if not bool((out < 0).any()):
        return out
    size = torch.linalg.matrix_norm(A.mT @ A)[:, None] * torch.linalg.matrix_norm(B.mT @ B)[None, :]
    return clip_rounding(out, 0.0, torch.inf, 64 * epsilon(A) * size, "squared overlap")


def _overlaps(
    A: Tensor, Bs: Sequence[Tensor], stairs: Sequence[Staircase], algorithm: Algorithm, memory: int
) -> list[Tensor]:
    """Overlaps inside the staircases by the algorithm asked for; NaN outside."""
    tables = [_Table(B, steps, A.new_full((len(A), len(B)), torch.nan)) for B, steps in zip(Bs, stairs, strict=True)]
    if algorithm == "auto":
        algorithm = "projector" if _projector_pays(A, tables) else "gram"
    if algorithm == "projector":
        _projector_overlap(A, tables, memory)
        return [_without_rounding_negatives(table.out, A, table.B) for table in tables]
    for table in tables:
        _gram_overlap(A, table.B, table.stairs, table.out, memory)
    return [table.out for table in tables]


def _projector_pays(A: Tensor, tables: Sequence[_Table]) -> bool:
    """Whether the cost model prefers the projector form for these tables."""
    others = [table for table in tables if table.B is not A]
    rows = max(len(A) if table.B is A else table.stairs.rows for table in tables)
    columns_B = sum((len(table.B) - table.stairs.first_column) * table.B.shape[-1] for table in others)
    widest = max(table.B.shape[-1] for table in tables)
    pairs = sum(table.stairs.area for table in tables)
    return projector_is_cheaper(pairs, A.shape[1], rows * A.shape[-1], columns_B, A.shape[-1], widest)


def _checked_factors(A: Tensor, Bs: Sequence[Tensor], algorithm: str) -> tuple[Tensor, list[Tensor]]:
    for B in Bs:
        if A.ndim != 3 or B.ndim != 3 or A.shape[1] != B.shape[1]:
            raise ShapeError(
                f"pairwise overlaps need factors [n, d, p] and [m, d, q] with one d, "
                f"found {tuple(A.shape)} and {tuple(B.shape)}"
            )
    if algorithm not in ("auto", "gram", "projector"):
        raise ArgumentError(f"algorithm needs to be 'auto', 'gram' or 'projector', found {algorithm!r}")
    A, *rest = common_dtype(A, *Bs)
    return A, rest


def _gram_rows(A: Tensor, B: Tensor, memory: int) -> int:
    """Rows of pairs per tile: as many as fill the side of the product, fewer if one column beside them must fit."""
    d, p, q = A.shape[1], max(1, A.shape[2]), B.shape[2]
    room = memory // A.element_size() - q * d
    return max(1, min(_GRAM_SIDE // p, room // (p * (d + 2 * q))))


def squared_overlaps(
    A: Float[Tensor, "n d p"],
    Bs: Sequence[Float[Tensor, "_m _d _q"]],
    *,
    src_layer: Int[Tensor, " _n"] | None = None,
    dst_layers: Sequence[Int[Tensor, " _"]] | None = None,
    algorithm: Algorithm = "auto",
    memory: int = DEFAULT_MEMORY,
) -> tuple[Float[Tensor, "n _"], ...]:
    """||A_i^T B_j||_F^2 for every pair of one batch with each of several, which share the work done on that one.

    Parameters
    ----------
    A, Bs
        [n, d, p], and any number of [m, d, q], whose m and q may differ: orthonormal bases, for which this is the
        projection kernel, or any other factors (a composition score takes the reduced factors of the two circuits).
    src_layer, dst_layers
        Layer of each member of A, and of each member of every batch of `Bs`. If given, only pairs with
        src_layer < dst_layer are computed, the others are NaN.
    algorithm
        "gram", "projector" (see the module's text), or "auto": the cheaper by operation count.
    memory
        Scratch space in bytes, inputs and result not counted.

    Returns
    -------
    tuple of Tensor
        [n, m] for each batch of `Bs`, >= 0. Bases: in [0, min(p, q)] and pq/d under the null of a random rotation. In
        general ||A||_F^2 ||B||_F^2 / d.
    """
    A, Bs = _checked_factors(A, Bs, algorithm)
    if src_layer is None and dst_layers is None:
        return tuple(_overlaps(A, Bs, [full_table(len(A), len(B)) for B in Bs], algorithm, memory))
    if src_layer is None or dst_layers is None:
        raise ArgumentError("src_layer and dst_layer are needed together, found only one of them")
    require_layers(src_layer, len(A), "src")
    for B, layer in zip(Bs, dst_layers, strict=True):
        require_layers(layer, len(B), "dst")
    A, src, back = _sorted_by_layer(A, src_layer)
    readers = [_sorted_by_layer(B, layer) for B, layer in zip(Bs, dst_layers, strict=True)]
    stairs = [composing_pairs(src, dst) for _, dst, _ in readers]
    tables = _overlaps(A, [B for B, _, _ in readers], stairs, algorithm, memory)
    return tuple(
        torch.where(src[:, None] < dst, table, torch.nan)[back][:, dst_back]
        for table, (_, dst, dst_back) in zip(tables, readers, strict=True)
    )


def _sorted_by_layer(A: Tensor, layer: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Members and layers in ascending order of layer, and the index that undoes it."""
    layer, order = layer.to(A.device).sort(stable=True)
    back = order.argsort()
    # Heads usually come in order already; copying them would cost as much as a tenth of the whole table.
    return (A if torch.equal(order, back) and bool((order.diff() > 0).all()) else A[order]), layer, back


def squared_overlap_table(
    A: Float[Tensor, "n d p"], *, algorithm: Algorithm = "auto", memory: int = DEFAULT_MEMORY
) -> Float[Tensor, "n n"]:
    """||A_i^T A_j||_F^2 for all pairs of one batch, at half the work of two.

    With the four roles of a model in one batch this single table holds all 16 pairings.

    Parameters
    ----------
    A
        [n, d, p].
    algorithm, memory
        As for `squared_overlaps`.

    Returns
    -------
    Tensor
        [n, n], exactly symmetric, >= 0; the diagonal is ||A_i^T A_i||_F^2 (p for a basis), elsewhere p^2/d on
        average for random bases.
    """
    A = _checked_factors(A, [A], algorithm)[0]
    table = _overlaps(A, [A], [upper_triangle(len(A))], algorithm, memory)[0].triu()
    return table + table.triu(1).mT
