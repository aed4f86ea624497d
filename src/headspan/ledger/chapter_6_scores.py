"""Chapter 6 of the thesis, sections 1 and 2: moments of scores x^T C y, and traces of products of weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import ScoreMoments, expected_largest_square, score_moments, self_score_moments
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.kolmogorov import ks_distance
from headspan.ledger.trial import Evidence, at_least, at_most, equals, mean_is, near, variance_is
from headspan.statistics import random_singular_values

claim = ClaimsOf("003")
COUNT = 200_000


def _scores(draws: Draws, C: Tensor, mu: Tensor, S: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Draws of x^T C y, and of x and y, for (x, y) jointly N(mu, S)."""
    z = draws.gaussian(mu, S, COUNT)
    x, y = z[:, : len(C)], z[:, len(C) :]
    return ((x @ C) * y).sum(1), x, y


def _moments(C: Tensor, mu: Tensor, S: Tensor, dependent: bool = True) -> ScoreMoments:
    n = len(C)
    return score_moments(C, mu[:n], S[:n, :n], mu[n:], S[n:, n:], S[:n, n:] if dependent else None)


@claim(
    "6.2",
    kind="formula",
    status="wrong",
    statement="E<A x, B y> = mu_x^T C mu_y + tr(C S_XY), with C = A^T B.",
    correction="tr(C S_YX): the cross-covariance Cov(x, y) enters transposed. Both agree only if C or S_XY is "
    "symmetric; 6.4 and 6.7 repeat the slip.",
    tolerance="4 standard errors",
    reference="thesis 6.2",
)
def mean_score(draws: Draws) -> Evidence:
    n = 4
    mu, eye = draws.normal(2 * n), torch.eye(n, dtype=torch.float64)
    # A cross-covariance as far from symmetric as can be, so that the two traces lie far apart.
    turn = torch.kron(torch.eye(2).double(), torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64))
    C = draws.normal(n, n) + 2 * turn
    S = torch.cat([torch.cat([eye, turn / 2], 1), torch.cat([turn.T / 2, eye], 1)])
    scores, _, _ = _scores(draws, C, mu, S)
    base = mu[:n] @ C @ mu[n:]
    return Evidence(
        printed=(mean_is("mean", scores, base + (C @ S[:n, n:]).trace()),),
        truth=(mean_is("mean", scores, _moments(C, mu, S).mean),),
    )


@claim(
    "6.3/B.1",
    kind="formula",
    status="holds",
    statement="The variance of a score of independent x and y.",
    correction="Independence is all that step B.7 uses; Isserlis' theorem is not needed there.",
    tolerance="4 standard errors",
    reference="thesis 6.2, appendix B",
)
def variance_of_score(draws: Draws) -> Evidence:
    C, mu = draws.normal(4, 4), draws.normal(8)
    S = torch.block_diag(draws.covariance(4), draws.covariance(4))  # type: ignore[no-untyped-call]
    scores, _, _ = _scores(draws, C, mu, S)
    return Evidence(truth=(variance_is("variance", scores, _moments(C, mu, S, dependent=False).variance),))


@claim(
    "6.3*",
    kind="added",
    status="holds",
    statement="The variance of a score of dependent x and y.",
    correction="Added to the thesis: two more terms, tr(C S_YX C S_YX) + 2 mu_x^T C S_YX C mu_y.",
    tolerance="4 standard errors",
    reference="Isserlis (1918)",
)
def variance_of_dependent_score(draws: Draws) -> Evidence:
    C, mu, S = draws.normal(4, 4), draws.normal(8), draws.covariance(8)
    scores, _, _ = _scores(draws, C, mu, S)
    found = _moments(C, mu, S)
    return Evidence(
        truth=(variance_is("variance", scores, found.variance), mean_is("mean", scores, found.mean)),
        figures={"as if independent": float(_moments(C, mu, S, dependent=False).variance)},
    )


@claim(
    "6.2.4a",
    kind="formula",
    status="holds",
    statement="E<A x, B x> = tr(C S) + mu^T C mu.",
    correction="With the variance 1/2 tr(K S K S) + mu^T K S K mu, K = C + C^T.",
    tolerance="4 standard errors",
    reference="thesis 6.2.4",
)
def self_score(draws: Draws) -> Evidence:
    C, mu, S = draws.normal(5, 5), draws.normal(5), draws.covariance(5)
    x = draws.gaussian(mu, S, COUNT)
    scores = ((x @ C) * x).sum(1)
    found = self_score_moments(C, mu, S)
    return Evidence(truth=(mean_is("mean", scores, found.mean), variance_is("variance", scores, found.variance)))


@claim(
    "6.2.4b",
    kind="text",
    status="wrong",
    statement="For a diagonal S, the bases of A and B must be orthogonal to each other to raise tr(A^T B S).",
    correction="They must be aligned, <a_i, b_i> > 0; orthogonal ones give 0. Nor does a larger S_XY raise the mean by "
    "itself: with C = -I it lowers it.",
    tolerance="exact to 1e-12",
    reference="thesis 6.2.4",
)
def aligned_bases(draws: Draws) -> Evidence:
    Q, S = draws.haar(8), torch.diag(0.5 + draws.uniform(4))
    eye, zero = torch.eye(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    aligned, orthogonal = (float((Q[:, :4].T @ Q[:, k : k + 4] @ S).trace()) for k in (0, 4))
    return Evidence(
        printed=(at_least("trace of orthogonal bases", orthogonal, aligned),),
        truth=(
            equals("trace of aligned bases", aligned, S.trace(), 1e-12),
            equals("trace of orthogonal bases", orthogonal, 0.0, 1e-12),
            equals("mean at C = -I, S = I", self_score_moments(-eye, zero, eye).mean, -4.0, 1e-12),
        ),
    )


@claim(
    "6.10",
    kind="formula",
    status="holds",
    statement="tr(A^T B) is the sum of the products of columns <a_i, b_i>.",
    correction="A trace near 0 does not mean orthogonal columns (I and diag(1, -1)), and lengths of columns are not "
    "singular values; only their squares' sums agree.",
    tolerance="1e-12",
    reference="thesis 6.2.5",
)
def trace_of_columns(draws: Draws) -> Evidence:
    A, B = draws.normal(2, 6, 6)
    flip = torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64))
    columns = torch.stack([A[:, i] @ B[:, i] for i in range(6)]).sum()
    return Evidence(
        truth=(
            equals("trace", (A.T @ B).trace(), columns, 1e-12),
            equals("trace of I and diag(1, -1)", flip.trace(), 0.0, 0.0),
            equals("smallest |cosine| of their columns", flip.diagonal().abs().min(), 1.0, 0.0),
            equals("sums of squares", A.square().sum(), torch.linalg.svdvals(A).square().sum(), 1e-10),
        )
    )


@claim(
    "6.11",
    kind="formula",
    status="holds",
    statement="tr(C^T C), the squared Frobenius norm, drives the variance.",
    correction="Exactly s^4 |C|_F^2 for spread s^2 in all directions; sum sx_i^2 sy_j^2 C_ij^2 for diagonal "
    "covariances.",
    tolerance="4 standard errors; 1e-10",
    reference="thesis 6.2.5",
)
def frobenius(draws: Draws) -> Evidence:
    n, s = 6, 1.3
    C, zero = draws.normal(n, n), torch.zeros(2 * n, dtype=torch.float64)
    scores, _, _ = _scores(draws, C, zero, s**2 * torch.eye(2 * n, dtype=torch.float64))
    spread = 0.2 + draws.uniform(2 * n)
    by_hand = (spread[:n, None] * spread[n:] * C**2).sum()
    return Evidence(
        truth=(
            variance_is("variance", scores, s**4 * C.square().sum()),
            equals("diagonal covariances", _moments(C, zero, torch.diag(spread)).variance, by_hand, 1e-10),
        )
    )


@claim(
    "6.12",
    kind="formula",
    status="asymptotic",
    statement="The largest squared singular value is about 4 n sigma^2.",
    correction="Below that, by Tracy and Widom: (a + b)^2 - 1.2065 (a + b)(1/a + 1/b)^(1/3), a^2 = n - 1, b^2 = n.",
    tolerance="1 % of Tracy-Widom",
    reference="thesis 6.2.5; Johnstone (2001)",
)
def largest_square(draws: Draws) -> Evidence:
    trials, figures = [], {}
    for n, count in ((32, 8000), (512, 80)):
        s = random_singular_values(n, n, count, draws.seed())[:, 0]
        trials.append(
            near(f"n = {n}: E s_1^2 / 4 n", (s**2).mean() / (4 * n), expected_largest_square(n, n) / (4 * n), 0.01)
        )
        figures[f"n = {n}, over the limit"] = float((s**2).mean() / (4 * n))
    return Evidence(truth=tuple(trials), figures=figures)


@claim(
    "6.13-6.16",
    kind="formula",
    status="holds",
    statement="The sum of squared singular values has mean n^2 sigma^2 and variance 2 n^2 sigma^4.",
    correction="Exact; what is summed are squares of A's entries, not of A^T A's.",
    tolerance="4 standard errors",
    reference="thesis 6.2.5",
)
def sum_of_squares(draws: Draws) -> Evidence:
    n, sigma = 12, 0.7
    total = draws.normal(50_000, n * n, sd=sigma).square().sum(1)
    return Evidence(
        truth=(
            mean_is("mean", total, n**2 * sigma**2),
            variance_is("variance", total, 2 * n**2 * sigma**4),
        )
    )


@claim(
    "6.17-6.23",
    kind="formula",
    status="holds",
    statement="tr(A^T B) of independent random matrices has mean 0 and variance n^2 sigma^4, near N(0, 1) at Xavier "
    "scale.",
    correction="Excess kurtosis 6 / n^2; m n sigma^4 for m x n, which at Xavier scale is 4 m n / (m + n)^2. It is not "
    "chi-squared (chapter 9).",
    tolerance="4 standard errors; Kolmogorov-Smirnov below 0.01",
    reference="thesis 6.2.5",
)
def trace_of_product(draws: Draws) -> Evidence:
    n, sigma, m = 12, 0.7, 30
    A, B = draws.normal(2, 30_000, n * n, sd=sigma)
    traces = (A * B).sum(1)
    unit = traces / (n * sigma**2)
    wide = math.sqrt(2 / (n + m))
    E, F = draws.normal(2, 10_000, n * m, sd=wide)
    return Evidence(
        truth=(
            mean_is("mean", traces, 0.0),
            variance_is("variance", traces, n**2 * sigma**4),
            at_most("distance to the normal law", ks_distance(torch.special.ndtr(unit)), 0.01),
            variance_is("variance, 12 x 30", (E * F).sum(1), 4 * m * n / (m + n) ** 2),
        )
    )
