"""A batch of subspaces, held as orthonormal bases with their true dimensions.

Members of a batch may differ in dimension. A basis is a [d, p] slab whose first `rank` columns are orthonormal and
whose remaining columns are exactly zero. Zero columns add nothing to a product with another basis, so
U U^T is the orthogonal projector and ||U^T V||_F^2 the projection kernel for every rank, without loops and without
padding the subspace by directions it does not have. A count of directions must come from `rank`, never from the width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from headspan.errors import DegenerateSubspace, ShapeError
from headspan.subspaces.rank import epsilon, promote, require_finite


@dataclass(frozen=True)
class Subspace:
    """A batch of subspaces of R^d.

    Parameters
    ----------
    basis
        [..., d, p], float32 or float64. The first `rank` columns are orthonormal, the others are zero.
    rank
        [...], int64, in [0, p]. The dimension of each member.
    """

    basis: Float[Tensor, "*batch d p"]
    rank: Int[Tensor, "*_batch"]

    def __post_init__(self) -> None:
        if self.basis.ndim < 2:
            raise ShapeError(f"a basis needs shape [..., d, p], found {tuple(self.basis.shape)}")
        if self.rank.shape != self.basis.shape[:-2]:
            raise ShapeError(
                f"rank needs one entry per basis, shape {tuple(self.basis.shape[:-2])}, found {tuple(self.rank.shape)}"
            )
        if self.rank.numel() and (int(self.rank.min()) < 0 or int(self.rank.max()) > self.basis.shape[-1]):
            raise ShapeError(
                f"rank needs to be between 0 and the {self.basis.shape[-1]} columns of the basis, "
                f"found {int(self.rank.min())} to {int(self.rank.max())}"
            )

    @classmethod
    def from_orthonormal(cls, U: Float[Tensor, "*batch d p"]) -> Subspace:
        """Wrap columns that are orthonormal already; raises if they are not (up to rounding)."""
        U = promote(U, "basis")
        require_finite(U, "basis")
        d, p = U.shape[-2:]
        defect = (U.mT @ U - torch.eye(p, dtype=U.dtype, device=U.device)).abs().flatten()
        worst = float(defect.max()) if defect.numel() else 0.0
        if worst > 8 * (d + p) * epsilon(U):
            raise DegenerateSubspace(
                f"columns need to be orthonormal, found U^T U - I as large as {worst:.3g}; use orthonormal_basis"
            )
        return cls(U, torch.full(U.shape[:-2], p, dtype=torch.int64, device=U.device))

    @property
    def ambient(self) -> int:
        """d, the dimension of the space the subspaces live in."""
        return self.basis.shape[-2]

    @property
    def width(self) -> int:
        """p, the number of columns stored, an upper bound of every rank."""
        return self.basis.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        """The leading axes."""
        return self.basis.shape[:-2]

    @property
    def is_full(self) -> Tensor:
        """[...] bool: True where every stored column is a direction (rank = width)."""
        return self.rank == self.width

    def __getitem__(self, index: object) -> Subspace:
        """Members of the batch; the index applies to the batch axes only."""
        rank = self.rank[index]  # type: ignore[index]
        basis = self.basis[index]  # type: ignore[index]
        if basis.shape[-2:] != self.basis.shape[-2:]:
            raise ShapeError(f"the index must leave the axes [d, p] alone, batch shape is {tuple(self.batch_shape)}")
        return Subspace(basis, rank)

    def reshape(self, *shape: int) -> Subspace:
        """The same members with other batch axes; `reshape(-1)` makes a list of them."""
        rank = self.rank.reshape(*shape)
        return Subspace(self.basis.reshape(*rank.shape, self.ambient, self.width), rank)

    def to(self, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Subspace:
        """The same subspaces elsewhere or in another precision."""
        return Subspace(self.basis.to(device=device, dtype=dtype), self.rank.to(device=device))

    def shared_rank(self, purpose: str) -> int:
        """The one rank of all members; raises if they differ, because the result would be ragged."""
        ranks = sorted(set(self.rank.flatten().tolist()))
        if len(ranks) > 1:
            raise DegenerateSubspace(
                f"{purpose} needs one rank for the whole batch, found ranks {ranks}; loop over the members"
            )
        return int(ranks[0]) if ranks else self.width


def stack_factors(parts: Sequence[Float[Tensor, "_ d _"]]) -> Float[Tensor, "n d p"]:
    """Several batches in one; narrower members get zero columns, and a single batch is not copied."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.shape[-1] for part in parts)
    missing = [width - part.shape[-1] for part in parts]
    return torch.cat(
        [pad(part, (0, columns)) if columns else part for part, columns in zip(parts, missing, strict=True)]
    )


def concatenate(parts: Sequence[Subspace]) -> Subspace:
    """The members of several one-axis batches of one R^d in one batch, in order.

    Narrower bases get zero columns, which is the representation of a smaller rank. Stacking the roles of a model this
    way lets one symmetric product serve every pairing of roles.
    """
    if not parts:
        raise ShapeError("concatenate needs at least one batch of subspaces, found none")
    shapes = {(part.ambient, len(part.batch_shape)) for part in parts}
    if len(shapes) > 1 or next(iter(shapes))[1] != 1:
        raise ShapeError(
            "concatenate needs batches with one axis in one R^d, "
            f"found bases of shapes {[tuple(part.basis.shape) for part in parts]}; use reshape(-1)"
        )
    return Subspace(stack_factors([part.basis for part in parts]), torch.cat([part.rank for part in parts]))
