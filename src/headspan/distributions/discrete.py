r"""Entropy, Kullback-Leibler and Jensen-Shannon divergence of discrete distributions, in nats.

    H(p) = -sum p log p,   KL(p || q) = sum p log(p / q),   JSD(p, q) = [KL(p || m) + KL(q || m)] / 2,  m = (p + q) / 2,

with 0 log 0 = 0. The square root of JSD is a metric, JSD itself is not (Endres and Schindelin 2003).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ShapeError
from headspan.subspaces.precision import require_finite

SLACK = 1e-6


def probabilities(p: Float[Tensor, "*batch n"], what: str = "a distribution") -> Float[Tensor, "*batch n"]:
    """`p` if its last axis holds probabilities that add up to one (to 1e-6); else an error."""
    require_finite(p, what)
    if p.shape[-1] == 0 or bool((p < 0).any()):
        raise ShapeError(f"{what} needs at least one probability and none below 0, found {_worst(p)}")
    total = p.sum(-1)
    if bool(((total - 1).abs() > SLACK).any()):
        worst = float(total.flatten()[(total - 1).abs().argmax()])
        raise ShapeError(f"{what} needs probabilities that add up to 1, found a sum of {worst:.6g}; divide by the sum")
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
