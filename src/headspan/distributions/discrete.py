r"""Entropy, Kullback-Leibler and Jensen-Shannon divergence of discrete distributions, in nats.

    H(p) = -sum p log p,   KL(p || q) = sum p log(p / q),   JSD(p, q) = [KL(p || m) + KL(q || m)] / 2,  m = (p + q) / 2,

with 0 log 0 = 0. The square root of JSD is a metric, JSD itself is not (Endres and Schindelin 2003).

Distributions are given as probabilities, or as the logits of a softmax (`kl_of_softmax`, `jsd_of_softmax`).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces.precision import require_finite

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
