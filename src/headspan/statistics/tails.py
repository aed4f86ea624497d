"""Tails of Beta and Student laws; those of Beta as logarithms, good where they are too small for a float.

log I_x(a, b), the logarithm of the regularized incomplete Beta function, is

1. log(betainc) while that is comfortably above the smallest float;
2. beyond, a log x + b log(1 - x) - log a - log B(a, b) + log(continued fraction), DLMF 8.17.22. The fraction
   is evaluated by the modified Lentz method; so far out, x is well below the mean, where it converges in few terms.

scipy.stats.beta.logsf takes the logarithm of the tail itself and so gives -Inf below 1e-308.

The Tracy-Widom law of the largest singular value, and its tail far out.

The largest eigenvalue of a real Wishart matrix (the largest squared singular value of an m x n matrix of standard
normals), less a center and over a scale, follows the law with distribution function (Ferrari and Spohn 2005)

    F_1(s) = det(1 - B_s),   B_s(x, y) = Ai(x + y + s) on L^2(0, inf).

1. The determinant is taken on Gauss-Legendre nodes (Bornemann 2010), on a grid of s, once per process. Through the
   eigenvalues of B_s, 1 - F_1 keeps its relative accuracy where F_1 is nearly 1.
2. In between, a cubic spline through the logarithm of the tail: relative error of the tail below 1e-6.
3. Beyond the grid 1 - F_1(s) is half the integral of Ai from s on, up to a square of itself, and that has an
   asymptotic series, so the logarithm of a p-value is good however far out.

Center and scale are those of Ma (2012), which leave an error of order k^(-2/3) in the law. Its 95 and 99 % points are
0.9793 and 2.0234, its mean -1.2065, its standard deviation 1.2680.

How far a sample lies from the normal law that its null predicts.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from headspan.errors import ArgumentError

if TYPE_CHECKING:
    from scipy.interpolate import CubicSpline

Array = npt.NDArray[np.float64]
Values = Array | float

_SMALLEST = 1e-280
_TERMS = 2000
_TINY = 1e-300


def _continued_fraction(x: Array, a: Array, b: Array) -> Array:
    """The continued fraction of DLMF 8.17.22, by the modified Lentz method, for all entries at once."""
    value, denominator = np.ones_like(x), np.ones_like(x)
    c = np.full_like(x, 1 / _TINY)
    for term in range(1, _TERMS):
        m = term // 2
        if term % 2 == 0:
            numerator = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            numerator = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        denominator = 1 + numerator * denominator
        denominator = 1 / np.where(np.abs(denominator) < _TINY, _TINY, denominator)
        c = 1 + numerator / c
        c = np.where(np.abs(c) < _TINY, _TINY, c)
        change = c * denominator
        value = value * change
        if bool(np.all(np.abs(change - 1) < 1e-15)):
            break
    return value


def log_betainc(x: Array, y: Array, a: Array, b: Array) -> Array:
    """log I_x(a, b), the log of P(X <= x) for X ~ Beta(a, b).

    Parameters
    ----------
    x, y
        Points in [0, 1] and 1 - x, both given so that neither end loses digits.
    a, b
        Positive parameters. All arrays have one shape.

    Returns
    -------
    Array
        In [-Inf, 0]; relative error about 1e-12 down to log tails of -1e5 and beyond.

    References
    ----------
    NIST Digital Library of Mathematical Functions, 8.17.22.
    """
    tail = np.where(x <= 0.5, special.betainc(a, b, x), special.betaincc(b, a, y))
    rest = np.where(x <= 0.5, special.betaincc(a, b, x), special.betainc(b, a, y))
    out = np.full(x.shape, -np.inf)
    ordinary = tail > _SMALLEST
    # Near 1 the logarithm is minus the other tail, which log(tail) would have rounded away.
    out[ordinary] = np.where(rest < 0.5, np.log1p(-np.minimum(rest, 0.5)), np.log(np.maximum(tail, _SMALLEST)))[
        ordinary
    ]
    far = ~ordinary & (x > 0)
    if far.any():
        x, y, a, b = x[far], y[far], a[far], b[far]
        front = a * np.log(x) + b * np.log(y) - np.log(a) - special.betaln(a, b)
        out[far] = front + np.log(_continued_fraction(x, a, b))
    return out


def log_beta_tail(
    value: Values, mean: Values, variance: Values, low: Values, high: Values, upper: bool = True
) -> Array:
    """log P(X >= value), or <= with `upper=False`, for X of a Beta law on [low, high] with this mean and variance.

    Parameters
    ----------
    value, mean, variance, low, high
        Numbers or arrays that broadcast.

    Returns
    -------
    Array
        In [-Inf, 0], the log of a uniform variable under that law; NaN where an argument is NaN and where there is no
        such law: without width or variance, or with a variance that only the two ends could give.
    """
    value, mean, variance, low, high = np.broadcast_arrays(*map(np.asarray, (value, mean, variance, low, high)))
    inside, width = (mean - low) * (high - mean), high - low
    proper = (variance > 0) & (width > 0) & (inside > variance) & ~np.isnan(value)
    value, mean, low, high, width = (part[proper] for part in (value, mean, low, high, width))
    share, total = (mean - low) / width, inside[proper] / variance[proper] - 1
    a, b = share * total, (1 - share) * total
    x, y = np.clip((value - low) / width, 0, 1), np.clip((high - value) / width, 0, 1)
    out = np.full(proper.shape, np.nan)
    out[proper] = log_betainc(y, x, b, a) if upper else log_betainc(x, y, a, b)
    return out


def prediction_tail(z: Values, draws: Values, skewness: float = 0.0) -> Array:
    """P that one more draw of a normal law lies z standard deviations or more above the mean of `draws` others.

    Mean and standard deviation are those of the sample, so z / sqrt(1 + 1/draws) follows Student's law with draws - 1
    degrees of freedom. Where the law has a positive `skewness` its z is made normal first, by the cube root of Wilson
    and Hilferty (1931). In [0, 1], uniform under the null; NaN for NaN.
    """
    if skewness > 0:
        root = np.cbrt(np.maximum(1 + skewness * np.asarray(z) / 2, 0))
        z = 6 / skewness * (root - 1) + skewness / 6
    tail: Array = special.stdtr(np.asarray(draws) - 1.0, -np.asarray(z) / np.sqrt(1 + 1 / np.asarray(draws)))
    return tail


def z_score(value: Values, mean: Values, sd: Values, unit: float = 1.0) -> Array:
    """(value - mean) / sd; NaN where the null leaves nothing to vary. 0 on average under the null.

    Nothing varies where sd is rounding: below 1e-9 of the mean, or of `unit`, the size that values usually have.
    """
    value, mean, sd = (np.asarray(part) for part in (value, mean, sd))
    varies = sd > 1e-9 * np.maximum(unit, np.abs(mean))
    return np.where(varies, (value - mean) / np.where(varies, sd, 1.0), np.nan)


TW_MEAN, TW_SD = -1.2065335745820, 1.2680034489236
"""Of the law for real matrices (Bornemann 2010, table 9)."""

_LOWEST, _HIGHEST, _STEP = -8.0, 8.0, 0.125
_NODES, _REACH = 32, 14.0
_SERIES = (1.0, -41 / 72, 9241 / 10368, -5075225 / 2239488)
"""Of the integral of Ai from s on, in powers of 1 / zeta, zeta = 2/3 s^(3/2): DLMF 9.10.4."""


@cache
def _spline() -> CubicSpline:
    """log(1 - F_1) on the grid."""
    from scipy.interpolate import CubicSpline

    grid = np.arange(_LOWEST, _HIGHEST + _STEP / 2, _STEP)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    x, root = (nodes + 1) * _REACH / 2, np.sqrt(weights * _REACH / 2)
    kernel = special.airy(x[:, None] + x + grid[:, None, None])[0] * root[:, None] * root
    eigenvalues = np.linalg.eigvalsh(kernel)
    upper = -np.expm1(np.log1p(-np.minimum(eigenvalues, 1 - 1e-16)).sum(-1))
    return CubicSpline(grid, np.log(upper))


def tw_log_upper_tail(s: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """log P(TW_1 >= s): the logarithm of a p-value.

    Parameters
    ----------
    s
        Largest eigenvalues, centered and scaled (see `tw_center_scale`); NaN stays NaN.

    Returns
    -------
    Tensor
        float64, <= 0, finite for every finite s; log of a uniform variable under the null. Relative error of the
        probability at most 1e-6 up to s = 8 and 2e-4 beyond.

    References
    ----------
    Tracy and Widom (1996), On orthogonal and symplectic matrix ensembles; Bornemann (2010), On the numerical evaluation
    of distributions in random matrix theory.
    """
    values = s.detach().cpu().double().numpy()
    far = np.where(values > _HIGHEST, values, _HIGHEST)
    zeta = 2 / 3 * far**1.5
    series = sum(coefficient / zeta**power for power, coefficient in enumerate(_SERIES))
    beyond = -zeta - np.log(4 * math.sqrt(math.pi)) - 0.75 * np.log(far) + np.log(series)
    near = np.minimum(_spline()(np.clip(values, _LOWEST, _HIGHEST)), 0.0)
    out = np.where(np.isnan(values), np.nan, np.where(values > _HIGHEST, beyond, near))
    return torch.as_tensor(out, dtype=torch.float64).to(s.device)


def tw_upper_tail(s: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """P(TW_1 >= s), in [0, 1], uniform under the null; see `tw_log_upper_tail`."""
    return tw_log_upper_tail(s).exp()


def tw_center_scale(m: int, n: int) -> tuple[float, float]:
    """Center and scale of the largest squared singular value of an m x n matrix of standard normals.

    (sqrt(m - 1/2) + sqrt(n - 1/2))^2 and its root times (1 / sqrt(m - 1/2) + 1 / sqrt(n - 1/2))^(1/3), both > 0: Ma
    (2012), Accuracy of the Tracy-Widom limits for the extreme eigenvalues in white Wishart matrices.
    """
    if min(m, n) < 1:
        raise ArgumentError(f"a matrix needs at least one row and one column, found {m} x {n}")
    a, b = math.sqrt(m - 0.5), math.sqrt(n - 0.5)
    return (a + b) ** 2, (a + b) * (1 / a + 1 / b) ** (1 / 3)


KL_BINS = 255
KL_FLOOR = 1e-12


def kl_from_normal(values: Array, width: int, mean: float, variance: float) -> float:
    """KL(normal || observed) over 255 equal bins on [0, width]; >= 0, 0 if they agree.

    NaN where the null leaves no room (variance 0: heads as wide as the model).

    sum over bins with r_i > 0 of r_i ln(r_i / max(h_i, 1e-12)); r_i the normal mass, h_i the observed share of bin i.
    Reference: arXiv 2601.10266, as the project's reference page fixes the binning.
    """
    if variance == 0:
        return np.nan
    edges = np.linspace(0.0, width, KL_BINS + 1)
    normal = np.diff(special.ndtr((edges - mean) / variance**0.5))
    observed = np.histogram(values, bins=edges)[0] / values.size
    inside = normal > 0
    return float(np.sum(normal[inside] * np.log(normal[inside] / np.maximum(observed[inside], KL_FLOOR))))
