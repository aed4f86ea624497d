"""Chapter 6 of the thesis, sections 3.3 and 4: bounds of scores, and when scores are nearly normal."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import cosine_bound_violations, score_bound, score_moments, symmetric_score_bound
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, Trial, at_most, equals, mean_is, near, same
from headspan.statistics import product_edge, random_product_singular_values, random_singular_values

claim = ClaimsOf("003")


@claim(
    "6.49",
    kind="formula",
    status="wrong",
    statement="|<W_q x, W_k y>| <= |W_q| |W_k| |x| |y| |cos(x, y)|.",
    correction="Without the cosine: <= |W_q^T W_k| |x| |y|. From n = 2 on there are counterexamples: W_q = I, W_k a "
    "quarter turn; or W_k = diag(2, 1) with x = (1, 1), y = (1, -1). For symmetric C with eigenvalues in [m, M] the "
    "bound is (|M + m| |cos| + M - m) / 2.",
    tolerance="no violation of the corrected bound",
    reference="thesis 6.3.3",
)
def cosine_bound(draws: Draws) -> Evidence:
    found = {n: cosine_bound_violations(n, 2000 if n < 64 else 300, draws.seed()) for n in (1, 2, 8, 64)}
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    e1, e2 = torch.eye(2, dtype=torch.float64)
    C = torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64))
    x, y = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    S = draws.covariance(6) - draws.covariance(6)
    u, w = draws.normal(2, 2000, 6)
    excess = (((u @ S) * w).sum(1).abs() - symmetric_score_bound(S, u, w)).max()
    return Evidence(
        printed=(
            at_most("quarter turn: score", (e1 @ turn @ e2).abs(), 0.0),
            at_most("diag(2, 1): score", (x @ C @ y).abs(), 0.0),
            *(at_most(f"share of violations, n = {n}", found[n].share, 0.0) for n in (2, 8, 64)),
        ),
        truth=(
            equals("violations of the corrected bound", sum(f.corrected_share for f in found.values()), 0.0, 0.0),
            equals("violations as printed, n = 1", found[1].share, 0.0, 0.0),
            at_most("quarter turn: score", (e1 @ turn @ e2).abs(), score_bound(turn, e1, e2)),
            at_most("symmetric C: excess over its bound", excess, 0.0, 1e-9),
        ),
        # For large n both sides are products with independent normal factors, and both norms tend to 2.
        figures={"share expected at large n": 2 / math.pi * math.atan(1 / 4)},
    )


@claim(
    "6.3.3b",
    kind="text",
    status="approximate",
    statement="Random weights scale the product of a pair by at most about 4.",
    correction="4 is loose: the norm of W_q^T W_k tends to sqrt(27/4) = 2.598, and a typical product is 1 / sqrt n.",
    tolerance="4 % at n = 384; 5 % for the typical product",
    reference="thesis 6.3.3",
)
def norm_of_product(draws: Draws) -> Evidence:
    n, m = 384, 64
    norm = random_product_singular_values(n, n, n, 2, draws.seed())[:, 0].mean() / n
    x, y = draws.sphere(m), draws.sphere(m)
    q, k = draws.normal(2, 20_000, m, sd=1 / math.sqrt(m))
    typical = (q * k).sum(1).square().mean().sqrt()
    return Evidence(
        truth=(
            near("norm of the product", norm, product_edge(n, n, n) / n, 0.04),
            at_most("norm of the product", norm, 4.0),
            near("typical product, n = 64", typical, 1 / math.sqrt(m), 0.05),
        ),
        figures={"|x| |y|": float(torch.linalg.vector_norm(x) * torch.linalg.vector_norm(y))},
    )


@claim(
    "6.3.3c",
    kind="text",
    status="wrong",
    statement="Cross terms of tokens and positions are suppressed, by Cauchy and Schwarz.",
    correction="That rests on the false bound 6.49: under random weights orthogonal and aligned pairs give scores of "
    "the same size. The expansion into four terms is exact.",
    tolerance="5 %",
    reference="thesis 6.3.3",
)
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
    return Evidence(
        printed=(at_most("rms of orthogonal pairs", rms["orthogonal"], 0.5 * rms["aligned"]),),
        truth=(
            near("rms of orthogonal pairs", rms["orthogonal"], 1 / math.sqrt(n), 0.05),
            near("rms of aligned pairs", rms["aligned"], 1 / math.sqrt(n), 0.05),
            same("four terms", whole, parts, 1e-10),
        ),
    )


@claim(
    "6.4a",
    kind="text",
    status="wrong",
    statement="Products x_i y_j and entries C_ij are chi-squared, and products of chi-squared variables are "
    "chi-squared.",
    correction="A product of two normals is symmetric with excess kurtosis 6, a bilinear form variance-gamma; half of "
    "the values are negative, which no chi-squared variable is.",
    tolerance="4 standard errors",
    reference="thesis 6.4",
)
def product_of_normals(draws: Draws) -> Evidence:
    x, y = draws.normal(2, 400_000)
    product = x * y
    first, second = draws.normal(2, 400_000).square()
    # A chi-squared variable of mean m has variance 2 m; a product of two of mean 1 has variance 8.
    return Evidence(
        printed=(
            at_most("share of negative products", (product < 0).double().mean(), 0.0),
            mean_is("squared deviation of a product of chi-squared", (first * second - 1) ** 2, 2.0),
        ),
        truth=(
            mean_is("share of negative products", (product < 0).double(), 0.5),
            mean_is("cube", product**3, 0.0),
            mean_is("fourth power: 3 + excess kurtosis 6", product**4, 9.0),
        ),
    )


def _kurtosis_trial(name: str, x: Tensor, y: Tensor, s: Tensor) -> Trial:
    """Excess kurtosis of sum s_i x_i y_i against its formula, to 10 % and 0.05."""
    zero, eye = torch.zeros(len(s), dtype=torch.float64), torch.eye(len(s), dtype=torch.float64)
    expected = float(score_moments(torch.diag(s), zero, eye, zero, eye).excess_kurtosis)
    score = (x * s * y).sum(1)
    found = float((score**4).mean() / (score**2).mean() ** 2) - 3
    return equals(name, found, expected, 0.1 * expected + 0.05)


@claim(
    "6.4b",
    kind="text",
    status="asymptotic",
    statement="By the central limit theorem a bilinear form tends to a normal variable.",
    correction="Its excess kurtosis is 6 sum s^4 / (sum s^2)^2 for a fixed C and Gaussian x, y: it vanishes for flat "
    "spectra and stays for spiked ones. Given the query, scores of Gaussian keys are exactly normal.",
    tolerance="10 % and 0.05",
    reference="thesis 6.4",
)
def normality(draws: Draws) -> Evidence:
    n, count = 64, 200_000
    x, y = draws.normal(2, count, n)
    flat = random_singular_values(n, n, 1, draws.seed())[0]
    product = random_product_singular_values(n, n, n, 1, draws.seed())[0]
    spiked = torch.ones(n, dtype=torch.float64)
    spiked[0] = 20.0
    given = (draws.normal(n) * flat * y).sum(1)
    return Evidence(
        truth=(
            _kurtosis_trial("one random matrix", x, y, flat),
            _kurtosis_trial("product of two", x, y, product),
            _kurtosis_trial("spiked", x, y, spiked),
            equals("given the query", (given**4).mean() / (given**2).mean() ** 2 - 3, 0.0, 0.05),
        )
    )
