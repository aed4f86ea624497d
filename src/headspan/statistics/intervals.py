"""Intervals for an estimate: quantiles of a bootstrap that resamples independent units, and Student's for a few values.

Pairs of heads share their heads, so that they are not independent; the heads are. A bootstrap therefore draws heads
with replacement, and a pair counts as often as the product of the counts of its two heads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

LEVEL = 0.95


def quantile_interval(drawn: Sequence[float] | Array, level: float = LEVEL) -> tuple[float, float]:
    """The central share `level` of bootstrap draws, those that are NaN left out; (NaN, NaN) without any."""
    values = np.asarray(drawn, dtype=float)
    values = values[~np.isnan(values)]
    if values.size == 0:
        return np.nan, np.nan
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mean_interval(values: Sequence[float] | Array) -> tuple[float, float, float]:
    """Mean of independent values with Student's 95 % interval; the interval is NaN below two values."""
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    if len(known) == 0:
        return (float("nan"),) * 3
    mean = float(known.mean())
    if len(known) < 2:
        return mean, float("nan"), float("nan")
    half = float(special.stdtrit(len(known) - 1, (1 + LEVEL) / 2) * known.std(ddof=1) / len(known) ** 0.5)
    return mean, mean - half, mean + half


def resample_weights(units: tuple[Index, ...], draws: int, seed: int) -> Array:
    """How often each item counts when units are drawn with replacement: the product over the units it is made of.

    Parameters
    ----------
    units
        One array [item] per part of an item: the number of the unit that part is, from 0.
    draws, seed
        Number of resamples, and their random seed.

    Returns
    -------
    Array
        [draws, item], >= 0, 1 on average.
    """
    n_units = max(int(unit.max()) for unit in units) + 1
    counts = np.random.default_rng(seed).multinomial(n_units, np.full(n_units, 1 / n_units), size=draws)
    weights: Array = np.prod([counts[:, unit] for unit in units], axis=0).astype(float)
    return weights


def bootstrap_mean_interval(
    scores: Array, draws: int = 1000, seed: int = 0, level: float = LEVEL
) -> tuple[float, float]:
    """An interval for the mean score of pairs of heads, resampling heads within layers, since pairs share them.

    Parameters
    ----------
    scores
        [src_layer, src_head, dst_layer, dst_head]; NaN pairs do not count.
    draws, seed, level
        Number of resamples, their random seed, and the coverage.
    """
    n_layers, n_src, _, n_dst = scores.shape
    table = scores.reshape(n_layers * n_src, n_layers * n_dst)
    known = (~np.isnan(table)).astype(float)
    values = np.nan_to_num(table)
    generator = np.random.default_rng(seed)
    src = _head_counts(n_layers, n_src, draws, generator)
    dst = src if n_src == n_dst else _head_counts(n_layers, n_dst, draws, generator)
    totals = np.einsum("bi,bi->b", src @ values, dst)
    counts = np.einsum("bi,bi->b", src @ known, dst)
    return quantile_interval(totals[counts > 0] / counts[counts > 0], level)


def _head_counts(n_layers: int, n_heads: int, draws: int, generator: np.random.Generator) -> Array:
    """How often each head is drawn, resampling within layers so that every layer keeps its weight: [draws, heads]."""
    counts = generator.multinomial(n_heads, np.full(n_heads, 1 / n_heads), size=(draws, n_layers))
    return counts.reshape(draws, n_layers * n_heads).astype(float)
