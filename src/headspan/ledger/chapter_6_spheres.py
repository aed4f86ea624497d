"""Chapter 6 of the thesis, section 3: scores of vectors on spheres, under random weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import random_form_covariance, sphere_score_moments
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, Trial, at_least, equals, mean_is, variance_is

claim = ClaimsOf("003")
COUNT = 100_000


@claim(
    "6.35",
    kind="formula",
    status="holds",
    statement="Coordinates of a uniform point on the sphere of radius l have mean 0 and variance l^2 / n.",
    tolerance="4 standard errors",
    reference="thesis 6.3",
)
def sphere_variance(draws: Draws) -> Evidence:
    n, radius = 6, 1.5
    x = draws.sphere(COUNT, n, radius=radius)[:, 0]
    return Evidence(truth=(mean_is("mean", x, 0.0), mean_is("mean square", x**2, radius**2 / n)))


@claim(
    "6.36",
    kind="formula",
    status="wrong",
    statement="Two coordinates have the covariance -l^2 / (n (n - 1)).",
    correction="0: the argument would need coordinates that add up to 0, and its value is right on that part of the "
    "sphere. Their squares have -2 l^4 / (n^2 (n + 2)).",
    tolerance="4 standard errors",
    reference="thesis 6.3",
)
def sphere_covariance(draws: Draws) -> Evidence:
    n, radius = 6, 1.5
    x = draws.sphere(COUNT, n, radius=radius)
    centred = x - x.mean(1, keepdim=True)
    centred = radius * torch.nn.functional.normalize(centred, dim=1)
    squares = x**2 - radius**2 / n
    printed = -(radius**2) / (n * (n - 1))
    return Evidence(
        printed=(mean_is("x_1 x_2", x[:, 0] * x[:, 1], printed),),
        truth=(
            mean_is("x_1 x_2", x[:, 0] * x[:, 1], 0.0),
            mean_is("x_1 x_2 where coordinates add up to 0", centred[:, 0] * centred[:, 1], printed),
            mean_is("covariance of squares", squares[:, 0] * squares[:, 1], -2 * radius**4 / (n**2 * (n + 2))),
        ),
    )


@claim(
    "6.37",
    kind="formula",
    status="holds",
    statement="Points at cosine k have Cov(x_i, y_i) = k l1 l2 / n.",
    tolerance="4 standard errors",
    reference="thesis 6.3",
)
def same_coordinate(draws: Draws) -> Evidence:
    n, k, l1, l2 = 10, 0.4, 1.5, 2.0
    x, y = draws.pairs_at(k, COUNT, n)
    return Evidence(truth=(mean_is("x_1 y_1", l1 * l2 * x[:, 0] * y[:, 0], k * l1 * l2 / n),))


@claim(
    "6.38",
    kind="formula",
    status="holds",
    statement="Cov(x_i, y_j) = 0 for different i and j.",
    correction="Exactly, by symmetry and not by near independence; so E x^T C y = (k l1 l2 / n) tr C.",
    tolerance="4 standard errors",
    reference="thesis 6.3",
)
def other_coordinate(draws: Draws) -> Evidence:
    n, k = 10, 0.4
    x, y = draws.pairs_at(k, COUNT, n)
    C = draws.normal(n, n)
    mean, variance = sphere_score_moments(C, k)
    scores = ((x @ C) * y).sum(1)
    return Evidence(
        truth=(
            mean_is("x_1 y_2", x[:, 0] * y[:, 1], 0.0),
            mean_is("score", scores, mean),
            variance_is("its variance", scores, variance),
        )
    )


def _random_scores(draws: Draws, v: Tensor, w: Tensor, count: int) -> Tensor:
    """v^T C w over random C with entries of variance 1/n."""
    n = len(v)
    return torch.einsum("a,sab,b->s", v, draws.normal(count, n, n, sd=1 / math.sqrt(n)), w)


@claim(
    "6.39-6.41",
    kind="formula",
    status="holds",
    statement="Over random C the mean score is 0.",
    tolerance="4 standard errors",
    reference="thesis 6.3.1",
)
def mean_over_weights(draws: Draws) -> Evidence:
    v, w = draws.pairs_at(0.5, 1, 12)
    return Evidence(truth=(mean_is("score", _random_scores(draws, v[0], w[0], 20_000), 0.0),))


@claim(
    "6.43-6.47",
    kind="formula",
    status="wrong",
    statement="Over random C, Var(v^T C w) = k^2 / n + (n - 1) / n^2 for unit vectors at cosine k.",
    correction="1 / n at every k. A term (1 + k^2) / n appears only for symmetric C, or for tied weights C = A^T A.",
    tolerance="4 standard errors",
    reference="thesis 6.3.1",
)
def variance_over_weights(draws: Draws) -> Evidence:
    n, count = 12, 20_000
    printed: list[Trial] = []
    truth: list[Trial] = []
    for k in (0.0, 0.5, 1.0):
        v, w = (x[0] for x in draws.pairs_at(k, 1, n))
        scores = _random_scores(draws, v, w, count)
        printed.append(variance_is(f"k = {k:g}", scores, k**2 / n + (n - 1) / n**2))
        truth.append(variance_is(f"k = {k:g}", scores, random_form_covariance(v, w, v, w, 1 / math.sqrt(n))))
    v = draws.sphere(n)
    half = draws.normal(count, n, n, sd=1 / math.sqrt(n))
    symmetric = torch.einsum("a,sab,b->s", v, (half + half.mT) / math.sqrt(2), v)
    tied = (half @ v).square().sum(1)
    truth += [variance_is("symmetric, k = 1", symmetric, 2 / n), variance_is("tied, k = 1", tied, 2 / n)]
    return Evidence(printed=tuple(printed), truth=tuple(truth))


@claim(
    "6.45",
    kind="formula",
    status="wrong",
    statement="The variances of v_l w_l add up to k^2.",
    correction="To (1 + 2 k^2) / (n + 2) - k^2 / n; and E v_l^2 w_m^2 = (n + 1 - 2 k^2) / (n (n - 1) (n + 2)), l != m.",
    tolerance="4 standard errors",
    reference="thesis 6.3.1",
)
def sum_of_variances(draws: Draws) -> Evidence:
    n, k = 12, 0.8
    v, w = draws.pairs_at(k, COUNT, n)
    total = ((v * w - k / n) ** 2).sum(1)
    mixed = v[:, 0] ** 2 * w[:, 1] ** 2
    return Evidence(
        printed=(mean_is("sum of variances", total, k**2),),
        truth=(
            mean_is("sum of variances", total, (1 + 2 * k**2) / (n + 2) - k**2 / n),
            mean_is("v_1^2 w_2^2", mixed, (n + 1 - 2 * k**2) / (n * (n - 1) * (n + 2))),
        ),
    )


@claim(
    "6.42/6.48",
    kind="formula",
    status="wrong",
    statement="Over random C the mean score of two sets of tokens varies by sum lam_i^2 lam_j'^2 (k_ij^2/n + "
    "(n-1)/n^2).",
    correction="By |mu_X|^2 |mu_Y|^2 / n: the angles inside each set count, those between the sets never do.",
    tolerance="4 standard errors",
    reference="thesis 6.3.2",
)
def variance_of_mean_score(draws: Draws) -> Evidence:
    n, count = 12, 20_000
    centre = draws.sphere(n)
    X, Y = (torch.nn.functional.normalize(centre + 0.6 * draws.sphere(3, n), dim=1) for _ in range(2))
    lam = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    mu_x, mu_y = lam @ X, lam @ Y
    scores = _random_scores(draws, mu_x, mu_y, count)
    weights = torch.outer(lam**2, lam**2)
    printed = (weights * ((X @ Y.T) ** 2 / n + (n - 1) / n**2)).sum()
    right = random_form_covariance(mu_x, mu_y, mu_x, mu_y, 1 / math.sqrt(n))
    return Evidence(
        printed=(variance_is("variance", scores, printed),), truth=(variance_is("variance", scores, right),)
    )


@claim(
    "6.48b",
    kind="text",
    status="wrong",
    statement="The angle of query and key survives in the variance, and dominates it for k > 1 / n.",
    correction="The variance holds no k; even as printed its term overtakes only at k > sqrt(1 - 1/n). The angle "
    "between two keys is what counts: Cov(s_j, s_m) = |x|^2 <w_j, w_m> / n.",
    tolerance="4 standard errors",
    reference="thesis 6.3.2",
)
def angle_of_keys(draws: Draws) -> Evidence:
    n, k = 12, 2 / 12
    x, (w, u) = draws.sphere(n), draws.pairs_at(0.6, 1, n)
    C = draws.normal(20_000, n, n, sd=1 / math.sqrt(n))
    first, second = (torch.einsum("a,sab,b->s", x, C, key[0]) for key in (w, u))
    threshold = math.sqrt(1 - 1 / n)
    return Evidence(
        printed=(at_least("term of the angle at k = 2 / n", k**2 / n, (n - 1) / n**2),),
        truth=(
            mean_is("product of two scores", first * second, 0.6 / n),
            equals("both terms at k = sqrt(1 - 1/n)", threshold**2 / n, (n - 1) / n**2, 1e-15),
        ),
    )
