"""How flat attention is over given queries and keys: of the model, or of the Gaussian picture.

The predicted entropy is that of attention over sequences drawn from the fitted Gaussian: every token's query and key
with their joint covariance and their position's means, tokens independent of one another. Drawing avoids any
approximation of a softmax; its error is that of the number of rows.

How much neighboring tokens of the stream say about each other, if it is taken to be Gaussian.

The stream has more dimensions than can be fitted, so the leading principal components stand for it: as linear maps they
can only lose information, and the value is a lower bound (of the Gaussian picture's). The null is the same estimate for
tokens of different sequences, as far apart: they have only their places in common.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions import information_estimate
from headspan.heads import Heads
from headspan.heads.logits import relative_rotation
from headspan.lenses.gaussian.pairs import QueriesAndKeys


def row_entropies(heads: Heads, layer: int, sample: QueriesAndKeys) -> Float[Tensor, "sequence head position"]:
    """Entropy in nats of every row of the attention over these queries and keys, turned to their positions.

    In [0, log n] for a row that sees n keys; log n for uniform attention. Position terms, caps and sinks are left out.
    """
    q, k, n = sample.q, sample.k, sample.q.shape[2]
    if heads.stack.rotary:
        turns = torch.stack([bilinear_form(heads, layer, place, scaled=False) for place in range(n)])
        q, k = (torch.einsum("shpd,pde->shpe", side, turns) for side in (q, k))
    scores = heads.stack.scale[layer] * q @ k.mT
    if heads.stack.causal:
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
    entropy: Tensor = torch.special.entr(scores.softmax(-1)).sum(-1)
    return entropy


def bilinear_form(heads: Heads, layer: int, delta: int, scaled: bool = True) -> Float[Tensor, "d_head d_head"]:
    """scale * R_delta: a logit is q times it times k."""
    R = relative_rotation(heads, delta, [layer])
    turn = torch.eye(heads.d_head, dtype=torch.float64) if R is None else R[0, 0].double()
    return heads.stack.scale[layer] * turn if scaled else turn


def uniform_entropy(length: int, causal: bool) -> float:
    """Mean entropy of the rows of uniform attention: of log 1 .. log n, or log n."""
    rows = torch.arange(1, length + 1) if causal else torch.tensor([length])
    return float(rows.double().log().mean())


COMPONENTS = 16
PER_SAMPLE = 20
"""Samples wanted for every component of both sides."""


def leading_components(reads: Float[Tensor, "sequence position d"]) -> Float[Tensor, "sequence position k"]:
    """The reads on their first principal axes: 16, or as many as the number of samples supports."""
    flat = reads.double().flatten(0, 1)
    k = max(1, min(COMPONENTS, len(flat) // (2 * PER_SAMPLE), flat.shape[1]))
    centered = flat - flat.mean(0)
    vectors: Tensor = torch.linalg.eigh(centered.mT @ centered)[1][:, -k:]
    return (centered @ vectors).reshape(*reads.shape[:2], k)


def information_at(
    components: Float[Tensor, "sequence position k"], distance: int, related: bool = True
) -> Float[Tensor, ""]:
    """Nats between tokens so far apart, corrected for bias; 0 under the null, which is had with `related=False`."""
    x, y = components[:, distance:], components[:, : components.shape[1] - distance]
    if not related:
        y = y.roll(1, dims=0)
    return information_estimate(x.flatten(0, 1), y.flatten(0, 1))
