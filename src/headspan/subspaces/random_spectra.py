"""Draws of the singular values of random matrices, exact in law and without drawing the matrices.

1. A matrix of standard normals has the singular values of a bidiagonal one with independent chi-distributed entries
   (Dumitriu and Edelman 2002). Its squared singular values are the eigenvalues of a tridiagonal matrix: O(k^2) for a
   k x N matrix, however large N is.
2. The triangular factor in the QR of a matrix of standard normals has independent entries, chi on the diagonal and
   normal above (Bartlett 1933). A product A B^T of two such d x r matrices has the singular values of R_A R_B^T.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from scipy import linalg  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

from headspan.errors import ShapeError
from headspan.threads import one_thread


def _check(draws: int, *sides: int) -> None:
    if min(sides) < 1 or draws < 1:
        raise ShapeError(f"draws and sides need to be at least 1, found {draws} draws of sides {sides}")


def random_singular_values(m: int, n: int, draws: int, seed: int) -> Float[Tensor, "draws k"]:
    """Singular values, descending, of independent m x n matrices of standard normals.

    Parameters
    ----------
    m, n
        Sides; min(m, n) values per draw.
    draws, seed
        How many, and what fixes them.

    Returns
    -------
    Tensor
        float64, >= 0; between `mp_edges(m, n)` up to fluctuations. Good to 1e-8 of the largest, so that the smallest of
        a square matrix may lack digits.


    References
    ----------
    Dumitriu and Edelman (2002), Matrix models for beta ensembles.
    """
    _check(draws, m, n)
    k, N = min(m, n), max(m, n)
    random = np.random.default_rng((seed, k, N))
    diagonal = random.chisquare(N - np.arange(k), size=(draws, k))
    below = random.chisquare(np.arange(k - 1, 0, -1), size=(draws, k - 1))
    off = np.sqrt(diagonal[:, :-1] * below)
    diagonal[:, 1:] += below
    squares = [
        linalg.eigh_tridiagonal(d, e, eigvals_only=True, lapack_driver="sterf", check_finite=False) if k > 1 else d
        for d, e in zip(diagonal, off, strict=True)
    ]
    return torch.as_tensor(np.sqrt(np.maximum(np.stack(squares), 0.0))[:, ::-1].copy())


@one_thread()
def random_product_singular_values(m: int, n: int, r: int, draws: int, seed: int) -> Float[Tensor, "draws k"]:
    """Singular values, descending, of A B^T for independent A (m x r) and B (n x r) of standard normals.

    Parameters
    ----------
    m, n, r
        Sides of the product, and the inner one; min(m, n, r) values per draw.
    draws, seed
        How many, and what fixes them.

    Returns
    -------
    Tensor
        float64, >= 0; the sum of squares is m n r on average.

    References
    ----------
    Bartlett (1933), On the theory of statistical regression.
    """
    _check(draws, m, n, r)
    generator = np.random.default_rng((seed, m, n, r))
    R_A, R_B = (torch.as_tensor(_triangular(generator, d, r, draws)) for d in (m, n))
    values: Tensor = torch.linalg.svdvals(R_A @ R_B.mT)
    return values


def _triangular(random: np.random.Generator, d: int, r: int, draws: int) -> np.ndarray:
    """[draws, min(d, r), r]: R of the QR of d x r matrices of standard normals."""
    k = min(d, r)
    R = np.triu(random.standard_normal((draws, k, r)), 1)
    R[:, np.arange(k), np.arange(k)] = np.sqrt(random.chisquare(d - np.arange(k), size=(draws, k)))
    return R
