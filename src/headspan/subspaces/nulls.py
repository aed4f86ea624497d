"""The projection kernel of two random subspaces: its moments and its tails.

Null: two independent subspaces of dimensions p and q, at least one uniform (Haar) in R^d. The kernel PK is then the
trace of a matrix-variate Beta variable (a Jacobi ensemble), supported on [max(0, p + q - d), min(p, q)]:

    mean pq/d,   variance 2 p q (d - p)(d - q) / (d^2 (d - 1)(d + 2)).

Its tails have no closed form. They are approximated by a Beta law on the same support with the same mean and variance,
exact for p = 1, q = 1, p = d - 1 or q = d - 1. What was found about its accuracy:

- Body and upper tail down to 1e-4 (400,000 draws): p-values within 30 % of truth for p, q >= 8, mostly above it.
- Lower tail at 1e-4: too small, by a factor 0.1 for p = q = 2 in R^8, 0.3 for 4 in R^16, 0.6 for 8 in R^64, 0.75 for
  16 in R^64 and 0.96 for 64 in R^768.
- Far upper tail, against a saddlepoint on the eigenvalues (itself checked by tilted Monte Carlo): conservative for
  p, q <= d/4 over the first half of the support. For 64 dimensions in R^768, log p at a kernel of 6, 8, 10, 12 and
  40 is -20.5, -242, -638, -1159, -17494; truth is -20.6, -248, -665, -1224, -18119. Beyond about 3/4 of min(p, q) it
  turns anti-conservative (at 60: -60677, truth -58497), at log p where nothing hangs on it.
- Far lower tail: anti-conservative, log p too low by 1 % at -10 sd and 3 % at -22 sd for 64 dimensions in R^768.
- p, q near d/2: anti-conservative in both tails, log p too low by 0.2 % at 6 sd, 3 % at 23 sd for 64 in R^128.

A normal law would be off by far more (-309 for -248 at a kernel of 8).
Trained weights are not random: this is a reference line, and most pairs of a real model lie far outside it.

tr(A R B R^T) for a random rotation R: how much of one quadratic form falls on another under the null.

A and B are symmetric d x d matrices of which only eigenvalues a and b count, since R is uniform (Haar) on the
orthogonal group. With the parts that have no trace, |A'|^2 = sum a^2 - (sum a)^2 / d and |B'|^2 likewise,

    mean sum(a) sum(b) / d,   variance 2 |A'|^2 |B'|^2 / ((d - 1)(d + 2)),

and the value lies between sum(a_i b_(d+1-i)) and sum(a_i b_i), both sorted. Two projectors give the projection kernel,
its moments and its tails (`kernel_null`). For other spectra a Beta law is too thin: with eigenvalues like i^(-1/2) or
1/i it gives 2 and 15 times too many p-values below 1e-4. So the tails there are those of a law with the exact third
and fourth moment as well (`zonal_moments`, `statistics.dirichlet`). Rates of upper p-values, over the level, from
500,000 rotations of 16 x 16 corners of R^192 (GPT-2's shape, a quarter as wide):

    eigenvalues      0.05   0.01   0.001  0.0001
    i^-1/2, i^-1/2   1.01   1.01   1.03   1.28
    i^-1,   i^-1     0.99   0.97   1.00   0.94
    i^-2,   i^-2     0.96   0.94   0.93   0.82
    i^-2,   flat     1.00   1.00   0.95   0.84

Down to R^6 the upper rates at 1e-4 were between 0.1 and 1.5, so errors are on the safe side. Lower p-values are
cautious where both spectra are steep (rate at 0.001: 0.56 for i^-1, 0.04 for i^-2) and right where one is flat; only in
R^12 and below, with one side of full rank, were they too small (rate 2 to 3 at 0.001).

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
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.statistics.dirichlet import log_dirichlet_tail
from headspan.statistics.tails import Array, log_beta_tail
from headspan.subspaces.zonal_moments import rotated_trace_central_moments

Dimension = int | Int[Tensor, "*_shape"]


def _arrays(*values: Dimension | Tensor) -> list[Array]:
    arrays = [v.detach().cpu().to(torch.float64).numpy() if isinstance(v, Tensor) else np.float64(v) for v in values]
    return [np.array(array) for array in np.broadcast_arrays(*arrays)]


def _check(p: Array, q: Array, d: Array) -> None:
    if bool(((p < 0) | (q < 0) | (p > d) | (q > d) | (d < 1)).any()):
        raise ArgumentError(
            f"dimensions need 0 <= p, q <= d and d >= 1, found p in [{p.min():g}, {p.max():g}], "
            f"q in [{q.min():g}, {q.max():g}], d in [{d.min():g}, {d.max():g}]"
        )


def _result(array: Array, like: tuple[Dimension | Tensor, ...]) -> Tensor:
    device = next((v.device for v in like if isinstance(v, Tensor)), torch.device("cpu"))
    return torch.as_tensor(np.asarray(array), dtype=torch.float64).to(device)


def _mean(p: Array, q: Array, d: Array) -> Array:
    return np.where(p * q > 0, p * q / d, np.nan)


def _variance(p: Array, q: Array, d: Array) -> Array:
    # With d = 1 the only subspace is the whole line; d - 1 = 0 then meets d - p = 0, and the variance is 0.
    below = d**2 * np.maximum(d - 1, 1) * (d + 2)
    return np.where(p * q > 0, 2 * p * q * (d - p) * (d - q) / below, np.nan)


def kernel_null_mean(p: Dimension, q: Dimension, d: Dimension) -> Float[Tensor, "*_out"]:
    """The mean pq/d of the projection kernel of two random subspaces.

    Parameters
    ----------
    p, q, d
        Dimensions of the two subspaces and of the space: integers or integer tensors that broadcast.

    Returns
    -------
    Tensor
        float64, in [max(0, p + q - d), min(p, q)]; NaN where p or q is 0. GPT-2 small (64, 64, 768): 5.3333.
    """
    P, Q, D = _arrays(p, q, d)
    _check(P, Q, D)
    return _result(_mean(P, Q, D), (p, q, d))


def kernel_null_variance(p: Dimension, q: Dimension, d: Dimension) -> Float[Tensor, "*_out"]:
    """The variance 2 p q (d - p)(d - q) / (d^2 (d - 1)(d + 2)) of the projection kernel of two random subspaces.

    Parameters
    ----------
    p, q, d
        As for `kernel_null_mean`.

    Returns
    -------
    Tensor
        float64, >= 0; 0 where p or q is d (the kernel is then a constant), NaN where one is 0.
        GPT-2 small (64, 64, 768): 0.10796^2.
    """
    P, Q, D = _arrays(p, q, d)
    _check(P, Q, D)
    return _result(_variance(P, Q, D), (p, q, d))


def _log_tail(kernel: Tensor, p: Dimension, q: Dimension, d: Dimension, upper: bool) -> Tensor:
    """log P(PK >= kernel) or log P(PK <= kernel) under the fitted Beta law."""
    t, P, Q, D = _arrays(kernel, p, q, d)
    _check(P, Q, D)
    low, high, variance = np.maximum(0, P + Q - D), np.minimum(P, Q), _variance(P, Q, D)
    out = log_beta_tail(t, _mean(P, Q, D), variance, low, high, upper)
    # Where the kernel is a constant, the tail is a step; a rounding of the observed value must not make it impossible.
    slack = 1e-9 * np.maximum(1, high)
    reached = t <= high + slack if upper else t >= low - slack
    certain = (variance == 0) & ~np.isnan(t)
    return _result(np.where(certain, np.where(reached, 0.0, -np.inf), out), (kernel, p, q, d))


def log_upper_tail(
    kernel: Float[Tensor, "*_kernel"], p: Dimension, q: Dimension, d: Dimension
) -> Float[Tensor, "*_out"]:
    """log P(PK >= kernel) for two random subspaces: the log p-value of an affinity that is too high for the null.

    Parameters
    ----------
    kernel
        Observed projection kernels, any shape; NaN stays NaN.
    p, q, d
        Dimensions, integers or integer tensors that broadcast with `kernel`.

    Returns
    -------
    Tensor
        float64, in [-Inf, 0], finite far below the smallest float's -745; log of a uniform variable under the null.
        The module's text says how accurate. -Inf at and beyond min(p, q), which the continuous null never reaches.
    """
    return _log_tail(kernel, p, q, d, upper=True)


def log_lower_tail(
    kernel: Float[Tensor, "*_kernel"], p: Dimension, q: Dimension, d: Dimension
) -> Float[Tensor, "*_out"]:
    """log P(PK <= kernel) for two random subspaces: the log p-value of an affinity that is too low for the null.

    Parameters
    ----------
    kernel, p, q, d
        As for `log_upper_tail`.

    Returns
    -------
    Tensor
        float64, in [-Inf, 0]; log of a uniform variable under the null.
    """
    return _log_tail(kernel, p, q, d, upper=False)


def upper_tail(kernel: Float[Tensor, "*_kernel"], p: Dimension, q: Dimension, d: Dimension) -> Float[Tensor, "*_out"]:
    """P(PK >= kernel) for two random subspaces, in [0, 1], uniform under the null; see `log_upper_tail`."""
    return log_upper_tail(kernel, p, q, d).exp()


def lower_tail(kernel: Float[Tensor, "*_kernel"], p: Dimension, q: Dimension, d: Dimension) -> Float[Tensor, "*_out"]:
    """P(PK <= kernel) for two random subspaces, in [0, 1], uniform under the null; see `log_lower_tail`."""
    return log_lower_tail(kernel, p, q, d).exp()


Numbers = Float[np.ndarray, "..."]
Values = Numbers | float


def rotated_trace_moments(
    sum_a: Values, squares_a: Values, sum_b: Values, squares_b: Values, d: int
) -> tuple[Numbers, Numbers]:
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


def rotated_trace_log_tail(
    value: Float[np.ndarray, "n m"],
    a: Float[np.ndarray, "n p"],
    b: Float[np.ndarray, "m q"],
    d: int,
    upper: bool = True,
) -> Float[np.ndarray, "n m"]:
    """log P(X >= value), or <= with `upper=False`, for X = tr(A R B R^T) and every pair of spectra.

    Parameters
    ----------
    value
        [n, m]: what was observed; NaN stays NaN.
    a, b
        [n, p] and [m, q]: eigenvalues of A and of B, >= 0 and descending; those that are not listed are 0.
    d
        Dimension of the space.

    Returns
    -------
    Numbers
        [n, m], in [-Inf, 0]; NaN where an argument is NaN, 0 where nothing varies. The log of a nearly uniform variable
        under the null; the module's text says how near.
    """
    # Directions that neither side lists only lengthen both spectra by zeros.
    k, forced = min(a.shape[-1], b.shape[-1]), a.shape[-1] + b.shape[-1] - d
    high = a[:, :k] @ b[:, :k].T
    low = a[:, -forced:] @ b[:, : -forced - 1 : -1].T if forced > 0 else np.zeros_like(high)
    mean, moments = np.multiply.outer(a.sum(-1), b.sum(-1)) / d, rotated_trace_central_moments(a, b, d)
    varies = moments[0] > (1e-12 * mean) ** 2
    tail = log_dirichlet_tail(value, mean, moments, low, high, upper)
    plain = np.logical_and.outer(_is_flat(a), _is_flat(b)) & varies
    if plain.any():
        tail[plain] = log_beta_tail(value[plain], mean[plain], moments[0][plain], low[plain], high[plain], upper)
    return np.where(varies | np.isnan(value + mean), tail, 0.0)


def _is_flat(values: Float[np.ndarray, "n p"]) -> Bool[np.ndarray, " n"]:
    """Whether all eigenvalues but zeros are equal: a multiple of a projector."""
    top = values[:, :1]
    return np.asarray(((values >= (1 - 1e-9) * top) | (values <= 1e-12 * top)).all(-1))


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
    value, a, b = (part.detach().double().cpu() for part in (overlap, a, b))
    tail = rotated_trace_log_tail(value.numpy(), a.numpy(), b.numpy(), d)
    return torch.as_tensor(tail).to(overlap.device)
