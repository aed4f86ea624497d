"""Do chosen members stand out within their strata? A permutation test that keeps how many are chosen in each.

A class of heads is seldom spread evenly over layers, and most scores change with depth. Permuting labels within layers
compares members with others of the same layers, so that depth alone gives nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headspan.errors import ArgumentError
from headspan.statistics.permutation import Array, empirical_p_value

Chosen = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MatchedTest:
    """The mean value of the chosen members against that of others of the same strata."""

    mean: float
    expected: float
    """Mean over draws of as many members of every stratum: what the null gives."""
    p: float
    """One-sided, for a high mean; in [1 / (draws + 1), 1], uniform under the null."""


def matched_draws(chosen: Chosen, strata: npt.NDArray[np.int64], draws: int, seed: int = 0) -> Chosen:
    """Random choices `[draw, member]` with as many members of every stratum as `chosen` [member] has."""
    if chosen.shape != strata.shape or chosen.ndim != 1:
        raise ArgumentError(f"every member needs a stratum: found {chosen.shape} choices and {strata.shape} strata")
    generator = np.random.default_rng(seed)
    drawn = np.zeros((draws, len(chosen)), dtype=bool)
    for stratum in np.unique(strata):
        own = np.flatnonzero(strata == stratum)
        drawn[:, own] = generator.permuted(np.tile(chosen[own], (draws, 1)), axis=1)
    return drawn


def matched_test(
    values: Array, chosen: Chosen, strata: npt.NDArray[np.int64], draws: int = 99_999, seed: int = 0
) -> MatchedTest:
    """Is the mean of the chosen members higher than that of others of their strata?

    Null: within a stratum, which members are chosen has nothing to do with their values. It is broken by a choice that
    looked at the values, or at something that follows from them.

    Parameters
    ----------
    values
        [member]; members whose value is NaN are left out.
    chosen, strata
        [member]; who is asked about, and the stratum (a layer, say) of each.
    draws, seed
        Permutations within strata.
    """
    known = ~np.isnan(values)
    values, chosen, strata = values[known], chosen[known], strata[known]
    if not chosen.any():
        raise ArgumentError("none of the chosen members has a value; choose at least one that has")
    means: Array = matched_draws(chosen, strata, draws, seed) @ values / chosen.sum()
    mean = float(values[chosen].mean())
    slack = 1e-9 * float(np.abs(values).max())
    return MatchedTest(mean, float(means.mean()), float(empirical_p_value(mean, means, slack)))
