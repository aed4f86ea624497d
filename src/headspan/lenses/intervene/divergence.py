r"""How attention under an intervention differs from attention without it.

Over the queries that have a choice (all but the first, if causal), from exact logarithms, a sink's column included:

- `kl` KL(p || q) = sum_j p_j log(p_j / q_j) of the unmodified pattern p from the modified q, in nats: 0 or more;
- `jsd` the Jensen-Shannon divergence, (KL(p || m) + KL(q || m)) / 2 with m = (p + q) / 2: in [0, log 2];
- `self_mass` A_ii and `argmax_mass` max_j A_ij: scaling logits up moves attention to the latter, not to the former.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ShapeError
from headspan.lenses.attention.statistics import row_entropy
from headspan.runtime import Forward

Logs = Float[Tensor, "batch head query key"]


def full_logs(run: Forward, place: int) -> Logs:
    """Log-probabilities of one attention, with the column of its sinks where it has any: rows sum to 1."""
    scores = run.runs[place].scores
    if scores is None:
        raise ShapeError("exact divergences need a run that kept its scores; run forward(..., scores=True)")
    logs = torch.log_softmax(scores.double(), dim=-1)
    return logs.masked_fill(logs < torch.finfo(torch.float32).min / 4, -torch.inf)


def kl_rows(p: Float[Tensor, "*batch key"], q: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """KL(p || q) of distributions given by their logarithms, in nats: 0 if equal, infinite where q lacks what p has."""
    gaps = torch.where(torch.isneginf(p), 0.0, p.exp() * (p - q))
    return gaps.sum(-1).clamp(min=0)


def js_rows(p: Float[Tensor, "*batch key"], q: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """Jensen-Shannon divergence of distributions given by their logarithms, in nats: in [0, log 2]."""
    middle = torch.logaddexp(p, q) - math.log(2.0)
    return 0.5 * (kl_rows(p, middle) + kl_rows(q, middle))


def attention_measures(run: Forward, plain: Forward) -> dict[str, Float[Tensor, "depth head"]]:
    """Entropies, divergences from `plain`, and masses of every head; NaN where no query has a choice."""
    layers = [_layer(run, plain, place) for place in range(len(run.runs))]
    return {name: torch.stack([layer[name] for layer in layers]) for name in layers[0]}


def _layer(run: Forward, plain: Forward, place: int) -> dict[str, Tensor]:
    first = 1 if run.model.causal else 0
    q, p = (full_logs(each, place)[:, :, first:].cpu() for each in (run, plain))
    pattern = run.runs[place].pattern.double().cpu()
    entropy = row_entropy(q)
    reach = _reach(run, first)
    return {
        "entropy": entropy.mean((0, 2)),
        "relative_entropy": (entropy / reach.log()).mean((0, 2)),
        "kl": kl_rows(p, q).mean((0, 2)),
        "jsd": js_rows(p, q).mean((0, 2)),
        "self_mass": pattern.diagonal(dim1=-2, dim2=-1)[..., first:].mean((0, 2)),
        "argmax_mass": pattern[:, :, first:].amax(-1).mean((0, 2)),
    }


def averaged_relative_entropy(run: Forward) -> Float[Tensor, " depth"]:
    """Entropy of the heads' mean pattern over log of the keys in reach: in [0, 1], 1 for uniform attention.

    Never less than the mean of the heads' own: entropy is concave, so averaging heads hides how sharp each one is.
    """
    first, found = (1 if run.model.causal else 0), []
    for attention in run.runs:
        mean = attention.pattern.double().mean(1)[:, first:].cpu()
        found.append((row_entropy(mean.log()) / _reach(run, first).log()).mean())
    return torch.stack(found)


def _reach(run: Forward, first: int) -> Float[Tensor, " query"]:
    n = run.tokens.shape[1]
    reach = torch.arange(first + 1, n + 1) if run.model.causal else torch.full((n,), n)
    return reach.double()
