r"""Singular values of random matrices: draws exact in law, without drawing the matrices, and the edge of a product.

1. A matrix of standard normals has the singular values of a bidiagonal one with independent chi-distributed entries
   (Dumitriu and Edelman 2002). Its squared singular values are the eigenvalues of a tridiagonal matrix: O(k^2) for a
   k x N matrix, however large N is.
2. The triangular factor in the QR of a matrix of standard normals has independent entries, chi on the diagonal and
   normal above (Bartlett 1933). A product A B^T of two such d x r matrices has the singular values of R_A R_B^T.
3. In the limit of large sides the squared singular values over m n of A B^T (A m x r, B n x r, entries of variance 1)
   are the free multiplicative convolution of two Marchenko-Pastur laws of ratios r/m and r/n. Their S-transforms are
   1 / (1 + c z), those of independent factors multiply (Voiculescu 1987), and the largest point of the support is the
   least value over z > 0 of

       x(z) = (1 + z)(1 + (r/m) z)(1 + (r/n) z) / z.

   For square matrices that is 27/4, at z = 1/2: the norm of a product of two random matrices with entries of variance
   1/n tends to sqrt(27/4) = 2.598, not to 4.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import lapack  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.threads import one_thread

AT_A_TIME = 256
"""Draws of a product that are held at a time."""


def _check(draws: int, *sides: int) -> None:
    if min(sides) < 1 or draws < 1:
        raise ArgumentError(f"draws and sides need to be at least 1, found {draws} draws of sides {sides}")


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
    # LAPACK itself: eigh_tridiagonal's checks take longer than a small matrix.
    squares = [lapack.dsterf(d, e)[0] if k > 1 else d for d, e in zip(diagonal, off, strict=True)]
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
    generator, parts = np.random.default_rng((seed, m, n, r)), []
    for start in range(0, draws, AT_A_TIME):
        count = min(AT_A_TIME, draws - start)
        R_A, R_B = (torch.as_tensor(_triangular(generator, d, r, count)) for d in (m, n))
        parts.append(torch.linalg.svdvals(R_A @ R_B.mT))
    return torch.cat(parts)


def _triangular(random: np.random.Generator, d: int, r: int, draws: int) -> np.ndarray:
    """[draws, min(d, r), r]: R of the QR of d x r matrices of standard normals."""
    k = min(d, r)
    R = np.triu(random.standard_normal((draws, k, r)), 1)
    R[:, np.arange(k), np.arange(k)] = np.sqrt(random.chisquare(d - np.arange(k), size=(draws, k)))
    return R


def product_edge(m: int, n: int, r: int) -> float:
    """The largest singular value of A B^T, A (m x r) and B (n x r) of standard normals, in the limit of large sides.

    > 0, at most (sqrt m + sqrt r)(sqrt n + sqrt r).
    """
    if min(m, n, r) < 1:
        raise ArgumentError(f"a product needs sides of at least 1, found m={m}, n={n}, r={r}")
    c, e = r / m, r / n
    # x'(z) = 0 is 2 c e z^3 + (c + e + c e) z^2 - 1 = 0, which has one positive root.
    roots = np.roots([2 * c * e, c + e + c * e, 0.0, -1.0])
    z = float(max(root.real for root in roots if abs(root.imag) < 1e-9 * abs(root)))
    return math.sqrt(m * n * (1 + z) * (1 + c * z) * (1 + e * z) / z)
