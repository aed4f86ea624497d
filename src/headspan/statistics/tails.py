"""Tails of Beta and Student laws; those of Beta as logarithms, good where they are too small for a float.

log I_x(a, b), the logarithm of the regularized incomplete Beta function, is

1. log(betainc) while that is comfortably above the smallest float;
2. beyond, a log x + b log(1 - x) - log a - log B(a, b) + log(continued fraction), DLMF 8.17.22. The fraction
   is evaluated by the modified Lentz method; so far out, x is well below the mean, where it converges in few terms.

scipy.stats.beta.logsf takes the logarithm of the tail itself and so gives -Inf below 1e-308.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special  # type: ignore[import-untyped,unused-ignore]

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


def prediction_tail(z: Values, draws: Values) -> Array:
    """P that one more draw of a normal law lies z standard deviations or more above the mean of `draws` others.

    Mean and standard deviation are those of the sample, so z / sqrt(1 + 1/draws) follows Student's law with draws - 1
    degrees of freedom. In [0, 1], uniform under the null; NaN for NaN.
    """
    tail: Array = special.stdtr(np.asarray(draws) - 1.0, -np.asarray(z) / np.sqrt(1 + 1 / np.asarray(draws)))
    return tail


def z_score(value: Values, mean: Values, sd: Values, unit: float = 1.0) -> Array:
    """(value - mean) / sd; NaN where the null leaves nothing to vary. 0 on average under the null.

    Nothing varies where sd is rounding: below 1e-9 of the mean, or of `unit`, the size that values usually have.
    """
    value, mean, sd = (np.asarray(part) for part in (value, mean, sd))
    varies = sd > 1e-9 * np.maximum(unit, np.abs(mean))
    return np.where(varies, (value - mean) / np.where(varies, sd, 1.0), np.nan)
