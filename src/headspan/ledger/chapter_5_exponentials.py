"""Chapter 5 of the thesis, first part: exponentials of Gaussian logits, gradients of the cross-entropy, the sphere."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import expected_collision, fenton_wilkinson_distance, lognormal_mean, lognormal_variance
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, at_least, at_most, equals, mean_is, near, same, variance_is

claim = ClaimsOf("003")
MEAN, SPREAD = 0.7, 0.8


def _one(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


@claim(
    "5.1a",
    kind="formula",
    status="wrong",
    statement="A Gaussian logit has E exp(X) = exp((mu + s^2) / 2).",
    correction="E exp(X) = exp(mu + s^2 / 2); the two agree only at mu = 0.",
    tolerance="4 standard errors",
    reference="thesis 5.1.1",
)
def mean_of_exponential(draws: Draws) -> Evidence:
    x = (MEAN + SPREAD * draws.normal(1_000_000)).exp()
    return Evidence(
        printed=(mean_is("mean", x, math.exp((MEAN + SPREAD**2) / 2)),),
        truth=(mean_is("mean", x, lognormal_mean(_one(MEAN), _one(SPREAD**2))),),
    )


@claim(
    "5.1b",
    kind="formula",
    status="holds",
    statement="Var exp(X) = (exp(s^2) - 1) exp(2 mu + s^2) for a Gaussian logit.",
    tolerance="4 standard errors",
    reference="thesis 5.1.1",
)
def variance_of_exponential(draws: Draws) -> Evidence:
    x = (MEAN + SPREAD * draws.normal(3_000_000)).exp()
    return Evidence(truth=(variance_is("variance", x, lognormal_variance(_one(MEAN), _one(SPREAD**2))),))


@claim(
    "5.1",
    kind="formula",
    status="holds",
    statement="Logits of variance 1/n have E exp = e^(1/2n), about 1 + 1/2n + 1/8n^2.",
    correction="The series is off by 1 / (48 n^3). The last printed entry means a variance of l/n, not 1/n.",
    tolerance="1 / (40 n^3)",
    reference="thesis 5.1",
)
def series_of_mean(draws: Draws) -> Evidence:
    n = 16
    series = 1 + 1 / (2 * n) + 1 / (8 * n**2)
    return Evidence(truth=(equals("mean, n = 16", lognormal_mean(_one(0.0), _one(1 / n)), series, 1 / (40 * n**3)),))


@claim(
    "5.2",
    kind="formula",
    status="holds",
    statement="Logits of variance 1/n have Var exp = e^(2/n) - e^(1/n), about 1/n + 3/2n^2.",
    correction="The series is off by 7 / (6 n^3).",
    tolerance="1.25 times 7 / (6 n^3)",
    reference="thesis 5.2",
)
def series_of_variance(draws: Draws) -> Evidence:
    n = 16
    exact = lognormal_variance(_one(0.0), _one(1 / n))
    return Evidence(
        truth=(
            equals("closed form", exact, math.exp(2 / n) - math.exp(1 / n), 1e-14),
            equals("series, n = 16", exact, 1 / n + 1.5 / n**2, 1.25 * 7 / (6 * n**3)),
        )
    )


@claim(
    "5.1.2t",
    kind="typo",
    status="wrong",
    statement="The text has the mean of such an exponential as about 1 + 1/m.",
    correction="To first order it is 1 + 1/2n.",
    tolerance="1.2 times the next term, 1 / (8 n^2)",
    reference="thesis 5.1.2",
)
def first_order_mean(draws: Draws) -> Evidence:
    n = 16
    exact, slack = lognormal_mean(_one(0.0), _one(1 / n)), 1.2 / (8 * n**2)
    return Evidence(
        printed=(equals("1 + 1/n", exact, 1 + 1 / n, slack),),
        truth=(equals("1 + 1/2n", exact, 1 + 1 / (2 * n), slack),),
    )


@claim(
    "5.1.2e",
    kind="text",
    status="approximate",
    statement="Exponentiating a logit changes no information.",
    correction="True of mutual information. Differential entropy moves by the mean, H(e^X) = H(X) + mu.",
    tolerance="1e-10",
    reference="thesis 5.1.2",
)
def entropy_of_exponential(draws: Draws) -> Evidence:
    x = torch.linspace(MEAN - 12 * SPREAD, MEAN + 12 * SPREAD, 4001, dtype=torch.float64)
    logs = torch.distributions.LogNormal(_one(MEAN), _one(SPREAD)).log_prob(x.exp())  # type: ignore[no-untyped-call]
    entropy = torch.trapezoid(-logs.exp() * logs * x.exp(), x)
    plain = 0.5 * math.log(2 * math.pi * math.e * SPREAD**2)
    return Evidence(truth=(equals("H(e^X) - H(X)", entropy - plain, MEAN, 1e-10),))


@claim(
    "5.1.3a",
    kind="text",
    status="approximate",
    statement="The normaliser, a sum of log-normals, is close to the log-normal of Fenton and Wilkinson.",
    correction="Its mean is n e^(s^2/2), and the distance grows with s: fine up to s = 1, poor at s = 2.",
    tolerance="Kolmogorov-Smirnov distance below 0.02 for s <= 1, n = 32",
    reference="thesis 5.1.3",
)
def normaliser(draws: Draws) -> Evidence:
    found = {s: fenton_wilkinson_distance(32, s * s, 60_000, draws.seed()) for s in (0.25, 1.0, 2.0)}
    return Evidence(
        truth=(
            at_most("distance at s = 1/4", found[0.25], 0.02),
            at_most("distance at s = 1", found[1.0], 0.02),
            at_least("distance at s = 2", found[2.0], 0.1),
        )
    )


@claim(
    "5.1.3b",
    kind="text",
    status="holds",
    statement="Moments of softmax weights have no closed form; their ratios are untouched by the normaliser.",
    correction="Yet E p = 1/n exactly, by symmetry, and Var p is about (e^(s^2) - 1)(n - 1) / n^3 for s << 1 only.",
    tolerance="mean 4 standard errors; variance 3 % at s = 1/4",
    reference="thesis 5.1.3",
)
def softmax_moments(draws: Draws) -> Evidence:
    n = 32
    p = torch.softmax(draws.normal(50_000, n), -1)[:, 0]

    def exact(s: float) -> float:
        return (float(expected_collision(_one(s * s), torch.tensor(n))) - 1 / n) / n

    def small(s: float) -> float:
        return math.expm1(s * s) * (n - 1) / n**3

    return Evidence(
        truth=(
            mean_is("mean weight", p, 1 / n),
            near("variance at s = 1/4", small(0.25), exact(0.25), 0.03),
            variance_is("variance at s = 1", p, exact(1.0)),
        ),
        figures={"formula at s = 1": small(1.0)},
    )


def _cross_entropy(draws: Draws, n: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """A distribution q, logits x, and the gradient of -sum q log softmax(x) in x by automatic differentiation."""
    q, x = torch.softmax(draws.normal(n), -1), draws.normal(n).requires_grad_()
    (gradient,) = torch.autograd.grad(-(q * torch.log_softmax(x, -1)).sum(), x)
    return q, x.detach(), gradient


@claim(
    "5.2.1a",
    kind="formula",
    status="holds",
    statement="The gradient of the cross-entropy in a logit is p_j - q_j.",
    tolerance="1e-7",
    reference="thesis 5.2.1",
)
def gradient(draws: Draws) -> Evidence:
    q, x, found = _cross_entropy(draws)
    return Evidence(truth=(same("gradient", found, torch.softmax(x, -1) - q, 1e-12),))


@claim(
    "5.2.1b",
    kind="text",
    status="wrong",
    statement="That gradient comes from dH/dp_j times dp_j/dx_j alone.",
    correction="Every p_k depends on x_j, so a sum over k is needed; the one term is -q_j (1 - p_j).",
    tolerance="1e-7",
    reference="thesis 5.2.1",
)
def gradient_by_one_term(draws: Draws) -> Evidence:
    q, x, found = _cross_entropy(draws)
    p = torch.softmax(x, -1)
    jacobian = torch.diag(p) - torch.outer(p, p)
    return Evidence(
        printed=(same("one term", found, -q / p * jacobian.diagonal(), 1e-7),),
        truth=(same("sum over k", found, jacobian @ (-q / p), 1e-12),),
    )


@claim(
    "5.2.1c",
    kind="formula",
    status="approximate",
    statement="For a mixture of softmaxes, dH/dx_j = sum_l lambda_l (p_j^l - q_j).",
    correction="True in the logits of the mixture. In those of component l it is "
    "lambda_l p_j^l (sum_i q_i p_i^l / p_i - q_j / p_j).",
    tolerance="1e-7",
    reference="thesis 5.2.1",
)
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
    return Evidence(
        truth=(
            same("in logits of the mixture", whole, lam @ (parts - q), 1e-12),
            same("in logits of a component", component, lam[:, None] * parts * weights, 1e-12),
        ),
        figures={"error if read for a component": float((component - lam[:, None] * (parts - q)).abs().max())},
    )


@claim(
    "5.2.2a",
    kind="text",
    status="wrong",
    statement="The zero vector represents no probability distribution.",
    correction="softmax(0) is the uniform distribution.",
    tolerance="1e-15",
    reference="thesis 5.2.2",
)
def zero_vector(draws: Draws) -> Evidence:
    p = torch.softmax(torch.zeros(8, dtype=torch.float64), -1)
    return Evidence(
        printed=(equals("total probability", p.sum(), 0.0, 1e-15),), truth=(same("uniform", p, 1 / 8, 1e-15),)
    )
