"""Spearman's correlation of ranks, and Mantel's test of it for two tables over the same members.

Pairs of members share them, so that a correlation over pairs has no textbook p-value. Mantel's null permutes the
members of one of the two tables (two-sided); the interval resamples members, pairs of a member with itself left out.

Reference: Mantel (1967), The detection of disease clustering and a generalized regression approach.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

from headspan.statistics.intervals import quantile_interval
from headspan.statistics.permutation import empirical_p_value

Array = npt.NDArray[np.float64]

FEWEST_MEMBERS, FEWEST_PAIRS = 4, 3
TIE = 1e-12
"""Correlations this close count as equal."""


def standard_ranks(values: Array) -> Array:
    """Ranks along the last axis with mean 0 and variance 1, ties sharing their mean rank; NaN where all are equal."""
    ranks = stats.rankdata(values, axis=-1)
    spread = ranks.std(axis=-1, keepdims=True)
    standard: Array = (ranks - ranks.mean(axis=-1, keepdims=True)) / np.where(spread > 0, spread, np.nan)
    return standard


def spearman(x: Array, y: Array) -> Array:
    """Spearman's correlation along the last axis, in [-1, 1]; 0 for unrelated values, NaN where one does not vary."""
    correlation: Array = (standard_ranks(x) * standard_ranks(y)).mean(-1)
    return correlation


def mantel(firsts: list[Array], seconds: list[Array], permutations: int, seed: int) -> dict[str, Array]:
    """Spearman's correlation of two tables per group of members, with interval and p-value, and the mean over groups.

    Parameters
    ----------
    firsts, seconds
        Symmetric tables [member, member], one of each kind per group (a layer, say); NaN pairs do not count.
    permutations, seed
        Of the test, and draws of the bootstrap; the random seed of both.

    Returns
    -------
    dict
        `spearman`, `low`, `high`, `p_value` [group], and `mean_spearman`, `mean_p_value` []: correlations in [-1, 1],
        0 under the null; p-values in [1 / (permutations + 1), 1]. For the mean, members are permuted within every group
        at once. NaN where a group has under 4 members or a table does not vary.
    """
    generator = np.random.default_rng(seed)
    found = np.array([_table_correlation(x, y) for x, y in zip(firsts, seconds, strict=True)])
    drawn = np.full((permutations, len(found)), np.nan)
    intervals = np.full((len(found), 2), np.nan)
    for place, (x, y) in enumerate(zip(firsts, seconds, strict=True)):
        if np.isfinite(found[place]):
            orders = [generator.permutation(len(x)) for _ in range(permutations)]
            drawn[:, place] = [_table_correlation(x[np.ix_(order, order)], y) for order in orders]
            intervals[place] = _interval(x, y, permutations, generator)
    known = np.isfinite(found)
    mean = found[known].mean() if known.any() else np.nan
    means = drawn[:, known].mean(1) if known.any() else np.full(permutations, np.nan)
    p_value = empirical_p_value(np.abs(found), np.abs(drawn), TIE)
    mean_p = empirical_p_value(abs(mean), np.abs(means), TIE)
    return {
        "spearman": found,
        "low": intervals[:, 0],
        "high": intervals[:, 1],
        "p_value": np.where(known, p_value, np.nan),
        "mean_spearman": np.asarray(mean),
        "mean_p_value": np.asarray(mean_p if known.any() else np.nan),
    }


def _table_correlation(x: Array, y: Array, keep: npt.NDArray[np.bool_] | None = None) -> float:
    """Spearman's correlation over the pairs kept, by default those above the diagonal."""
    upper = np.triu(np.ones(x.shape, dtype=bool), 1) if keep is None else keep
    a, b = x[upper], y[upper]
    fine = np.isfinite(a) & np.isfinite(b)
    if len(x) < FEWEST_MEMBERS or fine.sum() < FEWEST_PAIRS:
        return float("nan")
    return float(spearman(a[fine], b[fine]))


def _interval(x: Array, y: Array, draws: int, generator: np.random.Generator) -> tuple[float, float]:
    """Quantiles over resampled members."""
    n, values = len(x), []
    for _ in range(draws):
        members = np.sort(generator.integers(n, size=n))
        keep = np.triu(members[:, None] != members[None, :], 1)
        at = np.ix_(members, members)
        values.append(_table_correlation(x[at], y[at], keep))
    return quantile_interval(values)
