"""Sums, intersections, complements and projections of subspaces.

Each operation takes and returns `Subspace` batches. A question of dimension ("is this direction shared?") is decided by
an angle tolerance in radians that the caller can set. The intersection is read from *sines*: with
W = U - V V^T U, the right singular vectors of W with singular value sin(theta) <= sin(tolerance) are the directions
of U that lie in V. Cosines could not tell 1e-9 from 0, since both round to 1.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ShapeError
from headspan.subspaces.bases import orthonormal_basis
from headspan.subspaces.rank import common_dtype, epsilon, promote
from headspan.subspaces.subspace import Subspace


def default_angle_tolerance(S: Subspace) -> float:
    """sqrt(d) * 16 eps radians: the angle rounding leaves between two bases of one subspace."""
    return 16 * math.sqrt(S.ambient) * epsilon(S.basis)


def require_same_ambient(S: Subspace, T: Subspace) -> None:
    """Raise unless both batches live in the same R^d."""
    if S.ambient != T.ambient:
        raise ShapeError(
            f"two subspaces need one ambient space, found R^{S.ambient} and R^{T.ambient}; "
            "check which axis of the weight is d_model"
        )


def complement(S: Subspace) -> Subspace:
    """The orthogonal complement of each subspace.

    Parameters
    ----------
    S
        A batch whose members share one rank r (else the result would be ragged and DegenerateSubspace is raised).

    Returns
    -------
    Subspace
        basis [..., d, d - r], rank d - r.
    """
    r = S.shared_rank("complement")
    Q, _ = torch.linalg.qr(S.basis[..., :r], mode="complete")
    rank = torch.full(S.batch_shape, S.ambient - r, dtype=torch.int64, device=Q.device)
    return Subspace(Q[..., r:], rank)


def null_space(A: Float[Tensor, "*batch d p"], tolerance: float | None = None) -> Subspace:
    """The row vectors x with x A = 0: the complement of A's column span.

    Parameters
    ----------
    A
        [..., d, p], real; with A = W_Q this is what the query does not see.
    tolerance
        Rank tolerance as in `orthonormal_basis`.

    Returns
    -------
    Subspace
        basis [..., d, d - r] where r is the rank all members must share; d - p under the null.
    """
    return complement(orthonormal_basis(A, tolerance))


def subspace_sum(S: Subspace, T: Subspace, tolerance: float | None = None) -> Subspace:
    """The span of two subspaces together (their union, closed under addition).

    Parameters
    ----------
    S, T
        Batches of one R^d; batch axes broadcast.
    tolerance
        As in `orthonormal_basis`, on the matrix [U V], whose smallest singular value for a smallest angle theta is
        about theta / sqrt(2): directions closer than that count once.

    Returns
    -------
    Subspace
        basis [..., d, min(d, p + q)]; rank in [max(p, q), min(d, p + q)], and min(d, p + q) under the null.
    """
    require_same_ambient(S, T)
    U, V = common_dtype(S.basis, T.basis)
    batch: torch.Size = torch.broadcast_shapes(S.batch_shape, T.batch_shape)  # type: ignore[no-untyped-call]
    both = torch.cat([U.expand(*batch, -1, -1), V.expand(*batch, -1, -1)], dim=-1)
    return orthonormal_basis(both, tolerance)


def intersection(S: Subspace, T: Subspace, tolerance: float | None = None) -> Subspace:
    """The directions two subspaces share.

    Parameters
    ----------
    S, T
        Batches of one R^d; batch axes broadcast.
    tolerance
        Largest angle in radians that counts as shared; default 16 sqrt(d) eps.

    Returns
    -------
    Subspace
        basis [..., d, min(p, q)], columns in S; rank = number of principal angles up to `tolerance`,
        which is max(0, p + q - d) under the null.
    """
    require_same_ambient(S, T)
    if S.width > T.width:
        # Fewer columns to decompose; the shared directions are then those of T nearest S, equal up to `tolerance`.
        S, T = T, S
    U, V = common_dtype(S.basis, T.basis)
    tolerance = default_angle_tolerance(S) if tolerance is None else tolerance
    _, sines, Rh = torch.linalg.svd(marked_residual(U, V, S.rank), full_matrices=False)
    shared = (sines <= math.sin(tolerance)).flip(-1)
    # Singular values descend, so flipping puts the shared directions first, as the zero-column convention needs.
    basis = (U @ Rh.mT.flip(-1)) * shared.to(U.dtype)[..., None, :]
    return Subspace(basis, shared.sum(-1))


def marked_residual(U: Tensor, V: Tensor, rank: Tensor) -> Tensor:
    """(I - V V^T) U with rows below that give every zero column of U the singular value 2.

    The singular values are the sines of the angles from U to V. A zero column of U (rank below width) would fake a sine
    of 0, an angle that does not exist; marking it 2, above every sine, sends it to the far end of the spectrum.
    """
    residual = U - V @ (V.mT @ U)
    missing = torch.arange(U.shape[-1], device=U.device) >= rank[..., None]
    marks = torch.diag_embed(2.0 * missing.to(U.dtype))
    marks = marks.expand(*residual.shape[:-2], -1, -1)
    return torch.cat([residual, marks], dim=-2)


def project(x: Float[Tensor, "*batch_n d"], S: Subspace) -> Float[Tensor, "*out d"]:
    """The orthogonal projection of row vectors onto a subspace, x U U^T.

    Parameters
    ----------
    x
        [..., n, d], or [d] for one vector and one subspace; leading axes broadcast with the batch of `S`.
    S
        Subspaces of R^d.

    Returns
    -------
    Tensor
        Shape of `x` (broadcast). The squared length shrinks to p/d of itself under the null.
    """
    if x.shape[-1] != S.ambient:
        raise ShapeError(f"vectors need {S.ambient} entries to be projected in R^{S.ambient}, found {x.shape[-1]}")
    rows, U = common_dtype(promote(x, "vectors"), S.basis)
    rows = rows[None] if x.ndim == 1 else rows
    image = (rows @ U) @ U.mT
    return image.squeeze(-2) if x.ndim == 1 else image
