r"""Gaussians of token embeddings: moments of a vector drawn from an embedding table.

A token of probability lambda_i has the embedding v_i, so the vector has mean mu = sum lambda_i v_i and covariance

    sum lambda_i v_i v_i^T - mu mu^T + eps I,

eps a noise floor for all that was left out. Weights enter once, not squared: stacking samples repeats a row as often as
it occurs, which scales it by sqrt(lambda). Without the floor the rank is at most k - 1 for k tokens.

Conditioning on the token before gives a bigram model: a Markov chain over tokens with transition matrix P, whose
vectors at distance l have E[x_i x_(i+l)^T] = V^T diag(pi_i) P^l V.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions.divergences import probabilities
from headspan.distributions.joint import JointGaussian
from headspan.errors import ArgumentError, ShapeError


def token_moments(
    V: Float[Tensor, "vocabulary d"],
    share: Float[Tensor, "*batch _vocabulary"],
    top: int | None = None,
    noise: float = 0.0,
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch d d"]]:
    """Mean and covariance of the embedding of a token drawn with probabilities `share`.

    Parameters
    ----------
    V
        Embeddings in rows.
    share
        Probabilities over the vocabulary; for a bigram model, the row of the token before.
    top
        Keep this many of the likeliest tokens, their probabilities scaled to 1; by default all.
    noise
        The floor eps >= 0.

    Returns
    -------
    mean, covariance
        The covariance is positive semidefinite, of rank at most top - 1 when noise is 0.
    """
    if share.shape[-1] != len(V):
        raise ShapeError(f"{len(V)} embeddings need as many probabilities, found {share.shape[-1]}")
    if noise < 0:
        raise ArgumentError(f"a noise floor is at least 0, found {noise}")
    share = probabilities(share, "the token distribution")
    if top is not None:
        if not 1 <= top <= len(V):
            raise ArgumentError(f"between 1 and {len(V)} tokens can be kept, found top={top}")
        kept, ids = share.topk(top, dim=-1)
        share, rows = kept / kept.sum(-1, keepdim=True), V[ids]
    else:
        rows = V.expand(*share.shape, V.shape[-1])
    mean = (share.unsqueeze(-1) * rows).sum(-2)
    centered = (rows - mean.unsqueeze(-2)) * share.sqrt().unsqueeze(-1)
    return mean, centered.mT @ centered + noise * torch.eye(V.shape[-1], dtype=V.dtype, device=V.device)


def bigram_joint(
    V: Float[Tensor, "vocabulary d"],
    start: Float[Tensor, " vocabulary"],
    P: Float[Tensor, "vocabulary _vocabulary"],
    n: int,
    noise: float = 0.0,
) -> JointGaussian:
    """The Gaussian with the moments of n embeddings along a Markov chain of tokens.

    Parameters
    ----------
    V
        Embeddings in rows.
    start, P
        Law of the first token, and of the next token in the row of each.
    n
        Length of the sequence.
    noise
        A floor eps added to every token's own covariance, independent from token to token.

    Returns
    -------
    JointGaussian
        Blocks V^T diag(pi_i) P^(j - i) V - mu_i mu_j^T for j >= i.
    """
    if n < 1:
        raise ArgumentError(f"a sequence has at least one token, found n={n}")
    P, laws = probabilities(P, "the transition matrix"), [probabilities(start, "the law of the first token")]
    for _ in range(n - 1):
        laws.append(laws[-1] @ P)
    mean, d = torch.stack(laws) @ V, V.shape[1]
    blocks = V.new_zeros(n, n, d, d)
    for i, law in enumerate(laws):
        ahead = V  # E[x_j | token i], row by row
        for j in range(i, n):
            block = (V * law[:, None]).T @ ahead - torch.outer(mean[i], mean[j])
            blocks[i, j], blocks[j, i] = block, block.T
            ahead = P @ ahead
        blocks[i, i] += noise * torch.eye(d, dtype=V.dtype, device=V.device)
    return JointGaussian(mean, blocks)
