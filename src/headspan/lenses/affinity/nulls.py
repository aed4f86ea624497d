"""Chance beside every score: p-values under named nulls, false-discovery control, and whether direction matters.

Scores are arrays [src_layer, src_head, dst_layer, dst_head]. A composing pair has src layer < dst layer; the pairs in
the impossible order, src layer > dst layer, share the model's anisotropy but no computation: an empirical null.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]
Layers = npt.NDArray[np.int64]

KL_BINS = 255
KL_FLOOR = 1e-12


def layer_distance(src: Layers, dst: Layers) -> Layers:
    """dst layer - src layer for every pair, as [src_layer, 1, dst_layer, 1]."""
    distance: Layers = dst[None, None, :, None] - src[:, None, None, None]
    return distance


def anticausal_p_values(scores: Array, layers: Layers) -> Array:
    """How often a pair in the impossible order, equally many layers apart, scores at least as high.

    Parameters
    ----------
    scores
        [src_layer, src_head, dst_layer, dst_head] of all ordered pairs; NaN is left out.
    layers
        Layer numbers of both layer axes.

    Returns
    -------
    Array
        (1 + #{null >= score}) / (1 + #null) for composing pairs, in (0, 1], uniform by chance; NaN elsewhere. Null:
        exchangeability of a pair's two directions.
    """
    distance = np.broadcast_to(layer_distance(layers, layers), scores.shape)
    p_values = np.full(scores.shape, np.nan)
    for apart in np.unique(distance[distance > 0]):
        null = np.sort(scores[(distance == -apart) & ~np.isnan(scores)])
        here = (distance == apart) & ~np.isnan(scores)
        at_least = len(null) - np.searchsorted(null, scores[here], side="left")
        p_values[here] = (1 + at_least) / (1 + len(null))
    return p_values


def q_values(p_values: Array) -> Array:
    """Benjamini-Hochberg adjusted p-values over everything that is not NaN; in [0, 1].

    Under chance the share of false discoveries among q <= x is at most x.
    """
    adjusted = np.full(p_values.shape, np.nan)
    known = ~np.isnan(p_values)
    if known.any():
        adjusted[known] = stats.false_discovery_control(p_values[known], method="bh")
    return adjusted


def kl_from_chance(scores: Array, width: int, mean: float, variance: float) -> float:
    """KL(random || observed) over 255 equal bins on [0, width], the random law being normal; >= 0, 0 if they agree.

    NaN where chance leaves no room (variance 0: heads as wide as the model).

    sum over bins with r_i > 0 of r_i ln(r_i / max(h_i, 1e-12)); r_i the normal mass, h_i the observed share of bin i.
    Reference: arXiv 2601.10266, as the project's reference page fixes the binning.
    """
    if variance == 0:
        return np.nan
    edges = np.linspace(0.0, width, KL_BINS + 1)
    random = np.diff(stats.norm.cdf(edges, loc=mean, scale=variance**0.5))
    observed = np.histogram(scores, bins=edges)[0] / scores.size
    inside = random > 0
    return float(np.sum(random[inside] * np.log(random[inside] / np.maximum(observed[inside], KL_FLOOR))))


@dataclass(frozen=True)
class DirectionTest:
    """Composing pairs against the same pairs turned round."""

    difference: float
    """Mean score of composing pairs less that of anti-causal pairs; 0 by chance."""
    p_value: float
    """Two-sided, by permuting the order of the layers."""
    ks_distance: float
    """Kolmogorov-Smirnov distance of the two samples; in [0, 1]."""


def direction_test(scores: Array, layers: Layers, permutations: int = 9999, seed: int = 0) -> DirectionTest:
    """Does it matter that the source comes first?

    Null: the order of the layers carries no information, so that any permutation of them gives an equally likely
    difference. Pairs share heads and are not independent; permuting whole layers respects that.
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
    generator = np.random.default_rng(seed)
    drawn = differences(generator.permuted(np.tile(np.arange(n_layers), (permutations, 1)), axis=1))
    # Rounding must not make a tie with the observed order look like a smaller difference.
    extreme = np.sum(np.abs(drawn) >= abs(observed) * (1 - 1e-9))
    distance = np.broadcast_to(layer_distance(layers, layers), scores.shape)
    forward, backward = (scores[side & ~np.isnan(scores)] for side in (distance > 0, distance < 0))
    return DirectionTest(
        difference=observed,
        p_value=float((1 + extreme) / (1 + permutations)),
        ks_distance=float(stats.ks_2samp(forward, backward).statistic) if forward.size and backward.size else np.nan,
    )


def head_bootstrap_mean(scores: Array, draws: int = 1000, seed: int = 0, level: float = 0.95) -> tuple[float, float]:
    """An interval for the mean score of composing pairs, resampling heads, since pairs share them.

    Parameters
    ----------
    scores
        [src_layer, src_head, dst_layer, dst_head]; NaN pairs do not count.
    draws, seed, level
        Number of resamples, their seed, and the coverage.
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
    means = totals[counts > 0] / counts[counts > 0]
    if means.size == 0:
        return (np.nan, np.nan)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _head_counts(n_layers: int, n_heads: int, draws: int, generator: np.random.Generator) -> Array:
    """How often each head is drawn, resampling within layers so that every layer keeps its weight: [draws, heads]."""
    counts = generator.multinomial(n_heads, np.full(n_heads, 1 / n_heads), size=(draws, n_layers))
    return counts.reshape(draws, n_layers * n_heads).astype(float)
