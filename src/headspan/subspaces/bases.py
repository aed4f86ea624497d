"""Orthonormal bases of column spans, with the rank decided by an explicit tolerance.

The rank of A is the number of singular values above tolerance * (largest singular value). An SVD always decides it, but
costs several times a QR. So cheaper factorisations go first and are kept where they *certify* full rank:

1. Cholesky-QR, twice: A^T A = R^T R, Q = A R^-1, and the same again on Q, which restores orthogonality to rounding
   as long as cond(A) is well below eps^(-1/2) (Yamamoto et al. 2015). All work is in matrix products, which pays on
   accelerators; on a CPU it measured no faster than step 2 (576 heads of GPT-2's shape: 0.42 s against 0.34 s to
   0.42 s in float32, 0.74 s against 0.59 s in float64, one thread), so "auto" leaves it out there.
2. Householder QR for the members where step 1 was not safe.
3. SVD for the members where ||R||_F ||R^-1||_F, an upper bound of cond(A), does not exclude a rank below p.

`method` names the step to begin with; the SVD is always the last resort, so the answer never depends on luck.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.errors import ShapeError
from headspan.subspaces.precision import epsilon, promoted, require_finite
from headspan.subspaces.subspace import Subspace
from headspan.threads import one_thread

Method = Literal["auto", "cholesky", "qr", "svd"]
_STEPS: dict[str, tuple[str, ...]] = {
    "auto": ("cholesky", "qr"),
    "cholesky": ("cholesky",),
    "qr": ("qr",),
    "svd": (),
}
_BLOCK_ENTRIES = 2**21


def default_tolerance(A: Float[Tensor, "*batch d p"]) -> float:
    """max(d, p) * eps: what rounding alone can leave of a zero singular value, relative to the largest."""
    return max(A.shape[-2:]) * epsilon(promoted(A))


def _checked(A: Tensor, tolerance: float | None) -> tuple[Tensor, float]:
    if A.ndim < 2:
        raise ShapeError(f"a matrix needs shape [..., d, p], found {tuple(A.shape)}")
    A = promoted(A, "matrix")
    require_finite(A, "matrix")
    tolerance = default_tolerance(A) if tolerance is None else tolerance
    if not 0 <= tolerance < 1:
        raise ShapeError(
            f"tolerance is relative to the largest singular value and needs 0 <= it < 1, found {tolerance}"
        )
    return A, tolerance


@one_thread()
def numerical_rank(A: Float[Tensor, "*batch d p"], tolerance: float | None = None) -> Int[Tensor, "*batch"]:
    """The number of singular values above `tolerance` times the largest one.

    Parameters
    ----------
    A
        [..., d, p], real.
    tolerance
        Relative to the largest singular value; default max(d, p) * eps.

    Returns
    -------
    Tensor
        [...], int64, in [0, min(d, p)]. A random matrix has rank min(d, p); a zero matrix has rank 0.
    """
    A, tolerance = _checked(A, tolerance)
    return _rank_of_spectrum(torch.linalg.svdvals(A), tolerance)


def _rank_of_spectrum(sigma: Tensor, tolerance: float) -> Tensor:
    if sigma.shape[-1] == 0:
        return torch.zeros(sigma.shape[:-1], dtype=torch.int64, device=sigma.device)
    return (sigma > tolerance * sigma[..., :1]).sum(-1)


def _inverse(R: Tensor) -> Tensor:
    eye = torch.eye(R.shape[-1], dtype=R.dtype, device=R.device).expand_as(R)
    inverse: Tensor = torch.linalg.solve_triangular(R, eye, upper=True)
    return inverse


def _condition_bound(R: Tensor, inverse: Tensor) -> Tensor:
    """||R||_F ||R^-1||_F >= cond(R); Inf or NaN for a singular R, and where squares of entries leave the float range.

    Both compare as "not certain", so extreme scales go on to the SVD, which is immune to them.
    """
    bound: Tensor = torch.linalg.matrix_norm(R) * torch.linalg.matrix_norm(inverse)
    return bound


def _cholesky_qr2(A: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """Q and where it can be trusted."""
    R, failed = torch.linalg.cholesky_ex(A.mT @ A, upper=True)
    inverse = _inverse(R)
    # One pass leaves a defect of about eps cond^2 in Q^T Q: with cond < 0.1 eps^(-1/2) at most 1/100, which the second
    # pass squares away to rounding.
    limit = min(0.1 / max(tolerance, epsilon(A)), 0.1 * epsilon(A) ** -0.5)
    safe = (failed == 0) & (_condition_bound(R, inverse) < limit)
    Q = A @ torch.where(safe[:, None, None], inverse, torch.eye(A.shape[-1], dtype=A.dtype, device=A.device))
    R, failed = torch.linalg.cholesky_ex(Q.mT @ Q, upper=True)
    return Q @ _inverse(R), safe & (failed == 0)


def _householder_qr(A: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """Q and where the rank is certain to be full."""
    Q, R = torch.linalg.qr(A)
    return Q, _condition_bound(R, _inverse(R)) < 0.1 / max(tolerance, max(A.shape[-2:]) * epsilon(A))


def _svd_basis(A: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """Left singular vectors with the columns beyond the rank set to zero, and the rank."""
    U, sigma, _ = torch.linalg.svd(A, full_matrices=False)
    rank = _rank_of_spectrum(sigma, tolerance)
    return U * _kept(rank, U.shape[-1]).to(U.dtype)[..., None, :], rank


def _kept(rank: Tensor, width: int) -> Tensor:
    return torch.arange(width, device=rank.device) < rank[..., None]


def orthonormal_basis(
    A: Float[Tensor, "*batch d p"], tolerance: float | None = None, method: Method = "auto"
) -> Subspace:
    """Orthonormal bases U of the column spans of a batch of matrices.

    Parameters
    ----------
    A
        [..., d, p], real. Column spans are taken, so a write space needs W_O transposed.
    tolerance
        A singular value counts if it exceeds tolerance * (the largest); default max(d, p) * eps.
    method
        The factorisation to begin with, see the module's text. Same span and rank for all, different bases of it.

    Returns
    -------
    Subspace
        basis [..., d, min(d, p)] with zero columns beyond the rank, and rank [...]. The span has rank p by chance.

    References
    ----------
    Yamamoto, Nakatsukasa, Yanagisawa, Fukaya (2015), Roundoff error analysis of the CholeskyQR2 algorithm.
    """
    if method not in _STEPS:
        raise ShapeError(f"method needs to be one of {sorted(_STEPS)}, found {method!r}")
    A, tolerance = _checked(A, tolerance)
    batch, (d, p) = A.shape[:-2], A.shape[-2:]
    A = A.reshape(batch.numel(), d, p)
    steps = ("qr",) if method == "auto" and A.device.type == "cpu" else _STEPS[method]
    # Blocks keep scratch memory bounded, and small enough to be reused instead of asked from the system anew.
    block = max(1, _BLOCK_ENTRIES // max(1, d * p))
    parts = [_block_basis(A[i : i + block], tolerance, steps) for i in range(0, max(1, len(A)), block)]
    basis, rank = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
    return Subspace(basis.reshape(*batch, d, min(d, p)), rank.reshape(batch))


@one_thread()
def _block_basis(A: Tensor, tolerance: float, steps: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Bases and ranks of [n, d, p], each member by the first step that can be trusted with it."""
    n, d, p = A.shape
    basis = A.new_zeros(n, d, min(d, p))
    rank = torch.zeros(n, dtype=torch.int64, device=A.device)
    todo = torch.arange(n, device=A.device)
    # Full column rank cannot be certified for a wide matrix: p > d columns are dependent whatever they are.
    for step in steps if 0 < p <= d else ():
        if len(todo) == 0:
            break
        factorisation = _cholesky_qr2 if step == "cholesky" else _householder_qr
        Q, certain = factorisation(A[todo], tolerance)
        basis[todo[certain]], rank[todo[certain]] = Q[certain], p
        todo = todo[~certain]
    if len(todo):
        basis[todo], rank[todo] = _svd_basis(A[todo], tolerance)
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
        raise ShapeError(f"a {p}-dimensional subspace of R^{d} needs 0 <= p <= d")
    generator = torch.Generator(device).manual_seed(seed) if isinstance(seed, int) else seed
    Q, R = torch.linalg.qr(torch.randn(*shape, d, p, generator=generator, dtype=dtype, device=device))
    # QR fixes signs by its own convention; giving each column the sign of R's diagonal makes the frame Haar too.
    basis = Q * torch.where(R.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(dtype)[..., None, :]
    return Subspace(basis, torch.full(shape, p, dtype=torch.int64, device=device))
