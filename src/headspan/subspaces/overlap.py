"""The squared overlap ||A_i^T B_j||_F^2 of every pair of two lists of factors, by the cheaper of two algorithms.

With A: [n, d, p] and B: [m, d, q], each given as pieces of batches, in order:

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
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.errors import MemoryBudgetError, ShapeError
from headspan.subspaces.pieces import Pieces, count, joined, members, pieces_of
from headspan.subspaces.precision import DEFAULT_MEMORY, clip_rounding, common_dtype, epsilon
from headspan.subspaces.staircase import (
    Staircase,
    composing,
    full_table,
    layer_order,
    require_layers,
    upper_triangle,
)

Algorithm = Literal["auto", "gram", "projector"]

# Measured: products near 1000 x 1000 stay in cache for gram. The projector form needs some 50 rows for its product to
# run at full speed. Halving saves 5 % on the composing pairs of GPT-2's heads with three roles, where blocks of rows
# compute a fifth too many; on the triangle of all roles, where they compute few too many, it costs 7 %.
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


def _projector_overlap(A: Pieces, B: Pieces, stairs: Staircase, out: Tensor, memory: int) -> None:
    symmetric = A is B
    # Members that no pair needs are left out, unless one set of projectors serves both sides.
    n, j0 = (count(A), 0) if symmetric else (stairs.rows, stairs.first_column)
    A, B = members(A, 0, n), members(B, j0, count(B))
    m = count(B)
    out[:n, j0:] = 0
    height, width = _rectangle_limits(n if symmetric else n + m, out.element_size(), memory)
    # Fresh memory costs a page fault per 4 kB, as much as the product that fills it; two buffers serve all rectangles.
    left_room = out.new_empty(n, height * width)
    right_room = left_room if symmetric else out.new_empty(m, height * width)
    tiles = tuple((stairs.steps if symmetric else stairs.halves)(_PROJECTOR_ROWS))
    for rows, columns, weight in _rectangles(0, A[0].shape[1] if n and m else 0, height, width):
        left = _projector_parts(A, rows, columns, left_room)
        right = left if symmetric else _projector_parts(B, rows, columns, right_room)
        for tile in tiles:
            block = out[tile.start : tile.stop, tile.first : tile.last]
            block.addmm_(left[tile.start : tile.stop], right[tile.first - j0 : tile.last - j0].mT, alpha=weight)


def _projector_parts(A: Pieces, rows: slice, columns: slice, room: Tensor) -> Tensor:
    """[n, r c]: the entries `rows`, `columns` of every A_i A_i^T, written into `room`."""
    height, width = rows.stop - rows.start, columns.stop - columns.start
    parts = room.flatten()[: len(room) * height * width].view(len(room), height, width)
    for piece, part in zip(A, torch.split(parts, [len(piece) for piece in A]), strict=True):
        torch.bmm(piece[:, rows], piece[:, columns].mT, out=part)
    return parts.flatten(1)


def _without_rounding_negatives(out: Tensor, A: Pieces, B: Pieces) -> Tensor:
    """Clip the negative values that rounding leaves in <A A^T, B B^T>; raise if one is larger than rounding."""
    if not bool((out < 0).any()):
        return out
    size_A, size_B = (torch.cat([torch.linalg.matrix_norm(piece.mT @ piece) for piece in side]) for side in (A, B))
    return clip_rounding(out, 0.0, torch.inf, 64 * epsilon(out) * size_A[:, None] * size_B, "squared overlap")


def _table(A: Pieces, B: Pieces, stairs: Staircase, algorithm: Algorithm, memory: int) -> Tensor:
    """Overlaps inside the staircase by the algorithm asked for; NaN outside."""
    out = A[0].new_full((count(A), count(B)), torch.nan)
    if algorithm == "auto":
        algorithm = "projector" if _projector_pays(A, B, stairs) else "gram"
    if algorithm == "projector":
        _projector_overlap(A, B, stairs, out, memory)
        return _without_rounding_negatives(out, A, B)
    left = joined(A)
    _gram_overlap(left, left if A is B else joined(B), stairs, out, memory)
    return out


def _projector_pays(A: Pieces, B: Pieces, stairs: Staircase) -> bool:
    """Whether the cost model prefers the projector form for these members and pairs."""
    used_A = A if A is B else members(A, 0, stairs.rows)
    used_B = [] if A is B else members(B, stairs.first_column, count(B))
    columns_A, columns_B = (sum(len(piece) * piece.shape[-1] for piece in used) for used in (used_A, used_B))
    p, q = (max(piece.shape[-1] for piece in side) for side in (A, B))
    return projector_is_cheaper(stairs.area, A[0].shape[1], columns_A, columns_B, p, q)


def _checked_factors(A: Tensor, Bs: Sequence[Tensor], algorithm: str) -> tuple[Tensor, list[Tensor]]:
    for B in Bs:
        if A.ndim != 3 or B.ndim != 3 or A.shape[1] != B.shape[1]:
            raise ShapeError(
                f"pairwise overlaps need factors [n, d, p] and [m, d, q] with one d, "
                f"found {tuple(A.shape)} and {tuple(B.shape)}"
            )
    if algorithm not in ("auto", "gram", "projector"):
        raise ShapeError(f"algorithm needs to be 'auto', 'gram' or 'projector', found {algorithm!r}")
    A, *rest = common_dtype(A, *Bs)
    return A, rest


def _gram_rows(A: Tensor, B: Tensor, memory: int) -> int:
    """Rows of pairs per tile: as many as fill the side of the product, fewer if one column beside them must fit."""
    d, p, q = A.shape[1], max(1, A.shape[2]), B.shape[2]
    room = memory // A.element_size() - q * d
    return max(1, min(_GRAM_SIDE // p, room // (p * (d + 2 * q))))


def pairwise_squared_overlap(
    A: Float[Tensor, "n d p"],
    B: Float[Tensor, "m _d q"],
    *,
    src_layer: Int[Tensor, " _n"] | None = None,
    dst_layer: Int[Tensor, " _m"] | None = None,
    algorithm: Algorithm = "auto",
    memory: int = DEFAULT_MEMORY,
) -> Float[Tensor, "n m"]:
    """||A_i^T B_j||_F^2 for every pair, or for the composing pairs only.

    Parameters
    ----------
    A, B
        [n, d, p] and [m, d, q]: orthonormal bases, for which this is the projection kernel, or any other factors
        (a composition score takes the reduced factors of the two circuits).
    src_layer, dst_layer
        Layer of each member. If given, only pairs with src_layer < dst_layer are computed, the others are NaN.
    algorithm
        "gram", "projector" (see the module's text), or "auto": the cheaper by operation count.
    memory
        Scratch space in bytes, inputs and result not counted.

    Returns
    -------
    Tensor
        [n, m], >= 0. Bases: in [0, min(p, q)] and pq/d by chance. In general ||A||_F^2 ||B||_F^2 / d by chance.
    """
    dst_layers = None if dst_layer is None else [dst_layer]
    return squared_overlaps(A, [B], src_layer=src_layer, dst_layers=dst_layers, algorithm=algorithm, memory=memory)[0]


def squared_overlaps(
    A: Float[Tensor, "n d p"],
    Bs: Sequence[Float[Tensor, "_m _d _q"]],
    *,
    src_layer: Int[Tensor, " _n"] | None = None,
    dst_layers: Sequence[Int[Tensor, " _"]] | None = None,
    algorithm: Algorithm = "auto",
    memory: int = DEFAULT_MEMORY,
) -> tuple[Float[Tensor, "n _"], ...]:
    """`pairwise_squared_overlap` of one batch with each of several, which share the work done on that one.

    Parameters
    ----------
    A, Bs
        [n, d, p], and any number of [m, d, q], whose m and q may differ.
    src_layer, dst_layers
        Layer of each member of A, and of each member of every batch of `Bs`.
    algorithm, memory
        As for `pairwise_squared_overlap`.

    Returns
    -------
    tuple of Tensor
        [n, m] for each batch of `Bs`.
    """
    A, Bs = _checked_factors(A, Bs, algorithm)
    if src_layer is None and dst_layers is None:
        table = _table([A], Bs, full_table(len(A), count(Bs)), algorithm, memory)
        return tuple(torch.split(table, [len(B) for B in Bs], dim=1))
    if src_layer is None or dst_layers is None:
        raise ShapeError("src_layer and dst_layer are needed together, found only one of them")
    require_layers(src_layer, len(A), "src")
    for B, layer in zip(Bs, dst_layers, strict=True):
        require_layers(layer, len(B), "dst")
    return _composing_overlaps(A, Bs, src_layer, dst_layers, algorithm, memory)


def _composing_overlaps(
    A: Tensor,
    Bs: Sequence[Tensor],
    src_layer: Tensor,
    dst_layers: Sequence[Tensor],
    algorithm: Algorithm,
    memory: int,
) -> tuple[Tensor, ...]:
    """Overlaps of the pairs with src_layer < dst_layer, by one staircase for all batches; NaN elsewhere."""
    src, dst = (layer_order([layer.to(A.device) for layer in side]) for side in ([src_layer], dst_layers))
    sources = pieces_of([A], src.runs)
    same = len(Bs) == 1 and Bs[0] is A and torch.equal(src_layer, dst_layers[0])
    readers = sources if same else pieces_of(Bs, dst.runs)
    table = _table(sources, readers, composing(src.layer, dst.layer), algorithm, memory)
    table = torch.where(src.layer[:, None] < dst.layer, table, torch.nan)[src.places[0]]
    return tuple(table[:, places] for places in dst.places)


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
        As for `pairwise_squared_overlap`.

    Returns
    -------
    Tensor
        [n, n], exactly symmetric, >= 0; the diagonal is ||A_i^T A_i||_F^2 (p for a basis), elsewhere p^2/d by chance.
    """
    pieces = [_checked_factors(A, [A], algorithm)[0]]
    table = _table(pieces, pieces, upper_triangle(len(A)), algorithm, memory).triu()
    return table + table.triu(1).mT
