"""Chapter 8 of the thesis, its appendix A and chapter 9: pooled maps, scaled spectra, and what random weights give."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headspan.distributions import attention_pattern, expected_entropy, softmax_entropy
from headspan.ledger.claim import check
from headspan.ledger.running import scaled_first_layer
from headspan.ledger.trial import Draws, Evidence, at_least, at_most, equals, evidence, mean_is, near, same
from headspan.lenses.words import LEFT_OUT, Groups, left_out_mass, pooled
from headspan.statistics import mp_edges
from headspan.subspaces import singular_values

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint


@check("8.2a")
def pooling(draws: Draws) -> Evidence:
    # Sub-words of a word need not stand together, and a special token belongs to none.
    whole = Groups(("a", "b", "c", "d"), (0, 0, 1, 2, 1, 2, 2, 3))
    partial = Groups(("a", "b", "c"), (LEFT_OUT, 0, 1, 2, 1, 2, 2, 0))
    A = attention_pattern(draws.normal(8, 6), draws.normal(6, 6), draws.normal(6, 6), causal=True)
    summed, averaged, short = pooled(A, whole, "sum"), pooled(A, whole, "mean"), pooled(A, partial, "mean")
    members = [[token for token, own in enumerate(whole.of_token) if own == word] for word in range(4)]
    by_hand = torch.stack([torch.stack([A[rows][:, columns].sum() for columns in members]) for rows in members])
    sizes = torch.tensor([float(len(each)) for each in members], dtype=torch.float64)
    return evidence(
        same("word to word, added up by hand", summed, by_hand, 1e-12),
        equals("total", summed.sum(), A.sum(), 1e-12),
        same("row sums are counts of sub-words", summed.sum(-1), sizes, 1e-12),
        same("row sums after averaging", averaged.sum(-1), 1.0, 1e-12),
        at_most("row sums with a token left out", short.sum(-1).min(), 0.99),
        same("the same with what it takes", short.sum(-1) + left_out_mass(A, partial), 1.0, 1e-12),
    )


@check("8.4")
def random_model(draws: Draws) -> Evidence:
    n, d, k, heads, groups = 32, 4096, 128, 32, 8
    x = draws.sphere(n, d, radius=math.sqrt(d)).float()
    queries = x @ draws.normal(d, heads * k, sd=0.02).float()
    keys = x @ draws.normal(d, groups * k, sd=0.02).float()
    queries, keys = queries.reshape(n, heads, k).transpose(0, 1), keys.reshape(n, groups, k).transpose(0, 1)
    logits = (queries @ keys.repeat_interleave(heads // groups, 0).mT / math.sqrt(k)).double()
    predicted = (d * 0.02**2) ** 2
    expected = float(expected_entropy(torch.tensor(predicted), torch.tensor(n))) / math.log(n)
    mean = torch.softmax(logits, -1).mean(0)
    return evidence(
        near("variance of logits", logits.var(), predicted, 0.05),
        equals("entropy of a head over log n", softmax_entropy(logits).mean() / math.log(n), expected, 0.02),
        at_least("entropy of the mean of heads", torch.special.entr(mean).sum(-1).mean() / math.log(n), 0.96),
    )


@check("8.5a")
def scaled_spectra(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    alpha = 1.7
    before, after, values, changed = scaled_first_layer(checkpoint, alpha, draws.seed())
    size = float(before.abs().max())
    return evidence(
        same("logits of the running model, over alpha^2", after / alpha**2, before, 1e-5 * size),
        same("singular values of its W_Q and W_K, over alpha", changed / alpha, values, 1e-5 * float(values.max())),
        at_least("largest change of a logit", (after - before).abs().max(), 0.5 * size),
    )


def _patterns(draws: Draws, runs: int, n: int, alpha: float, tied: bool = False) -> Tensor:
    """Causal attention [runs, n, n] of normal tokens on the sphere of radius sqrt d, weights scaled by alpha."""
    d = 64
    x = draws.sphere(runs, n, d, radius=math.sqrt(d))
    W_Q = draws.normal(runs, d, d, sd=1 / math.sqrt(d))
    W_K = W_Q if tied else draws.normal(runs, d, d, sd=1 / math.sqrt(d))
    return attention_pattern(x, alpha * W_Q, alpha * W_K, causal=True)


@check("8.5b")
def sharpening(draws: Draws) -> Evidence:
    x, W_Q, W_K = draws.sphere(64, 64, radius=8.0), draws.normal(64, 64, sd=1 / 8), draws.normal(64, 64, sd=1 / 8)
    logits = x @ W_Q @ W_K.T @ x.T / 8
    alpha = torch.tensor([0.25, 0.5, 1.0, 2.0, 4.0], dtype=torch.float64)
    found = softmax_entropy(alpha[:, None, None] ** 2 * logits).mean(-1) / math.log(64)
    return evidence(
        at_most("largest change from one alpha to the next", found.diff().max(), 0.0),
        at_least("alpha = 1/4", found[0], 0.99),
        at_most("alpha = 4", found[4], 0.15),
        figures={"alpha = 1": found[2], "alpha = 2": found[3]},
    )


@check("8.5c")
def self_attention(draws: Draws) -> Evidence:
    n, runs = 64, 200
    expected = float((1 / torch.arange(1, n + 1).double()).mean())
    found = {alpha: _patterns(draws, runs, n, alpha) for alpha in (1.0, 2.0, 4.0)}
    own = {alpha: A.diagonal(dim1=-2, dim2=-1).mean(-1) for alpha, A in found.items()}
    tied = _patterns(draws, 20, n, 4.0, tied=True).diagonal(dim1=-2, dim2=-1).mean()
    return evidence(
        *(mean_is(f"share on oneself at alpha = {alpha:g}", value, expected) for alpha, value in own.items()),
        at_least("largest share of a row at alpha = 4", found[4.0].amax(-1).mean(), 0.8),
        at_least("share on oneself, tied weights", tied, 0.95),
        printed=[at_least("share on oneself at alpha = 4", own[4.0].mean(), 0.5)],
    )


@check("A.19")
def initial_spectra(draws: Draws) -> Evidence:
    low, high = mp_edges(1024, 4096, 0.02)
    sd = math.sqrt(2 / 1280)
    s = singular_values(draws.normal(256, 1024, sd=sd)) ** 2
    small, large = (edge**2 for edge in mp_edges(256, 1024, sd))
    return evidence(
        equals("lower edge of K and V", low**2, 0.41, 0.005),
        equals("upper edge of K and V", high**2, 3.69, 0.005),
        equals("upper edge of Q", mp_edges(4096, 4096, 0.02)[1] ** 2, 6.55, 0.005),
        near("largest, 1 : 4, Xavier", s[0], large, 0.05),
        near("smallest", s[-1], small, 0.1),
        near("mean", s.mean(), 1.6, 0.05),
    )


@check("9.1")
def radius_and_trace(draws: Draws) -> Evidence:
    n = 64
    radius = draws.normal(20_000, n).norm(dim=-1).mean()
    traces = (draws.normal(20_000, 12, 12) * draws.normal(20_000, 12, 12)).sum((-2, -1))
    return evidence(
        near("radius of N(0, 1), n = 64", radius, math.sqrt(n), 0.01),
        near("radius of N(0, 1/n)", radius / math.sqrt(n), 1.0, 0.01),
        mean_is("share of traces below 0", (traces < 0).double(), 0.5),
        printed=[near("radius of N(0, 1), n = 64", radius, 1 / n, 0.01), at_least("smallest trace", traces.min(), 0.0)],
    )
