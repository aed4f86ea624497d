"""Logarithms of the tails of a Beta law, good where the tails themselves are too small for a float.

log I_x(a, b), the logarithm of the regularised incomplete Beta function, is

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
