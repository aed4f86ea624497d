"""What sums up a head's attention over a prompt, each number beside that of a head that looks everywhere alike.

Over the queries i that have a choice (all but the first, if causal):

- `entropy` -sum_j A_ij log A_ij in nats, from exact logarithms, and `relative_entropy`, its ratio to log of the number
  of keys in reach: 0 for one key, 1 for all alike;
- `effective_positions` exp of the entropy;
- `self_mass`, `previous_mass`, `first_mass`: attention to the query itself, the position before, the first position;
- `sink_mass`: the most that any single position receives on average from the others, and `sink_position`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.runtime import Forward

MASSES = ("self_mass", "previous_mass", "first_mass", "sink_mass")
STATISTICS = ("entropy", "relative_entropy", "effective_positions", *MASSES)

Statistics = dict[str, Tensor]


def head_statistics(run: Forward) -> Statistics:
    """Every statistic of `STATISTICS` and `sink_position`, as [depth, head], for the first sequence of a run."""
    layers = [
        pattern_statistics(attention.pattern[0].double(), run.log_pattern(place)[0].double(), run.model.causal)
        for place, attention in enumerate(run.runs)
    ]
    return {name: torch.stack([layer[name] for layer in layers]) for name in layers[0]}


def pattern_statistics(
    pattern: Float[Tensor, "head query key"], logs: Float[Tensor, "head query key"], causal: bool
) -> Statistics:
    """The statistics of patterns with known logarithms, [head] each; NaN where no query has a choice."""
    n = pattern.shape[-1]
    first = 1 if causal else 0
    if n == 1:
        return {name: torch.full(pattern.shape[:1], torch.nan) for name in (*STATISTICS, "sink_position")}
    entropy = row_entropy(logs)[:, first:]
    reach = torch.arange(first + 1, n + 1) if causal else torch.full((n,), n)
    received = _received(pattern, first)
    return {
        "entropy": entropy.mean(-1),
        "relative_entropy": (entropy / reach.double().log()).mean(-1),
        "effective_positions": entropy.exp().mean(-1),
        "self_mass": pattern.diagonal(dim1=-2, dim2=-1)[:, first:].mean(-1),
        "previous_mass": pattern.diagonal(offset=-1, dim1=-2, dim2=-1).mean(-1),
        "first_mass": pattern[:, 1:, 0].mean(-1),
        "sink_mass": received.amax(-1),
        "sink_position": received.argmax(-1).double(),
    }


def row_entropy(logs: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """-sum p log p of distributions given by log p, in nats: 0 to log of the number of keys."""
    return -torch.where(torch.isneginf(logs), 0.0, logs.exp() * logs).sum(-1)


def _received(pattern: Float[Tensor, "head query key"], first: int) -> Float[Tensor, "head key"]:
    """What each position receives on average from the counted queries other than itself."""
    others = 1 - torch.eye(pattern.shape[-1], dtype=pattern.dtype)
    rows = others[first:]
    return (pattern[:, first:] * rows).sum(-2) / rows.sum(-2).clamp(min=1)


def uniform_pattern(n: int, causal: bool) -> Float[Tensor, "1 n n"]:
    """The pattern of a head that looks at every position in its reach alike."""
    allowed = torch.ones(1, n, n, dtype=torch.float64)
    allowed = allowed.tril() if causal else allowed
    return allowed / allowed.sum(-1, keepdim=True)


def uniform_statistics(n: int, causal: bool) -> dict[str, float]:
    """The statistics of `uniform_pattern`: what chance means for each of them."""
    pattern = uniform_pattern(n, causal)
    found = pattern_statistics(pattern, pattern.log(), causal)
    return {name: float(values[0]) for name, values in found.items()}
