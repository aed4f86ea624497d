r"""What the Gaussian picture predicts of a layer's logits and of its attention's entropy.

Logits: q R_delta k^T has the mean, variance and kurtosis that `gaussian.bilinear` gives for jointly Gaussian q and k;
over several distances delta, those of the mixture. The mean needs no Gaussian, nor does the variance for independent
pairs: there the first two moments say all. What is put to the test is the variance for tokens with themselves and with
neighbours, every kurtosis, and the entropy.

Entropy: given its query, a head's logits over the keys of a sequence are normal with variance q S q^T, S being the
covariance of keys within a sequence (a rotary model adds the spread of q R_delta mu_k over distances). So the mean
entropy of a row with n keys is that of a softmax of n normal logits, averaged over Gaussian queries (drawn, seeded) and
over the rows' lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.gaussian import predicted_entropy, score_moments
from headspan.lenses.gaussian.pairs import PairMoments

QUERIES = 256
"""Gaussian queries over which a head's entropy is averaged."""
ROWS = 12
"""Lengths of rows at which it is taken, evenly over all of them."""


@dataclass(frozen=True)
class LogitMoments:
    """Mean, standard deviation and excess kurtosis of a kind of pair's logits, per head."""

    mean: Float[Tensor, " head"]
    sd: Float[Tensor, " head"]
    excess_kurtosis: Float[Tensor, " head"]


def predicted_logits(moments: PairMoments, forms: list[Float[Tensor, "#head d_head d_head"]]) -> LogitMoments:
    """Moments over all pairs and distances, each distance as often as any other."""
    parts = [
        score_moments(form, moments.mean_q, moments.S_q, moments.mean_k, moments.S_k, moments.S_qk) for form in forms
    ]
    means, variances = (torch.stack([getattr(part, name) for part in parts]) for name in ("mean", "variance"))
    skews, kurtoses = (torch.stack([getattr(part, name) for part in parts]) for name in ("skewness", "excess_kurtosis"))
    mean = means.mean(0)
    off = means - mean
    variance = (variances + off**2).mean(0)
    fourth = variances**2 * (kurtoses + 3) + 4 * off * skews * variances**1.5 + 6 * off**2 * variances + off**4
    return LogitMoments(mean, variance.sqrt(), fourth.mean(0) / variance**2 - 3)


def measured_logits(parts: list[Float[Tensor, "head n"]]) -> LogitMoments:
    """The same moments of logits that were looked at."""
    values = torch.cat(parts, dim=1).double()
    mean = values.mean(1)
    off = values - mean[:, None]
    variance = off.square().mean(1)
    return LogitMoments(mean, variance.sqrt(), off.pow(4).mean(1) / variance**2 - 3)


def row_lengths(length: int, causal: bool) -> Int[Tensor, " row"]:
    """Numbers of keys that rows of a pattern see: 1 .. length in a causal model, all of them in another."""
    return torch.arange(1, length + 1) if causal else torch.full((length,), length)


def predicted_row_entropy(
    moments: PairMoments,
    within: Float[Tensor, "head d_head d_head"],
    forms: list[Float[Tensor, "#head d_head d_head"]],
    lengths: Int[Tensor, " row"],
    seed: int,
) -> Float[Tensor, " head"]:
    """Mean entropy in nats of a head's rows; in [0, mean log n], the latter (uniform attention) for constant logits."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(QUERIES, moments.mean_q.shape[-1], generator=generator, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(moments.S_q)
    root = vectors * values.clamp(min=0).sqrt().unsqueeze(-2)
    q = moments.mean_q[:, None] + noise @ root.mT
    images = torch.stack([q @ form for form in forms])
    spread = torch.einsum("fhqd,hde,fhqe->fhq", images, within, images).mean(0).clamp(min=0)
    if len(forms) > 1:
        spread = spread + torch.einsum("fhqd,hd->fhq", images, moments.mean_k).var(0, correction=0)
    chosen = lengths[torch.linspace(0, len(lengths) - 1, min(ROWS, len(lengths))).round().long()]
    entropy = predicted_entropy(spread[..., None], chosen)
    return entropy.mean((-1, -2)) * lengths.double().log().mean() / chosen.double().log().mean()
