"""Chapter 5 of the thesis on Gaussian logits: exponentials, gradients, ratios, linear combinations."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import (
    exp_departure,
    expected_collision,
    fenton_wilkinson_distance,
    log_ratio_moments,
    lognormal_mean,
    lognormal_variance,
    sphere_ratio_mean,
    sphere_ratio_variance,
)
from headspan.ledger.claim import check
from headspan.ledger.trial import Draws, Evidence, at_least, at_most, equals, evidence, mean_is, near, same, variance_is

MEAN, SPREAD = 0.7, 0.8


def _one(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


@check("5.1a")
def mean_of_exponential(draws: Draws) -> Evidence:
    x = (MEAN + SPREAD * draws.normal(1_000_000)).exp()
    return evidence(
        mean_is("mean", x, lognormal_mean(_one(MEAN), _one(SPREAD**2))),
        printed=[mean_is("mean", x, math.exp((MEAN + SPREAD**2) / 2))],
    )


@check("5.1b")
def variance_of_exponential(draws: Draws) -> Evidence:
    x = (MEAN + SPREAD * draws.normal(3_000_000)).exp()
    return evidence(variance_is("variance", x, lognormal_variance(_one(MEAN), _one(SPREAD**2))))


@check("5.1")
def series_of_mean(draws: Draws) -> Evidence:
    n = 16
    series = 1 + 1 / (2 * n) + 1 / (8 * n**2)
    return evidence(equals("mean, n = 16", lognormal_mean(_one(0.0), _one(1 / n)), series, 1 / (40 * n**3)))


@check("5.2")
def series_of_variance(draws: Draws) -> Evidence:
    n = 16
    exact = lognormal_variance(_one(0.0), _one(1 / n))
    return evidence(
        equals("closed form", exact, math.exp(2 / n) - math.exp(1 / n), 1e-14),
        equals("series, n = 16", exact, 1 / n + 1.5 / n**2, 1.25 * 7 / (6 * n**3)),
    )


@check("5.1.2t")
def first_order_mean(draws: Draws) -> Evidence:
    n = 16
    exact, slack = lognormal_mean(_one(0.0), _one(1 / n)), 1.2 / (8 * n**2)
    return evidence(
        equals("1 + 1/2n", exact, 1 + 1 / (2 * n), slack), printed=[equals("1 + 1/n", exact, 1 + 1 / n, slack)]
    )


@check("5.1.2e")
def entropy_of_exponential(draws: Draws) -> Evidence:
    x = torch.linspace(MEAN - 12 * SPREAD, MEAN + 12 * SPREAD, 4001, dtype=torch.float64)
    logs = torch.distributions.LogNormal(_one(MEAN), _one(SPREAD)).log_prob(x.exp())  # type: ignore[no-untyped-call]
    entropy = torch.trapezoid(-logs.exp() * logs * x.exp(), x)
    plain = 0.5 * math.log(2 * math.pi * math.e * SPREAD**2)
    return evidence(equals("H(e^X) - H(X)", entropy - plain, MEAN, 1e-10))


@check("5.1.3a")
def normalizer(draws: Draws) -> Evidence:
    found = {s: fenton_wilkinson_distance(32, s * s, 60_000, draws.seed()) for s in (0.25, 1.0, 2.0)}
    return evidence(
        at_most("distance at s = 1/4", found[0.25], 0.02),
        at_most("distance at s = 1", found[1.0], 0.02),
        at_least("distance at s = 2", found[2.0], 0.1),
    )


@check("5.1.3b")
def softmax_moments(draws: Draws) -> Evidence:
    n = 32
    p = torch.softmax(draws.normal(50_000, n), -1)[:, 0]

    def exact(s: float) -> float:
        return (float(expected_collision(_one(s * s), torch.tensor(n))) - 1 / n) / n

    def small(s: float) -> float:
        return math.expm1(s * s) * (n - 1) / n**3

    return evidence(
        mean_is("mean weight", p, 1 / n),
        near("variance at s = 1/4", small(0.25), exact(0.25), 0.03),
        variance_is("variance at s = 1", p, exact(1.0)),
        figures={"formula at s = 1": small(1.0)},
    )


def _cross_entropy(draws: Draws, n: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """A distribution q, logits x, and the gradient of -sum q log softmax(x) in x by automatic differentiation."""
    q, x = torch.softmax(draws.normal(n), -1), draws.normal(n).requires_grad_()
    (gradient,) = torch.autograd.grad(-(q * torch.log_softmax(x, -1)).sum(), x)
    return q, x.detach(), gradient


@check("5.2.1a")
def gradient(draws: Draws) -> Evidence:
    q, x, found = _cross_entropy(draws)
    return evidence(same("gradient", found, torch.softmax(x, -1) - q, 1e-12))


@check("5.2.1b")
def gradient_by_one_term(draws: Draws) -> Evidence:
    q, x, found = _cross_entropy(draws)
    p = torch.softmax(x, -1)
    jacobian = torch.diag(p) - torch.outer(p, p)
    return evidence(
        same("sum over k", found, jacobian @ (-q / p), 1e-12),
        printed=[same("one term", found, -q / p * jacobian.diagonal(), 1e-7)],
    )


@check("5.2.1c")
def gradient_of_mixture(draws: Draws) -> Evidence:
    q, lam = torch.softmax(draws.normal(6), -1), torch.tensor([0.3, 0.7], dtype=torch.float64)
    x = draws.normal(2, 6).requires_grad_()
    parts = torch.softmax(x, -1)
    mixed = lam @ parts
    (component,) = torch.autograd.grad(-(q * mixed.log()).sum(), x)
    parts, mixed = parts.detach(), mixed.detach()
    logits = mixed.log().requires_grad_()
    (whole,) = torch.autograd.grad(-(q * torch.log_softmax(logits, -1)).sum(), logits)
    weights = (q * parts / mixed).sum(-1, keepdim=True) - q / mixed
    return evidence(
        same("in logits of the mixture", whole, lam @ (parts - q), 1e-12),
        same("in logits of a component", component, lam[:, None] * parts * weights, 1e-12),
        figures={"error if read for a component": (component - lam[:, None] * (parts - q)).abs().max()},
    )


@check("5.2.2a")
def zero_vector(draws: Draws) -> Evidence:
    p = torch.softmax(torch.zeros(8, dtype=torch.float64), -1)
    return evidence(same("uniform", p, 1 / 8, 1e-15), printed=[equals("total probability", p.sum(), 0.0, 1e-15)])


SHIFT, SPREADS, RHO = 0.9, (0.5, 0.7), 0.4
"""Of two logits: difference of means, standard deviations, correlation."""


def _logits() -> tuple[Tensor, Tensor]:
    cross = RHO * SPREADS[0] * SPREADS[1]
    covariance = torch.tensor([[SPREADS[0] ** 2, cross], [cross, SPREADS[1] ** 2]], dtype=torch.float64)
    return torch.tensor([SHIFT, 0.0], dtype=torch.float64), covariance


def _ratios(draws: Draws, count: int) -> Tensor:
    p = torch.softmax(draws.gaussian(*_logits(), count), -1)
    return p[:, 0] / p[:, 1]


@check("5.20")
def mean_ratio(draws: Draws) -> Evidence:
    ratios = _ratios(draws, 1_000_000)
    at, spread = (side[0, 1] for side in log_ratio_moments(*_logits()))
    return evidence(
        mean_is("mean ratio", ratios, lognormal_mean(at, spread)),
        printed=[mean_is("mean ratio", ratios, ((at + spread) / 2).exp())],
    )


@check("5.21")
def variance_of_ratio(draws: Draws) -> Evidence:
    at, spread = (side[0, 1] for side in log_ratio_moments(*_logits()))
    return evidence(variance_is("variance of the ratio", _ratios(draws, 2_000_000), lognormal_variance(at, spread)))


@check("5.3.1a")
def ratio_at_radius(draws: Draws) -> Evidence:
    n, radius = 20, 3.0
    normal = draws.normal(400_000, 2, sd=radius / math.sqrt(n))
    sphere = draws.sphere(200_000, n, radius=radius)
    ratios, exact = (normal[:, 0] - normal[:, 1]).exp(), (sphere[:, 0] - sphere[:, 1]).exp()
    x = radius**2 / n
    length = torch.tensor(radius, dtype=torch.float64)
    return evidence(
        mean_is("mean ratio of normal logits", ratios, math.exp(x)),
        mean_is("mean ratio on the sphere", exact, sphere_ratio_mean(n, length)),
        variance_is("variance on the sphere", exact, sphere_ratio_variance(n, length)),
        printed=[mean_is("mean ratio of normal logits", ratios, math.exp(radius / n))],
        figures={"variance of normal logits' ratio": math.expm1(2 * x) * math.exp(2 * x)},
    )


@check("5.3.1b")
def series_of_ratio(draws: Draws) -> Evidence:
    x = 0.05
    zero, spread = torch.tensor(0.0, dtype=torch.float64), torch.tensor(2 * x, dtype=torch.float64)
    return evidence(
        equals("mean", lognormal_mean(zero, spread), 1 + x + x * x / 2, x**3),
        equals("variance", lognormal_variance(zero, spread), 2 * x + 6 * x * x, 12 * x**3),
    )


@check("5.3.1c")
def covariance_of_logits(draws: Draws) -> Evidence:
    _, covariance = _logits()
    x = draws.gaussian(torch.zeros(2, dtype=torch.float64), covariance, 200_000)
    products = x[:, 0] * x[:, 1]
    return evidence(
        mean_is("covariance", products, RHO * SPREADS[0] * SPREADS[1]),
        printed=[mean_is("covariance", products, RHO / (SPREADS[0] * SPREADS[1]))],
    )


@check("5.3.2a")
def scaled_exponential(draws: Draws) -> Evidence:
    lam, v = 0.5, 0.09
    left = math.exp(lam * v) - (lam * math.exp(v) + 1 - lam + (lam**2 - lam) * v * v / 2)
    third = (lam**3 - lam) * v**3 / 6
    return evidence(equals("what is left", left, third, 0.05 * abs(third)))


@check("5.3.2b")
def exponential_of_sum(draws: Draws) -> Evidence:
    parts = draws.normal(6) * 0.04
    rest = float(parts.exp().sum() + (parts.sum() ** 2 - (parts**2).sum()) / 2)
    slack = float(parts.abs().sum()) ** 3
    exact = parts.sum().exp()
    return evidence(equals("expansion", rest - 5, exact, slack), printed=[equals("expansion", rest + 5, exact, slack)])


@check("5.3.2c")
def product_of_normals(draws: Draws) -> Evidence:
    x = draws.normal(4_000_000) * draws.normal(4_000_000)
    kurtosis = (x**4).mean() / (x**2).mean() ** 2 - 3
    return evidence(
        equals("excess kurtosis", kurtosis, 6.0, 0.3),
        variance_is("variance", x[:1_000_000], 1.0),
        mean_is("share below 0", (x < 0).double(), 0.5),
    )


def _pairs_of_squares(lam: Tensor) -> Tensor:
    """sum_{i<j} (lam_i lam_j)^2 over the last axis."""
    squares = lam**2
    return (squares.sum(-1) ** 2 - (squares**2).sum(-1)) / 2


@check("5.3.2d")
def largest_cross_term(draws: Draws) -> Evidence:
    half = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    equal = _pairs_of_squares(torch.full((3,), 1 / 3, dtype=torch.float64))
    waits = -draws.uniform(50_000, 20).clamp(min=1e-300).log()
    many = _pairs_of_squares(waits / waits.sum(-1, keepdim=True))
    return evidence(
        equals("value at (1/2, 1/2, 0)", _pairs_of_squares(half), 1 / 16, 1e-15),
        equals("value at equal weights, m = 3", equal, 2 / 54, 1e-15),
        at_most("largest of 50,000 draws, m = 20", many.max(), 1 / 16),
        at_least("share of draws above equal weights", (many > 19 / (2 * 20**3)).double().mean(), 0.99),
        printed=[at_most("value at (1/2, 1/2, 0)", _pairs_of_squares(half), equal)],
    )


@check("5.3.2e")
def variance_of_cross_terms(draws: Draws) -> Evidence:
    n = d = 20

    def cross(lam: Tensor, count: int) -> Tensor:
        z = draws.normal(count, len(lam), sd=1 / math.sqrt(d)) * lam
        return (z.sum(-1) ** 2 - (z**2).sum(-1)) / 2

    equal = cross(torch.full((n,), 1 / n, dtype=torch.float64), 200_000)
    two = cross(torch.tensor([0.5, 0.5], dtype=torch.float64), 400_000)
    return evidence(
        variance_is("equal weights", equal, (n**2 - n) / (2 * n**6)),
        variance_is("weights (1/2, 1/2)", two, 1 / (16 * d**2)),
        printed=[variance_is("equal weights", equal, (n**2 - n) / n**4 * 2 / n**2)],
    )


@check("5.3.2f")
def departure(draws: Draws) -> Evidence:
    weights = torch.full((8,), 1 / 8, dtype=torch.float64)
    found = {
        size: float(exp_departure(draws.sphere(2000, 8, 64, radius=size), weights).mean()) for size in (0.5, 1.0, 5.0)
    }
    return evidence(
        at_most("error over signal, l = 1", found[1.0], 0.04),
        at_most("l = 1/2", found[0.5], 0.02),
        figures={"l = 5": found[5.0]},
    )
