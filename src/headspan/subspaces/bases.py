"""Orthonormal bases of column spans, with the rank decided by an explicit rule.

The rank of A is the number of singular values above tolerance * (largest singular value) and above a floor, which is
the noise of the stored format (`rank`). An SVD always decides it, but costs several times a QR. So cheaper
factorizations go first and are kept where they *certify* full rank:

1. Cholesky-QR: A^T A = R^T R, Q = A R^-1. All work is in matrix products. It leaves a defect of about eps cond(A)^2 in
   Q^T Q: about as much as Householder's where cond(A) < 10, which a bound shows for three heads of GPT-2 in four. The
   others are done twice (Yamamoto et al. 2015), which restores orthogonality to rounding while cond(A) is well below
   eps^(-1/2).
2. Householder QR for the members where step 1 was not safe; three times the time of one pass of step 1.
3. SVD for the members where neither bound excludes a rank below p: cond(A) from above for the tolerance, and for the
   floor the smallest singular value from below, 1 / ||R^-1||_F.

`method` names the step to begin with; the SVD is always the last resort, so the answer never depends on luck.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.subspaces.rank import checked_matrix, epsilon, spectrum_rank
from headspan.subspaces.subspace import Subspace
from headspan.threads import one_thread

Method = Literal["auto", "cholesky", "qr", "svd"]
Factorization = Callable[[Tensor, float, Tensor], tuple[Tensor, Tensor]]

_BLOCK_ENTRIES = 2**21
_ONE_PASS_CONDITION = 10.0
_CERTAIN = 0.5
"""Half is left for rounding in R^-1, which is a hundredth at most where a factorization is trusted."""


def _in_blocks(factorization: Factorization) -> Factorization:
    """The factorization of a batch, in blocks that keep LAPACK's scratch memory bounded, on one thread."""

    @one_thread()
    def blockwise(A: Tensor, tolerance: float, floor: Tensor) -> tuple[Tensor, Tensor]:
        batch, (d, p) = A.shape[:-2], A.shape[-2:]
        members, block = A.reshape(batch.numel(), d, p), max(1, _BLOCK_ENTRIES // max(1, d * p))
        pieces = [slice(i, i + block) for i in range(0, max(1, len(members)), block)]
        parts = [factorization(members[piece], tolerance, floor.reshape(-1)[piece]) for piece in pieces]
        bases, verdicts = (torch.cat(column) for column in zip(*parts, strict=True))
        return bases.reshape(*batch, d, min(d, p)), verdicts.reshape(batch)

    return blockwise


def _condition_bound(R: Tensor, inverse: Tensor) -> Tensor:
    """||R||_F ||R^-1||_F - p + 2 >= cond(R) + 1/cond(R), by Cauchy-Schwarz with the extreme singular values exchanged.

    Inf or NaN for a singular R, and where squares of entries leave the float range. Both compare as "not certain", so
    extreme scales go on to the SVD, which is immune to them.
    """
    bound: Tensor = torch.linalg.matrix_norm(R) * torch.linalg.matrix_norm(inverse) - R.shape[-1] + 2
    return bound


def _above(floor: Tensor, inverse: Tensor) -> Tensor:
    """Where the smallest singular value of R is certainly above the floor: it is 1 / ||R^-1||_F at least."""
    certain: Tensor = floor * torch.linalg.matrix_norm(inverse) < _CERTAIN
    return certain


def _inverse(R: Tensor) -> Tensor:
    eye = torch.eye(R.shape[-1], dtype=R.dtype, device=R.device).expand_as(R)
    inverse: Tensor = torch.linalg.solve_triangular(R, eye, upper=True)
    return inverse


@one_thread()
def _inverse_root(gram: Tensor) -> tuple[Tensor, Tensor]:
    """R^-1 with R^T R = gram, and an upper bound of cond(R), Inf where there is no such R."""
    R, failed = torch.linalg.cholesky_ex(gram, upper=True)
    inverse = _inverse(R)
    return inverse, torch.where(failed == 0, _condition_bound(R, inverse), torch.inf)


def _cholesky_qr(A: Tensor, tolerance: float, floor: Tensor) -> tuple[Tensor, Tensor]:
    """Q and where it can be trusted."""
    inverse, condition = _inverse_root(_products(A.mT, A))
    # One pass leaves a defect of about eps cond^2 in Q^T Q: with cond < 0.1 eps^(-1/2) at most 1/100, which the second
    # pass squares away to rounding.
    safe = (condition < min(0.1 / max(tolerance, epsilon(A)), 0.1 * epsilon(A) ** -0.5)) & _above(floor, inverse)
    # Rows of Q^T in one piece: 3 % faster to form projectors from than rows of Q.
    Q = _products(inverse.mT, A.mT).mT
    again = safe & (condition > _ONE_PASS_CONDITION)
    if bool(again.any()):
        rough = Q[again]
        Q[again] = rough @ _inverse_root(rough.mT @ rough)[0]
    return Q, safe


def _products(X: Tensor, Y: Tensor) -> Tensor:
    """X @ Y, a leading index at a time: heads sliced from a fused matrix are then used in place, not copied first."""
    if X.ndim < 4:
        return X @ Y
    result = X.new_empty(*X.shape[:-1], Y.shape[-1])
    for x, y, product in zip(X, Y, result, strict=True):
        product.copy_(_products(x, y))
    return result


@_in_blocks
def _householder_qr(A: Tensor, tolerance: float, floor: Tensor) -> tuple[Tensor, Tensor]:
    """Q and where the rank is certain to be full."""
    Q, R = torch.linalg.qr(A)
    inverse = _inverse(R)
    most = 0.1 / max(tolerance, max(A.shape[-2:]) * epsilon(A))
    return Q, (_condition_bound(R, inverse) < most) & _above(floor, inverse)


@_in_blocks
def _svd_basis(A: Tensor, tolerance: float, floor: Tensor) -> tuple[Tensor, Tensor]:
    """Left singular vectors with the columns beyond the rank set to zero, and the rank."""
    U, sigma, _ = torch.linalg.svd(A, full_matrices=False)
    rank = spectrum_rank(sigma, tolerance, floor)
    return U * _kept(rank, U.shape[-1]).to(U.dtype)[..., None, :], rank


def _kept(rank: Tensor, width: int) -> Tensor:
    return torch.arange(width, device=rank.device) < rank[..., None]


_STEPS: dict[str, tuple[Factorization, ...]] = {
    "auto": (_cholesky_qr, _householder_qr),
    "cholesky": (_cholesky_qr,),
    "qr": (_householder_qr,),
    "svd": (),
}


def orthonormal_basis(
    A: Float[Tensor, "*batch d p"],
    tolerance: float | None = None,
    method: Method = "auto",
    noise: Tensor | float = 0.0,
) -> Subspace:
    """Orthonormal bases U of the column spans of a batch of matrices.

    Parameters
    ----------
    A
        [..., d, p], real. Column spans are taken, so a write space needs W_O transposed.
    tolerance
        A singular value counts if it exceeds tolerance * (the largest); default max(d, p) * eps.
    method
        The factorization to begin with, see the module's text. Same span and rank for all, different bases of it.
    noise
        Root mean square of the error of an entry, a number or [...], one for each matrix: singular values up to
        2 noise (sqrt d + sqrt p) do not count (`headspan.subspaces.rank`).

    Returns
    -------
    Subspace
        basis [..., d, min(d, p)] with zero columns beyond the rank, and rank [...]. A random matrix has rank p.

    References
    ----------
    Yamamoto, Nakatsukasa, Yanagisawa, Fukaya (2015), Roundoff error analysis of the CholeskyQR2 algorithm.
    """
    if method not in _STEPS:
        raise ArgumentError(f"method needs to be one of {sorted(_STEPS)}, found {method!r}")
    return Subspace(*_basis_and_rank(*checked_matrix(A, tolerance, noise), _STEPS[method]))


def _basis_and_rank(
    A: Tensor, tolerance: float, floor: Tensor, steps: tuple[Factorization, ...]
) -> tuple[Tensor, Tensor]:
    """Bases and ranks of [..., d, p], each member by the first step that can be trusted with it."""
    d, p = A.shape[-2:]
    # Full column rank cannot be certified for a wide matrix: p > d columns are dependent whatever they are.
    if not steps or not 0 < p <= d:
        return _svd_basis(A, tolerance, floor)
    basis, certain = steps[0](A, tolerance, floor)
    rank = torch.full(A.shape[:-2], p, dtype=torch.int64, device=A.device)
    if not bool(certain.all()):
        basis[~certain], rank[~certain] = _basis_and_rank(A[~certain], tolerance, floor[~certain], steps[1:])
    return basis, rank


@one_thread()
def random_subspaces(
    shape: tuple[int, ...],
    d: int,
    p: int,
    seed: int | torch.Generator,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Subspace:
    """Independent subspaces drawn uniformly (Haar) from all p-dimensional subspaces of R^d.

    Parameters
    ----------
    shape
        Batch axes of the result.
    d, p
        Ambient dimension and dimension, 0 <= p <= d.
    seed
        An integer, or a generator that lives on `device`.

    Returns
    -------
    Subspace
        basis [*shape, d, p], itself Haar distributed among orthonormal p-frames; rank p.

    References
    ----------
    Mezzadri (2007), How to generate random matrices from the classical compact groups.
    """
    if not 0 <= p <= d:
        raise ArgumentError(f"a {p}-dimensional subspace of R^{d} needs 0 <= p <= d")
    generator = torch.Generator(device).manual_seed(seed) if isinstance(seed, int) else seed
    Q, R = torch.linalg.qr(torch.randn(*shape, d, p, generator=generator, dtype=dtype, device=device))
    # QR fixes signs by its own convention; giving each column the sign of R's diagonal makes the frame Haar too.
    basis = Q * torch.where(R.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(dtype)[..., None, :]
    return Subspace(basis, torch.full(shape, p, dtype=torch.int64, device=device))
