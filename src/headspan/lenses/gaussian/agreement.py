r"""How well predictions agree with measurements over the heads of a layer.

R^2 = 1 - sum (m - p)^2 / sum (m - mean m)^2 compares the prediction p itself, not a line fitted to it, with what is
measured: 1 is perfect, 0 no better than the layer's mean, below 0 worse. The slope of m on p is 1 for a calibrated
prediction, and `ratio` is the geometric mean of m / p, 1 where sizes are right on average.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

FEWEST = 3
"""Heads from which on a share of explained variance means anything."""


def explained(predicted: Float[np.ndarray, " n"], measured: Float[np.ndarray, " n"]) -> float:
    """R^2 of the prediction itself; NaN for fewer than 3 heads or where nothing varies."""
    known = np.isfinite(predicted) & np.isfinite(measured)
    p, m = predicted[known], measured[known]
    total = ((m - m.mean()) ** 2).sum() if len(m) >= FEWEST else 0.0
    return float(1 - ((m - p) ** 2).sum() / total) if total > 0 else float("nan")


def slope(predicted: Float[np.ndarray, " n"], measured: Float[np.ndarray, " n"]) -> float:
    """Least-squares slope of measured on predicted; 1 if calibrated, NaN where undefined."""
    known = np.isfinite(predicted) & np.isfinite(measured)
    p, m = predicted[known], measured[known]
    if len(p) < FEWEST or not p.std() > 0:
        return float("nan")
    return float(((p - p.mean()) * (m - m.mean())).sum() / ((p - p.mean()) ** 2).sum())


def size_ratio(predicted: Float[np.ndarray, " n"], measured: Float[np.ndarray, " n"]) -> float:
    """Geometric mean of measured over predicted, of those where both are above 0."""
    known = (predicted > 0) & (measured > 0)
    return float(np.exp(np.log(measured[known] / predicted[known]).mean())) if known.any() else float("nan")
