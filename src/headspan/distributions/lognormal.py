r"""Exponentials of Gaussian logits: their moments, the ratios a softmax keeps, and their sum.

For a Gaussian x with mean mu and variance v,

    E e^x = e^(mu + v / 2),   Var e^x = (e^v - 1) e^(2 mu + v).

The ratio of two softmax weights is free of the normalizer, p_i / p_j = e^(x_i - x_j), so it is log-normal with the
moments of the difference. For logits spread evenly over the sphere of radius l in R^n the same mean is exact in closed
form: E e^<u, x> = 0F1(; n / 2; |u|^2 l^2 / 4), with |u|^2 = 2 for a difference of two coordinates.

The normalizer, a sum of log-normals, has no closed law. Fenton and Wilkinson give it the log-normal that has its first
two moments: exact in these, good in shape while the logits vary little, poor in the lower tail when they vary much.

`exp_departure` measures how far the exponential of a combination is from a sum of single exponentials.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces.rank import require_finite


def checked_variance(variance: Tensor) -> Tensor:
    """`variance` in float64, checked."""
    variance = variance.double()
    require_finite(variance, "a variance of logits")
    if bool((variance < 0).any()):
        raise ArgumentError(f"a variance needs to be at least 0, found {float(variance.min()):.3g}")
    return variance


def lognormal_mean(mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """E e^x = e^(mean + variance / 2) of Gaussian x; > 0, and 1 for a constant 0 (thesis 5.1, corrected)."""
    return (mean.double() + checked_variance(variance) / 2).exp()


def lognormal_variance(mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Var e^x = (e^v - 1) e^(2 mean + v) of Gaussian x with variance v; >= 0."""
    v = checked_variance(variance)
    return torch.expm1(v) * (2 * mean.double() + v).exp()


def _logits(mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of logits in float64, checked."""
    if covariance.shape[-1] != mean.shape[-1]:
        raise ShapeError(
            f"mean and covariance need one size, found {mean.shape[-1]} means and {covariance.shape[-1]} variances"
        )
    mean, covariance = mean.double(), covariance.double()
    require_finite(mean, "the mean of logits")
    require_finite(covariance, "the covariance of logits")
    return mean, covariance


def log_ratio_moments(
    mean: Float[Tensor, "*batch n"], covariance: Float[Tensor, "*batch m m"]
) -> tuple[Float[Tensor, "*batch n n"], Float[Tensor, "*batch n n"]]:
    """Mean and variance of x_i - x_j, the logarithm of p_i / p_j, for every pair of Gaussian logits.

    Their `lognormal_mean` and `lognormal_variance` are the moments of the ratios themselves: E p_i / p_j =
    exp(mu_i - mu_j + s^2 / 2) with s^2 = s_ii + s_jj - 2 s_ij (thesis 5.20, corrected, and 5.21).

    Returns
    -------
    tuple of Tensor
        [..., i, j] each; the mean is antisymmetric, the variance symmetric, >= 0 and 0 on the diagonal. Under the null,
        logits drawn evenly from a sphere of radius l in R^n, mean 0 and variance about 2 l^2 / n.
    """
    mean, covariance = _logits(mean, covariance)
    own = covariance.diagonal(dim1=-2, dim2=-1)
    # Rounding can push the variance of a difference of nearly equal logits a hair below 0.
    variance = (own[..., :, None] + own[..., None, :] - covariance - covariance.mT).clamp(min=0)
    return mean[..., :, None] - mean[..., None, :], variance


def log_sphere_exponential(n: int, reach: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """log E e^<u, x> for x spread evenly over a sphere in R^n, where reach = |u| |x|: log 0F1(; n / 2; reach^2 / 4).

    Summed from the series of positive terms z^k / ((n / 2)_k k!) in logarithms, so that it neither overflows nor loses
    digits; as n grows at fixed reach^2 / n it tends to the Gaussian value reach^2 / (2 n), from below.

    Returns
    -------
    Tensor
        In [0, reach]; 0 at reach 0.
    """
    if n < 1:
        raise ArgumentError(f"a sphere needs a space of at least 1 dimension, found {n}")
    require_finite(reach, "the reach on a sphere")
    z = reach.double().square() / 4
    # Terms rise until k (k + n / 2) = z and fall like a Gaussian of variance k after that.
    top = (-n / 2 + math.sqrt(n * n / 4 + 4 * float(z.max()))) / 2 if z.numel() else 0.0
    k = torch.arange(1, int(top + 12 * math.sqrt(top + 1) + 40), dtype=torch.float64)
    logs = k * z[..., None].log() - ((n / 2 + k - 1) * k).log().cumsum(0)
    # The term 1 of k = 0 is added last: small values keep their digits.
    return torch.logaddexp(torch.logsumexp(logs, -1), torch.zeros_like(z))


def sphere_ratio_mean(n: int, radius: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """E p_i / p_j, i != j, for softmax of x spread evenly over the sphere of that radius in R^n; exact.

    0F1(; n / 2; l^2 / 2), against e^(l^2 / n) for Gaussian logits of variance l^2 / n. At least 1, at most e^(sqrt2 l).
    """
    _pair_of_coordinates(n)
    return log_sphere_exponential(n, math.sqrt(2) * radius).exp()


def sphere_ratio_variance(n: int, radius: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Var p_i / p_j, i != j, for softmax of x spread evenly over a sphere in R^n; exact, >= 0."""
    _pair_of_coordinates(n)
    first = log_sphere_exponential(n, math.sqrt(2) * radius)
    second = log_sphere_exponential(n, 2 * math.sqrt(2) * radius)
    return (2 * first).exp() * torch.expm1((second - 2 * first).clamp(min=0))


def _pair_of_coordinates(n: int) -> None:
    if n < 2:
        raise ArgumentError(f"a ratio of two weights needs at least 2 logits, found {n}")


def fenton_wilkinson(
    mean: Float[Tensor, "*batch n"], covariance: Float[Tensor, "*batch m m"]
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """Mean and variance of the Gaussian that stands for log sum_i e^(x_i), x jointly Gaussian.

    The log-normal with the sum's first two moments m1 and m2: variance log(m2 / m1^2), mean log m1 minus half of it.

    Returns
    -------
    tuple of Tensor
        The mean, and the variance, >= 0. For n independent logits of mean 0 and variance v: log n + v / 2 - s^2 / 2 and
        s^2 = log(1 + (e^v - 1) / n).

    References
    ----------
    Fenton (1960), The sum of log-normal probability distributions in scatter transmission systems.
    """
    mean, covariance = _logits(mean, covariance)
    logs = mean + covariance.diagonal(dim1=-2, dim2=-1) / 2
    first = torch.logsumexp(logs, -1)
    pairs = logs[..., :, None] + logs[..., None, :] + covariance
    variance = (torch.logsumexp(pairs.flatten(-2), -1) - 2 * first).clamp(min=0)
    return first - variance / 2, variance


def fenton_wilkinson_distance(n: int, variance: float, draws: int, seed: int) -> float:
    """Kolmogorov-Smirnov distance between the normalizer of n independent logits and its Fenton-Wilkinson law.

    Returns
    -------
    float
        In [0, 1], from `draws` samples: a law that were exact would give about 0.87 / sqrt(draws).
    """
    if n < 1 or draws < 1:
        raise ArgumentError(f"a normalizer needs at least 1 logit and 1 draw, found {n} and {draws}")
    v = checked_variance(torch.tensor(variance, dtype=torch.float64))
    generator = torch.Generator().manual_seed(seed)
    rows = max(1, 2**22 // n)
    sums = [
        torch.logsumexp(v.sqrt() * torch.randn(min(rows, draws - at), n, generator=generator, dtype=torch.float64), -1)
        for at in range(0, draws, rows)
    ]
    found = torch.cat(sums).sort().values
    spread = torch.log1p(torch.expm1(v) / n)
    if float(spread) == 0:
        return 0.0
    law = torch.special.ndtr((found - math.log(n) - v / 2 + spread / 2) / spread.sqrt())
    steps = torch.arange(draws + 1, dtype=torch.float64) / draws
    return float(torch.maximum((law - steps[:-1]).abs().max(), (law - steps[1:]).abs().max()))


def exp_departure(vectors: Float[Tensor, "*batch m n"], weights: Float[Tensor, " k"]) -> Float[Tensor, "*batch"]:
    """How far exp of a combination is from the sum of single exponentials, relative to what exp does at all.

    With z = sum_i a_i v_i: the root mean square over coordinates of exp(z) - [sum_i exp(a_i v_i) - (m - 1)], which is
    about the cross terms sum_{i<j} a_i a_j v_i v_j, divided by that of exp(z) - 1.

    Returns
    -------
    Tensor
        >= 0. For random vectors of length l in R^n about l sqrt(sum_{i<j} a_i^2 a_j^2) / (sqrt(n) |a|) for small l; 0
        for one vector; NaN where exp(z) = 1 everywhere.

    References
    ----------
    Thesis 5.3.2, with -(m - 1) in place of the printed +(m - 1).
    """
    if vectors.shape[-2] != len(weights):
        raise ShapeError(
            f"a combination needs a weight per vector, found {vectors.shape[-2]} vectors, {len(weights)} weights"
        )
    require_finite(vectors, "vectors to combine")
    require_finite(weights, "weights of a combination")
    parts = weights.double()[:, None] * vectors.double()
    signal = torch.expm1(parts.sum(-2))
    gap = signal - torch.expm1(parts).sum(-2)
    size = signal.square().sum(-1)
    return (gap.square().sum(-1) / torch.where(size > 0, size, math.nan)).sqrt()
