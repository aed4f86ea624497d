"""How flat attention is over given queries and keys: of the model, or of the Gaussian picture.

The predicted entropy is that of attention over sequences drawn from the fitted Gaussian: every token's query and key
with their joint covariance and their position's means, tokens independent of one another. Drawing avoids any
approximation of a softmax; its error is that of the number of rows.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.heads import Heads
from headspan.heads.logits import relative_rotation
from headspan.lenses.gaussian.pairs import QueriesAndKeys

AT_ONCE = 16
"""Sequences whose patterns are held at a time."""


def row_entropies(heads: Heads, layer: int, sample: QueriesAndKeys) -> Float[Tensor, "sequence head position"]:
    """Entropy in nats of every row of the attention over these queries and keys, turned to their positions.

    In [0, log n] for a row that sees n keys; log n for uniform attention. Position terms, caps and sinks are left out.
    """
    q, k, n = sample.q, sample.k, sample.q.shape[2]
    if heads.stack.rotary:
        turns = torch.stack([bilinear_form(heads, layer, place, scaled=False) for place in range(n)])
        q, k = (torch.einsum("shpd,pde->shpe", side, turns) for side in (q, k))
    unseen = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1) if heads.stack.causal else None
    found = []
    for first in range(0, len(q), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        scores = heads.stack.scale[layer] * q[part] @ k[part].mT
        scores = scores if unseen is None else scores.masked_fill(unseen, -torch.inf)
        found.append(torch.special.entr(scores.softmax(-1)).sum(-1))
    return torch.cat(found)


def bilinear_form(heads: Heads, layer: int, delta: int, scaled: bool = True) -> Float[Tensor, "d_head d_head"]:
    """scale * R_delta: a logit is q times it times k."""
    R = relative_rotation(heads, delta, [layer])
    turn = torch.eye(heads.d_head, dtype=torch.float64, device=heads.device) if R is None else R[0, 0].double()
    return heads.stack.scale[layer] * turn if scaled else turn


def uniform_entropy(length: int, causal: bool) -> float:
    """Mean entropy of the rows of uniform attention: of log 1 .. log n, or log n."""
    rows = torch.arange(1, length + 1) if causal else torch.tensor([length])
    return float(rows.double().log().mean())
