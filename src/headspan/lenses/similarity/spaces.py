"""The spaces a head looks through: what its query reads, what its key reads, and both together.

R_Q and R_K are the column spans of W_Q and W_K in R^d_model. An attention logit depends on the query token only through
R_Q and on the key token only through R_K, so a head as a whole is described by one of:

sum           R_Q + R_K: every direction that matters to the head on either side, 2 d_head of them for random weights.
intersection  R_Q and R_K in common, up to an angle; none for random weights while 2 d_head <= d_model.
qk            the span of the leading singular vectors of W_QK = W_Q W_K^T on both sides: the part of the sum that
              carries the largest logits. W_QK is never formed.

Spaces are made for blocks of layers within a memory budget. For distances across layers all of them are kept: in
memory, or in a scratch file if there are too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headspan.errors import ArgumentError, MemoryBudgetError
from headspan.heads import HeadBlock, Heads
from headspan.heads.logits import bilinear_factors
from headspan.heads.memory import memory_bytes
from headspan.heads.precision import computing_dtype
from headspan.subspaces import (
    Factored,
    Subspace,
    default_tolerance,
    intersection,
    orthonormal_basis,
    subspace_sum,
)
from headspan.subspaces.slabs import ScratchSlabs, scratch_slabs

COPIES = 8
"""Arrays as large as a basis of a sum that making one takes, over a little."""


@dataclass(frozen=True)
class SpaceChoice:
    """Which space stands for a head, and how dimensions are decided.

    Parameters
    ----------
    space
        "sum", "intersection" or "qk".
    tolerance
        Share of a head's largest singular value up to which others count as zero; None for the noise of the stored
        dtype.
    sum_tolerance
        The same for the sum of two spaces, whose bases are as exact as the weights they were made of.
    angle_tolerance
        For "intersection": largest angle in radians at which a direction counts as common; None for rounding only.
    qk_rank
        For "qk": how many singular vectors on each side.
    dtype
        What the arithmetic is done in.
    """

    space: str
    tolerance: float | None
    sum_tolerance: float
    angle_tolerance: float | None
    qk_rank: int
    dtype: torch.dtype

    def columns(self, heads: Heads) -> int:
        """Columns of a stored basis of an attention space."""
        one_side = min(heads.d_model, self.qk_rank if self.space == "qk" else heads.d_head)
        return one_side if self.space == "intersection" else min(heads.d_model, 2 * one_side)


def space_choice(
    heads: Heads, space: str, tolerance: float | None, angle_tolerance: float | None, qk_rank: int | None
) -> SpaceChoice:
    """The choice with its defaults filled in; refused where it does not fit these heads."""
    rank = max(1, heads.d_head // 4) if qk_rank is None else qk_rank
    if not 1 <= rank <= heads.d_head:
        raise ArgumentError(f"qk_rank={rank} is out of range; it is in 1..{heads.d_head} (d_head)")
    # Noise turns a direction by about 2 u (sqrt d + sqrt p) / sqrt d, at most 4 u while singular values are alike.
    turned = max(default_tolerance(heads.d_model, heads.dtype), 4 * heads.attention_roundoff())
    return SpaceChoice(
        space=space,
        tolerance=tolerance,
        sum_tolerance=turned if tolerance is None else tolerance,
        angle_tolerance=angle_tolerance,
        qk_rank=rank,
        dtype=computing_dtype(heads),
    )


@dataclass(frozen=True)
class BlockSpaces:
    """The spaces of a block of layers; K keeps its own axis of kv heads."""

    layers: tuple[int, ...]
    W_Q: Float[Tensor, "layer head d_model d_head"]
    W_K: Float[Tensor, "layer kv_head d_model d_head"]
    query_bias: Float[Tensor, "layer head d_head"] | None
    key_bias: Float[Tensor, "layer kv_head d_head"] | None
    query: Subspace
    key: Subspace
    attention: Subspace

    def layer(self, place: int) -> BlockSpaces:
        """The spaces of one layer, by its place in the block."""
        one = slice(place, place + 1)
        b_Q, b_K = (None if bias is None else bias[one] for bias in (self.query_bias, self.key_bias))
        spaces = (each[one] for each in (self.query, self.key, self.attention))
        return BlockSpaces(self.layers[one], self.W_Q[one], self.W_K[one], b_Q, b_K, *spaces)


def space_blocks(heads: Heads, choice: SpaceChoice, memory: int | str) -> Iterator[BlockSpaces]:
    """The spaces of all heads, in blocks of layers: as many as fit, with what is made of one, into a third of `memory`.

    A single layer may have two thirds; what needs more is refused.
    """
    budget = memory_bytes(memory)
    per_layer, once = layer_bytes(heads, choice)
    if per_layer + once > budget * 2 // 3:
        raise MemoryBudgetError(
            f"the spaces of one layer need {per_layer + once:,} bytes of working memory, and two thirds of "
            f"{budget:,} are allowed for them; raise the memory budget"
        )
    read, read_once = heads.block_bytes(("Q", "K"))
    layers = max(1, (budget // 3 - once) // per_layer)
    for block in heads.blocks(layers * read + read_once, ("Q", "K")):
        made = [block_spaces(heads, block, choice, budget // 8)]
        del block  # or it would still be here while the next is read
        yield made.pop()


def layer_bytes(heads: Heads, choice: SpaceChoice) -> tuple[int, int]:
    """Bytes that the spaces of each layer of a block take, and bytes that are taken once, for the layer at work."""
    query, key = (prod(heads.shape(role)[1:]) for role in ("Q", "K"))
    read, _ = heads.block_bytes(("Q", "K"))
    copies = query + key if choice.dtype != heads.dtype else 0
    factors = query + key if choice.space == "qk" else 0
    attention = heads.n_heads * heads.d_model * choice.columns(heads)
    item = choice.dtype.itemsize
    # Once: keys and key spaces per query head, and what is left of a space's part outside another.
    return read + item * (copies + factors + query + key + attention), item * 4 * query


def block_spaces(heads: Heads, block: HeadBlock, choice: SpaceChoice, memory: int | str = "128MB") -> BlockSpaces:
    """Query, key and attention spaces of the heads of one block; making them takes `memory` at most besides."""
    W_Q, W_K = block.W_Q.to(choice.dtype), block.W_K.to(choice.dtype)
    at_once = max(1, memory_bytes(memory) // (COPIES * 2 * heads.d_model * heads.d_head * choice.dtype.itemsize))

    def basis_of(W: Tensor, noise: Tensor) -> Subspace:
        def made(layer: int, part: slice) -> Subspace:
            own = noise[layer, part] if choice.tolerance is None else 0.0
            return orthonormal_basis(W[layer, part], choice.tolerance, noise=own)

        return _by_pieces(W.shape[:2], at_once, made)

    query, key = basis_of(W_Q, block.noise("Q")), basis_of(W_K, block.noise("K"))
    A, B = bilinear_factors(heads, block) if choice.space == "qk" else (W_Q, W_K)

    def attention_of(layer: int, part: slice) -> Subspace:
        own = heads.kv_head_of[part]
        S, T = query[layer, part], key[layer, own]
        if choice.space == "sum":
            space = subspace_sum(S, T, choice.sum_tolerance)
        elif choice.space == "intersection":
            space = intersection(S, T, choice.angle_tolerance)
        else:
            rank = torch.minimum(S.rank, T.rank)
            space = _leading_space(A[layer, part].to(choice.dtype), B[layer, own].to(choice.dtype), rank, choice)
        return _only(space, (S.rank > 0) & (T.rank > 0))

    attention = _by_pieces(W_Q.shape[:2], at_once, attention_of)
    b_Q, b_K = (None if bias is None else bias.to(choice.dtype) for bias in (block.b_Q, block.b_K))
    return BlockSpaces(block.layers, W_Q, W_K, b_Q, b_K, query, key, attention)


def _by_pieces(shape: Sequence[int], at_once: int, made: Callable[[int, slice], Subspace]) -> Subspace:
    """Spaces [layer, head], made a few heads of a layer at a time and put straight into their place.

    What the making takes besides is then that of a few heads. Bases are laid out as rows, as products with many want.
    """
    pieces = [(layer, slice(head, head + at_once)) for layer in range(shape[0]) for head in range(0, shape[1], at_once)]
    first = made(*pieces[0])
    basis = first.basis.new_empty(*shape, first.width, first.ambient).mT
    rank = first.rank.new_empty(tuple(shape))
    for number, piece in enumerate(pieces):
        S = made(*piece) if number else first
        basis[piece], rank[piece] = S.basis, S.rank
    return Subspace(basis, rank)


def _only(S: Subspace, wanted: Bool[Tensor, " head"]) -> Subspace:
    """S with the spaces that are not wanted emptied: without a query or a key, logits depend on no direction at all."""
    return Subspace(S.basis * wanted[..., None, None].to(S.basis.dtype), S.rank * wanted)


def expanded(heads: Heads, key: Subspace) -> Subspace:
    """The key space of every query head: that of the kv head it reads."""
    return key[:, heads.kv_head_of]


def _leading_space(A: Tensor, B: Tensor, most: Tensor, choice: SpaceChoice) -> Subspace:
    """The span of the leading singular vectors of W_QK = A B^T, those of both sides together.

    A product has no more of them than either factor has rank, which is decided where the weights were stored: `most`.
    """
    U, S, Vh = Factored(A, B).svd()
    r = choice.qk_rank
    kept = S[..., :r] > choice.sum_tolerance * S[..., :1]
    kept &= torch.arange(r, device=S.device) < most[..., None]
    rank = kept.sum(-1)
    sides = (U[..., :r], Vh[..., :r, :].mT)
    query, key = (Subspace(side * kept[..., None, :].to(side.dtype), rank) for side in sides)
    return subspace_sum(query, key, choice.sum_tolerance)


class KeptSpaces:
    """Spaces that are added one batch after the other and handed out by ranges, `at_once` of them at most."""

    def __init__(self, rows: Tensor | ScratchSlabs, at_once: int) -> None:
        self._rows, self.at_once = rows, at_once
        self._ranks: list[Tensor] = []

    @property
    def scratch_bytes(self) -> int:
        """What they take on the disk."""
        if isinstance(self._rows, Tensor):
            return 0
        n, p, d = self._rows.shape
        return n * p * d * self._rows.dtype.itemsize

    def __len__(self) -> int:
        return sum(map(len, self._ranks))

    def add(self, S: Subspace) -> None:
        """The spaces of the next heads."""
        start, rows = len(self), S.basis.mT
        if isinstance(self._rows, Tensor):
            self._rows[start : start + len(rows)] = rows
        else:
            self._rows.append(rows)
        self._ranks.append(S.rank)

    def members(self, start: int, stop: int) -> Subspace:
        """Some of them, by their number."""
        rows = self._rows[start:stop] if isinstance(self._rows, Tensor) else self._rows.members(start, stop)
        return Subspace(rows.mT, torch.cat(self._ranks)[start:stop])


@contextmanager
def kept_spaces(heads: Heads, choice: SpaceChoice, memory: int | str) -> Iterator[KeptSpaces]:
    """Room for all attention spaces: in memory if it is a third of the budget at most and leaves enough for a layer."""
    n, p, d = shape = (heads.n_layers * heads.n_heads, choice.columns(heads), heads.d_model)
    budget, one = memory_bytes(memory), p * d * choice.dtype.itemsize
    if n * one <= min(budget // 3, budget * 2 // 3 - sum(layer_bytes(heads, choice))):
        yield KeptSpaces(torch.empty(shape, dtype=choice.dtype, device=heads.device), at_once=n)
        return
    with scratch_slabs(shape, height=p, dtype=choice.dtype, device=heads.device) as file:
        yield KeptSpaces(file, at_once=max(1, budget // 6 // one))  # two ranges of them are held at a time
