r"""tr(A R B R^T) for a random rotation R: how much of one quadratic form falls on another by chance.

A and B are symmetric d x d matrices of which only eigenvalues a and b count, since R is uniform (Haar) on the
orthogonal group. With the parts that have no trace, |A'|^2 = sum a^2 - (sum a)^2 / d and |B'|^2 likewise,

    mean sum(a) sum(b) / d,   variance 2 |A'|^2 |B'|^2 / ((d - 1)(d + 2)),

and the value lies between sum(a_i b_(d+1-i)) and sum(a_i b_i), both sorted. Two projectors give the projection kernel
and its moments (`chance`). The tails are those of a Beta law on the same support with the same mean and variance. With
200,000 rotations in R^24, A of eigenvalues proportional to 1/i^2 and B a projector of rank 6, an upper p-value of 0.01
was reached by 0.012 of them and one of 0.001 by 0.0013; lower ones by 0.004 and 0.00004. So values above chance are
judged about right, and values below it cautiously; the flatter both spectra, the nearer both are.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from headspan.statistics.tails import log_betainc

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
        In [-Inf, 0]; NaN where an argument is NaN, 0 where nothing varies. The log of a nearly uniform variable by
        chance; the module's text says how near.
    """
    value, mean, sd, low, high = np.broadcast_arrays(*map(np.asarray, (value, mean, sd, low, high)))
    out = np.where(np.isnan(value) | np.isnan(mean), np.nan, 0.0)
    width = high - low
    inside = (mean - low) * (high - mean)
    open_ = (sd > 1e-12 * np.abs(mean)) & (width > 0) & (inside > sd**2) & ~np.isnan(value)
    share = (mean[open_] - low[open_]) / width[open_]
    total = inside[open_] / sd[open_] ** 2 - 1
    x = np.clip((value[open_] - low[open_]) / width[open_], 0, 1)
    y = np.clip((high[open_] - value[open_]) / width[open_], 0, 1)
    a, b = share * total, (1 - share) * total
    out[open_] = log_betainc(y, x, b, a) if upper else log_betainc(x, y, a, b)
    return out
