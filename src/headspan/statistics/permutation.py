"""Empirical nulls: p-values by counting draws, the reverse order of a pair, and permutations of an order.

Scores are arrays [src_layer, src_head, dst_layer, dst_head]. A composing pair has src layer < dst layer; the pairs in
reverse order, src layer > dst layer, share the model's anisotropy but no computation: the reverse-order null.

False-discovery control when many p-values are ranked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

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
    distance = np.broadcast_to(layer_distance(layers, layers), scores.shape)
    forward, backward = (scores[side & ~np.isnan(scores)] for side in (distance > 0, distance < 0))
    return DirectionTest(
        difference=observed,
        p_value=float(empirical_p_value(abs(observed) * (1 - 1e-9), np.abs(drawn))),
        ks_distance=float(stats.ks_2samp(forward, backward).statistic) if forward.size and backward.size else np.nan,
    )


def q_values(p_values: Array) -> Array:
    """Benjamini-Hochberg adjusted p-values over everything that is not NaN; in [0, 1].

    Under the null the share of false discoveries among q <= x is at most x.
    """
    adjusted = np.full(p_values.shape, np.nan)
    known = ~np.isnan(p_values)
    if known.any():
        adjusted[known] = stats.false_discovery_control(p_values[known], method="bh")
    return adjusted
