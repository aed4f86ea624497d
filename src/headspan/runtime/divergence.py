"""Entropy and divergence of attention from exact logarithms: right also where a probability rounds to zero.

A sink's column counts where a model has one, so that rows sum to 1.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import HeadspanError
from headspan.runtime import Forward

Logs = Float[Tensor, "batch head query key"]


def full_logs(run: Forward, place: int) -> Logs:
    """Log-probabilities of one attention, with the column of its sinks where it has any: rows sum to 1."""
    scores = run.runs[place].scores
    if scores is None:
        raise HeadspanError("exact divergences need a run that kept its scores; run forward(..., scores=True)")
    logs = torch.log_softmax(scores.double(), dim=-1)
    return logs.masked_fill(logs < torch.finfo(torch.float32).min / 4, -torch.inf)


def row_entropy(logs: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """-sum p log p of distributions given by log p, in nats: 0 to log of the number of keys."""
    return -torch.where(torch.isneginf(logs), 0.0, logs.exp() * logs).sum(-1)


def kl_rows(p: Float[Tensor, "*batch key"], q: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """KL(p || q) of distributions given by their logarithms, in nats: 0 if equal, infinite where q lacks what p has."""
    gaps = torch.where(torch.isneginf(p), 0.0, p.exp() * (p - q))
    return gaps.sum(-1).clamp(min=0)


def js_rows(p: Float[Tensor, "*batch key"], q: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """Jensen-Shannon divergence of distributions given by their logarithms, in nats: in [0, log 2]."""
    middle = torch.logaddexp(p, q) - math.log(2.0)
    return 0.5 * (kl_rows(p, middle) + kl_rows(q, middle))
