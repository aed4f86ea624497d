"""What the Gaussian picture predicts of a layer's logits, beside the same moments of logits that were looked at.

q R_delta k^T has the mean, variance, skewness and kurtosis that `distributions.bilinear` gives for jointly Gaussian q
and k; over positions and distances together it is a mixture, each as often as any other. The mean at a position needs
no Gaussian, nor does the variance for independent pairs: there the first two moments say all. What is tested is
the variance for tokens with themselves and with neighbors, every kurtosis, and the entropy of attention.

How well predictions agree with measurements over the heads of a layer.

R^2 = 1 - sum (m - p)^2 / sum (m - mean m)^2 compares the prediction p itself, not a line fitted to it, with what is
measured: 1 is perfect, 0 no better than the layer's mean, below 0 worse. The slope of m on p is 1 for a calibrated
prediction, and `ratio` is the geometric mean of m / p, 1 where sizes are right on average.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions import score_moments
from headspan.lenses.gaussian.pairs import PairMoments


@dataclass(frozen=True)
class LogitMoments:
    """Mean, standard deviation and excess kurtosis of a kind of pair's logits, per head."""

    mean: Float[Tensor, " head"]
    sd: Float[Tensor, " head"]
    excess_kurtosis: Float[Tensor, " head"]


def predicted_logits(moments: PairMoments, forms: list[Float[Tensor, "d_head d_head"]]) -> LogitMoments:
    """Moments over all pairs, positions and distances."""
    parts = [
        score_moments(form, moments.mean_q, moments.S_q, moments.mean_k, moments.S_k, moments.S_qk) for form in forms
    ]
    means = torch.cat([part.mean for part in parts])
    variances = torch.cat([part.variance for part in parts])
    thirds = torch.cat([_nothing_for_nan(part.skewness) * part.variance**1.5 for part in parts])
    fourths = torch.cat([(_nothing_for_nan(part.excess_kurtosis) + 3) * part.variance**2 for part in parts])
    mean = means.mean(0)
    off = means - mean
    variance = (variances + off**2).mean(0)
    fourth = (fourths + 4 * off * thirds + 6 * off**2 * variances + off**4).mean(0)
    return LogitMoments(mean, variance.sqrt(), fourth / variance**2 - 3)


def _nothing_for_nan(standardized: Tensor) -> Tensor:
    """A constant has no skewness or kurtosis, and its central moments are 0."""
    return torch.nan_to_num(standardized, nan=0.0)


def measured_logits(parts: list[Float[Tensor, "head n"]]) -> LogitMoments:
    """The same moments of logits that were looked at."""
    values = torch.cat(parts, dim=1).double()
    mean = values.mean(1)
    off = values - mean[:, None]
    variance = off.square().mean(1)
    return LogitMoments(mean, variance.sqrt(), off.pow(4).mean(1) / variance**2 - 3)


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
