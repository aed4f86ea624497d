"""The spaces a head looks through: what its query reads, what its key reads, and both together.

R_Q and R_K are the column spans of W_Q and W_K in R^d_model. An attention logit depends on the query token only through
R_Q and on the key token only through R_K, so a head as a whole is described by one of:

sum           R_Q + R_K: every direction that matters to the head on either side, 2 d_head of them by chance.
intersection  R_Q and R_K in common, up to an angle; none by chance while 2 d_head <= d_model.
qk            the span of the leading singular vectors of W_QK = W_Q W_K^T on both sides: the part of the sum that
              carries the largest logits. W_QK is never formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headspan.errors import ShapeError
from headspan.heads import HeadBlock, Heads
from headspan.heads.bilinear import bilinear_factors
from headspan.heads.memory import memory_bytes
from headspan.heads.precision import computing_dtype
from headspan.subspaces import Factored, Subspace, intersection, orthonormal_basis, subspace_sum

SPACES = ("sum", "intersection", "qk")


@dataclass(frozen=True)
class SpaceChoice:
    """Which space stands for a head, and how dimensions are decided.

    Parameters
    ----------
    space
        One of SPACES.
    tolerance
        Relative size below which a singular value counts as zero.
    angle_tolerance
        For "intersection": largest angle in radians at which a direction counts as common; None for rounding only.
    qk_rank
        For "qk": how many singular vectors on each side.
    dtype
        What the arithmetic is done in.
    """

    space: str
    tolerance: float
    angle_tolerance: float | None
    qk_rank: int
    dtype: torch.dtype

    @property
    def width_factor(self) -> int:
        """Columns of a stored basis, in units of d_head (rounded up)."""
        return 1 if self.space == "intersection" else 2


def space_choice(
    heads: Heads, space: str, tolerance: float | None, angle_tolerance: float | None, qk_rank: int | None
) -> SpaceChoice:
    """The choice with its defaults filled in; refused where it does not fit these heads."""
    if space not in SPACES:
        raise ShapeError(f"space {space!r} is unknown; it is one of {', '.join(SPACES)}")
    rank = max(1, heads.d_head // 4) if qk_rank is None else qk_rank
    if not 1 <= rank <= heads.d_head:
        raise ShapeError(f"qk_rank needs to be in 1..{heads.d_head} (d_head), found {rank}")
    return SpaceChoice(
        space=space,
        tolerance=heads.d_model * torch.finfo(heads.dtype).eps if tolerance is None else tolerance,
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


def space_blocks(heads: Heads, choice: SpaceChoice, memory: int | str) -> Iterator[BlockSpaces]:
    """The spaces of all heads, in blocks of layers.

    Weights get an eighth of the budget, since their double-precision copies and the bases take several times as much;
    a single layer may have all of it.
    """
    budget = memory_bytes(memory)
    per_layer, once = heads.block_bytes(("Q", "K"))
    for block in heads.blocks(min(budget, max(budget // 8, per_layer + once)), ("Q", "K")):
        yield block_spaces(heads, block, choice)


def block_spaces(heads: Heads, block: HeadBlock, choice: SpaceChoice) -> BlockSpaces:
    """Query, key and attention spaces of the heads of one block."""
    W_Q, W_K = block.W_Q.to(choice.dtype), block.W_K.to(choice.dtype)
    query, key = orthonormal_basis(W_Q, choice.tolerance), orthonormal_basis(W_K, choice.tolerance)
    per_head = expanded(heads, key)
    if choice.space == "sum":
        attention = subspace_sum(query, per_head, choice.tolerance)
    elif choice.space == "intersection":
        attention = intersection(query, per_head, choice.angle_tolerance)
    else:
        A, B = bilinear_factors(heads, block)
        attention = _leading_space(A.to(choice.dtype), heads.per_query_head(B).to(choice.dtype), choice)
    b_Q, b_K = (None if bias is None else bias.to(choice.dtype) for bias in (block.b_Q, block.b_K))
    defined = (query.rank > 0) & (per_head.rank > 0)
    return BlockSpaces(block.layers, W_Q, W_K, b_Q, b_K, query, key, _only(attention, defined))


def _only(S: Subspace, wanted: Bool[Tensor, "layer head"]) -> Subspace:
    """S with the spaces that are not wanted emptied: without a query or a key, logits depend on no direction at all."""
    return Subspace(S.basis * wanted[..., None, None].to(S.basis.dtype), S.rank * wanted)


def expanded(heads: Heads, key: Subspace) -> Subspace:
    """The key space of every query head: that of the kv head it reads."""
    return key[:, torch.arange(heads.n_heads) // (heads.n_heads // heads.n_kv_heads)]


def _leading_space(A: Tensor, B: Tensor, choice: SpaceChoice) -> Subspace:
    """The span of the leading singular vectors of W_QK = A B^T, those of both sides together."""
    U, S, Vh = Factored(A, B).svd()
    r = choice.qk_rank
    kept = S[..., :r] > choice.tolerance * S[..., :1]
    rank = kept.sum(-1)
    sides = (U[..., :r], Vh[..., :r, :].mT)
    query, key = (Subspace(side * kept[..., None, :].to(side.dtype), rank) for side in sides)
    return subspace_sum(query, key, choice.tolerance)
