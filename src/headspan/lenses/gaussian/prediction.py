r"""What the Gaussian picture predicts of a layer's logits, beside the same moments of logits that were looked at.

q R_delta k^T has the mean, variance, skewness and kurtosis that `distributions.bilinear` gives for jointly Gaussian q
and k; over positions and distances together it is a mixture, each as often as any other. The mean at a position needs no
Gaussian, nor does the variance for independent pairs: there the first two moments say all. What is put to the test is
the variance for tokens with themselves and with neighbors, every kurtosis, and the entropy of attention.
"""

from __future__ import annotations

from dataclasses import dataclass

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
