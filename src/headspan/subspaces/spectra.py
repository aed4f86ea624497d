r"""Singular values of many or very tall matrices, through the Gram matrix where that is accurate enough.

The singular values of A are the roots of the eigenvalues of its smaller Gram matrix, k x k for k = min(m, n): a
product, then half the work of an SVD, and no factor with the long side. In float64 an eigenvalue is off by about k eps
times the largest, so a singular value s by a relative k eps (s_1 / s)^2 / 2. That suffices for weights stored in
single precision, whose smallest singular value is known no better. It does not for matrices singular or nearly so:

1. Gram and eigenvalues, always in float64; a tall matrix is added up in blocks of rows.
2. Where the smallest eigenvalue is not above `SAFE` times the largest, the triangular factor of a QR (in blocks of rows
   too) and its singular values, which have all their digits relative to s_1.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from scipy import linalg  # type: ignore[import-untyped,unused-ignore]
from threadpoolctl import ThreadpoolController
from torch import Tensor

from headspan.errors import ShapeError
from headspan.subspaces.rank import DEFAULT_MEMORY, promote, require_finite
from headspan.threads import one_thread

SAFE = 1e-12
"""Of the largest eigenvalue of a Gram matrix: singular values above 1e-6 of the largest, good to 1e-5 of themselves."""
_LARGE = 256
"""From this side on LAPACK through SciPy beats torch's call: no copy to a batch, and half of the product suffices."""
_SHARED = 1024
"""From this side on threads may share a matrix, where there are fewer matrices than threads."""


@cache
def _threads() -> ThreadpoolController:
    """SciPy's threads, which torch's setting does not reach."""
    return ThreadpoolController()


def singular_values(A: Float[Tensor, "*batch m n"], memory: int = DEFAULT_MEMORY) -> Float[Tensor, "*batch k"]:
    """The min(m, n) singular values of every matrix, descending.

    Parameters
    ----------
    A
        [..., m, n], real; half precision is promoted. Work is in float64.
    memory
        Bytes for the float64 copy of a block of rows. The k x k Gram matrix comes on top.

    Returns
    -------
    Tensor
        float64, >= 0. For independent entries of standard deviation sigma between sigma |sqrt m - sqrt n| and
        sigma (sqrt m + sqrt n). Relative error 1e-5 at s = 1e-6 s_1 and less above, as (s_1 / s)^2; where there are
        smaller ones, all have an absolute error of about eps s_1.
    """
    if A.ndim < 2 or min(A.shape[-2:]) < 1:
        raise ShapeError(f"singular values need a matrix [..., m, n] with m, n >= 1, found shape {tuple(A.shape)}")
    A = promote(A, "matrix")
    require_finite(A, "matrix")
    tall = A if A.shape[-2] >= A.shape[-1] else A.mT
    batch, k = tall.shape[:-2], tall.shape[-1]
    flat = tall.reshape(-1, *tall.shape[-2:])
    if len(flat) == 0:
        values = flat.new_zeros(0, k, dtype=torch.float64)
    elif k >= _LARGE and A.device.type == "cpu":
        values = torch.stack(_side_by_side(flat, memory))
    else:
        values = _small(flat, memory)
    return values.reshape(*batch, k)


def _rows(k: int, memory: int) -> int:
    """How many rows of k numbers in float64 fit, at least k of them."""
    return max(k, memory // (8 * k))


@one_thread()
def _small(flat: Tensor, memory: int) -> Tensor:
    """A batch at a time, in blocks of matrices or, for very tall ones, of rows."""
    rows = _rows(flat.shape[-1], memory)
    step = max(1, rows // flat.shape[-2])
    parts: list[Tensor] = []
    for start in range(0, len(flat), step):
        here = flat[start : start + step]
        gram = _gram(here[:, :rows])
        for first in range(rows, here.shape[-2], rows):
            gram += _gram(here[:, first : first + rows])
        squares = torch.linalg.eigvalsh(gram).flip(-1)
        unsafe = squares[:, -1] <= SAFE * squares[:, 0]
        values = squares.clamp(min=0).sqrt()
        for place in unsafe.nonzero().flatten().tolist():
            values[place] = torch.linalg.svdvals(_triangle(here[place], rows))
        parts.append(values)
    return torch.cat(parts)


def _side_by_side(flat: Tensor, memory: int) -> list[Tensor]:
    """Large matrices, each on one thread of its own: threads that share a matrix mostly wait (`headspan.threads`)."""
    workers = min(len(flat), torch.get_num_threads())
    if workers < torch.get_num_threads() and flat.shape[-1] >= _SHARED:
        return [_large(matrix, memory) for matrix in flat]
    with one_thread(), _threads().limit(limits=1), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda matrix: _large(matrix, memory // workers), flat))


def _large(matrix: Tensor, memory: int) -> Tensor:
    """One matrix of large sides, by SciPy's LAPACK."""
    k, rows = matrix.shape[-1], _rows(matrix.shape[-1], memory)
    gram = np.zeros((k, k), order="F")
    for start in range(0, matrix.shape[-2], rows):
        block = matrix[start : start + rows].double().numpy()
        # A transposed view is what BLAS calls a matrix in column order, so nothing is copied; one triangle is filled.
        gram = linalg.blas.dsyrk(1.0, np.ascontiguousarray(block).T, beta=1.0, c=gram, overwrite_c=1)
    ascending = linalg.eigh(gram, eigvals_only=True, driver="evd", lower=False, overwrite_a=True, check_finite=False)
    squares = ascending[::-1].copy()
    if squares[-1] > SAFE * squares[0]:
        return torch.as_tensor(np.sqrt(squares))
    values: Tensor = torch.linalg.svdvals(_triangle(matrix, rows))
    return values


def _triangle(matrix: Tensor, rows: int) -> Tensor:
    """R of the QR of a tall matrix, built up over blocks of rows."""
    R = matrix.new_zeros(0, matrix.shape[-1], dtype=torch.float64)
    for start in range(0, matrix.shape[-2], rows):
        R = torch.linalg.qr(torch.cat([R, matrix[start : start + rows].double()]), mode="r").R
    return R


@one_thread()
def product_singular_values(
    A: Float[Tensor, "*batch m r"], B: Float[Tensor, "*_batch n _r"]
) -> Float[Tensor, "*batch k"]:
    """The largest min(m, n, r) singular values of A B^T, descending, without forming it.

    With Cholesky factors A^T A = L_A L_A^T and B^T B = L_B L_B^T they are those of the r x r matrix L_A^T L_B. Where a
    factor is singular or nearly so (or r exceeds a side), triangular factors from a QR take their place.

    Parameters
    ----------
    A, B
        [..., m, r] and [..., n, r] with the same batch axes.

    Returns
    -------
    Tensor
        float64, >= 0. Independent standard normal factors have a sum of squares of m n r.
    """
    A, B = promote(A, "factor A"), promote(B, "factor B")
    if A.shape[:-2] != B.shape[:-2] or A.shape[-1] != B.shape[-1] or min(*A.shape[-2:], B.shape[-2]) < 1:
        raise ShapeError(
            f"a product A B^T needs [..., m, r] and [..., n, r], found {tuple(A.shape)} and {tuple(B.shape)}"
        )
    require_finite(A, "factor A")
    require_finite(B, "factor B")
    batch, r = A.shape[:-2], A.shape[-1]
    k = min(A.shape[-2], B.shape[-2], r)
    A, B = A.reshape(-1, *A.shape[-2:]), B.reshape(-1, *B.shape[-2:])
    (L_A, safe_A), (L_B, safe_B) = _cholesky(A), _cholesky(B)
    values: Tensor = torch.linalg.svdvals(L_A.mT @ L_B)[..., :k]
    for place in (~(safe_A & safe_B)).nonzero().flatten().tolist():
        R_A, R_B = (torch.linalg.qr(factor[place].double(), mode="r").R for factor in (A, B))
        values[place] = torch.linalg.svdvals(R_A @ R_B.mT)[:k]
    return values.reshape(*batch, k)


def _cholesky(A: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of A^T A in float64, zero where they cannot be trusted, and where they can."""
    gram = _gram(A)
    L, info = torch.linalg.cholesky_ex(gram)
    diagonal = L.diagonal(dim1=-2, dim2=-1).square()
    safe = (info == 0) & (diagonal.amin(-1) > SAFE * diagonal.amax(-1))
    return torch.where(safe[:, None, None], L, 0.0), safe


def _gram(A: Tensor) -> Tensor:
    A = A.double()
    return A.mT @ A


@one_thread()
def symmetric_eigenvalues(A: Float[Tensor, "*batch d r"], B: Float[Tensor, "*batch d r"]) -> Float[Tensor, "*batch k"]:
    """The 2 r eigenvalues of the symmetric part (A B^T + B A^T) / 2 that need not be 0, ascending.

    With G = [A B]^T [A B] = L L^T and J, which exchanges the two halves, they are those of L^T J L / 2. Where G is
    singular (A and B share directions, or 2 r > d) L is built from its eigenvectors instead.

    Parameters
    ----------
    A, B
        [..., d, r] with the same batch axes.

    Returns
    -------
    Tensor
        float64, both signs; symmetric about 0 under the null. Their sum is the trace of A B^T. Absolute error about
        r eps |A| |B|: eigenvalues that are 0 come out as rounding.
    """
    batch, r = A.shape[:-2], A.shape[-1]
    both = torch.cat([A.reshape(-1, *A.shape[-2:]), B.reshape(-1, *B.shape[-2:])], dim=-1)
    require_finite(both, "factors")
    gram = _gram(both)
    L, info = torch.linalg.cholesky_ex(gram)
    for place in (info != 0).nonzero().flatten().tolist():
        squares, vectors = torch.linalg.eigh(gram[place])
        L[place] = vectors * squares.clamp(min=0).sqrt()
    values: Tensor = torch.linalg.eigvalsh(L.mT @ L.roll(r, dims=-2) / 2)
    return values.reshape(*batch, 2 * r)


def spectrum_ks(first: Float[Tensor, "*_ p"], second: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch"]:
    """The Kolmogorov-Smirnov distance of two sets of singular values, sup |F - F'|; the first is repeated as needed.

    Returns
    -------
    Tensor
        [...] in [0, 1], a multiple of 1/p: 0 for equal spectra, and 1/p or more as soon as one value differs. There is
        no null of its own: what a change does to it depends on the change's size.
    """
    first, second = (values.flip(-1).contiguous() for values in (first.expand_as(second), second))
    p = first.shape[-1]
    points = torch.cat([first, second], dim=-1)
    shares = [torch.searchsorted(values, points, right=True) / p for values in (first, second)]
    return (shares[0] - shares[1]).abs().amax(-1).to(torch.float64)
