r"""Second, third and fourth central moment of tr(A R B R^T) for a random rotation R, exactly.

With C_k the zonal polynomials (James 1964), in the eigenvalues of a symmetric d x d matrix and indexed by partitions,

    E tr(A R B R^T)^n = sum over partitions k of n of C_k(A) C_k(B) / C_k(I).

The parts of A and B that have no trace give the central moments, since what they leave is the constant tr A tr B / d. A
zonal polynomial is a combination of power sums; without a trace only p_2, p_3, and p_2^2 and p_4 remain. So a table of
n by m spectra is, for each partition, a product of a column and a row.

Reference: James (1964), Distributions of matrix variates and latent roots derived from normal samples; Muirhead (1982),
Aspects of multivariate statistical theory, section 7.2.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

Moments = Float[np.ndarray, "n m"]

_ZONAL: dict[int, tuple[tuple[float, tuple[int, ...]], ...]] = {
    2: ((1 / 3, (1, 2)), (2 / 3, (1, -1))),
    3: ((1 / 15, (1, 6, 8)), (9 / 15, (1, 1, -2)), (5 / 15, (1, -3, 2))),
    4: (
        (1 / 105, (1, 12, 12, 32, 48)),
        (20 / 105, (1, 5, -2, 4, -8)),
        (14 / 105, (1, 2, 7, -8, -2)),
        (56 / 105, (1, -1, -2, -2, 4)),
        (14 / 105, (1, -6, 3, 8, -6)),
    ),
}
"""By degree: factor and coefficients of p1^2, p2; p1^3, p1 p2, p3; p1^4, p1^2 p2, p2^2, p1 p3, p4. Partitions run from
(n) to (1, ..., 1); the factors of a degree add up to 1."""


def _products(p1: np.ndarray, p2: np.ndarray, p3: np.ndarray, p4: np.ndarray) -> dict[int, np.ndarray]:
    """The products of power sums that the coefficients belong to, by degree, [product, ...]."""
    return {
        2: np.stack([p1**2, p2]),
        3: np.stack([p1**3, p1 * p2, p3]),
        4: np.stack([p1**4, p1**2 * p2, p2**2, p1 * p3, p4]),
    }


def _traceless_products(values: Float[np.ndarray, "n p"], d: int) -> dict[int, np.ndarray]:
    """Of the eigenvalues, with d - p zeros, less their mean."""
    mean = values.sum(-1, keepdims=True) / d
    zeros = d - values.shape[-1]
    sums = [((values - mean) ** k).sum(-1) + zeros * (-mean[:, 0]) ** k for k in (2, 3, 4)]
    return _products(np.zeros(len(values)), sums[0], sums[1], sums[2])


def rotated_trace_central_moments(
    a: Float[np.ndarray, "n p"], b: Float[np.ndarray, "m q"], d: int
) -> tuple[Moments, Moments, Moments]:
    """E(T - E T)^k for k = 2, 3, 4, of T = tr(A R B R^T), for every pair of spectra.

    Parameters
    ----------
    a, b
        [n, p] and [m, q]: eigenvalues of A and of B; up to d of them, the others are 0.
    d
        Dimension of the space.

    Returns
    -------
    tuple of arrays
        [n, m] each. The second is 2 |A'|^2 |B'|^2 / ((d - 1)(d + 2)), and >= 0 like the fourth; the third is 0 where
        one side is a projector of rank d/2, and positive where both spectra have few large values.
    """
    first, second, identity = (
        _traceless_products(a, d),
        _traceless_products(b, d),
        _products(*np.full((4, 1), float(d))),
    )
    found = []
    for degree, polynomials in _ZONAL.items():
        total = np.zeros((len(a), len(b)))
        for factor, coefficients in polynomials:
            weights = factor * np.array(coefficients, dtype=np.float64)
            whole = float(weights @ identity[degree][:, 0])
            # A partition with more parts than dimensions has the polynomial 0.
            if whole > 1e-6:
                total += np.multiply.outer(weights @ first[degree], weights @ second[degree]) / whole
        found.append(total)
    return found[0], found[1], found[2]
