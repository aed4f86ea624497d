r"""tr(A R B R^T) for a random rotation R: how much of one quadratic form falls on another under the null.

A and B are symmetric d x d matrices of which only eigenvalues a and b count, since R is uniform (Haar) on the
orthogonal group. With the parts that have no trace, |A'|^2 = sum a^2 - (sum a)^2 / d and |B'|^2 likewise,

    mean sum(a) sum(b) / d,   variance 2 |A'|^2 |B'|^2 / ((d - 1)(d + 2)),

and the value lies between sum(a_i b_(d+1-i)) and sum(a_i b_i), both sorted. Two projectors give the projection kernel
and its moments (`kernel_null`). The tails are those of a Beta law on the same support with the same mean and variance.
With 200,000 rotations in R^24, A of eigenvalues proportional to 1/i^2 and B a projector of rank 6, an upper p-value of
0.01 was reached by 0.012 of them and one of 0.001 by 0.0013; lower ones by 0.004 and 0.00004. So values above the mean
are judged about right, and values below it cautiously; the flatter both spectra, the nearer both are.

The squared overlap of two matrices is such a trace. A [d, p] and B [d, q] keep their singular values, and one of them
is rotated. With the energy shares a_i = s_i^2 / sum s^2 of A, and b_j of B, the normalized overlap is

    C^2 = ||A^T R B||_F^2 / (||A||_F^2 ||B||_F^2) = sum_ij a_i b_j x_ij^2,

x being a corner of a Haar matrix. Its fourth moments give mean 1/d and, with A2 = sum a_i^2 and B2 = sum b_j^2,

    E C^4 = (3 A2 B2 + A2 (1 - B2) + (1 - A2) B2) / (d (d + 2)) + (1 - A2)(1 - B2)(d + 1) / (d (d - 1)(d + 2)).

With flat spectra this is the law of `kernel_null`, divided by pq.

Reference: the moments are those of Haar matrices, Collins and Śniady (2006), Integration with respect to the Haar
measure.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.statistics.tails import log_beta_tail

Array = Float[np.ndarray, "..."]
Values = Array | float


def rotated_trace_moments(
    sum_a: Values, squares_a: Values, sum_b: Values, squares_b: Values, d: int
) -> tuple[Array, Array]:
    """Mean and standard deviation of tr(A R B R^T) over rotations R.

    Parameters
    ----------
    sum_a, squares_a, sum_b, squares_b
        Sums of the eigenvalues of A and B, and of their squares; arrays that broadcast.
    d
        Dimension of the space.

    Returns
    -------
    mean, sd
        For a unit vector (1, 1) and a projector of rank k (k, k): k/d and the sd of a Beta(k/2, (d - k)/2) variable.

    References
    ----------
    Collins and Śniady (2006), Integration with respect to the Haar measure; second moments on the orthogonal group.
    """
    first, second = np.maximum(squares_a - sum_a**2 / d, 0), np.maximum(squares_b - sum_b**2 / d, 0)
    variance = 2 * first * second / (max(d - 1, 1) * (d + 2))
    return np.asarray(sum_a * sum_b / d), np.asarray(np.sqrt(variance))


def rotated_trace_log_tail(value: Values, mean: Values, sd: Values, low: Values, high: Values, upper: bool) -> Array:
    """log P(X >= value), or <= with `upper=False`, for X of a Beta law on [low, high] with this mean and sd.

    Returns
    -------
    Array
        In [-Inf, 0]; NaN where an argument is NaN, 0 where nothing varies. The log of a nearly uniform variable
        under the null; the module's text says how near.
    """
    mean, sd = np.asarray(mean), np.asarray(sd)
    variance = np.where(sd > 1e-12 * np.abs(mean), sd**2, 0.0)
    tail = log_beta_tail(value, mean, variance, low, high, upper)
    return np.where(np.isnan(tail) & ~(np.isnan(value) | np.isnan(mean)), 0.0, tail)


def energy_shares(values: Float[Tensor, "n p"]) -> Float[Tensor, "n p"]:
    """Squared singular values as shares of their sum, descending; NaN for a zero matrix. In [0, 1], 1/p if flat."""
    energy = values.square().sort(-1, descending=True).values
    total = energy.sum(-1, keepdim=True)
    return torch.where(total > 0, energy / total, torch.nan)


def rotation_variance(a: Float[Tensor, "n p"], b: Float[Tensor, "m q"], d: int) -> Float[Tensor, "n m"]:
    """Variance of C^2 under a random rotation, for every pair of spectra given as energy shares. In [0, 1]."""
    if d < 2:
        raise ArgumentError(f"a rotation needs at least 2 dimensions, found {d}")
    A2, B2 = a.square().sum(-1)[:, None], b.square().sum(-1)[None, :]
    one_shared = 3 * A2 * B2 + A2 * (1 - B2) + (1 - A2) * B2
    none_shared = (1 - A2) * (1 - B2) * (d + 1) / (d - 1)
    return ((one_shared + none_shared) / (d * (d + 2)) - 1 / d**2).clamp(min=0)


def log_rotation_tail(
    overlap: Float[Tensor, "n m"], a: Float[Tensor, "n p"], b: Float[Tensor, "m q"], d: int
) -> Float[Tensor, "n m"]:
    """log P(C^2 >= overlap) under a random rotation that keeps both spectra.

    Parameters
    ----------
    overlap
        Observed C^2 of every pair; NaN stays NaN.
    a, b
        Energy shares of the two sides, descending (see `energy_shares`).
    d
        Ambient dimension.

    Returns
    -------
    Tensor
        float64, in [-inf, 0]; log of a uniform variable under the null.
    """
    a, b = a.double(), b.double()
    k = min(a.shape[-1], b.shape[-1])
    law = rotation_variance(a, b, d), _smallest(a, b, d), a[:, :k] @ b[:, :k].mT
    value, variance, low, high = (part.cpu().numpy() for part in (overlap.double(), *law))
    return torch.as_tensor(log_beta_tail(value, 1 / d, variance, low, high)).to(overlap.device)


def _smallest(a: Tensor, b: Tensor, d: int) -> Tensor:
    """The least C^2 that any rotation reaches: 0 unless the two sides together have more than d directions."""
    forced = a.shape[-1] + b.shape[-1] - d
    if forced <= 0:
        return a.new_zeros(len(a), len(b))
    return a[:, -forced:] @ b[:, -forced:].flip(-1).mT
