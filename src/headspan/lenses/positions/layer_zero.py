r"""What the first layer's logits are made of: token and position of the query against token and position of the key.

What layer 0 reads of a token at a position is x = x_t + x_p + x_c, exactly (`heads.entry`): from the token, from the
position, and a constant. So a logit is a sum of nine products, of which four have names and the five with a constant,
the biases of query and key included, are one. A softmax ignores what all keys of a query have in common, so variances
are taken over keys within each query:

    share of term = sum over queries of Cov_keys(term, logit) / sum over queries of Var_keys(logit).

Shares add up to 1; one is negative where a term works against the others. Tokens are drawn uniformly from the
vocabulary and positions from the context, keys of a causal model from the query's position or before. Null: a head
with independent normal W_Q and W_K and no biases, which reads the same x. Its expected covariances have the closed form
sum_q (x_a . x)(q) tr Cov_keys(y_b, y); its spread is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import MissingTensor
from headspan.heads import Heads
from headspan.heads.embeddings import first_read

DRAWS = 32
PARTS_OF_SAMPLE = 8
"""Parts of a sample whose spread gives the standard error of shares."""


@dataclass(frozen=True)
class LogitShares:
    """Shares [head, term] of layer 0, their sampling error, mean and sd under the null, and the size of the logits."""

    share: Float[np.ndarray, "head term"]
    share_se: Float[np.ndarray, "head term"]
    """Standard error of the shares: what another sample of tokens and positions would change."""
    null: Float[np.ndarray, " term"]
    null_sd: Float[np.ndarray, " term"]
    logit_sd: Float[np.ndarray, " head"]
    """Root mean variance over keys within a query, in units of logits."""


@dataclass(frozen=True)
class Sample:
    """What a number of queries and of keys read, split [part, sample, d_model], and which keys each query sees."""

    queries: Float[Tensor, "three n d"]
    keys: Float[Tensor, "three m d"]
    visible: Float[Tensor, "n m"]


def logit_obstacle(heads: Heads) -> str | None:
    """Why the logits of layer 0 cannot be taken apart, in one line; None where they can."""
    if 0 not in heads.layers:
        return "layer 0 is not among these layers"
    if heads.stack.query_norm is not None:
        return "queries and keys are normalized before their product"
    try:
        first_read(heads)
    except MissingTensor as problem:
        return str(problem)
    return None


def logit_shares(
    heads: Heads, W_E: Float[Tensor, "token d"], W_pos: Float[Tensor, "position d"], samples: int, seed: int
) -> LogitShares:
    """The shares of every head of layer 0, from `samples` queries and as many keys."""
    plain = heads.refolded("none")
    sample = draw_sample(plain, W_E, W_pos, samples, seed)
    block = plain.layer(0, ("Q", "K"))
    W_Q, W_K = block.W_Q[0].double(), plain.per_query_head(block.W_K)[0].double()
    b_Q = None if block.b_Q is None else block.b_Q[0].double()
    b_K = None if block.b_K is None else plain.per_query_head(block.b_K)[0].double()
    scale = heads.stack.scale[0]
    rows, errors, sizes = [], [], []
    for head in range(heads.n_heads):
        queries = _projected(sample.queries, W_Q[head], None if b_Q is None else b_Q[head])
        keys = _projected(sample.keys, W_K[head], None if b_K is None else b_K[head])
        covariance, variance = _covariances(queries * scale, keys, sample.visible)
        rows.append(_terms(covariance))
        errors.append(_standard_error(queries, keys, sample.visible))
        sizes.append(float((variance / sample.visible.sum()).sqrt()))
    return LogitShares(
        share=_normalized(np.stack(rows)),
        share_se=np.stack(errors),
        null=_normalized(_terms(_expected(sample))),
        null_sd=_spread(sample, W_Q.shape[-1], seed),
        logit_sd=np.array(sizes),
    )


def draw_sample(
    heads: Heads, W_E: Float[Tensor, "token d"], W_pos: Float[Tensor, "position d"], samples: int, seed: int
) -> Sample:
    """Uniformly drawn tokens and positions, as layer 0 reads them."""
    generator, read = torch.Generator().manual_seed(seed), first_read(heads)
    sides, places = [], []
    for _ in range(2):
        tokens = torch.randint(len(W_E), (samples,), generator=generator)
        positions = torch.randint(len(W_pos), (samples,), generator=generator)
        sides.append(torch.stack(read.split(W_E[tokens].double(), W_pos[positions].double())))
        places.append(positions)
    visible = (places[1][None, :] <= places[0][:, None]).to(sides[0].device)
    return Sample(sides[0], sides[1], (visible if heads.stack.causal else torch.ones_like(visible)).double())


def _projected(parts: Float[Tensor, "three n d"], W: Float[Tensor, "d d_head"], bias: Tensor | None) -> Tensor:
    out = parts @ W
    if bias is not None:
        out[2] += bias
    return out


def _covariances(
    queries: Float[Tensor, "three n d_head"], keys: Float[Tensor, "three m d_head"], visible: Float[Tensor, "n m"]
) -> tuple[Float[Tensor, "three three"], Tensor]:
    """Sum over queries and visible keys of each term times the logit less its mean over the query's keys."""
    logits = queries.sum(0) @ keys.sum(0).mT
    count = visible.sum(1, keepdim=True).clamp(min=1)
    spread = (logits - (logits * visible).sum(1, keepdim=True) / count) * visible
    # sum_qk (q_a . k_b) spread_qk, without forming the nine tables of products.
    covariance = torch.einsum("aqh,bqh->ab", queries, spread @ keys)
    return covariance, spread.square().sum()


def _standard_error(
    queries: Float[Tensor, "three n d_head"], keys: Float[Tensor, "three m d_head"], visible: Float[Tensor, "n m"]
) -> Float[np.ndarray, " term"]:
    """Of the shares over samples: the spread over parts of the sample that share neither queries nor keys.

    A part of 1/G of the queries and of the keys has G times the variance of the whole. NaN for fewer than two parts of
    16 queries.
    """
    parts = min(PARTS_OF_SAMPLE, queries.shape[1] // 16)
    if parts < 2:
        return np.full(5, np.nan)
    found = [
        _terms(_covariances(queries[:, part::parts], keys[:, part::parts], visible[part::parts, part::parts])[0])
        for part in range(parts)
    ]
    error: np.ndarray = _normalized(np.stack(found)).std(axis=0, ddof=1) / parts**0.5
    return error


def _expected(sample: Sample) -> Float[Tensor, "three three"]:
    """The same covariances on average over normal bilinear forms, up to a factor."""
    x, y, visible = sample.queries.sum(0), sample.keys.sum(0), sample.visible
    count = visible.sum(1).clamp(min=1)
    weight = (sample.queries * x).sum(-1)
    inner = visible @ (sample.keys * y).sum(-1).mT
    means = ((visible @ sample.keys) * (visible @ y)).sum(-1) / count
    return torch.einsum("aq,qb->ab", weight, inner - means.mT)


def _spread(sample: Sample, d_head: int, seed: int) -> Float[np.ndarray, " term"]:
    """Standard deviation of the shares over random heads."""
    generator, rows = torch.Generator().manual_seed(seed + 1), []
    shape = (2, sample.queries.shape[-1], d_head)
    for _ in range(DRAWS):
        W_Q, W_K = torch.randn(shape, generator=generator, dtype=torch.float64).to(sample.queries.device)
        covariance, _ = _covariances(sample.queries @ W_Q, sample.keys @ W_K, sample.visible)
        rows.append(_terms(covariance))
    spread: np.ndarray = np.std(_normalized(np.stack(rows)), axis=0)
    return spread


def _terms(covariance: Float[Tensor, "three three"]) -> Float[np.ndarray, " term"]:
    c = covariance.cpu().numpy()
    return np.array([c[0, 0], c[0, 1], c[1, 0], c[1, 1], c[2].sum() + c[:2, 2].sum()])


def _normalized(terms: Float[np.ndarray, "*head term"]) -> Float[np.ndarray, "*head term"]:
    """Terms over their sum; NaN for a head whose logits do not vary."""
    total = terms.sum(-1, keepdims=True)
    return np.where(total > 0, terms / np.where(total > 0, total, 1.0), np.nan)
