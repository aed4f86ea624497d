"""Which pairs share more than their members and their layers do in general: a two-way fit with an empirical null.

1. X_ij = log score of every pair of different layers, in both orders. Scores that are zero or NaN stay out.
2. X_ij = m + r_i + c_j + b(layer_i, layer_j), fitted with Huber weights (k = 1.5, the scale 1.4826 times the median
   absolute residual, 25 sweeps over the four effects). exp(fit) is what the pair is expected to share, given how open
   its source is, how receptive its destination, and how near the two layers.
3. z = residual / s, with s = 1.4826 median |residual|; p is one-sided under a normal law, q is that of Benjamini and
   Hochberg over both orders.
4. The mirror check asks less of the law: if the null is symmetric, (1 + #{z <= -t}) / #{z >= t} bounds the share of
   false discoveries above t. Pairs may share less than expected for a reason too, so it is conservative.

A pair takes part in the fit that it is judged by. That draws ordinary residuals towards 0 by their leverage, and
outliers, which have little weight, by less: tails come out a few percent too long for the scale of the bulk. With
`left_out` every residual is that from the fit without its own pair, e_ij = R + h psi(R) / (1 - h psi'(R)), with
leverage h and Huber's psi; of normal logarithms these are normal.

The bulk of pairs is taken for unrelated, and few rows or columns cannot be told from their pairs: see `obstacle`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from headspan.statistics.permutation import Array, Layers, q_values

Starts = npt.NDArray[np.intp]
HUBER, SWEEPS, NORMAL_MAD = 1.5, 25, 1.4826
MOST_LEVERAGE = 0.5
"""Of a pair that is nearly alone in its row or column."""
MIN_LAYERS, MIN_PAIRS, MIN_PARTNERS = 3, 1000, 32
"""Smaller models fail on simulated independent heads: of 4 layers with 4 heads each, every second has a false pair."""


@dataclass(frozen=True)
class TwoWay:
    """What the fit says of every pair [src, dst] of different layers, in both orders; NaN elsewhere."""

    expected: Array
    """exp(fit), > 0."""
    z: Array
    """Residual of the logarithm over `scale`; mostly standard normal for unrelated pairs."""
    p: Array
    """One-sided, in [0, 1]."""
    q: Array
    """False-discovery rate over both orders, in [0, 1]."""
    mirror_fdr: Array
    """Bound on the share of false discoveries among pairs at least as far out, in (0, 1]; 1 where z <= 0."""
    scale: float
    """Standard deviation of the logarithm among unrelated pairs."""


def obstacle(n_layers: int, n_src: int, n_dst: int) -> str | None:
    """Why a model is too small for the two-way null, in a few words; None where it is not.

    Parameters
    ----------
    n_layers, n_src, n_dst
        Number of layers, and of members that each layer has on either side.
    """
    pairs, partners = n_layers * (n_layers - 1) * n_src * n_dst, (n_layers - 1) * min(n_src, n_dst)
    if n_layers >= MIN_LAYERS and pairs >= MIN_PAIRS and partners >= MIN_PARTNERS:
        return None
    return (
        f"the two-way null needs {MIN_LAYERS} layers, {MIN_PAIRS:,} pairs of different layers and {MIN_PARTNERS} "
        f"partners of every head; this model has {n_layers}, {pairs:,} and {partners}"
    )


def two_way(scores: Array, src_layer: Layers, dst_layer: Layers, *, left_out: bool = False) -> TwoWay:
    """The two-way residual of a table of scores [src, dst], members in the order of their layers.

    With `left_out` each pair is judged by the fit without it.

    Reference: Tukey (1977), Exploratory data analysis (two-way fits); Efron (2004), Large-scale simultaneous
    hypothesis testing (the empirical null); Barber and Candès (2015), Controlling the false discovery rate via
    knockoffs (counting the mirror tail).
    """
    with np.errstate(invalid="ignore"):
        known = (src_layer[:, None] != dst_layer[None, :]) & (scores > 0)
    empty = np.full(scores.shape, np.nan)
    if not known.any():
        return TwoWay(empty, empty, empty, empty, empty, np.nan)
    logs = np.log(scores, out=np.zeros(scores.shape), where=known)
    starts = _starts(src_layer), _starts(dst_layer)
    fit = _robust_fit(logs, known, *starts)
    if left_out:
        fit = logs - _left_out(logs - fit, known, *starts)
    residual = np.where(known, logs - fit, np.nan)
    scale = _spread(residual[known])
    z = residual / scale if scale > 0 else empty
    p: Array = special.ndtr(-z)
    return TwoWay(np.where(known, np.exp(fit), np.nan), z, p, q_values(p), mirror_fdr(z), scale)


def mirror_fdr(z: Array) -> Array:
    """(1 + #{z <= -t}) / #{z >= t} at the threshold that is kindest to each z > 0; 1 below, NaN for NaN.

    In (0, 1]. If z is symmetric about 0 under the null, keeping what is at most alpha keeps the false-discovery rate
    at alpha.
    """
    found = np.where(np.isnan(z), np.nan, 1.0)
    above = np.flatnonzero(z > 0)
    order = above[np.argsort(z.ravel()[above], kind="stable")]
    t = z.ravel()[order]
    ordered = np.sort(z[~np.isnan(z)])
    at_least = len(ordered) - np.searchsorted(ordered, t, side="left")
    below = np.searchsorted(ordered, -t, side="right")
    found.ravel()[order] = np.minimum.accumulate(np.minimum((1 + below) / at_least, 1.0))
    return found


def _spread(residual: Array) -> float:
    return NORMAL_MAD * float(np.median(np.abs(residual)))


def _starts(layers: Layers) -> Starts:
    """Where each layer's members begin."""
    return np.flatnonzero(np.diff(layers, prepend=layers[0] - 1))


def _robust_fit(logs: Array, known: npt.NDArray[np.bool_], rows: Starts, columns: Starts) -> Array:
    """The four effects, each in turn the weighted mean of what the others leave."""
    residual, weight = logs.copy(), np.empty(logs.shape)
    for _ in range(SWEEPS):
        limit = HUBER * _spread(residual[known])
        np.divide(limit, np.abs(residual), out=weight, where=residual != 0)
        weight[residual == 0] = 1.0
        np.minimum(weight, 1.0, out=weight)
        weight *= known
        residual -= _ratio((weight * residual).sum(), weight.sum())
        residual -= _ratio((weight * residual).sum(1), weight.sum(1))[:, None]
        residual -= _ratio((weight * residual).sum(0), weight.sum(0))[None, :]
        layers = _ratio(_by_layers(weight * residual, rows, columns), _by_layers(weight, rows, columns))
        residual -= _by_pair(layers, logs.shape, rows, columns)
    return logs - residual


def _left_out(residual: Array, known: npt.NDArray[np.bool_], rows: Starts, columns: Starts) -> Array:
    """What each pair leaves of the fit without it, to first order in its leverage."""
    limit = HUBER * _spread(residual[known])
    if not limit > 0:
        return residual
    inside = np.abs(residual) < limit
    leverage = np.minimum(_leverage(known.astype(float), rows, columns) / inside[known].mean(), MOST_LEVERAGE)
    change: Array = leverage * np.clip(residual, -limit, limit) / (1 - leverage * inside)
    return residual + change


def _leverage(known: Array, rows: Starts, columns: Starts) -> Array:
    """How much of a pair its own fitted value is: of means over its row, its column and its pair of layers."""
    members = [np.diff(starts, append=size) for starts, size in zip((rows, columns), known.shape, strict=True)]
    # The mean of a layer's rows is part of its pairs of layers, and likewise for columns.
    own = [1 - 1 / np.repeat(count, count) for count in members]
    layers = _by_pair(_ratio(1.0, _by_layers(known, rows, columns)), known.shape, rows, columns)
    by_row, by_column = own[0] * _ratio(1.0, known.sum(1)), own[1] * _ratio(1.0, known.sum(0))
    return np.asarray(by_row[:, None] + by_column[None, :] + layers)


def _by_layers(table: Array, rows: Starts, columns: Starts) -> Array:
    """Sums over pairs of layers."""
    return np.add.reduceat(np.add.reduceat(table, rows, axis=0), columns, axis=1)


def _by_pair(layers: Array, shape: tuple[int, ...], rows: Starts, columns: Starts) -> Array:
    """A table of pairs of layers, at every pair of their members."""
    heights, widths = np.diff(rows, append=shape[0]), np.diff(columns, append=shape[1])
    return np.repeat(np.repeat(layers, heights, axis=0), widths, axis=1)


def _ratio(total: Array | float, weight: Array) -> Array:
    """A weighted mean; 0 where nothing has weight."""
    return np.divide(total, weight, out=np.zeros(np.shape(weight)), where=weight > 0)
