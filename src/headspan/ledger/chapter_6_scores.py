"""Chapter 6 of the thesis on one score x^T C y: its moments, its bounds, and when it is nearly normal."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import (
    ScoreMoments,
    cosine_bound_violations,
    expected_largest_square,
    score_bound,
    score_moments,
    self_score_moments,
    symmetric_score_bound,
)
from headspan.ledger.claim import check
from headspan.ledger.trial import (
    Draws,
    Evidence,
    Trial,
    at_least,
    at_most,
    equals,
    evidence,
    ks_distance,
    mean_is,
    near,
    same,
    variance_is,
)
from headspan.statistics import product_edge, random_product_singular_values, random_singular_values

COUNT = 200_000


def _scores(draws: Draws, C: Tensor, mu: Tensor, S: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Draws of x^T C y, and of x and y, for (x, y) jointly N(mu, S)."""
    z = draws.gaussian(mu, S, COUNT)
    x, y = z[:, : len(C)], z[:, len(C) :]
    return ((x @ C) * y).sum(1), x, y


def _moments(C: Tensor, mu: Tensor, S: Tensor, dependent: bool = True) -> ScoreMoments:
    n = len(C)
    return score_moments(C, mu[:n], S[:n, :n], mu[n:], S[n:, n:], S[:n, n:] if dependent else None)


@check("6.2")
def mean_score(draws: Draws) -> Evidence:
    n = 4
    mu, eye = draws.normal(2 * n), torch.eye(n, dtype=torch.float64)
    # A cross-covariance as far from symmetric as can be, so that the two traces lie far apart.
    turn = torch.kron(torch.eye(2).double(), torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64))
    C = draws.normal(n, n) + 2 * turn
    S = torch.cat([torch.cat([eye, turn / 2], 1), torch.cat([turn.T / 2, eye], 1)])
    scores, _, _ = _scores(draws, C, mu, S)
    base = mu[:n] @ C @ mu[n:]
    return evidence(
        mean_is("mean", scores, _moments(C, mu, S).mean),
        printed=[mean_is("mean", scores, base + (C @ S[:n, n:]).trace())],
    )


@check("6.3/B.1")
def variance_of_score(draws: Draws) -> Evidence:
    C, mu = draws.normal(4, 4), draws.normal(8)
    S = torch.block_diag(draws.covariance(4), draws.covariance(4))  # type: ignore[no-untyped-call]
    scores, _, _ = _scores(draws, C, mu, S)
    return evidence(variance_is("variance", scores, _moments(C, mu, S, dependent=False).variance))


@check("6.3*")
def variance_of_dependent_score(draws: Draws) -> Evidence:
    C, mu, S = draws.normal(4, 4), draws.normal(8), draws.covariance(8)
    scores, _, _ = _scores(draws, C, mu, S)
    found = _moments(C, mu, S)
    return evidence(
        variance_is("variance", scores, found.variance),
        mean_is("mean", scores, found.mean),
        figures={"as if independent": _moments(C, mu, S, dependent=False).variance},
    )


@check("6.2.4a")
def self_score(draws: Draws) -> Evidence:
    C, mu, S = draws.normal(5, 5), draws.normal(5), draws.covariance(5)
    x = draws.gaussian(mu, S, COUNT)
    scores = ((x @ C) * x).sum(1)
    found = self_score_moments(C, mu, S)
    return evidence(mean_is("mean", scores, found.mean), variance_is("variance", scores, found.variance))


@check("6.2.4b")
def aligned_bases(draws: Draws) -> Evidence:
    Q, S = draws.haar(8), torch.diag(0.5 + draws.uniform(4))
    eye, zero = torch.eye(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    aligned, orthogonal = (float((Q[:, :4].T @ Q[:, k : k + 4] @ S).trace()) for k in (0, 4))
    return evidence(
        equals("trace of aligned bases", aligned, S.trace(), 1e-12),
        equals("trace of orthogonal bases", orthogonal, 0.0, 1e-12),
        equals("mean at C = -I, S = I", self_score_moments(-eye, zero, eye).mean, -4.0, 1e-12),
        printed=[at_least("trace of orthogonal bases", orthogonal, aligned)],
    )


@check("6.10")
def trace_of_columns(draws: Draws) -> Evidence:
    A, B = draws.normal(2, 6, 6)
    flip = torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64))
    columns = torch.stack([A[:, i] @ B[:, i] for i in range(6)]).sum()
    return evidence(
        equals("trace", (A.T @ B).trace(), columns, 1e-12),
        equals("trace of I and diag(1, -1)", flip.trace(), 0.0, 0.0),
        equals("smallest |cosine| of their columns", flip.diagonal().abs().min(), 1.0, 0.0),
        equals("sums of squares", A.square().sum(), torch.linalg.svdvals(A).square().sum(), 1e-10),
    )


@check("6.11")
def frobenius(draws: Draws) -> Evidence:
    n, s = 6, 1.3
    C, zero = draws.normal(n, n), torch.zeros(2 * n, dtype=torch.float64)
    scores, _, _ = _scores(draws, C, zero, s**2 * torch.eye(2 * n, dtype=torch.float64))
    spread = 0.2 + draws.uniform(2 * n)
    by_hand = (spread[:n, None] * spread[n:] * C**2).sum()
    return evidence(
        variance_is("variance", scores, s**4 * C.square().sum()),
        equals("diagonal covariances", _moments(C, zero, torch.diag(spread)).variance, by_hand, 1e-10),
    )


@check("6.12")
def largest_square(draws: Draws) -> Evidence:
    trials, figures = [], {}
    for n, count in ((32, 8000), (512, 80)):
        s = random_singular_values(n, n, count, draws.seed())[:, 0]
        trials.append(
            near(f"n = {n}: E s_1^2 / 4 n", (s**2).mean() / (4 * n), expected_largest_square(n, n) / (4 * n), 0.01)
        )
        figures[f"n = {n}, over the limit"] = float((s**2).mean() / (4 * n))
    return evidence(*trials, figures=figures)


@check("6.13-6.16")
def sum_of_squares(draws: Draws) -> Evidence:
    n, sigma = 12, 0.7
    total = draws.normal(50_000, n * n, sd=sigma).square().sum(1)
    return evidence(mean_is("mean", total, n**2 * sigma**2), variance_is("variance", total, 2 * n**2 * sigma**4))


@check("6.17-6.23")
def trace_of_product(draws: Draws) -> Evidence:
    n, sigma, m = 12, 0.7, 30
    A, B = draws.normal(2, 30_000, n * n, sd=sigma)
    traces = (A * B).sum(1)
    unit = traces / (n * sigma**2)
    wide = math.sqrt(2 / (n + m))
    E, F = draws.normal(2, 10_000, n * m, sd=wide)
    return evidence(
        mean_is("mean", traces, 0.0),
        variance_is("variance", traces, n**2 * sigma**4),
        at_most("distance to the normal law", ks_distance(torch.special.ndtr(unit)), 0.01),
        variance_is("variance, 12 x 30", (E * F).sum(1), 4 * m * n / (m + n) ** 2),
    )


@check("6.49")
def cosine_bound(draws: Draws) -> Evidence:
    found = {n: cosine_bound_violations(n, 2000 if n < 64 else 300, draws.seed()) for n in (1, 2, 8, 64)}
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    e1, e2 = torch.eye(2, dtype=torch.float64)
    C = torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64))
    x, y = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    S = draws.covariance(6) - draws.covariance(6)
    u, w = draws.normal(2, 2000, 6)
    excess = (((u @ S) * w).sum(1).abs() - symmetric_score_bound(S, u, w)).max()
    return evidence(
        equals("violations of the corrected bound", sum(f.corrected_share for f in found.values()), 0.0, 0.0),
        equals("violations as printed, n = 1", found[1].share, 0.0, 0.0),
        at_most("quarter turn: score", (e1 @ turn @ e2).abs(), score_bound(turn, e1, e2)),
        at_most("symmetric C: excess over its bound", excess, 0.0, 1e-9),
        printed=[
            at_most("quarter turn: score", (e1 @ turn @ e2).abs(), 0.0),
            at_most("diag(2, 1): score", (x @ C @ y).abs(), 0.0),
            *(at_most(f"share of violations, n = {n}", found[n].share, 0.0) for n in (2, 8, 64)),
        ],
        # For large n both sides are products with independent normal factors, and both norms tend to 2.
        figures={"share expected at large n": 2 / math.pi * math.atan(1 / 4)},
    )


@check("6.3.3b")
def norm_of_product(draws: Draws) -> Evidence:
    n, m = 384, 64
    norm = random_product_singular_values(n, n, n, 2, draws.seed())[:, 0].mean() / n
    x, y = draws.sphere(m), draws.sphere(m)
    q, k = draws.normal(2, 20_000, m, sd=1 / math.sqrt(m))
    typical = (q * k).sum(1).square().mean().sqrt()
    return evidence(
        near("norm of the product", norm, product_edge(n, n, n) / n, 0.04),
        at_most("norm of the product", norm, 4.0),
        near("typical product, n = 64", typical, 1 / math.sqrt(m), 0.05),
        figures={"|x| |y|": torch.linalg.vector_norm(x) * torch.linalg.vector_norm(y)},
    )


@check("6.3.3c")
def cross_terms(draws: Draws) -> Evidence:
    n, rounds = 64, 5
    v, w = draws.sphere(n), draws.normal(n)
    w = torch.nn.functional.normalize(w - (w @ v) * v, dim=0)
    squares = {"orthogonal": 0.0, "aligned": 0.0}
    W_q = W_k = torch.empty(0)
    for _ in range(rounds):
        W_q, W_k = draws.normal(2, 1000, n, n, sd=1 / math.sqrt(n))
        query = W_q @ v
        for name, key in (("orthogonal", w), ("aligned", v)):
            squares[name] += float((query * (W_k @ key)).sum(1).square().mean()) / rounds
    rms = {name: math.sqrt(value) for name, value in squares.items()}
    token, place = draws.normal(2, 2, n)

    def score(a: Tensor, b: Tensor) -> Tensor:
        return (W_q[0] @ a) @ (W_k[0] @ b)

    whole = score(token[0] + place[0], token[1] + place[1])
    parts = sum((score(a, b) for a in (token[0], place[0]) for b in (token[1], place[1])), torch.zeros(()).double())
    return evidence(
        near("rms of orthogonal pairs", rms["orthogonal"], 1 / math.sqrt(n), 0.05),
        near("rms of aligned pairs", rms["aligned"], 1 / math.sqrt(n), 0.05),
        same("four terms", whole, parts, 1e-10),
        printed=[at_most("rms of orthogonal pairs", rms["orthogonal"], 0.5 * rms["aligned"])],
    )


@check("6.4a")
def product_of_normals(draws: Draws) -> Evidence:
    x, y = draws.normal(2, 400_000)
    product = x * y
    first, second = draws.normal(2, 400_000).square()
    # A chi-squared variable of mean m has variance 2 m; a product of two of mean 1 has variance 8.
    return evidence(
        mean_is("share of negative products", (product < 0).double(), 0.5),
        mean_is("cube", product**3, 0.0),
        mean_is("fourth power: 3 + excess kurtosis 6", product**4, 9.0),
        printed=[
            at_most("share of negative products", (product < 0).double().mean(), 0.0),
            mean_is("squared deviation of a product of chi-squared", (first * second - 1) ** 2, 2.0),
        ],
    )


def _kurtosis_trial(name: str, x: Tensor, y: Tensor, s: Tensor) -> Trial:
    """Excess kurtosis of sum s_i x_i y_i against its formula, to 10 % and 0.05."""
    zero, eye = torch.zeros(len(s), dtype=torch.float64), torch.eye(len(s), dtype=torch.float64)
    expected = float(score_moments(torch.diag(s), zero, eye, zero, eye).excess_kurtosis)
    score = (x * s * y).sum(1)
    found = float((score**4).mean() / (score**2).mean() ** 2) - 3
    return equals(name, found, expected, 0.1 * expected + 0.05)


@check("6.4b")
def normality(draws: Draws) -> Evidence:
    n, count = 64, 200_000
    x, y = draws.normal(2, count, n)
    flat = random_singular_values(n, n, 1, draws.seed())[0]
    product = random_product_singular_values(n, n, n, 1, draws.seed())[0]
    spiked = torch.ones(n, dtype=torch.float64)
    spiked[0] = 20.0
    given = (draws.normal(n) * flat * y).sum(1)
    return evidence(
        _kurtosis_trial("one random matrix", x, y, flat),
        _kurtosis_trial("product of two", x, y, product),
        _kurtosis_trial("spiked", x, y, spiked),
        equals("given the query", (given**4).mean() / (given**2).mean() ** 2 - 3, 0.0, 0.05),
    )
