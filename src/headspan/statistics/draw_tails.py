"""p-values from a few draws of a null, also beyond the largest draw.

Up to the largest draw they are counted, p = (1 + draws at least as large) / (1 + draws), which is exact. Counting
cannot give less than 1 / (1 + draws), which many tests at once need. Beyond the largest draw the tail is that of a
generalized Pareto law through the largest `TAIL` of the draws, as one more draw follows it:

1. the threshold t is the draw that n of N others exceed, n = TAIL N; the exceedances have L-moments l_1 and l_2;
2. shape k = max(2 - l_1 / l_2, 0) and scale s = l_1 (1 - k). A shape below 0 would put an end to the tail, and with it
   p = 0; it is raised to 0, an exponential tail, which errs on the side of a larger p;
3. the scale is known from n values only: k is raised by 1/n, which is exact for an exponential tail;
4. P(X > x) = (n + 1) / (N + 1) (1 + k (x - t) / s)^(-1 / k).

References
----------
Hosking and Wallis (1987), Parameter and quantile estimation for the generalized Pareto distribution. Knijnenburg et
al. (2009), Fewer permutations, more accurate P-values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headspan.errors import ArgumentError

Array = npt.NDArray[np.float64]

TAIL = 0.1
LEAST_TAIL, LEAST_DRAWS = 10, 50


def upper_p_values(observed: Array, draws: Array) -> Array:
    """P(null >= observed) for every value, in (0, 1]; NaN for NaN.

    Parameters
    ----------
    observed
        Any shape.
    draws
        [draw], at least 50 of them.

    Returns
    -------
    Array
        Uniform under the null down to 1 / (1 + draws); below that an extrapolation, larger on average than the truth
        for tails that end or fall faster than exponentially, and smaller for tails heavier than they look.

    >>> import numpy as np
    >>> draws = np.random.default_rng(0).exponential(size=2000)
    >>> bool(1e-7 < upper_p_values(np.array(12.0), draws) < 1e-3)  # exp(-12) is 6e-6
    True
    """
    known = np.sort(draws[np.isfinite(draws)])
    if len(known) < LEAST_DRAWS:
        raise ArgumentError(f"a tail needs at least {LEAST_DRAWS} draws of the null, found {len(known)}")
    values = np.asarray(observed, dtype=np.float64)
    at_least = len(known) - np.searchsorted(known, values, side="left")
    counted = (1 + at_least) / (1 + len(known))
    found = np.where(at_least > 0, counted, np.minimum(counted, _pareto_tail(values, known)))
    return np.where(np.isnan(values), np.nan, found)


def _pareto_tail(values: Array, known: Array) -> Array:
    """Step 1 to 4 of the module, for sorted draws; 1 where the largest draws are all alike."""
    n = max(int(TAIL * len(known)), LEAST_TAIL)
    threshold = known[-n - 1]
    excess = known[-n:] - threshold
    first = excess.mean()
    second = 2 * (np.arange(n) / (n - 1) * excess).mean() - first
    if first <= 0 or second <= 0:
        return np.ones_like(values)
    fitted = max(2 - first / second, 0.0)
    scale = first * (1 - fitted)
    if scale <= 0:
        return np.ones_like(values)
    shape = fitted + 1 / n
    log_tail = -np.log1p(shape * np.maximum(values - threshold, 0) / scale) / shape
    tail: Array = np.maximum((n + 1) / (len(known) + 1) * np.exp(log_tail), 1e-300)
    return tail
