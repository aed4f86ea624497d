"""Chapter 5 of the thesis, last part: ratios of softmax weights, and how nearly linear exponentials are."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import (
    exp_departure,
    log_ratio_moments,
    lognormal_mean,
    lognormal_variance,
    sphere_ratio_mean,
    sphere_ratio_variance,
)
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, at_least, at_most, equals, mean_is, variance_is

claim = ClaimsOf("003")
SHIFT, SPREADS, RHO = 0.9, (0.5, 0.7), 0.4
"""Of two logits: difference of means, standard deviations, correlation."""


def _logits() -> tuple[Tensor, Tensor]:
    cross = RHO * SPREADS[0] * SPREADS[1]
    covariance = torch.tensor([[SPREADS[0] ** 2, cross], [cross, SPREADS[1] ** 2]], dtype=torch.float64)
    return torch.tensor([SHIFT, 0.0], dtype=torch.float64), covariance


def _ratios(draws: Draws, count: int) -> Tensor:
    p = torch.softmax(draws.gaussian(*_logits(), count), -1)
    return p[:, 0] / p[:, 1]


@claim(
    "5.20",
    kind="formula",
    status="wrong",
    statement="E[p_i / p_j] = exp((mu_i - mu_j + s^2) / 2) with s^2 = s_i^2 + s_j^2 - 2 s_ij.",
    correction="E[p_i / p_j] = exp(mu_i - mu_j + s^2 / 2).",
    tolerance="4 standard errors",
    reference="thesis 5.20",
)
def mean_ratio(draws: Draws) -> Evidence:
    ratios = _ratios(draws, 1_000_000)
    at, spread = (side[0, 1] for side in log_ratio_moments(*_logits()))
    return Evidence(
        printed=(mean_is("mean ratio", ratios, ((at + spread) / 2).exp()),),
        truth=(mean_is("mean ratio", ratios, lognormal_mean(at, spread)),),
    )


@claim(
    "5.21",
    kind="formula",
    status="holds",
    statement="Var(p_i / p_j) = (exp(s^2) - 1) exp(2 (mu_i - mu_j) + s^2).",
    tolerance="4 standard errors",
    reference="thesis 5.21",
)
def variance_of_ratio(draws: Draws) -> Evidence:
    at, spread = (side[0, 1] for side in log_ratio_moments(*_logits()))
    return Evidence(
        truth=(variance_is("variance of the ratio", _ratios(draws, 2_000_000), lognormal_variance(at, spread)),)
    )


@claim(
    "5.3.1a",
    kind="formula",
    status="wrong",
    statement="Vectors of length l have components of variance l/n, so the mean ratio is e^(l/n).",
    correction="The variance is l^2/n, so E = e^(l^2/n) and Var = (e^(2 l^2/n) - 1) e^(2 l^2/n); equal only at l = 1. "
    "Exactly on the sphere, E = 0F1(; n/2; l^2/2).",
    tolerance="4 standard errors",
    reference="thesis 5.3.1",
)
def ratio_at_radius(draws: Draws) -> Evidence:
    n, radius = 20, 3.0
    normal = draws.normal(400_000, 2, sd=radius / math.sqrt(n))
    sphere = draws.sphere(200_000, n, radius=radius)
    ratios, exact = (normal[:, 0] - normal[:, 1]).exp(), (sphere[:, 0] - sphere[:, 1]).exp()
    x = radius**2 / n
    length = torch.tensor(radius, dtype=torch.float64)
    return Evidence(
        printed=(mean_is("mean ratio of normal logits", ratios, math.exp(radius / n)),),
        truth=(
            mean_is("mean ratio of normal logits", ratios, math.exp(x)),
            mean_is("mean ratio on the sphere", exact, sphere_ratio_mean(n, length)),
            variance_is("variance on the sphere", exact, sphere_ratio_variance(n, length)),
        ),
        figures={"variance of normal logits' ratio": math.expm1(2 * x) * math.exp(2 * x)},
    )


@claim(
    "5.3.1b",
    kind="formula",
    status="holds",
    statement="For small x the mean ratio is 1 + x + x^2/2 and its variance 2 x + 6 x^2.",
    correction="With x = l^2/n; the rest is of order x^3.",
    tolerance="x^3 and 12 x^3 at x = 0.05",
    reference="thesis 5.3.1",
)
def series_of_ratio(draws: Draws) -> Evidence:
    x = 0.05
    zero, spread = torch.tensor(0.0, dtype=torch.float64), torch.tensor(2 * x, dtype=torch.float64)
    return Evidence(
        truth=(
            equals("mean", lognormal_mean(zero, spread), 1 + x + x * x / 2, x**3),
            equals("variance", lognormal_variance(zero, spread), 2 * x + 6 * x * x, 12 * x**3),
        )
    )


@claim(
    "5.3.1c",
    kind="typo",
    status="wrong",
    statement="The covariance is rho / (s_i s_j).",
    correction="It is rho s_i s_j.",
    tolerance="4 standard errors",
    reference="thesis 5.3.1",
)
def covariance_of_logits(draws: Draws) -> Evidence:
    _, covariance = _logits()
    x = draws.gaussian(torch.zeros(2, dtype=torch.float64), covariance, 200_000)
    products = x[:, 0] * x[:, 1]
    return Evidence(
        printed=(mean_is("covariance", products, RHO / (SPREADS[0] * SPREADS[1])),),
        truth=(mean_is("covariance", products, RHO * SPREADS[0] * SPREADS[1]),),
    )


@claim(
    "5.3.2a",
    kind="formula",
    status="holds",
    statement="exp(lam v) is about lam e^v + 1 - lam + (lam^2 - lam) v^2 / 2.",
    correction="To second order; what is left is (lam^3 - lam) v^3 / 6.",
    tolerance="5 % of (lam^3 - lam) v^3 / 6",
    reference="thesis 5.3.2",
)
def scaled_exponential(draws: Draws) -> Evidence:
    lam, v = 0.5, 0.09
    left = math.exp(lam * v) - (lam * math.exp(v) + 1 - lam + (lam**2 - lam) * v * v / 2)
    third = (lam**3 - lam) * v**3 / 6
    return Evidence(truth=(equals("what is left", left, third, 0.05 * abs(third)),))


@claim(
    "5.3.2b",
    kind="formula",
    status="wrong",
    statement="exp(sum_i lam_i v_i) is about (n - 1) + sum_i exp(lam_i v_i) + cross terms.",
    correction="The constant is -(n - 1).",
    tolerance="the cube of sum |lam_i v_i|",
    reference="thesis 5.3.2",
)
def exponential_of_sum(draws: Draws) -> Evidence:
    parts = draws.normal(6) * 0.04
    rest = float(parts.exp().sum() + (parts.sum() ** 2 - (parts**2).sum()) / 2)
    slack = float(parts.abs().sum()) ** 3
    exact = parts.sum().exp()
    return Evidence(
        printed=(equals("expansion", rest + 5, exact, slack),), truth=(equals("expansion", rest - 5, exact, slack),)
    )


@claim(
    "5.3.2c",
    kind="text",
    status="approximate",
    statement="Products v_i v_j are chi-squared with variance s_i^2 s_j^2.",
    correction="The variance is right. The law is that of a product of normals: symmetric, excess kurtosis 6.",
    tolerance="excess kurtosis 6 within 0.3",
    reference="thesis 5.3.2",
)
def product_of_normals(draws: Draws) -> Evidence:
    x = draws.normal(4_000_000) * draws.normal(4_000_000)
    kurtosis = (x**4).mean() / (x**2).mean() ** 2 - 3
    return Evidence(
        truth=(
            equals("excess kurtosis", kurtosis, 6.0, 0.3),
            variance_is("variance", x[:1_000_000], 1.0),
            mean_is("share below 0", (x < 0).double(), 0.5),
        )
    )


def _pairs_of_squares(lam: Tensor) -> Tensor:
    """sum_{i<j} (lam_i lam_j)^2 over the last axis."""
    squares = lam**2
    return (squares.sum(-1) ** 2 - (squares**2).sum(-1)) / 2


@claim(
    "5.3.2d",
    kind="formula",
    status="wrong",
    statement="By Jensen's inequality sum_{i<j} (lam_i lam_j)^2 is largest for equal weights.",
    correction="False from three vectors on: the largest value on the simplex is 1/16, at (1/2, 1/2, 0, ...); equal "
    "weights give (m - 1) / (2 m^3).",
    tolerance="no draw above 1/16",
    reference="thesis 5.3.2",
)
def largest_cross_term(draws: Draws) -> Evidence:
    half = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    equal = _pairs_of_squares(torch.full((3,), 1 / 3, dtype=torch.float64))
    waits = -draws.uniform(50_000, 20).clamp(min=1e-300).log()
    many = _pairs_of_squares(waits / waits.sum(-1, keepdim=True))
    return Evidence(
        printed=(at_most("value at (1/2, 1/2, 0)", _pairs_of_squares(half), equal),),
        truth=(
            equals("value at (1/2, 1/2, 0)", _pairs_of_squares(half), 1 / 16, 1e-15),
            equals("value at equal weights, m = 3", equal, 2 / 54, 1e-15),
            at_most("largest of 50,000 draws, m = 20", many.max(), 1 / 16),
            at_least("share of draws above equal weights", (many > 19 / (2 * 20**3)).double().mean(), 0.99),
        ),
    )


@claim(
    "5.3.2e",
    kind="formula",
    status="wrong",
    statement="The cross terms have the variance (n^2 - n) / n^4 times 2 l^2 / n^2.",
    correction="It is l^4/d^2 sum_{i<j} lam_i^2 lam_j^2: at equal weights and l = 1 (n^2 - n) / (2 n^6), a quarter of "
    "the printed value, and up to l^4 / (16 d^2) for other weights.",
    tolerance="4 standard errors",
    reference="thesis 5.3.2",
)
def variance_of_cross_terms(draws: Draws) -> Evidence:
    n = d = 20

    def cross(lam: Tensor, count: int) -> Tensor:
        z = draws.normal(count, len(lam), sd=1 / math.sqrt(d)) * lam
        return (z.sum(-1) ** 2 - (z**2).sum(-1)) / 2

    equal = cross(torch.full((n,), 1 / n, dtype=torch.float64), 200_000)
    two = cross(torch.tensor([0.5, 0.5], dtype=torch.float64), 400_000)
    return Evidence(
        printed=(variance_is("equal weights", equal, (n**2 - n) / n**4 * 2 / n**2),),
        truth=(
            variance_is("equal weights", equal, (n**2 - n) / (2 * n**6)),
            variance_is("weights (1/2, 1/2)", two, 1 / (16 * d**2)),
        ),
    )


@claim(
    "5.3.2f",
    kind="text",
    status="approximate",
    statement="Exponentiation is nearly affine for combinations of vectors of length l <= 1.",
    correction="The error is about 0.03 l of what exponentiation does (n = 64, 8 vectors).",
    tolerance="below 0.04 at l = 1",
    reference="thesis 5.3.2",
)
def departure(draws: Draws) -> Evidence:
    weights = torch.full((8,), 1 / 8, dtype=torch.float64)
    found = {
        size: float(exp_departure(draws.sphere(2000, 8, 64, radius=size), weights).mean()) for size in (0.5, 1.0, 5.0)
    }
    return Evidence(
        truth=(at_most("error over signal, l = 1", found[1.0], 0.04), at_most("l = 1/2", found[0.5], 0.02)),
        figures={"l = 5": found[5.0]},
    )
