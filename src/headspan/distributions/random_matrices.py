r"""What random weights do: how they stretch vectors, how close their singular values lie, how well two of them align.

Entries are independent with mean 0 and standard deviation sigma; on top of the laws of Marchenko-Pastur and
Tracy-Widom in `subspaces`.

    E|A v|     = sigma sqrt2 Gamma((m+1)/2) / Gamma(m/2)   for unit v and m rows, E|A v|^2 = m sigma^2
    E s_1^2    = sigma^2 (center + TW_MEAN scale), both of Tracy-Widom's law
    min gap    ~ sqrt(pi) sigma / n for an n x n matrix
    tr(A^T B)  : mean 0 and variance |A|_F^2 |B|_F^2 / (m n) once A is rotated at random on both sides

Over rotations of A from one side the best tr(A^T U B) is the nuclear norm |B A^T|_*, over both sides sum s_i(A) s_i(B)
(von Neumann). For two independent n x n matrices these are 3/4 and 1 times n^2 sigma^2 in the limit, against
(8 / 3 pi)^2 = 0.72 when only the turns of both singular bases are made equal.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError, ShapeError
from headspan.statistics import TW_MEAN, tw_center_scale

QUARTER_CIRCLE_MEAN = 8 / (3 * math.pi)
"""Mean singular value of a square random matrix with entries of variance 1/n."""
SAME_TURN, BEST_ONE_SIDE = QUARTER_CIRCLE_MEAN**2, 0.75
"""tr(A^T B) / (n^2 sigma^2) in the limit: with U_A^T U_B = V_A^T V_B, and at its best over one rotation."""


def _require_sides(*sides: int) -> None:
    if min(sides) < 1:
        raise ArgumentError(f"a matrix needs at least one row and one column, found sides {sides}")


def expected_norm(m: int, sigma: float = 1.0) -> float:
    """E|A v| of a random matrix with m rows and a unit v, and of a vector of m independent normals.

    At most sigma sqrt m, and that in the limit; the mean square is m sigma^2 exactly.
    """
    _require_sides(m)
    return sigma * math.sqrt(2) * math.exp(math.lgamma((m + 1) / 2) - math.lgamma(m / 2))


def expected_largest_square(m: int, n: int, sigma: float = 1.0) -> float:
    """E s_1^2 of a random m x n matrix, by Tracy and Widom's law; below its limit sigma^2 (sqrt m + sqrt n)^2.

    Within 1 % from n = 32 on (square matrices).

    References
    ----------
    Johnstone (2001), On the distribution of the largest eigenvalue in principal components analysis.
    """
    center, scale = tw_center_scale(m, n)
    return sigma**2 * (center + TW_MEAN * scale)


def expected_smallest_gap(n: int, sigma: float = 1.0) -> float:
    """E min(s_(i-1) - s_i) of a random n x n matrix, sqrt(pi) sigma / n for large n (within 5 % from n = 100 on).

    A heuristic: near gaps repel linearly and are nearly independent, so that P(min > e) ~ exp(-n^2 e^2 / 4 sigma^2).
    """
    _require_sides(n)
    if n < 2:
        raise ArgumentError("a gap needs two singular values, found a matrix of side 1")
    return math.sqrt(math.pi) * sigma / n


def aligned_trace_variance(A: Float[Tensor, "*batch m n"], B: Float[Tensor, "*batch2 _m _n"]) -> Float[Tensor, "*out"]:
    """Variance of tr(A^T B) when A is turned at random on both sides: |A|_F^2 |B|_F^2 / (m n).

    Only the two norms count, no order or overlap of the spectra. For two random matrices m n sigma^4, which is 1 at the
    Xavier scale of square ones. The mean is 0.
    """
    m, n = A.shape[-2:]
    if B.shape[-2:] != (m, n):
        raise ShapeError(f"A and B need one shape, found {tuple(A.shape)} and {tuple(B.shape)}")
    squares: Tensor = A.square().sum((-1, -2)) * B.square().sum((-1, -2))
    return squares / (m * n)


def best_alignment(
    A: Float[Tensor, "*batch m n"], B: Float[Tensor, "*batch2 _m _n"], both_sides: bool = False
) -> Float[Tensor, "*out"]:
    """The largest tr(A^T U B) over orthogonal U, or tr(A^T U B V^T) over U and V with `both_sides`.

    Returns
    -------
    Tensor
        |B A^T|_*, or sum s_i(A) s_i(B); between |tr(A^T B)| and |A|_F |B|_F. For independent square random matrices
        about 3/4 n^2 sigma^2, or n^2 sigma^2.

    References
    ----------
    von Neumann (1937), Some matrix inequalities; Schönemann (1966), the orthogonal Procrustes problem.
    """
    if A.shape[-2:] != B.shape[-2:]:
        raise ShapeError(f"A and B need one shape, found {tuple(A.shape)} and {tuple(B.shape)}")
    if both_sides:
        sorted_: Tensor = (torch.linalg.svdvals(A) * torch.linalg.svdvals(B)).sum(-1)
        return sorted_
    best: Tensor = torch.linalg.svdvals(B @ A.mT).sum(-1)
    return best


def singular_vector_bound(gap: float, change: float) -> float:
    """Wedin's bound sqrt2 |E| / (gap - |E|) for the sine of a singular vector's turn under a change E; at most 1."""
    if min(gap, change) < 0:
        raise ArgumentError(f"a gap and the norm of a change are at least 0, found {gap} and {change}")
    return min(1.0, math.sqrt(2) * change / (gap - change)) if change < gap else 1.0
