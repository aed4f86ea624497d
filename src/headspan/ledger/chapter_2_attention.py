"""Chapter 2 of the thesis, sections 3 and 4: layer norm, positions, and attention itself."""

from __future__ import annotations

import math

import torch

from headspan.distributions import expected_norm
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, at_least, equals, mean_is, same, variance_is

claim = ClaimsOf("003")


@claim(
    "2.3a",
    kind="text",
    status="wrong",
    statement="Layer norm standardises each feature over the tokens, which by the central limit theorem become "
    "standard normal.",
    correction="It acts on the features of one token. And standardising never changes a shape: exponential values keep "
    "their skewness of 2.",
    tolerance="skewness 2 to 0.05 of a million values",
    reference="thesis 2.3",
)
def layer_norm(draws: Draws) -> Evidence:
    x = -torch.log1p(-draws.uniform(1_000_000))
    skewness = (((x - x.mean()) / x.std()) ** 3).mean()
    rows = torch.nn.functional.layer_norm(draws.normal(5, 16) * 3 + 2, (16,), eps=0.0)
    return Evidence(
        printed=(equals("skewness after standardising", skewness, 0.0, 0.05),),
        truth=(
            equals("skewness after standardising", skewness, 2.0, 0.05),
            same("means of tokens", rows.mean(1), 0.0, 1e-12),
            same("variances of tokens", rows.var(1, correction=0), 1.0, 1e-12),
        ),
    )


@claim(
    "2.3b",
    kind="text",
    status="holds",
    statement="Sinusoidal encodings make neighbours more alike.",
    correction="The product of two depends only on their distance, sum_k cos(w_k (i - j)); it falls at first, not "
    "always: for width 128 it rises again after distance 11.",
    tolerance="1e-10",
    reference="thesis 2.3",
)
def sinusoids(draws: Draws) -> Evidence:
    d, n = 128, 64
    w = 10_000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.arange(n, dtype=torch.float64)[:, None] * w
    table = torch.cat([angle.sin(), angle.cos()], 1)
    gap = torch.arange(n)[:, None] - torch.arange(n)
    by_lag = torch.cos(torch.arange(n, dtype=torch.float64)[:, None] * w).sum(1)
    cosine = by_lag / by_lag[0]
    turn = (cosine[1:] > cosine[:-1]).nonzero()[0, 0]
    return Evidence(
        truth=(
            same("products less sum of cosines", table @ table.T, by_lag[gap.abs()], 1e-10),
            equals("cosine of neighbours", cosine[1], 0.9702, 5e-5),
            equals("first rise after distance", turn, 11, 0),
        ),
        figures={"at distance 5": float(cosine[5]), "at distance 50": float(cosine[50])},
    )


@claim(
    "2.4a",
    kind="text",
    status="wrong",
    statement="sqrt(d_k) is the square root of the expected length of a standard normal vector.",
    correction="The length itself is near sqrt(d_k): sqrt2 Gamma((d+1)/2) / Gamma(d/2). The scale is there because a "
    "product of query and key has the standard deviation sqrt(d_k).",
    tolerance="4 standard errors",
    reference="thesis 2.4",
)
def scale_of_scores(draws: Draws) -> Evidence:
    d = 64
    q, k = draws.normal(2, 50_000, d)
    lengths = torch.linalg.vector_norm(q, dim=1)
    return Evidence(
        printed=(equals("root of the mean length", lengths.mean().sqrt(), math.sqrt(d), 0.1),),
        truth=(
            mean_is("length", lengths, expected_norm(d)),
            variance_is("products of query and key", (q * k).sum(1), d),
        ),
    )


@claim(
    "2.4b",
    kind="typo",
    status="wrong",
    statement="Attention scores are a softmax already, to which softmax is applied again.",
    correction="One softmax over each row of Q K^T / sqrt(d_k).",
    tolerance="1e-12 for one softmax",
    reference="thesis 2.4",
)
def softmax_once(draws: Draws) -> Evidence:
    Q, K = draws.normal(2, 6, 8)
    once = (Q @ K.T / math.sqrt(8)).softmax(-1)
    eye = torch.eye(6, dtype=torch.float64)
    library = torch.nn.functional.scaled_dot_product_attention(Q, K, eye)
    return Evidence(
        printed=(same("softmax twice less attention", once.softmax(-1), library, 1e-3),),
        truth=(same("softmax once less attention", once, library, 1e-12),),
    )


@claim(
    "2.4c",
    kind="formula",
    status="holds",
    statement="Rows of attention add up to 1, and outputs are sum_j a_ij V_j.",
    tolerance="1e-12",
    reference="thesis 2.4",
)
def attention_output(draws: Draws) -> Evidence:
    Q, K, V = draws.normal(3, 6, 8)
    weights = (Q @ K.T / math.sqrt(8)).softmax(-1)
    by_hand = torch.stack([sum((weights[i, j] * V[j] for j in range(6)), torch.zeros(8).double()) for i in range(6)])
    return Evidence(
        truth=(
            same("sums of rows", weights.sum(1), 1.0, 1e-12),
            same("outputs", torch.nn.functional.scaled_dot_product_attention(Q, K, V), by_hand, 1e-12),
            at_least("smallest weight", weights.min(), 0.0),
        )
    )
