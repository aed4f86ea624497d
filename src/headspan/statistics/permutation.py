"""Empirical nulls: p-values by counting draws, the reverse order of a pair, and permutations of an order.

Scores are arrays [src_layer, src_head, dst_layer, dst_head]. A composing pair has src layer < dst layer; the pairs in
reverse order, src layer > dst layer, share the model's anisotropy but no computation: the reverse-order null.

False-discovery control when many p-values are ranked.

Spearman's correlation of ranks, and Mantel's test of it for two tables over the same members.

Pairs of members share them, so that a correlation over pairs has no textbook p-value. Mantel's null permutes the
members of one of the two tables (two-sided); the interval resamples members, pairs of a member with itself left out.

Reference: Mantel (1967), The detection of disease clustering and a generalized regression approach.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headspan.statistics.intervals import quantile_interval

Array = npt.NDArray[np.float64]
Layers = npt.NDArray[np.int64]


def empirical_p_value(observed: Array | float, null: Array, slack: float = 0.0) -> Array:
    """(1 + #{null >= observed}) / (1 + #null), in (0, 1]; uniform where `observed` is one more draw of the null.

    Parameters
    ----------
    observed
        A number or an array; NaN has the smallest p-value, so callers mask it.
    null
        [draw, ...], the other axes those of `observed` or broadcasting with them.
    slack
        By how much a draw may fall short and still count: rounding must not decide a tie.
    """
    p_values: Array = (1 + (null >= observed - slack).sum(axis=0)) / (1 + len(null))
    return p_values


def layer_distance(src: Layers, dst: Layers) -> Layers:
    """dst layer - src layer for every pair, as [src_layer, 1, dst_layer, 1]."""
    distance: Layers = dst[None, None, :, None] - src[:, None, None, None]
    return distance


def reverse_order_p_values(scores: Array, layers: Layers) -> Array:
    """How often a pair in reverse order, equally many layers apart, scores at least as high.

    Parameters
    ----------
    scores
        [src_layer, src_head, dst_layer, dst_head] of all ordered pairs; NaN is left out.
    layers
        Layer numbers of both layer axes.

    Returns
    -------
    Array
        (1 + #{null >= score}) / (1 + #null) for composing pairs, in (0, 1], uniform under the null; NaN elsewhere.
        Null: exchangeability of a pair's two directions.
    """
    distance = np.broadcast_to(layer_distance(layers, layers), scores.shape)
    p_values = np.full(scores.shape, np.nan)
    for apart in np.unique(distance[distance > 0]):
        null = np.sort(scores[(distance == -apart) & ~np.isnan(scores)])
        here = (distance == apart) & ~np.isnan(scores)
        at_least = len(null) - np.searchsorted(null, scores[here], side="left")
        p_values[here] = (1 + at_least) / (1 + len(null))
    return p_values


@dataclass(frozen=True)
class DirectionTest:
    """Composing pairs against the same pairs in reverse order."""

    difference: float
    """Mean score of composing pairs less that of pairs in reverse order; 0 under the null."""
    p_value: float
    """Two-sided, by permuting the order of the layers."""
    smallest_p: float
    """The smallest p-value that so many layers can give, 2 / L!, since an order and its reverse differ by sign only."""
    ks_distance: float
    """Kolmogorov-Smirnov distance of the two samples; in [0, 1]."""


def smallest_direction_p(n_layers: int) -> float:
    """The smallest p-value of `direction_test`, 2 / L! in (0, 1]: 1/12 for four layers, 1/60 for five."""
    return min(1.0, 2 / math.factorial(n_layers))


def direction_test(scores: Array, layers: Layers, permutations: int = 9999, seed: int = 0) -> DirectionTest:
    """Does it matter that the source comes first?

    Null: the order of the layers carries no information, so that any permutation of them gives an equally likely
    difference. Pairs share heads and are not independent; permuting whole layers respects that. With few layers all
    orders are counted, else `permutations` are drawn. Four layers or fewer cannot give p < 0.05: see `smallest_p`.
    """
    n_layers = len(layers)
    known = ~np.isnan(scores)
    means = np.where(known, scores, 0).sum((1, 3)) / np.maximum(known.sum((1, 3)), 1)
    n_pairs = max(n_layers * (n_layers - 1) / 2, 1)

    def differences(orders: Layers) -> Array:
        """Mean over ordered pairs of layers, each layer at the place its row of `orders` gives, less the reverse."""
        first = orders[:, :, None] < orders[:, None, :]
        total: Array = np.einsum("blm,lm->b", first, means - means.T) / n_pairs
        return total

    observed = float(differences(np.argsort(np.argsort(layers))[None])[0])
    size, smallest = abs(observed) * (1 - 1e-9), smallest_direction_p(n_layers)
    if math.factorial(n_layers) <= permutations:
        p = float((np.abs(differences(np.array(list(itertools.permutations(range(n_layers)))))) >= size).mean())
    else:
        orders = np.tile(np.arange(n_layers), (permutations, 1))
        drawn = differences(np.random.default_rng(seed).permuted(orders, axis=1))
        p = float(empirical_p_value(size, np.abs(drawn)))
    distance = np.broadcast_to(layer_distance(layers, layers), scores.shape)
    forward, backward = (scores[side & ~np.isnan(scores)] for side in (distance > 0, distance < 0))
    return DirectionTest(
        difference=observed,
        p_value=p,
        smallest_p=smallest,
        ks_distance=_ks_distance(forward, backward) if forward.size and backward.size else np.nan,
    )


def _ks_distance(first: Array, second: Array) -> float:
    """Largest difference of two empirical distribution functions."""
    at = np.concatenate([first, second])
    shares = [np.searchsorted(np.sort(sample), at, side="right") / len(sample) for sample in (first, second)]
    return float(np.abs(shares[0] - shares[1]).max())


def q_values(p_values: Array) -> Array:
    """Benjamini-Hochberg adjusted p-values over everything that is not NaN; in [0, 1].

    Under the null the share of false discoveries among q <= x is at most x.
    """
    adjusted = np.full(p_values.shape, np.nan)
    known = ~np.isnan(p_values)
    if known.any():
        p = p_values[known]
        order, found = np.argsort(p, kind="stable"), np.empty(len(p))
        raised = p[order] * (len(p) / np.arange(1, len(p) + 1))
        found[order] = np.minimum(np.minimum.accumulate(raised[::-1])[::-1], 1.0)
        adjusted[known] = found
    return adjusted


FEWEST_MEMBERS, FEWEST_PAIRS = 4, 3
TIE = 1e-12
"""Correlations this close count as equal."""


def standard_ranks(values: Array) -> Array:
    """Ranks along the last axis with mean 0 and variance 1, ties sharing their mean rank; NaN where all are equal."""
    ranks = _mean_ranks(values)
    spread = ranks.std(axis=-1, keepdims=True)
    standard: Array = (ranks - ranks.mean(axis=-1, keepdims=True)) / np.where(spread > 0, spread, np.nan)
    return standard


def _mean_ranks(values: Array) -> Array:
    """Ranks from 1 on along the last axis, ties sharing their mean; NaN beside a NaN.

    As `scipy.stats.rankdata`, which takes half a second to import.
    """
    order = np.argsort(values, axis=-1, kind="stable")
    ascending, places = np.take_along_axis(values, order, -1), np.arange(values.shape[-1])
    edge = np.ones((*values.shape[:-1], 1), dtype=bool)
    rises = ascending[..., 1:] != ascending[..., :-1]
    first = np.maximum.accumulate(np.where(np.concatenate([edge, rises], -1), places, 0), axis=-1)
    ends = np.where(np.concatenate([rises, edge], -1), places, len(places))
    last = np.minimum.accumulate(ends[..., ::-1], axis=-1)[..., ::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, -1)
    return np.where(np.isnan(values).any(-1, keepdims=True), np.nan, ranks)


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
            drawn[:, place] = _permuted_correlations(x, y, orders)
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


def _permuted_correlations(x: Array, y: Array, orders: list[npt.NDArray[np.int64]]) -> Array:
    """Spearman's correlation with the members of x in other orders.

    Where no pair is missing, the same values stand above the diagonal in every order, and ranks are found once.
    """
    upper = np.triu_indices(len(x), 1)
    if not (np.isfinite(x[upper]).all() and np.isfinite(y[upper]).all() and np.array_equal(x[upper], x.T[upper])):
        return np.array([_table_correlation(x[np.ix_(order, order)], y) for order in orders])
    ranks, other = np.zeros(x.shape), standard_ranks(y[upper])
    ranks[upper] = standard_ranks(x[upper])
    ranks += ranks.T
    return np.array([(ranks[order[upper[0]], order[upper[1]]] * other).mean() for order in orders])


def _interval(x: Array, y: Array, draws: int, generator: np.random.Generator) -> tuple[float, float]:
    """Quantiles over resampled members."""
    n, values = len(x), []
    for _ in range(draws):
        members = np.sort(generator.integers(n, size=n))
        keep = np.triu(members[:, None] != members[None, :], 1)
        at = np.ix_(members, members)
        values.append(_table_correlation(x[at], y[at], keep))
    return quantile_interval(values)
