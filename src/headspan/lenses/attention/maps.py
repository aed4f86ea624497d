"""Attention maps: heads averaged plainly and by what they write, tokens pooled to words.

A plain average over heads counts a head that writes nothing as much as one that writes most; the other average weighs
head h at query i by ||A_h (x W_V) W_O|| at i over the sum of these norms. Pooling adds up over the keys of a word and
averages over its queries, so that rows of a map still sum to 1; the double sum, whose rows sum to the number of a
word's tokens, can be asked for.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.lenses.attention.words import LEFT_OUT, Groups
from headspan.runtime import Forward

Pooling = Literal["mean", "sum"]
POOLINGS: tuple[Pooling, ...] = ("mean", "sum")


def pooled(
    pattern: Float[Tensor, "*batch query key"], groups: Groups, pooling: Pooling = "mean"
) -> Float[Tensor, "*batch group group"]:
    """Attention between groups of tokens: summed over keys, averaged (or summed) over queries.

    Parameters
    ----------
    pattern
        Attention between tokens.
    groups
        Which tokens belong together; those left out count neither as query nor as key.
    pooling
        "mean" keeps rows that sum to 1 where no key is left out; "sum" gives rows that sum to a group's tokens.

    Returns
    -------
    Tensor
        float64, in [0, 1] for "mean". Chance for uniform attention: a group's share of the tokens in reach.
    """
    if groups.of_token == tuple(range(pattern.shape[-1])):
        return pattern.double()
    member = membership(groups)
    queries = member / member.sum(dim=0) if pooling == "mean" else member
    return queries.T @ (pattern.double() @ member)


def membership(groups: Groups) -> Float[Tensor, "token group"]:
    """1 where a token belongs to a group, else 0."""
    return (torch.tensor(groups.of_token)[:, None] == torch.arange(len(groups))).to(torch.float64)


def left_out_mass(pattern: Float[Tensor, "*batch query key"], groups: Groups) -> Float[Tensor, "*batch group"]:
    """The share of a group's attention that goes to tokens no group holds, in [0, 1]; 0 where none is left out."""
    member = membership(groups)
    outside = (torch.tensor(groups.of_token) == LEFT_OUT).to(torch.float64)
    return (pattern.double() @ outside) @ (member / member.sum(dim=0))


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
