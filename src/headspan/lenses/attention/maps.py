"""Attention maps and statistics of heads, each beside that of a head that attends everywhere alike.

Maps: heads averaged plainly and by what they write.
A plain average over heads counts a head that writes nothing as much as one that writes most; the other average weighs
head h at query i by ||A_h (x W_V) W_O|| at i over the sum of these norms.

Statistics, over the queries i that have a choice (all but the first, if causal):

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
from headspan.runtime.forward_pass import row_entropy

MASSES = ("self_mass", "previous_mass", "first_mass", "sink_mass")
STATISTICS = ("entropy", "relative_entropy", "effective_positions", *MASSES)

Statistics = dict[str, Tensor]


def write_shares(run: Forward) -> Float[Tensor, "depth position head"]:
    """Each head's part in the sum of the norms that all heads of a layer write, in [0, 1]; 1 / heads if all alike.

    Equal shares where nothing is written at all.
    """
    norms = run.write_norms()[0].cpu().double()
    total = norms.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, norms / total, torch.full_like(norms, 1 / norms.shape[-1]))


def write_average(
    pattern: Float[Tensor, "head query key"], shares: Float[Tensor, "query head"]
) -> Float[Tensor, "query key"]:
    """Mean over heads weighted at every query by `shares`; rows sum to 1."""
    weights = shares.to(pattern.dtype)
    average = torch.zeros_like(pattern[0])
    # Head by head: a map stays in the cache while it is added, and nothing of the pattern's size is made.
    for head, each in enumerate(pattern):
        average.addcmul_(each, weights[:, head, None])
    return average


def head_statistics(run: Forward) -> Statistics:
    """Every statistic of `STATISTICS` and `sink_position`, as [depth, head], for the first sequence of a run."""
    layers = [
        pattern_statistics(
            attention.pattern[0].cpu().double(), run.log_pattern(place)[0].cpu().double(), run.model.causal
        )
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


def _received(pattern: Float[Tensor, "head query key"], first: int) -> Float[Tensor, "head key"]:
    """What each position receives on average from the counted queries other than itself."""
    others = 1 - torch.eye(pattern.shape[-1], dtype=pattern.dtype)
    rows = others[first:]
    return (pattern[:, first:] * rows).sum(-2) / rows.sum(-2).clamp(min=1)


def uniform_pattern(n: int, causal: bool) -> Float[Tensor, "1 n n"]:
    """The pattern of a head that attends to every position in its reach alike."""
    allowed = torch.ones(1, n, n, dtype=torch.float64)
    allowed = allowed.tril() if causal else allowed
    return allowed / allowed.sum(-1, keepdim=True)


def uniform_statistics(n: int, causal: bool) -> dict[str, float]:
    """The statistics of `uniform_pattern`: what is expected of each of them under the null."""
    pattern = uniform_pattern(n, causal)
    found = pattern_statistics(pattern, pattern.log(), causal)
    return {name: float(values[0]) for name, values in found.items()}
