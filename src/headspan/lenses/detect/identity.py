"""Identity heads from the weights: does what a head writes look like what it read, or like its opposite?

The score is Tr(W_V W_O) / (sqrt(d_head) ||W_V W_O||_F), in [-1, 1] because a matrix of rank d_head has a trace of at
most sqrt(d_head) times its Frobenius norm: 1 where a head copies every direction it reads, -1 where it takes away what
is there. With random weights it is 0 with standard deviation 1 / sqrt(d_model d_head). The sign is kept: the published
identity heads of GPT-2 are strongly negative, L4H7 the lowest of all 144.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.heads import Heads


def identity_scores(heads: Heads, memory: int | str = "1GB") -> Float[Tensor, "layer head"]:
    """The signed identity score of every head.

    Parameters
    ----------
    heads
        Any heads; in grouped models W_V of a head is that of the kv head it reads.
    memory
        Budget for one block of layers.

    Returns
    -------
    Tensor [layer, head], float64
        In [-1, 1]; by chance 0 with standard deviation `identity_chance_sd`. NaN for a head that writes nothing.
    """
    found = []
    for block in heads.blocks(memory, ("V", "O")):
        W_V, W_O = heads.per_query_head(block.W_V.double()), block.W_O.double()
        trace = torch.einsum("lhdv,lhvd->lh", W_V, W_O)
        # ||W_V W_O||_F^2 = Tr(W_V^T W_V W_O W_O^T), from matrices of d_head x d_head.
        squares = torch.einsum("lhvw,lhwv->lh", W_V.mT @ W_V, W_O @ W_O.mT)
        found.append(trace / (heads.d_value * squares).sqrt())
    return torch.cat(found)


def identity_chance_sd(heads: Heads) -> float:
    """Standard deviation of the identity score for random weights: 1 / sqrt(d_model d_head)."""
    return float((heads.d_model * heads.d_value) ** -0.5)
