"""Leading singular directions of W_OV, W_QK, the MLP's matrices and W_U, without forming a matrix of d x d for a head.

W_OV = W_V W_O and W_QK = W_Q R_delta W_K^T are factored: their singular vectors come from those of a d_head x d_head
core (`subspaces.Factored`). Left vectors are what is read (OV) or the query side (QK), right ones what is written or
the key side. Heads of a group share W_K or W_V and are taken query head by query head. Of an MLP's matrix the vectors
on the stream's side are eigenvectors of a d_model x d_model Gram matrix, of W_U those of the covariance of its columns.

A direction whose singular value is rounding is a row of zeros, which reads as undefined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.dims import HeadLabel, Role
from headspan.errors import ArgumentError, MemoryBudgetError
from headspan.heads import HeadBlock, Heads
from headspan.heads.logits import bilinear_factors
from headspan.heads.precision import computing_dtype
from headspan.subspaces import Factored, default_tolerance
from headspan.subspaces.grams import row_gram
from headspan.threads import one_thread

ROLES_OF: dict[str, tuple[Role, Role]] = {"OV": ("V", "O"), "QK": ("Q", "K")}
DENSE = 2048
"""Up to this side all eigenvectors are computed; above, the leading ones by Lanczos iteration."""
COPIES, LEAST_COPIES, MLP_COPIES = 8, 4, 3
"""Times what reading a layer takes: room that is left for decomposing its heads, and that it needs at least; and
times a matrix of an MLP: as stored, in the precision of the lens, with the norm folded in."""


@dataclass(frozen=True)
class Directions:
    """Leading directions of some matrices, by side, with singular values and energy, the sum of all their squares.

    The sides of a circuit share its singular values; matrices of an MLP stand for sides and have their own.
    """

    sides: dict[str, Float[Tensor, "matrix k d_model"]]
    values: Float[Tensor, "matrix k ..."]
    energy: Float[Tensor, "matrix ..."]


def circuit_factors(heads: Heads, block: HeadBlock, kind: str, delta: int = 0) -> tuple[Tensor, Tensor]:
    """A and B [layer, head, d_model, r] with W_OV or W_QK = A B^T, per query head."""
    if kind == "QK":
        A, B = bilinear_factors(heads, block, delta)
        return A, heads.per_query_head(B)
    return heads.per_query_head(block.W_V), block.W_O.mT


def circuit_blocks(
    heads: Heads, kinds: Sequence[str], chosen: Sequence[HeadLabel] | None, delta: int, room: tuple[int, int]
) -> Iterator[tuple[list[HeadLabel], dict[str, tuple[Tensor, Tensor]]]]:
    """The heads a few layers at a time, with the factors [head, d_model, r] of each kind of circuit.

    `room` is what the token tables take as they are stored, and the memory that is left beside them.
    """
    wide = heads.to(computing_dtype(heads))
    roles: tuple[Role, ...] = tuple(role for kind in kinds for role in ROLES_OF[kind])
    per_layer, once = wide.block_bytes(roles)
    held, budget = room
    needed = LEAST_COPIES * (per_layer + once)
    if needed > budget:
        raise MemoryBudgetError(
            f"the token tables take {held:,} bytes as stored and the heads of one layer {needed:,}, and the memory "
            f"budget is {held + budget:,}; raise it by {needed - budget:,} bytes or more"
        )
    wanted = None if chosen is None else set(chosen)
    if wanted is not None:
        _check_heads(heads, wanted)
        layers = {label.layer for label in wanted}
        wide = replace(wide, layers=tuple(layer for layer in heads.layers if layer in layers))
    for block in wide.blocks(max(budget // COPIES, per_layer + once), roles):
        labels = [HeadLabel(layer, head) for layer in block.layers for head in range(heads.n_heads)]
        keep = [place for place, label in enumerate(labels) if wanted is None or label in wanted]
        if keep:
            pairs = {kind: circuit_factors(wide, block, kind, delta) for kind in kinds}
            yield (
                [labels[place] for place in keep],
                {kind: (A.flatten(0, 1)[keep], B.flatten(0, 1)[keep]) for kind, (A, B) in pairs.items()},
            )


def _check_heads(heads: Heads, wanted: set[HeadLabel]) -> None:
    for label in sorted(wanted):
        if label.layer not in heads.layers or label.head >= heads.n_heads:
            last = HeadLabel(heads.layers[-1], heads.n_heads - 1)
            raise ArgumentError(f"{label} does not exist: heads are {HeadLabel(heads.layers[0], 0)} to {last}")


def circuit_directions(
    A: Float[Tensor, "head d r"], B: Float[Tensor, "head d r"], leading: int, sides: tuple[str, str]
) -> Directions:
    """The `leading` singular directions of every A B^T, left side first."""
    with one_thread():
        U, S, Vh = Factored(A, B).svd()
    k = min(leading, S.shape[-1])
    values = S[..., :k]
    # One copy of what is kept lets go of all other vectors.
    left, right = U[..., :k].mT.clone(), Vh[..., :k, :].clone()
    real = (values > default_tolerance(A.shape[-2], S.dtype) * S[..., :1])[..., None]
    return Directions({sides[0]: left * real, sides[1]: right * real}, values, S.square().sum(-1))


def require_room_for_mlp(heads: Heads, held: int, memory: int) -> None:
    """Refuse to read an MLP where `memory` bytes, beside the `held` ones of the token tables, do not hold a matrix."""
    width = 0 if heads.stack.mlp is None else heads.stack.mlp.width
    needed = MLP_COPIES * width * heads.d_model * heads.dtype.itemsize
    if needed > memory:
        raise MemoryBudgetError(
            f"the token tables take {held:,} bytes as stored and reading a matrix of an MLP {needed:,}, and the memory "
            f"budget is {held + memory:,}; raise it by {needed - memory:,} bytes or more, or leave out the MLP"
        )


def mlp_directions(heads: Heads, layer: int, names: Sequence[str], leading: int) -> Directions:
    """Singular directions of a layer's matrices on the side of the stream; none is held while the next is read."""
    matrices = heads.mlp_matrices(layer)
    found = [gram_directions(_stream_gram(next(matrices), name), leading) for name in names]
    sides = {name: vectors[None] for name, (vectors, _, _) in zip(names, found, strict=True)}
    values = torch.stack([values for _, values, _ in found], -1)[None]
    return Directions(sides, values, torch.stack([energy for _, _, energy in found])[None])


def _stream_gram(matrix: Tensor, name: str) -> Float[Tensor, "d d"]:
    return row_gram(matrix if name != "W_out" else matrix.mT)


def gram_directions(
    gram: Float[Tensor, "d d"], leading: int
) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"], Float[Tensor, ""]]:
    """Singular directions, values and energy of a matrix by its Gram or covariance matrix."""
    d = len(gram)
    k = min(leading, d)
    if d <= DENSE or k > d // 4:
        values, vectors = torch.linalg.eigh(gram.double())
    else:
        from scipy.sparse.linalg import eigsh  # type: ignore[import-untyped,unused-ignore]

        start = np.random.default_rng(0).standard_normal(d)
        pair = eigsh(gram.double().numpy(force=True), k, which="LA", v0=start)
        values, vectors = (torch.as_tensor(each, device=gram.device) for each in pair)
    squares = values.flip(-1)[:k].clamp(min=0)
    real = (squares > 1e-12 * squares[0])[:, None]
    return vectors.flip(-1)[:, :k].T * real, squares.sqrt(), gram.double().trace()
