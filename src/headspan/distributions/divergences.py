"""Jensen-Shannon divergence of two Gaussians: half the divergence of each from their mixture, in nats.

    JSD(p, q) = 1/2 KL(p || m) + 1/2 KL(q || m),   m = (p + q) / 2,
              = log 2 - 1/2 E_p log(1 + q/p) - 1/2 E_q log(1 + p/q).

m is a mixture of two, not a Gaussian, and there is no closed form. In one dimension the integral is done numerically,
on panels cut at multiples of both standard deviations. In more it is the mean over seeded draws, whose standard error
comes with it. Beside it stand bounds that hold always (Kolchinsky and Tracey 2017, Estimating mixture entropy with
pairwise distances):

    log 2 - log(1 + BC) <= JSD <= log 2 - 1/2 log(1 + e^-KL(p||q)) - 1/2 log(1 + e^-KL(q||p)) <= log 2,

BC the Bhattacharyya coefficient. Putting the Gaussian of the same mean and covariance in place of m is another upper
bound, which is kept under its own name since it can exceed log 2: `moment_matched_jsd`.

Entropy, Kullback-Leibler and Jensen-Shannon divergence of discrete distributions, in nats.

    H(p) = -sum p log p,   KL(p || q) = sum p log(p / q),   JSD(p, q) = [KL(p || m) + KL(q || m)] / 2,  m = (p + q) / 2,

with 0 log 0 = 0. The square root of JSD is a metric, JSD itself is not (Endres and Schindelin 2003).

Distributions are given as probabilities, or as the logits of a softmax (`kl_of_softmax`, `jsd_of_softmax`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions.factors import cholesky, in_cache, log_determinant, squared_distance, vector
from headspan.distributions.information import LOG_2PI, entropy, gaussian_pairs, kl_divergence
from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces.rank import require_finite
from headspan.threads import one_thread

LOG_2 = math.log(2)
REACH = 13
"""Standard deviations that the quadrature covers: beyond, less than 1e-37 of the mass."""


@dataclass(frozen=True)
class JensenShannon:
    """A divergence, its standard error (0 where it is exact), and bounds that hold whatever the draws say."""

    value: Float[Tensor, "*batch"]
    standard_error: Float[Tensor, "*batch"]
    lower: Float[Tensor, "*batch"]
    upper: Float[Tensor, "*batch"]


def jensen_shannon(
    mu1: Float[Tensor, "*first _d"],
    S1: Float[Tensor, "*second _d _d"],
    mu2: Float[Tensor, "*third _d"],
    S2: Float[Tensor, "*fourth _d _d"],
    samples: int = 4096,
    seed: int = 0,
) -> JensenShannon:
    """JSD of N(mu1, S1) and N(mu2, S2); batch axes broadcast.

    Parameters
    ----------
    mu1, S1, mu2, S2
        Means and covariances. On different subspaces JSD is log 2; two on one smaller subspace are refused.
    samples, seed
        Draws from each of the two, for d > 1.

    Returns
    -------
    JensenShannon
        Value in [lower, upper], within [0, log 2]; 0 for equal Gaussians, log 2 for Gaussians that do not overlap.

    References
    ----------
    Lin (1991), Divergence measures based on the Shannon entropy; Kolchinsky and Tracey (2017).
    """
    forward, backward = kl_divergence(mu1, S1, mu2, S2), kl_divergence(mu2, S2, mu1, S1)
    batch, (first, T1, second, T2) = gaussian_pairs(mu1, S1, mu2, S2)
    apart = torch.isinf(forward + backward).reshape(-1)
    lower = in_cache(_least, first - second, T1, T2, apart)
    upper = LOG_2 - 0.5 * (torch.log1p((-forward).exp()) + torch.log1p((-backward).exp())).reshape(-1)
    value, error = torch.full_like(lower, LOG_2), torch.zeros_like(lower)
    if not bool(apart.all()):
        pieces = first[~apart], T1[~apart], second[~apart], T2[~apart]
        value[~apart], error[~apart] = _quadrature(*pieces) if T1.shape[-1] == 1 else _draws(*pieces, samples, seed)
    lower = torch.minimum(lower, upper)
    return JensenShannon(*(x.reshape(batch) for x in (value.clamp(lower, upper), error, lower, upper)))


def _least(gap: Tensor, S1: Tensor, S2: Tensor, apart: Tensor) -> Tensor:
    """log 2 - log(1 + BC), BC = exp(-gap^T S^-1 gap / 8) (|S1| |S2|)^1/4 / |S|^1/2 with S the mean covariance."""
    (L1, regular1), (L2, regular2), (L, _) = cholesky(S1), cholesky(S2), cholesky((S1 + S2) / 2)
    if bool((~(regular1 & regular2) & ~apart).any()):
        raise ArgumentError(
            "both Gaussians lie on one subspace of fewer dimensions; pass their coordinates on it (see linear_image)"
        )
    distance = squared_distance(L, gap) / 8
    log_bc = (log_determinant(L1) + log_determinant(L2)) / 4 - log_determinant(L) / 2 - distance
    return torch.where(apart, LOG_2, LOG_2 - torch.log1p(log_bc.clamp(max=0).exp()))


def _quadrature(mu1: Tensor, S1: Tensor, mu2: Tensor, S2: Tensor) -> tuple[Tensor, Tensor]:
    """JSD in one dimension, [n]; 16 Gauss-Legendre nodes on each of 53 panels."""
    s1, s2 = S1[:, 0].sqrt(), S2[:, 0].sqrt()
    steps = torch.arange(-REACH, REACH + 1, dtype=s1.dtype)
    cuts = torch.cat([mu1 + s1 * steps, mu2 + s2 * steps], dim=-1).sort(-1).values
    nodes, weights = (torch.as_tensor(x, dtype=s1.dtype) for x in np.polynomial.legendre.leggauss(16))
    half, middle = cuts.diff(dim=-1)[..., None] / 2, ((cuts[:, 1:] + cuts[:, :-1]) / 2)[..., None]
    x = middle + half * nodes
    log_p, log_q = (
        -0.5 * (((x - mu[..., None]) / s[..., None]) ** 2 + LOG_2PI) - s[..., None].log()
        for mu, s in ((mu1, s1), (mu2, s2))
    )
    gap = torch.nn.functional.softplus(log_q - log_p), torch.nn.functional.softplus(log_p - log_q)
    integrand = log_p.exp() * (LOG_2 - gap[0]) + log_q.exp() * (LOG_2 - gap[1])
    value = 0.5 * (integrand * half * weights).sum((-1, -2))
    return value, torch.zeros_like(value)


def _draws(mu1: Tensor, S1: Tensor, mu2: Tensor, S2: Tensor, samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """JSD by draws, and its standard error, [n] each."""
    if samples < 2:
        raise ArgumentError(f"a standard error needs at least 2 samples, found {samples}")
    d = S1.shape[-1]
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(2, samples, d, generator=generator, dtype=S1.dtype).to(S1.device)
    values, errors = [], []
    with one_thread():
        for m1, T1, m2, T2 in zip(mu1, S1, mu2, S2, strict=True):
            L1, L2 = torch.linalg.cholesky(T1), torch.linalg.cholesky(T2)
            shift = (L1.diagonal().log() - L2.diagonal().log()).sum()
            other = torch.linalg.solve_triangular(L2, L1 @ z[0].T + (m1 - m2)[:, None], upper=False)
            back = torch.linalg.solve_triangular(L1, L2 @ z[1].T + (m2 - m1)[:, None], upper=False)
            forward = shift + 0.5 * (z[0].square().sum(-1) - other.square().sum(0))  # log q/p at draws of p
            backward = -shift + 0.5 * (z[1].square().sum(-1) - back.square().sum(0))
            losses = torch.nn.functional.softplus(torch.stack([forward, backward]))
            values.append(LOG_2 - losses.mean())
            errors.append((losses.var(-1).sum() / (4 * samples)).sqrt())
    return torch.stack(values), torch.stack(errors)


def moment_matched_jsd(
    mu1: Float[Tensor, "*first _d"],
    S1: Float[Tensor, "*second _d _d"],
    mu2: Float[Tensor, "*third _d"],
    S2: Float[Tensor, "*fourth _d _d"],
) -> Float[Tensor, "*out"]:
    """H(G) - [H(p) + H(q)] / 2 with G the Gaussian of the mixture's mean and covariance.

    Returns
    -------
    Tensor
        In [JSD, inf]: too high by the divergence of the mixture from G, not bounded by log 2; 0 for equal Gaussians.
    """
    gap = vector(mu1, S1, "the first mean") - vector(mu2, S2, "the second mean")
    pooled = (S1 + S2) / 2 + gap.unsqueeze(-1) * gap.unsqueeze(-2) / 4
    out = entropy(pooled) - 0.5 * (entropy(S1) + entropy(S2))
    # -inf - (-inf): both on one subspace, where the mixture is too.
    if bool(torch.isnan(out).any()):
        raise ArgumentError(
            "Gaussians on one subspace of fewer dimensions: pass their coordinates on it (see linear_image)"
        )
    return out.clamp(min=0)


SLACK = 1e-6


def probabilities(p: Float[Tensor, "*batch n"], what: str = "a distribution") -> Float[Tensor, "*batch n"]:
    """`p` if its last axis holds probabilities that add up to one (to 1e-6); else an error."""
    require_finite(p, what)
    if p.shape[-1] == 0 or bool((p < 0).any()):
        raise ArgumentError(f"{what} needs at least one probability and none below 0, found {_worst(p)}")
    total = p.sum(-1)
    if bool(((total - 1).abs() > SLACK).any()):
        worst = float(total.flatten()[(total - 1).abs().argmax()])
        raise ArgumentError(
            f"{what} needs probabilities that add up to 1, found a sum of {worst:.6g}; divide by the sum"
        )
    return p


def _worst(p: Tensor) -> str:
    return f"{float(p.min()):.3g}" if p.numel() else "none"


def discrete_entropy(p: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    """H(p) along the last axis; in [0, log n], log n for the uniform distribution."""
    out: Tensor = torch.special.entr(probabilities(p)).sum(-1).clamp(min=0)
    return out


def discrete_kl(p: Float[Tensor, "*batch n"], q: Float[Tensor, "*batch2 n"]) -> Float[Tensor, "*out"]:
    """KL(p || q) along the last axis; in [0, inf], 0 for equal distributions, inf where q is 0 and p is not."""
    p, q = probabilities(p, "the first distribution"), probabilities(q, "the second distribution")
    # sum p log(p/q) - p + q term by term: every term is >= 0, so that equal distributions cancel exactly.
    return torch.where(p > 0, torch.xlogy(p, p / torch.where(p > 0, q, 1.0)) - p + q, q).sum(-1).clamp(min=0)


def discrete_jsd(p: Float[Tensor, "*batch n"], q: Float[Tensor, "*batch2 n"]) -> Float[Tensor, "*out"]:
    """Jensen-Shannon divergence along the last axis; in [0, log 2], log 2 for distributions that share no outcome.

    References
    ----------
    Lin (1991), Divergence measures based on the Shannon entropy.
    """
    p, q = probabilities(p, "the first distribution"), probabilities(q, "the second distribution")
    middle = (p + q) / 2
    return (0.5 * (discrete_kl(p, middle) + discrete_kl(q, middle))).clamp(max=math.log(2))


def _log_softmaxes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"two softmaxes need one number of logits, found {x.shape[-1]} and {y.shape[-1]}")
    require_finite(x, "logits")
    require_finite(y, "logits")
    return torch.log_softmax(x.double(), -1), torch.log_softmax(y.double(), -1)


def kl_of_softmax(x: Float[Tensor, "*#batch n"], y: Float[Tensor, "*#batch m"]) -> Float[Tensor, "*#batch"]:
    """KL(softmax x || softmax y) over the last axis, in nats: log E e^(y - x) - E (y - x), means under softmax x.

    >= 0, 0 where x and y differ by a constant.
    """
    p, q = _log_softmaxes(x, y)
    return (p.exp() * (p - q)).sum(-1).clamp(min=0)


def jsd_of_softmax(x: Float[Tensor, "*#batch n"], y: Float[Tensor, "*#batch m"]) -> Float[Tensor, "*#batch"]:
    """Jensen-Shannon divergence of softmax x and softmax y, in nats; in [0, log 2], its root is a metric."""
    p, q = _log_softmaxes(x, y)
    m = torch.logaddexp(p, q) - math.log(2)
    return 0.5 * (p.exp() * (p - m) + q.exp() * (q - m)).sum(-1).clamp(0, 2 * math.log(2))
